import type { JsonObject } from '../../shared/json.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type {
  ResumePosition,
  ResyncReason,
  ServerMessage,
  Subprotocol,
} from '../../shared/protocol/messages.ts'
import { noSpan, type Span, type TraceContext } from '../../shared/tracing/tracer.ts'
import { type Frame, frame, joinFrames } from '../frame.ts'
import {
  type Farewell,
  type Frames,
  type JoinedMember,
  type LayerParts,
  type PersonalPart,
  type RepliedRef,
  type RoomAddress,
  roomIdOf,
  type ToEdge,
  type ToOwner,
} from '../traffic.ts'
import type { Connection, DirectMessage } from './connection.ts'
import type { Outbox } from './outbox.ts'
import type { EndedSeats } from './session.ts'
import { type Reliable, Unacked, type UnackedLimits } from './unacked.ts'

/**
 * How far a subscription has come:
 * `joining` the owner has not answered; `live` gets every flush; `stalled` the client is behind, so patches are dropped and events held;
 * `resyncing` it has read, and waits for the state that replaces what was dropped; `detached` the session has no socket; `attaching`
 * it has one again, and the owner has not said yet what was missed.
 */
type SubscriptionPhase = 'joining' | 'live' | 'stalled' | 'resyncing' | 'detached' | 'attaching'

/** How an `attach` ended: what was missed went out as `frames`, a whole state did, or there is no subscription. */
export type AttachResult = 'frames' | 'resync' | 'lost'

/** An `attach` that the owner has not answered. */
interface PendingAttach {
  readonly position: Pick<ResumePosition, 'epoch' | 'seq'>
  readonly ask: number
  /** Absent when the edge asks of its own accord. */
  readonly answered?: (result: AttachResult) => void
}

/**
 * What became of a flush: it went out (or is none of this subscription's business), the client turned out to be behind, or earlier ones
 * are missing.
 */
type FlushResult = 'passed' | 'stalled' | 'missed'

/** The session that a subscription belongs to. */
export interface SubscribedSession {
  readonly sessionId: string
  /** The player's id from the token. */
  readonly sub: string | null
  /** By what the limits of a node count; see `Session.player`. */
  readonly player: string
  /** How often it was resumed. */
  readonly right: { readonly turn: number }
  readonly data: JsonObject | undefined
  readonly trace: TraceContext | undefined
  readonly connection: Connection | undefined
  /** By room id. */
  readonly subscriptions: Map<string, Subscription>
  /** Seats that rooms have ended. */
  readonly ended: EndedSeats
}

/** What a new subscription asks its owner for. */
type JoinQuestion = Extract<ToOwner, { kind: 'join' }>

/** What one flush of a room has for everyone: the same bytes for every member that speaks a codec. */
export class FlushFrames {
  readonly seq: number
  /** True when no member has a personal part in the flush, so that nothing has to leave in the same write. */
  readonly alone: boolean
  /** True for the members that leave with the flush. */
  readonly last: boolean
  readonly #patch: Frames | undefined
  readonly #rest: Frames | undefined
  /** By member, what it has of hidden layers; undefined: no one here has anything. */
  readonly #layers: ReadonlyMap<string, readonly Frames[]> | undefined
  readonly #wholes = new Map<Subprotocol, Frame | undefined>()
  /** Of the member before: most speak the same. */
  #codec: Subprotocol | undefined
  #whole: Frame | undefined

  constructor(
    seq: number,
    patch: Frames | undefined,
    rest: Frames | undefined,
    alone: boolean,
    layers?: LayerParts,
    last = false,
  ) {
    this.seq = seq
    this.last = last
    this.#layers =
      layers &&
      new Map(layers.members.map(({ member_id: id, own }) => [id, own.map((i) => layers.frames[i]!)]))
    this.alone = alone
    this.#patch = patch
    this.#rest = rest
  }

  /** The patch and what follows it, as one buffer; undefined when there is nothing in this codec. */
  whole(codec: Subprotocol): Frame | undefined {
    if (codec === this.#codec) return this.#whole
    if (!this.#wholes.has(codec)) this.#wholes.set(codec, this.#join(codec))
    this.#codec = codec
    this.#whole = this.#wholes.get(codec)
    return this.#whole
  }

  /** As `whole`, behind what a member has of hidden layers: in one write. */
  wholeOf(memberId: string, codec: Subprotocol): Frame | undefined {
    const whole = this.whole(codec)
    const own = whole && this.#layers?.get(memberId)
    return own ? joinFrames([...own.flatMap((frames) => frames[codec] ?? []), whole]) : whole
  }

  /** Events and presence only. */
  rest(codec: Subprotocol): Frame | undefined {
    return this.#rest?.[codec]
  }

  #join(codec: Subprotocol): Frame | undefined {
    const patch = this.#patch?.[codec]
    const rest = this.#rest?.[codec]
    return patch && rest ? joinFrames([patch, rest]) : (patch ?? rest)
  }
}

/** One session in one room, as the edge sees it: decides which of the room's frames its client gets, and when. */
export class Subscription {
  readonly session: SubscribedSession
  readonly room: RoomAddress
  readonly roomId: string
  readonly memberId: string
  /** The join, while it is open. */
  join: JoinQuestion | undefined
  /** The ref of the join, until the client is known to have the answer: it may ask for this seat again. */
  joinRef: number | undefined
  /** The join in its trace. */
  joinSpan: Span = noSpan
  /** The ref of the `leave` that is under way. */
  leaveRef: number | undefined
  /** When it was made, on the monotonic clock: for one that `session` asks for, when it did. */
  readonly madeAt: number
  /** When the question that is open (join, leave, attach, resync) was asked last. */
  askedAt: number
  /** What the owner has not settled. */
  readonly unacked: Unacked
  /** What the client has asked for the whole state with, until it has one. */
  resync: ResyncReason | undefined
  readonly #held = new HeldFrames()
  /** Id of the member, as its client knows it. */
  #seatId: string
  #phase: SubscriptionPhase
  #connection: Connection | undefined
  #attach: PendingAttach | undefined
  /** The owner's epoch under which the subscription is attached, and the last flush that is known here. */
  #epoch = 0
  #seq = 0
  #stalledAtSeq = 0
  #settled = 0
  #sample: { readonly ref: number; readonly at: number } | undefined

  /** With `join`: a subscription that `session` asks for over its present connection. Without: one it has had, while it is without a connection. */
  constructor(
    session: SubscribedSession,
    room: RoomAddress,
    memberId: string,
    limits: UnackedLimits,
    now: number,
    join?: JoinQuestion,
  ) {
    this.session = session
    this.room = room
    this.roomId = roomIdOf(room)
    this.memberId = memberId
    this.#seatId = memberId
    this.unacked = new Unacked(limits)
    this.join = join
    this.joinRef = join?.ref
    this.madeAt = now
    this.askedAt = now
    this.#phase = join ? 'joining' : 'detached'
    this.#connection = join && session.connection
  }

  get phase(): SubscriptionPhase {
    return this.#phase
  }

  /** The connection its frames go to; undefined while the session has none. */
  get connection(): Connection | undefined {
    return this.#connection
  }

  /** Whether the session is in the room: the owner has said so, and the client has not asked to leave. */
  get taken(): boolean {
    return this.#phase !== 'joining' && this.leaveRef === undefined
  }

  /** Whether the session is in the room, and its client knows: a seat that it did not name as it resumed waits for its join. */
  get inUse(): boolean {
    return this.taken && this.#phase !== 'detached'
  }

  /** The highest ref up to which the client knows every outcome, where it has said so. */
  get settled(): number | undefined {
    return this.#settled > 0 ? this.#settled : undefined
  }

  /** The client has said that it knows every outcome up to this ref. */
  learned(settled: number): void {
    this.#settled = Math.max(settled, this.#settled)
  }

  /** The attach whose answer is open. */
  get attaching(): { readonly position: PendingAttach['position']; readonly ask: number } | undefined {
    return this.#phase === 'attaching' ? this.#attach : undefined
  }

  /** What the owner is asked while an answer of it is open: the join, what was missed, or a whole state. `edge` is this node. */
  question(edge: string): ToOwner | undefined {
    const { attaching, session, room, memberId } = this
    if (this.#phase === 'joining') return this.join
    if (this.#phase === 'resyncing') return { kind: 'resync', room, member_id: memberId, reason: 'stalled' }
    if (this.#phase === 'live' && this.resync)
      return { kind: 'resync', room, member_id: memberId, reason: this.resync }
    if (!attaching || !this.#connection) return undefined
    const { epoch, seq } = attaching.position
    return {
      kind: 'attach',
      room,
      member_id: memberId,
      ask: attaching.ask,
      edge,
      turn: session.right.turn,
      codec: this.#connection.codec.subprotocol,
      session_id: session.sessionId,
      data: session.data,
      epoch,
      seq,
      settled: this.settled,
      ...(session.trace && { traceparent: session.trace.traceparent }),
    }
  }

  /** Whether it gets what an owner under `epoch` sends, as far as the owner knows. */
  isAttachedUnder(epoch: number): boolean {
    return this.#epoch >= epoch
  }

  /** One flush of the owner under `epoch`, for everyone in the room. */
  flush(flush: FlushFrames, epoch: number): FlushResult {
    const connection = this.#connection
    if (!connection || !this.#attached) return 'passed'
    if (epoch !== this.#epoch || flush.seq > this.#seq + 1) return 'missed'
    if (flush.seq <= this.#seq) return 'passed'
    this.#seq = flush.seq
    const codec = connection.codec.subprotocol
    // A member that leaves cannot ask for the whole state later.
    const stalls = this.#phase === 'live' && connection.outbox.congested && !flush.last
    if (this.#phase === 'live' && !stalls) {
      const whole = flush.wholeOf(this.memberId, codec)
      if (!whole) return 'passed'
      connection.address(this.roomId)
      if (flush.alone) connection.outbox.write(whole)
      else connection.outbox.push(whole)
      return 'passed'
    }
    if (stalls) {
      this.#phase = 'stalled'
      this.#stalledAtSeq = flush.seq - 1
      connection.outbox.awaitRoom()
    }
    const rest = flush.rest(codec)
    if (rest) this.#held.add(rest, connection.outbox)
    return stalls ? 'stalled' : 'passed'
  }

  /** What a flush has for this member alone; returns since when the acked message was under way, for a sample of them. */
  personal({ events, replies, ack }: PersonalPart, epoch: number): number | undefined {
    const connection = this.#connection
    if (!connection || !this.#attached || epoch !== this.#epoch) return undefined
    const held = this.#phase !== 'live'
    for (const event of events) this.#give(connection, event, held)
    if (replies) for (const reply of replies) this.#give(connection, this.#reply(reply), held)
    if (ack === undefined) return undefined
    if (held) this.#held.ack(ack)
    else this.#ack(ack)
    return this.#sampled(ack)
  }

  #give(connection: Connection, message: DirectMessage, held: boolean): void {
    if (held) this.#held.add(encoded(connection, message), connection.outbox)
    else this.#send(message)
  }

  #reply({ ref, reply }: RepliedRef): DirectMessage {
    return { t: 'reply', room_id: this.roomId, ref, data: reply }
  }

  /** The join took effect with the flush `seq` of the owner under `epoch`. False: the client is gone and cannot be told. */
  joined(
    { ref, member_id: memberId, seat = memberId, snapshot, layers }: JoinedMember,
    epoch: number,
    seq: number,
  ): boolean {
    const connection = this.#connection
    this.join = undefined
    if (!connection) {
      this.#phase = 'detached'
      return false
    }
    this.#phase = 'live'
    this.#epoch = epoch
    this.#seq = seq
    this.#seatId = seat
    connection.send({ t: 'joined', ref, room_id: this.roomId, member_id: seat })
    if (layers) this.#push(layers)
    this.#pushState(snapshot)
    return true
  }

  /** The client has read: from now on the subscription waits for a state. False when it was not stalled. */
  awaitState(): boolean {
    if (this.#phase !== 'stalled') return false
    this.#phase = 'resyncing'
    return true
  }

  /** The answer to `resync`: replaces everything that was dropped, so what was held follows. */
  state(state: Frames): void {
    // Stalled again: by the time the client has read, this state is old, and a newer one will be asked for.
    if (this.#phase !== 'live' && this.#phase !== 'resyncing') return
    this.#phase = 'live'
    this.#pushState(state)
    this.#releaseHeld()
  }

  /** The session has no socket any more. */
  detach(): void {
    this.#connection = undefined
    this.#attach = undefined
    this.#sample = undefined
    this.resync = undefined
    this.#held.drop()
    this.unacked.clear()
    if (this.#phase !== 'joining') this.#phase = 'detached'
  }

  /** The session has a socket again. Nothing goes out until the owner has said what was missed. `ask`: unique at this edge. */
  attach(
    connection: Connection,
    position: ResumePosition,
    ask: number,
    answered: (result: AttachResult) => void,
  ): void {
    this.#connection = connection
    this.joinRef = undefined
    this.#seatId = position.member_id
    this.learned(position.settled ?? 0)
    this.#attach = { position, ask, answered }
    this.#phase = 'attaching'
  }

  /** What was sent may be lost, or another owner has the room: nothing goes out until it has said what was missed. False: nothing is missed here. */
  reattach(ask: number): boolean {
    if (!this.#connection) return false
    if (this.#phase === 'attaching' && this.#attach) {
      this.#attach = { ...this.#attach, ask }
      return true
    }
    if (!this.#attached) return false
    const seq = this.#phase === 'live' ? this.#seq : this.#stalledAtSeq
    this.#held.drop(this.#connection.outbox)
    this.#attach = { position: { epoch: this.#epoch, seq }, ask }
    // It may be lost. A client that still needs it asks again.
    this.resync = undefined
    this.#phase = 'attaching'
    return true
  }

  /** The answer to `attach`, by the owner under `epoch`; returns what it is to be given again. */
  attached(answer: Extract<ToEdge, { kind: 'attached' }>): readonly Reliable[] {
    const { ask, epoch, seq, resumed, frames, ack, outcomes } = answer
    // To an earlier attach: the answer that counts is to come.
    if (this.#phase !== 'attaching' || this.#attach?.ask !== ask) return []
    this.#phase = 'live'
    this.#epoch = epoch
    this.#seq = seq
    for (const outcome of outcomes) {
      if ('code' in outcome) this.refuse(outcome.code, outcome.message, outcome.ref)
      else this.#send(this.#reply(outcome))
    }
    // Of the client's own resume, or of something that this node has missed.
    const own = this.#attach.answered !== undefined
    for (const framesOfOne of frames)
      this.#push(framesOfOne, own ? 'pushMissed' : resumed ? 'push' : 'pushState')
    if (ack !== undefined) {
      this.#ack(ack)
      this.#sampled(ack)
    }
    this.#answerAttach(resumed ? 'frames' : 'resync')
    return this.unacked.again(ack ?? 0)
  }

  /** The seat has ended. `farewell` undefined: the owner knows of no such seat. */
  left(farewell = this.leaveRef === undefined ? LOST : LEFT): void {
    this.#held.drop(this.#connection?.outbox)
    this.#send(ownLeft(this.roomId, this.#seatId, this.session.sub, farewell))
    this.#answerAttach('lost')
  }

  /** A message was refused. */
  refuse(code: ErrorCode, message: string, ref: number | undefined): void {
    if (ref !== undefined) this.unacked.refused(ref, code, message)
    this.fail(code, message, ref)
  }

  /** Tells the client that something about this room failed. */
  fail(code: ErrorCode, message: string, ref: number | undefined): void {
    this.#connection?.sendError(code, message, { ref, room_id: this.roomId })
  }

  /** Whether reliable messages are on their way since before `moment`, on the monotonic clock, and the owner has not been asked about them since. */
  isUnansweredSince(moment: number): boolean {
    const { at = Number.POSITIVE_INFINITY } = this.#sample ?? {}
    return !this.unacked.empty && Math.max(at, this.askedAt) <= moment
  }

  /** A reliable message is on its way; one at a time is timed. */
  sent(ref: number, now: number): void {
    this.#sample ??= { ref, at: now }
  }

  #sampled(ack: number): number | undefined {
    const sample = this.#sample
    if (!sample || ack < sample.ref) return undefined
    this.#sample = undefined
    return sample.at
  }

  #releaseHeld(): void {
    const connection = this.#connection
    if (!connection) return
    connection.address(this.roomId)
    const ack = this.#held.release(connection.outbox)
    if (ack !== undefined) this.#ack(ack)
  }

  /** Whether the owner takes it for attached, as far as is known here. */
  get #attached(): boolean {
    return this.#phase === 'live' || this.#phase === 'stalled' || this.#phase === 'resyncing'
  }

  #answerAttach(result: AttachResult): void {
    const attach = this.#attach
    this.#attach = undefined
    attach?.answered?.(result)
  }

  /** A message that is about this room. */
  #send(message: DirectMessage): void {
    this.#connection?.address(this.roomId)
    this.#connection?.send(message)
  }

  /** An ack that waits may be dropped, so what it is for is kept until it goes out. */
  #ack(ref: number): void {
    this.unacked.settle(ref)
    this.#send({ t: 'ack', room_id: this.roomId, ref })
  }

  #push(frames: Frames, how: 'push' | 'pushState' | 'pushMissed' = 'push'): void {
    const connection = this.#connection
    const bytes = connection && frames[connection.codec.subprotocol]
    if (!bytes) return
    connection.address(this.roomId)
    connection.outbox[how](bytes)
  }

  #pushState(frames: Frames): void {
    this.resync = undefined
    this.#push(frames, 'pushState')
  }
}

/** How a seat ended of which the owner knows nothing. */
export const LOST: Farewell = { epoch: 0, seq: 0, reason: 'session_ended' }
const LEFT: Farewell = { ...LOST, reason: 'left' }

/** Tells a client that its seat has ended. */
export const ownLeft = (
  roomId: string,
  memberId: string,
  sub: string | null,
  farewell: Farewell,
): Extract<ServerMessage, { t: 'member' }> => ({
  t: 'member',
  room_id: roomId,
  member_id: memberId,
  sub,
  status: 'left',
  ...farewell,
})

/** Frames that wait until the client of a stalled subscription has its state; they count towards what its outbox may hold. */
class HeldFrames {
  #frames: Frame[] = []
  #bytes = 0
  #ack: number | undefined

  /** Keeps a frame, in order; when the outbox's limit is reached, the connection is over and nothing is kept. */
  add(frame: Frame, outbox: Outbox): void {
    if (!outbox.hold(frame.length)) return
    this.#frames.push(frame)
    this.#bytes += frame.length
  }

  /** Keeps the highest ack. */
  ack(ref: number): void {
    this.#ack = Math.max(this.#ack ?? 0, ref)
  }

  /** Gives everything to the outbox; returns the ack that comes after it. */
  release(outbox: Outbox): number | undefined {
    const frames = this.#frames
    const ack = this.#ack
    this.drop(outbox)
    for (const frame of frames) outbox.push(frame)
    return ack
  }

  /** Forgets everything. `outbox`: the one it was counted by, unless that is closed. */
  drop(outbox?: Outbox): void {
    outbox?.release(this.#bytes)
    this.#frames = []
    this.#bytes = 0
    this.#ack = undefined
  }
}

const encoded = ({ codec }: Connection, message: DirectMessage): Frame =>
  frame(codec.encode(message), codec.binary)
