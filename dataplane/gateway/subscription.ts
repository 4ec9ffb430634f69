import type { JsonObject } from '../../shared/json.ts'
import { type Codec, LayerNumbers } from '../../shared/protocol/codec.ts'
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
  type Acknowledgement,
  type EdgeLayers,
  type Farewell,
  type Frames,
  type JoinedMember,
  type LocalSeat,
  type Outcome,
  type PersonalPart,
  type RefusedRange,
  type ReliableMessage,
  type RoomAddress,
  roomIdOf,
  type StateFrames,
  type ToEdge,
  type ToOwner,
} from '../traffic.ts'
import type { SessionBudget } from './budget.ts'
import type { Connection, DirectMessage, ErrorAbout } from './connection.ts'
import type { EndedSeats } from './ended-seats.ts'
import type { Lane, LaneMember } from './lane.ts'
import { HeldFrames } from './outbox.ts'

/** A message that the owner must acknowledge, or a range of messages that the edge has refused. */
export type Reliable = ReliableMessage | RefusedRange

/** Bounds of the unacknowledged messages of one subscription. */
export interface UnackedLimits {
  readonly messages: number
  /** Total size of the frames they arrived in. One message of any size is always accepted. */
  readonly bytes: number
}

interface Kept {
  message: Reliable
  readonly bytes: number
  /** When it was sent to the owner first, on the monotonic clock. */
  readonly at: number
}

/**
 * The reliable messages of one subscription that its owner has not acknowledged. Their refs are contiguous. A message can be lost on the
 * way, and an owner can crash before it commits the message. The edge therefore keeps each message, to send it again to the next owner.
 */
export class Unacked {
  readonly #limits: UnackedLimits
  #kept: Kept[] = []
  #bytes = 0
  /** The highest acknowledged ref. The kept messages have higher refs. */
  #acked = 0
  /** The highest ref that has arrived. */
  #last = 0

  constructor(limits: UnackedLimits) {
    this.#limits = limits
  }

  get acked(): number {
    return this.#acked
  }

  get last(): number {
    return this.#last
  }

  get empty(): boolean {
    return this.#kept.length === 0
  }

  /** Returns true if one more message of this size exceeds the limits. The edge then refuses the message. */
  isFull(bytes: number): boolean {
    const { length } = this.#kept
    return length >= this.#limits.messages || (length > 0 && this.#bytes + bytes > this.#limits.bytes)
  }

  /** When the oldest kept message was sent. Undefined: there is none. */
  get since(): number | undefined {
    return this.#kept[0]?.at
  }

  /**
   * Keeps the message with the next ref. Consecutive refusals with the same code and text become one entry. Returns false if the message is
   * acknowledged already: the client has sent it again after a resume.
   */
  add(message: Reliable, bytes: number, at: number): boolean {
    this.#last = throughOf(message)
    if (this.#last <= this.#acked) return false
    const before = this.#kept.at(-1)
    const joined = before && join(before.message, message)
    if (joined) before.message = joined
    else {
      this.#kept.push({ message, bytes, at })
      this.#bytes += bytes
    }
    return true
  }

  /** Drops all messages up to `ref`, because the owner has acknowledged them. Returns when the oldest of them was sent. */
  acknowledge(ref: number): number | undefined {
    if (ref <= this.#acked) return undefined
    this.#acked = ref
    let done = 0
    while (done < this.#kept.length && throughOf(this.#kept[done]!.message) <= ref) done++
    const dropped = this.#kept.splice(0, done)
    for (const { bytes } of dropped) this.#bytes -= bytes
    return dropped[0]?.at
  }

  /** The messages to send again, as a copy: an owner in this process acknowledges some of them while the caller iterates. */
  get messages(): readonly Reliable[] {
    return this.#kept.map(({ message }) => message)
  }

  /** Starts again after a resume. The client then sends all messages above `known` again. */
  restart(known: number): void {
    this.#kept = []
    this.#bytes = 0
    this.#acked = known
    this.#last = known
  }
}

const throughOf = (message: Reliable): number => (message.kind === 'message' ? message.ref : message.through)

/** Combines two consecutive refusals. Undefined: they differ. */
function join(before: Reliable, next: Reliable): RefusedRange | undefined {
  const same =
    before.kind === 'refuse' &&
    next.kind === 'refuse' &&
    before.code === next.code &&
    before.message === next.message
  return same ? { ...before, through: next.through } : undefined
}

/**
 * Phase of a subscription.
 * `joining`: the owner has not answered the join. `live`: the client gets every flush. `stalled`: the client reads too slowly; patches are
 * dropped and events held. `resyncing`: the client has caught up, and a full state will replace the dropped patches. `detached`: the
 * session has no connection. `attaching`: it has a connection again, and the owner has not yet sent the missed updates.
 */
type SubscriptionPhase = 'joining' | 'live' | 'stalled' | 'resyncing' | 'detached' | 'attaching'

const NONE: readonly never[] = []

/** Error text for a message whose outcome the room has forgotten. */
const OUTCOME_UNKNOWN = 'the message arrived before, and its outcome is no longer known'

/** Result of an `attach`: `frames` means the missed updates, `resync` a full state, `lost` that the seat has ended. */
export type AttachResult = 'frames' | 'resync' | 'lost'

/** An `attach` that the owner has not answered. */
interface PendingAttach {
  readonly position: { readonly epoch: number; readonly seq: number }
  readonly ask: number
  /** Absent if the edge has started the attach itself, because it missed an update. */
  readonly answered?: (result: AttachResult) => void
}

/**
 * Result of a flush. `sent`: the client has everything up to it. `passed`: not needed, or held. `stalled`: the client has become a slow
 * consumer. `missed`: an earlier flush is missing.
 */
type FlushResult = 'sent' | 'passed' | 'stalled' | 'missed'

/** The session that a subscription belongs to. */
export interface SubscribedSession {
  readonly sessionId: string
  /** The player's id from the token. */
  readonly sub: string | null
  readonly budget: SessionBudget
  /** Name of the clients with its token and address. Undefined: the token names its player, or the address is unknown. */
  readonly guests: string | undefined
  /** `turn`: number of resumes. */
  readonly right: { readonly turn: number }
  readonly data: JsonObject | undefined
  readonly trace: TraceContext | undefined
  readonly connection: Connection | undefined
  /** By room id. */
  readonly subscriptions: Map<string, Subscription>
  /** Seats that rooms have ended. */
  readonly ended: EndedSeats
  /** Codes with which the client found rooms, by room id. Each is deleted when a join of its room is answered. Undefined: there were none. */
  readonly codes: Map<string, string> | undefined
  /** Rooms that have refused its joins although others of their type may not, each with the time on the monotonic clock. Undefined: none. */
  refusals?: Map<string, number> | undefined
}

/** The join message of a new subscription. */
type JoinQuestion = Extract<ToOwner, { kind: 'join' }>

/** The frames of one flush. Members with the same codec share them, and the layers of each are added to its patch. */
export class FlushFrames {
  readonly seq: number
  /** True if no member has a personal part in the flush. The frames are then not queued, since nothing has to share their write. */
  readonly alone: boolean
  /** True for the frames of members that leave with the flush. */
  readonly last: boolean
  readonly #patch: Frames
  readonly #rest: Frames | undefined
  /** Undefined: the room has no layers. */
  readonly #layers: EdgeLayers | undefined
  /** By member id, the indexes of its layers. Undefined: no member at this edge has a changed layer. */
  readonly #own: ReadonlyMap<string, readonly number[]> | undefined
  readonly #wholes: { [codec in Subprotocol]?: Frame | undefined } = {}

  constructor(
    seq: number,
    patch: Frames,
    rest: Frames | undefined,
    alone: boolean,
    layers?: EdgeLayers,
    last = false,
  ) {
    this.seq = seq
    this.last = last
    this.#layers = layers
    this.#own = layers?.members.length
      ? new Map(layers.members.map(({ member_id: id, own }) => [id, own]))
      : undefined
    this.alone = alone
    this.#patch = patch
    this.#rest = rest
  }

  /** The frames for members without changed layers, as one buffer. Undefined: the flush has no frames in this codec. */
  shared(codec: Codec): Frame | undefined {
    const known = this.#wholes[codec.subprotocol]
    if (known) return known
    const frames = { patch: this.#patch, layers: this.#layers && NONE, rest: this.#rest }
    const made = stateFrame(frames, codec)
    this.#wholes[codec.subprotocol] = made
    return made
  }

  /** All frames of the flush for a member, as one buffer. Undefined: it has none in this codec. */
  whole(member: Pick<Subscription, 'memberId' | 'numbers'>, codec: Codec): Frame | undefined {
    const own = this.#own?.get(member.memberId)
    if (!own) return this.shared(codec)
    const layers = own.map((i) => this.#layers!.parts[i]!)
    return stateFrame({ patch: this.#patch, layers, rest: this.#rest }, codec, member.numbers)
  }

  /** Events and presence, without the patch. */
  rest(codec: Subprotocol): Frame | undefined {
    return this.#rest?.[codec]
  }
}

/** Returns a frame of the state and the frames behind it as one buffer. Undefined: there are none in this codec. */
function stateFrame(
  { patch, layers, rest }: StateFrames,
  codec: Codec,
  numbers?: LayerNumbers,
): Frame | undefined {
  const payload = patch?.[codec.subprotocol]
  const behind = rest?.[codec.subprotocol]
  if (!payload) return behind
  const state = layers
    ? frame(payload, codec.binary, codec.ending(layers, numbers ?? new LayerNumbers()))
    : payload
  return behind ? joinFrames([state, behind]) : state
}

/** One session in one room, at the edge. Decides which of the room's frames the client gets, and when. */
export class Subscription implements LaneMember {
  // The fields that each message needs come first, as in `Connection`.
  /** True once the session no longer has the subscription. */
  removed = false
  #phase: SubscriptionPhase
  /** Request id of the open `leave`. */
  leaveRequest: number | undefined
  /** Request id of the join, until the client is known to have its answer. Until then the client may ask for the same seat again. */
  joinRequest: number | undefined
  /** The member at its owner, while that is this node. Undefined: unknown, or the owner is elsewhere. */
  seat: LocalSeat | undefined
  readonly session: SubscribedSession
  readonly room: RoomAddress
  readonly roomId: string
  readonly memberId: string
  /** The open join. */
  join: JoinQuestion | undefined
  /** Span of the join. */
  joinSpan: Span = noSpan
  /** Time of the join, on the monotonic clock. For a restored subscription: time of the restore. */
  readonly madeAt: number
  /** Time at which the open question (join, leave, attach, resync) was sent last, on the monotonic clock. */
  askedAt: number
  /** Messages that the owner has not acknowledged. */
  readonly unacked: Unacked
  /** Reason of the client's open resync request. */
  resync: ResyncReason | undefined
  /** True if the session's record names the seat of the join, so that the join may be sent. */
  recorded = false
  /** Points that were paid for the state which the open question may return. */
  paid: number | undefined
  /** True if the open question is not sent, because the player cannot pay for the state. */
  unpaid = false
  readonly lane: Lane | undefined = undefined
  readonly place: number = 0
  readonly #held = new HeldFrames()
  /** Numbers of the member's layers on its connection. Undefined: no frame has had a layer. */
  #layers: LayerNumbers | undefined
  /** The member id that the client knows. */
  #seatId: string
  #connection: Connection | undefined
  #attach: PendingAttach | undefined
  /** The owner's epoch under which the subscription is attached. `#seq` is the last flush that arrived under it. */
  #epoch = 0
  #seq = 0
  #stalledAtSeq = 0
  /** The highest ref up to which the client has confirmed that it knows every outcome. */
  #known = 0
  /** The highest ref whose outcome was sent on this connection, or confirmed by the client. */
  #reported = 0
  /** Acknowledgements that are not sent to the client yet. */
  #unreported: Acknowledgement | undefined

  /** With `join`: a new subscription over the session's connection. Without: one that the session had before, still without a connection. */
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

  /** The connection to which its frames go. Undefined: the session has none. */
  get connection(): Connection | undefined {
    return this.#connection
  }

  /** Numbers of the member's layers on its connection. */
  get numbers(): LayerNumbers {
    this.#layers ??= new LayerNumbers()
    return this.#layers
  }

  /** True if the session is in the room: the owner has answered the join, and the client has not asked to leave. */
  get taken(): boolean {
    return this.#phase !== 'joining' && this.leaveRequest === undefined
  }

  /** True if the session is in the room and the client uses the seat. A seat that a resume did not name waits for its join. */
  get inUse(): boolean {
    return this.leaveRequest === undefined && this.#phase !== 'joining' && this.#phase !== 'detached'
  }

  /** The next expected ref. A client that resumes does not send messages again whose outcome it has confirmed. */
  get due(): number {
    return Math.max(this.unacked.last, this.#reported) + 1
  }

  /** Notes that the message that was due has arrived, and that the client knows every outcome up to `settled`. */
  messageArrived(settled: number): void {
    this.#known = Math.max(settled, this.#known)
    this.#reported = Math.max(settled, this.#reported)
    this.#report()
  }

  /** The unanswered attach. */
  get attaching(): PendingAttach | undefined {
    return this.#phase === 'attaching' ? this.#attach : undefined
  }

  /** The question to the owner that may be sent now: the join, an attach, or a resync. `edge`: id of this node. */
  question(edge: string): ToOwner | undefined {
    const { attaching, session, room, memberId } = this
    if (this.#phase === 'joining') return this.recorded ? this.join : undefined
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
      through: this.unacked.acked,
      ...(session.trace && { traceparent: session.trace.traceparent }),
    }
  }

  /** True if the subscription was attached by the owner under `epoch` or by a later one. */
  isAttachedUnder(epoch: number): boolean {
    return this.#epoch >= epoch
  }

  /** Takes one flush of the owner under `epoch`, with the parts that all members share. */
  flush(flush: FlushFrames, epoch: number): FlushResult {
    const connection = this.#connection
    if (!connection || !this.#attached) return 'passed'
    if (epoch !== this.#epoch || flush.seq > this.#seq + 1) return 'missed'
    if (flush.seq <= this.#seq) return 'passed'
    this.#seq = flush.seq
    // A member that leaves with this flush cannot request the state later.
    const stalls = this.#phase === 'live' && connection.outbox.congested && !flush.last
    if (this.#phase === 'live' && !stalls) {
      const whole = flush.whole(this, connection.codec)
      if (!whole) return 'passed'
      connection.address(this.roomId)
      if (flush.alone) connection.outbox.write(whole)
      else connection.outbox.push(whole)
      return 'sent'
    }
    if (stalls) {
      this.#phase = 'stalled'
      this.#stalledAtSeq = flush.seq - 1
      connection.outbox.awaitRoom()
    }
    const rest = flush.rest(connection.codec.subprotocol)
    if (rest) this.#held.add(rest, connection.outbox)
    return stalls ? 'stalled' : 'passed'
  }

  leftLane(seq: number): void {
    this.#seq = seq
  }

  busy(): void {
    this.lane?.busy()
  }

  leave(): void {
    this.lane?.remove(this)
  }

  /** Takes frames of the owner under `epoch` that belong to no flush. A client that has no current state gets them with the next one. */
  unsequenced(frames: Frames, epoch: number): void {
    if (this.#phase === 'live' && epoch === this.#epoch) this.#push({ rest: frames })
  }

  /** Takes this member's part of a flush. Returns when the oldest message that it acks was sent. Undefined: it acks none. */
  personal({ events, ack, outcomes = NONE, forgotten = 0 }: PersonalPart, epoch: number): number | undefined {
    const connection = this.#connection
    if (!connection || !this.#attached || epoch !== this.#epoch) return undefined
    for (const event of events)
      if (this.#phase === 'live') this.#send(event)
      else this.#held.add(encoded(connection, event), connection.outbox)
    if (ack === undefined) return undefined
    const sentAt = this.unacked.acknowledge(ack)
    const { outcomes: earlier = NONE, forgotten: before = 0 } = this.#unreported ?? {}
    this.#unreported = { ack, outcomes: [...earlier, ...outcomes], forgotten: Math.max(forgotten, before) }
    if (this.#phase !== 'live')
      for (const outcome of outcomes) this.#held.reserve(JSON.stringify(outcome).length, connection.outbox)
    this.#report()
    return sentAt
  }

  /**
   * Sends acknowledgements to the client, in the order of refs and once per connection. The client's unconfirmed messages are thus always
   * those above one ref. For forgotten outcomes, the client gets `outcome_unknown` for each message that it has sent on this connection.
   * Later outcomes wait until it has sent all forgotten messages again, or confirms that it knows their outcomes.
   */
  #report(): void {
    if (!this.#unreported || this.#phase !== 'live') return
    const { ack, outcomes = NONE, forgotten = 0 } = this.#unreported
    const unknown = Math.min(forgotten, this.unacked.last)
    while (this.#reported < unknown) this.fail('outcome_unknown', OUTCOME_UNKNOWN, { ref: ++this.#reported })
    if (this.#reported < forgotten) return
    this.#unreported = undefined
    for (const outcome of outcomes) if (outcome.ref > this.#reported) this.#reportOutcome(outcome)
    if (ack > this.#reported) this.#ack(ack)
  }

  #reportOutcome(outcome: Outcome): void {
    const { ref } = outcome
    if ('reply' in outcome) this.#send({ t: 'reply', room_id: this.roomId, ref, data: outcome.reply })
    else {
      if (ref > this.#reported + 1) this.#ack(ref - 1)
      this.fail(outcome.code, outcome.message, { ref })
      this.#reported = ref
    }
  }

  #ack(ref: number): void {
    this.#reported = ref
    this.#send({ t: 'ack', room_id: this.roomId, ref })
  }

  /** The join took effect with the flush `seq` of the owner under `epoch`. Returns false if the client has disconnected. */
  joined(
    { request_id: requestId, member_id: memberId, seat = memberId, code, snapshot }: JoinedMember,
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
    this.#pushState(snapshot)
    return true
  }

  /** The client has caught up: the subscription now waits for a full state. Returns false if it was not stalled. */
  awaitState(): boolean {
    if (this.#phase !== 'stalled') return false
    this.#phase = 'resyncing'
    return true
  }

  /**
   * Takes the answer to `resync`, which replaces the dropped patches. The held frames come first: the state contains all changes of members
   * in them.
   */
  state({ seq, state }: Pick<Extract<ToEdge, { kind: 'state' }>, 'seq' | 'state'>): void {
    // Stalled again: the client would read an outdated state. The edge requests a newer one when the client has caught up.
    if (this.#phase !== 'live' && this.#phase !== 'resyncing') return
    this.#phase = 'live'
    // A flush before the state may be lost. The client may not get it after the state.
    this.lane?.remove(this)
    this.#seq = seq
    const connection = this.#connection
    if (!connection) return
    connection.address(this.roomId)
    this.#held.release(connection.outbox)
    this.#pushState(state)
    this.#report()
  }

  /** The session has lost its connection. */
  detach(): void {
    this.lane?.remove(this)
    this.#connection = undefined
    this.seat = undefined
    this.#layers = undefined
    this.#attach = undefined
    this.resync = undefined
    this.paid = undefined
    this.unpaid = false
    this.#held.drop()
    this.#unreported = undefined
    this.unacked.restart(0)
    if (this.#phase !== 'joining') this.#phase = 'detached'
  }

  /** The session has a connection again. No frame is sent until the owner answers. `ask`: unique number of this attach at this edge. */
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
    this.#reported = position.settled
    this.unacked.restart(position.settled)
    this.#attach = { position, ask, answered }
    this.#phase = 'attaching'
  }

  /**
   * Attaches again, because a message may be lost or the room has another owner. No frame is sent until the owner answers. Returns false
   * if the subscription is not attached, so that it cannot have missed anything.
   */
  reattach(ask: number): boolean {
    this.lane?.remove(this)
    this.seat = undefined
    if (!this.#connection) return false
    if (this.#phase === 'attaching' && this.#attach) {
      this.#attach = { ...this.#attach, ask }
      return true
    }
    if (!this.#attached) return false
    const seq = this.#phase === 'live' ? this.#seq : this.#stalledAtSeq
    this.#held.drop(this.#connection.outbox)
    this.#attach = { position: { epoch: this.#epoch, seq }, ask }
    this.#phase = 'attaching'
    return true
  }

  /**
   * Takes the owner's answer to `attach`. Returns false if the current answer is still to come: this one answers an earlier attach, or an
   * earlier owner than the client's has sent it.
   */
  attached(answer: Extract<ToEdge, { kind: 'attached' }>): boolean {
    const { ask, epoch, seq, resumed, frames, ...acknowledgement } = answer
    if (this.#phase !== 'attaching' || this.#attach?.ask !== ask) return false
    if (epoch < this.#attach.position.epoch) return false
    this.#phase = 'live'
    this.#epoch = epoch
    this.#seq = seq
    if (!resumed) this.resync = undefined
    // A resume of the client, not an attach that the edge has started itself.
    const own = this.#attach.answered !== undefined
    if (!resumed) this.#layers?.restart()
    for (const framesOfOne of frames)
      this.#push(framesOfOne, own ? 'pushMissed' : resumed ? 'push' : 'pushState')
    this.unacked.acknowledge(acknowledgement.ack)
    this.#unreported = acknowledgement
    this.#report()
    this.#answerAttach(resumed ? 'frames' : 'resync')
    return true
  }

  /** The seat has ended. `farewell` undefined: the owner does not know the seat. */
  left(farewell = this.leaveRequest === undefined ? LOST : LEFT): void {
    this.#held.drop(this.#connection?.outbox)
    this.#connection?.send(leftMessage(this.roomId, farewell))
    this.#answerAttach('lost')
  }

  /** Sends the client an error about a request or a message to this room. */
  fail(code: ErrorCode, message: string, about: ErrorAbout = {}): void {
    this.#connection?.sendError(code, message, { ...about, room_id: this.roomId })
  }

  /** True if a reliable message from before `moment` (monotonic clock) is unacknowledged, and the owner was not asked since then. */
  isUnansweredSince(moment: number): boolean {
    const { since = Number.POSITIVE_INFINITY } = this.unacked
    return Math.max(since, this.askedAt) <= moment
  }

  /** True if the owner counts the subscription as attached, as far as the edge knows. */
  get #attached(): boolean {
    return this.#phase === 'live' || this.#phase === 'stalled' || this.#phase === 'resyncing'
  }

  #answerAttach(result: AttachResult): void {
    const attach = this.#attach
    this.#attach = undefined
    attach?.answered?.(result)
  }

  /** Sends a message about this room. */
  #send(message: DirectMessage): void {
    this.#connection?.address(this.roomId)
    this.#connection?.send(message)
  }

  #push(frames: StateFrames, how: 'push' | 'pushState' | 'pushMissed' = 'push'): void {
    const connection = this.#connection
    const bytes =
      connection && stateFrame(frames, connection.codec, frames.layers?.length ? this.numbers : undefined)
    if (!bytes) return
    connection.address(this.roomId)
    connection.outbox[how](bytes)
  }

  #pushState(state: StateFrames): void {
    this.resync = undefined
    this.#layers?.restart()
    this.#push(state, 'pushState')
  }
}

/** End of a seat that the owner does not know. */
export const LOST: Farewell = { reason: 'session_ended' }
const LEFT: Farewell = { reason: 'left' }

/**
 * Message to a client whose seat has ended. It has no member id: a connection gets it only for the seat of its last `joined` in the room, or
 * for the seat that its resume has listed, and once.
 */
export const leftMessage = (roomId: string, farewell: Farewell): Extract<ServerMessage, { t: 'left' }> => ({
  t: 'left',
  room_id: roomId,
  ...farewell,
})

const encoded = ({ codec }: Connection, message: DirectMessage): Frame =>
  frame(codec.encode(message), codec.binary)
