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
  type EdgeLayers,
  type Farewell,
  type Frames,
  type JoinedMember,
  type Outcome,
  type PersonalPart,
  type RefusedRange,
  type ReliableMessage,
  type RoomAddress,
  roomIdOf,
  type Settled,
  type ToEdge,
  type ToOwner,
} from '../traffic.ts'
import type { SessionBudget } from './budget.ts'
import type { Connection, DirectMessage, ErrorAbout } from './connection.ts'
import { HeldFrames } from './outbox.ts'
import type { EndedSeats } from './session.ts'

/** A message whose ref the owner is to settle, or a range of refused ones. */
export type Reliable = ReliableMessage | RefusedRange

/** How much of one subscription may wait to be settled. */
export interface UnackedLimits {
  readonly messages: number
  /** Of the frames they came in; one message may always wait. */
  readonly bytes: number
}

interface Kept {
  message: Reliable
  readonly bytes: number
}

/**
 * The reliable messages of one subscription that its owner has not settled yet: their refs are contiguous. The way to an owner may lose some,
 * and an owner may die with them: the next owner is given them again.
 */
export class Unacked {
  readonly #limits: UnackedLimits
  #kept: Kept[] = []
  #bytes = 0
  #settled = 0
  #last = 0

  constructor(limits: UnackedLimits) {
    this.#limits = limits
  }

  /** The highest ref that is settled: what is kept begins behind it. */
  get settled(): number {
    return this.#settled
  }

  /** The highest ref that came. */
  get last(): number {
    return this.#last
  }

  /** Whether nothing waits. */
  get empty(): boolean {
    return this.#kept.length === 0
  }

  /** True: there is no room for one more message of so many bytes. The edge refuses it. */
  isFull(bytes: number): boolean {
    const { length } = this.#kept
    return length >= this.#limits.messages || (length > 0 && this.#bytes + bytes > this.#limits.bytes)
  }

  /** Keeps the message with the next ref, unless it is settled. Refusals with the same code and text in a row take one place. */
  add(message: Reliable, bytes: number): void {
    this.#last = throughOf(message)
    if (this.#last <= this.#settled) return
    const before = this.#kept.at(-1)
    const joined = before && join(before.message, message)
    if (joined) before.message = joined
    else {
      this.#kept.push({ message, bytes })
      this.#bytes += bytes
    }
  }

  /** The owner has settled everything up to `ref`. */
  settle(ref: number): void {
    if (ref <= this.#settled) return
    this.#settled = ref
    let settled = 0
    while (settled < this.#kept.length && throughOf(this.#kept[settled]!.message) <= ref) settled++
    for (const { bytes } of this.#kept.splice(0, settled)) this.#bytes -= bytes
  }

  /** What an owner is to be given again. A copy: an owner in this process answers while the list is being sent. */
  get messages(): readonly Reliable[] {
    return this.#kept.map(({ message }) => message)
  }

  /** The client comes back, and sends everything above `settled` again. */
  restart(settled: number): void {
    this.#kept = []
    this.#bytes = 0
    this.#settled = settled
    this.#last = settled
  }
}

const throughOf = (message: Reliable): number => (message.kind === 'message' ? message.ref : message.through)

/** One refusal for two in a row; undefined: they differ. */
function join(before: Reliable, next: Reliable): RefusedRange | undefined {
  const same =
    before.kind === 'refuse' &&
    next.kind === 'refuse' &&
    before.code === next.code &&
    before.message === next.message
  return same ? { ...before, through: next.through } : undefined
}

/**
 * How far a subscription has come:
 * `joining` the owner has not answered; `live` gets every flush; `stalled` the client is behind, so patches are dropped and events held;
 * `resyncing` it has read, and waits for the state that replaces what was dropped; `detached` the session has no socket; `attaching`
 * it has one again, and the owner has not said yet what was missed.
 */
type SubscriptionPhase = 'joining' | 'live' | 'stalled' | 'resyncing' | 'detached' | 'attaching'

const NONE: readonly never[] = []

/** Text for the client whose message may have been applied or refused: that is forgotten. */
const OUTCOME_UNKNOWN = 'it came before, and whether it was applied is not known any more'

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
  readonly budget: SessionBudget
  /** How often it was resumed. */
  readonly right: { readonly turn: number }
  readonly data: JsonObject | undefined
  readonly trace: TraceContext | undefined
  readonly connection: Connection | undefined
  /** By room id. */
  readonly subscriptions: Map<string, Subscription>
  /** Seats that rooms have ended. */
  readonly ended: EndedSeats
  /** By room id, the code that led its client there, until a join of the room is answered. */
  readonly codes: Map<string, string>
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
    layers?: EdgeLayers,
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
  /** The request id of the join, until the client is known to have the answer: it may ask for this seat again. */
  joinRequest: number | undefined
  /** The join in its trace. */
  joinSpan: Span = noSpan
  /** The request id of the `leave` that is under way. */
  leaveRequest: number | undefined
  /** When it was made, on the monotonic clock: for one that `session` asks for, when it did. */
  readonly madeAt: number
  /** When the question that is open (join, leave, attach, resync) was asked last. */
  askedAt: number
  /** What the owner has not settled. */
  readonly unacked: Unacked
  /** What the client has asked for the whole state with, until it has one. */
  resync: ResyncReason | undefined
  /** Points that the state which the open question may bring was paid with. */
  paid: number | undefined
  /** The open question is not sent yet: its player cannot pay for the state. */
  unpaid = false
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
  /** The highest ref up to which the client knows every outcome, as it has said. */
  #known = 0
  /** The highest ref whose outcome this connection has been given. */
  #told = 0
  /** What the owner has settled, and the client is yet to be told. */
  #untold: Settled | undefined
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
    this.joinRequest = join?.request_id
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
    return this.#phase !== 'joining' && this.leaveRequest === undefined
  }

  /** Whether the session is in the room, and its client knows: a seat that it did not name as it resumed waits for its join. */
  get inUse(): boolean {
    return this.taken && this.#phase !== 'detached'
  }

  /** The ref that is due. A client that resumes need not send what it has been told of first. */
  get due(): number {
    return Math.max(this.unacked.last, this.#told) + 1
  }

  /** The client has sent the message that is due, and says up to which ref it knows every outcome. */
  came(settled: number): void {
    this.#known = Math.max(settled, this.#known)
    this.#told = Math.max(settled, this.#told)
    this.#tell()
  }

  /** The attach whose answer is open. */
  get attaching(): Pick<PendingAttach, 'position' | 'ask'> | undefined {
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
      seat: this.#seatId,
      epoch,
      seq,
      settled: this.#known,
      through: this.unacked.settled,
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
  personal({ events, ack, outcomes = NONE, forgotten = 0 }: PersonalPart, epoch: number): number | undefined {
    const connection = this.#connection
    if (!connection || !this.#attached || epoch !== this.#epoch) return undefined
    for (const event of events)
      if (this.#phase === 'live') this.#send(event)
      else this.#held.add(encoded(connection, event), connection.outbox)
    if (ack === undefined) return undefined
    this.unacked.settle(ack)
    const { outcomes: earlier = NONE, forgotten: before = 0 } = this.#untold ?? {}
    this.#untold = { ack, outcomes: [...earlier, ...outcomes], forgotten: Math.max(forgotten, before) }
    if (this.#phase !== 'live')
      for (const outcome of outcomes) this.#held.reserve(JSON.stringify(outcome).length, connection.outbox)
    this.#tell()
    return this.#sampled(ack)
  }

  /**
   * Tells the client what the owner has settled: in the order of the refs and once on a connection, so that the messages that a client keeps are
   * always those above one ref. Where outcomes are forgotten, the client is told of each such message that it has sent on this connection, and
   * hears of those behind them only when it has sent them all, or says that it knows.
   */
  #tell(): void {
    if (!this.#untold || this.#phase !== 'live') return
    const { ack, outcomes = NONE, forgotten = 0 } = this.#untold
    const unknown = Math.min(forgotten, this.unacked.last)
    while (this.#told < unknown) this.fail('outcome_unknown', OUTCOME_UNKNOWN, { ref: ++this.#told })
    if (this.#told < forgotten) return
    this.#untold = undefined
    for (const outcome of outcomes) if (outcome.ref > this.#told) this.#tellOutcome(outcome)
    if (ack > this.#told) this.#ack(ack)
  }

  #tellOutcome(outcome: Outcome): void {
    const { ref } = outcome
    if ('reply' in outcome) this.#send({ t: 'reply', room_id: this.roomId, ref, data: outcome.reply })
    else {
      if (ref > this.#told + 1) this.#ack(ref - 1)
      this.fail(outcome.code, outcome.message, { ref })
      this.#told = ref
    }
  }

  #ack(ref: number): void {
    this.#told = ref
    this.#send({ t: 'ack', room_id: this.roomId, ref })
  }

  /** The join took effect with the flush `seq` of the owner under `epoch`. False: the client is gone and cannot be told. */
  joined(
    { request_id: requestId, member_id: memberId, seat = memberId, code, snapshot, layers }: JoinedMember,
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
    const joined = { t: 'joined', request_id: requestId, room_id: this.roomId, member_id: seat } as const
    connection.send({ ...joined, ...(code !== undefined && { code }) })
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
    const connection = this.#connection
    if (!connection) return
    connection.address(this.roomId)
    this.#held.release(connection.outbox)
    this.#tell()
  }

  /** The session has no socket any more. */
  detach(): void {
    this.#connection = undefined
    this.#attach = undefined
    this.#sample = undefined
    this.resync = undefined
    this.paid = undefined
    this.unpaid = false
    this.#held.drop()
    this.#untold = undefined
    this.unacked.restart(0)
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
    this.joinRequest = undefined
    this.#seatId = position.member_id
    this.#known = position.settled
    this.#told = position.settled
    this.unacked.restart(position.settled)
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

  /** The answer to `attach`, by the owner under `epoch`. False: it is to an earlier attach, and the answer that counts is to come. */
  attached({ ask, epoch, seq, resumed, frames, ...settled }: Extract<ToEdge, { kind: 'attached' }>): boolean {
    if (this.#phase !== 'attaching' || this.#attach?.ask !== ask) return false
    this.#phase = 'live'
    this.#epoch = epoch
    this.#seq = seq
    // Of the client's own resume, or of something that this node has missed.
    const own = this.#attach.answered !== undefined
    for (const framesOfOne of frames)
      this.#push(framesOfOne, own ? 'pushMissed' : resumed ? 'push' : 'pushState')
    this.unacked.settle(settled.ack)
    this.#untold = settled
    this.#tell()
    this.#sampled(settled.ack)
    this.#answerAttach(resumed ? 'frames' : 'resync')
    return true
  }

  /** The seat has ended. `farewell` undefined: the owner knows of no such seat. */
  left(farewell = this.leaveRequest === undefined ? LOST : LEFT): void {
    this.#held.drop(this.#connection?.outbox)
    this.#send(ownLeft(this.roomId, this.#seatId, this.session.sub, farewell))
    this.#answerAttach('lost')
  }

  /** Tells the client that a request or a message about this room failed. */
  fail(code: ErrorCode, message: string, about: Pick<ErrorAbout, 'request_id' | 'ref'> = {}): void {
    this.#connection?.sendError(code, message, { ...about, room_id: this.roomId })
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

const encoded = ({ codec }: Connection, message: DirectMessage): Frame =>
  frame(codec.encode(message), codec.binary)
