import type { WholeName } from '../../shared/protocol/codec.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { DepartureReason, MemberInfo, Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, joinFrames } from '../frame.ts'
import { type Nowhere, refusalOf } from '../place.ts'
import type {
  Arrival,
  EdgeLayers,
  Farewell,
  Frames,
  JoinedMember,
  JoinRequest,
  Outcome,
  PersonalPart,
  RoomAddress,
  ToEdge,
} from '../traffic.ts'
import type { Member } from './definition-types.ts'
import type { RoomEnvironment } from './environment.ts'
import type { Position, RoomEvent, Update } from './journal.ts'
import type { Grants } from './layer-rules.ts'
import type { Membership, Memberships } from './memberships.ts'
import {
  type EventMessage,
  LayerDelivery,
  type MutableFrames,
  type RoomFrames,
  type UpdateFrames,
} from './room-frames.ts'
import type { LiveState } from './state.ts'

/** What members have received, or may receive at any moment. */
interface Delivered {
  readonly seq: number
  readonly checksum: number
  readonly members: readonly Member[]
}

/** One flush, with everything that its delivery needs. */
export interface Flush {
  /** Notices that are written with the update. */
  readonly notices: readonly Uint8Array[]
  readonly update: Update
  /** Its journal entry. Undefined: the room is not stored. */
  readonly packed: Uint8Array | undefined
  /** The members after the flush. */
  readonly members: readonly Member[]
  /** The changes that it delivers. */
  readonly changes: Changes
  /** The memberships of `update.acks`, in the same order. */
  readonly acked: readonly Membership[]
}

const NONE: readonly never[] = []

/**
 * Sends flushes to the edges. Shared parts are encoded once, and only members with parts of their own cost more. Knows what was delivered
 * last, for members that missed it. The state before a flush is not kept, so a request for the whole state waits while a flush is in
 * flight.
 */
export class Delivery {
  readonly #memberships: Memberships
  readonly #frames: RoomFrames
  readonly #replies: Replies
  readonly #state: Pick<LiveState, 'base' | 'layers'>
  /** Undefined: the room type has no layers. */
  readonly #layers: LayerDelivery | undefined
  /** Encoded `state.resync` of the delivered state, with its epoch. A room that the store has lost continues under a new epoch. */
  readonly #resyncs = new Map<Subprotocol, { readonly epoch: number; readonly frame: Frame }>()
  #delivered: Delivered

  constructor(
    memberships: Memberships,
    grants: Grants,
    frames: RoomFrames,
    replies: Replies,
    state: Pick<LiveState, 'base' | 'layers'>,
    delivered: Delivered,
  ) {
    this.#memberships = memberships
    this.#frames = frames
    this.#replies = replies
    this.#state = state
    this.#layers = state.layers && new LayerDelivery(state.layers, grants, memberships, frames.layers)
    this.#delivered = delivered
  }

  /** What members have received of the room. */
  get delivered(): Delivered {
    return this.#delivered
  }

  /** Sends one flush. Returns its encoded frames, for members that miss them. */
  flush(flush: Flush): UpdateFrames | undefined {
    const { update, members, changes } = flush
    const { seq, checksum, visible } = update
    if (update.delta) this.#frames.stateChanged(this.#state.base)
    const parting = changes.leaves.filter(getsLeft)
    for (const leave of changes.leaves) if (!getsLeft(leave)) this.#release(leave)
    const { personal, leaving } = this.#personal(flush, parting)
    let encoded: UpdateFrames | undefined
    if (!visible) {
      const joined = this.#joined(flush)
      for (const edge of new Set([...personal.keys(), ...joined.keys()]))
        this.#replies.update(edge, seq, undefined, personal.get(edge) ?? NONE, joined.get(edge) ?? NONE)
    } else if (this.#memberships.codecs.size > 0) {
      // The order counts: the snapshots contain what the patch announces.
      const layers = this.#layers?.flush(
        update,
        // If a seat is taken over, the leaving session gets its layers up to this flush.
        new Set(changes.joins.filter((join) => !join.replaces).map(({ membership }) => membership.member.id)),
      )
      encoded = this.#frames.update(update, this.#memberships.codecs.keys())
      if (layers) encoded = { ...encoded, layers: layers.encoded }
      const joined = this.#joined(flush)
      for (const edge of this.#memberships.edges.keys())
        this.#replies.update(edge, seq, encoded, personal.get(edge) ?? NONE, joined.get(edge) ?? NONE, {
          layers: layers?.byEdge.get(edge),
          leaving: leaving.get(edge),
        })
    }
    for (const leave of parting) this.#part(leave, update)
    if (visible) {
      this.#delivered = { seq, checksum, members }
      this.#resyncs.clear()
    }
    return this.#memberships.codecs.size === 0 ? undefined : encoded
  }

  /** Returns the frames of all delivered parts that the member may see: its layers, then `state.resync`. */
  resync(membership: Membership): Frames {
    const { member, codec } = membership
    const whole = this.#frames.hidesMembers
      ? this.#whole('state.resync', codec, this.#knownTo(membership))
      : this.#resync(codec)
    const layers = this.#statesOf(member.id, codec)
    return { [codec]: layers ? joinFrames([layers, whole]) : whole }
  }

  /**
   * Returns the frames that a member missed, followed by layers that it was shown since then, and by the names of layers that were hidden
   * from it.
   */
  replayed(
    { codec }: Membership,
    missed: readonly Frames[],
    shown: readonly string[],
    hidden: readonly string[],
  ): readonly Frames[] {
    const frames = this.#layers?.changed(this.#at, shown, hidden, codec)
    return frames ? [...missed, { [codec]: frames }] : missed
  }

  /** Returns `layer.state` frames of the member's layers that are not empty. */
  #statesOf(memberId: string, subprotocol: Subprotocol, at: Position = this.#at): Frame | undefined {
    return this.#layers?.statesOf(memberId, at, subprotocol)
  }

  get #at(): Position {
    return { epoch: this.#replies.epoch, seq: this.#delivered.seq }
  }

  /** Encoded once for all members that need it before the next flush. */
  #resync(subprotocol: Subprotocol): Frame {
    const { epoch } = this.#replies
    const known = this.#resyncs.get(subprotocol)
    if (known?.epoch === epoch) return known.frame
    const frame = this.#whole('state.resync', subprotocol, this.#delivered.members)
    this.#resyncs.set(subprotocol, { epoch, frame })
    return frame
  }

  /** Sends the answer to a join again. */
  repeatJoin(membership: Membership): void {
    const { member, edge, codec } = membership
    this.#replies.update(edge, this.#delivered.seq, undefined, NONE, [
      {
        ...this.#seatOf(membership),
        snapshot: { [codec]: this.#whole('state.snapshot', codec, this.#knownTo(membership)) },
        ...withLayers(codec, this.#statesOf(member.id, codec)),
      },
    ])
  }

  /** The members that this member sees. */
  #knownTo({ member }: Membership): readonly Member[] {
    return this.#frames.hidesMembers ? [member] : this.#delivered.members
  }

  /** Encodes the whole delivered state. */
  #whole(t: WholeName, subprotocol: Subprotocol, members: readonly Member[]): Frame {
    const { seq, checksum } = this.#delivered
    const state = this.#state.base
    const at = { room_id: this.#frames.roomId, epoch: this.#replies.epoch, seq, checksum, state }
    return this.#frames.whole(t, at, members.map(memberInfo), subprotocol)
  }

  /** Ends a membership without `left`: its join was never delivered, or its session has ended. */
  #release({ membership, reason, text, unseen }: PendingLeave): void {
    this.#memberships.release(membership)
    if (!unseen || reason === 'session_ended') return
    this.#replies.send(membership.edge, {
      kind: 'refused',
      member_id: membership.subscriptionId,
      request_id: membership.joinRequest,
      code: 'join_refused',
      message:
        text ?? (reason === 'kicked' ? 'the room removed you as you joined' : 'the room ended as you joined'),
    })
  }

  /** Sends `left` to a member, after its parts of the update. */
  #part({ membership, reason, text }: PendingLeave, { epoch, seq }: Update): void {
    this.#memberships.release(membership)
    const message = text === undefined ? {} : { message: text }
    this.#replies.part(membership.edge, membership.subscriptionId, { epoch, seq, reason, ...message })
  }

  /** The last part of a leaving member: events until its departure, and outcomes of its last messages. */
  #lastPart({ membership, endEvent }: PendingLeave, update: Update): PersonalPart | undefined {
    const { member, subscriptionId, refs, ackDue } = membership
    const events = update.events
      .slice(0, endEvent)
      .filter(({ to }) => !to || to.includes(member.id))
      .map((event) => this.#frames.event(update, event))
    if (events.length === 0 && !ackDue) return undefined
    return { member_id: subscriptionId, events, ...(ackDue && refs.acknowledgement(refs.flushed, refs.last)) }
  }

  /** Returns, by edge, the parts for single members, and the members that leave with the update. */
  #personal(
    { update, changes: { joins }, acked }: Flush,
    parting: readonly PendingLeave[],
  ): { readonly personal: Map<string, PersonalPart[]>; readonly leaving: Map<string, string[]> } {
    const departed = new Set(parting.map(({ membership }) => membership))
    const events = new Map<Membership, EventMessage[]>()
    const give = (membership: Membership, event: EventMessage) => {
      if (events.get(membership)?.at(-1) !== event) append(events, membership, event)
    }
    update.events.forEach((event, index) => {
      // New members do not get the shared frames of the flush with their join. Later events of that flush go to each of them.
      if (!event.to && joins.length === 0) return
      const message = this.#frames.event(update, event)
      for (const { membership, firstEvent } of joins)
        if (index >= firstEvent && (!event.to || event.to.includes(membership.member.id)))
          give(membership, message)
      for (const memberId of event.to ?? NONE) {
        const membership = this.#memberships.recipient(memberId)
        if (membership?.announced && !departed.has(membership)) give(membership, message)
      }
    })
    const parts = new Map<string, PersonalPart[]>()
    const add = (membership: Membership, part: PersonalPart) => {
      if (!membership.attached) return
      append(parts, membership.edge, part)
    }
    const allOutcomes = outcomesOf(update)
    acked.forEach((membership, i) => {
      const { ref: ack, forgotten } = update.acks[i]!
      const outcomes = allOutcomes?.get(membership.member.id)
      add(membership, {
        member_id: membership.subscriptionId,
        events: events.get(membership) ?? NONE,
        ack,
        ...(outcomes && { outcomes }),
        ...(forgotten > 0 && { forgotten }),
      })
      events.delete(membership)
    })
    for (const [membership, own] of events)
      add(membership, { member_id: membership.subscriptionId, events: own })
    const leaving = new Map<string, string[]>()
    for (const leave of parting) {
      const { membership } = leave
      if (!membership.attached) continue
      append(leaving, membership.edge, membership.subscriptionId)
      const last = this.#lastPart(leave, update)
      if (last) add(membership, last)
    }
    return { personal: parts, leaving }
  }

  /** Returns, by edge, the members that join with this flush, each with its snapshot. */
  #joined({ update, members, changes: { joins } }: Flush): Map<string, JoinedMember[]> {
    const byEdge = new Map<string, JoinedMember[]>()
    if (joins.length === 0) return byEdge
    const { epoch, seq, checksum } = update
    const at = { room_id: this.#frames.roomId, epoch, seq, checksum, state: this.#state.base }
    const { hidesMembers } = this.#frames
    const shared: MutableFrames = {}
    const infos = hidesMembers ? [] : members.map(memberInfo)
    for (const { membership } of joins) {
      const { codec } = membership
      const own = () => this.#frames.whole('state.snapshot', at, [memberInfo(membership.member)], codec)
      if (!hidesMembers) shared[codec] ??= this.#frames.whole('state.snapshot', at, infos, codec)
      const snapshot = hidesMembers ? { [codec]: own() } : shared
      append(byEdge, membership.edge, {
        ...this.#seatOf(membership),
        snapshot,
        ...withLayers(membership.codec, this.#statesOf(membership.member.id, membership.codec, update)),
      })
    }
    return byEdge
  }

  /** Ids of a membership in the answer to its join, and the room's code. */
  #seatOf({ member, subscriptionId, joinRequest }: Membership) {
    const { code } = this.#replies
    return {
      member_id: subscriptionId,
      ...(subscriptionId !== member.id && { seat: member.id }),
      request_id: joinRequest,
      ...(code !== undefined && { code }),
    }
  }
}

const withLayers = (codec: Subprotocol, layers: Frame | undefined): Pick<JoinedMember, 'layers'> =>
  layers ? { layers: { [codec]: layers } } : {}

/** True if a leaving member gets `left`. Otherwise its edge has forgotten it, or its client never knew the seat. */
const getsLeft = ({ reason, text, unseen }: PendingLeave): boolean =>
  !unseen && (reason !== 'session_ended' || text !== undefined)

/** Returns the outcomes by member id. Undefined: no message was refused or answered, as in most updates. */
function outcomesOf({ outcomes }: Update): Map<string, Outcome[]> | undefined {
  if (outcomes.length === 0) return undefined
  const byMember = new Map<string, Outcome[]>()
  for (const { memberId, ...outcome } of outcomes) append(byMember, memberId, outcome)
  return byMember
}

function append<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key)
  if (list) list.push(value)
  else lists.set(key, [value])
}

/** A message to an edge, without the address and the epoch of the room. */
type Reply = ToEdge extends infer M ? (M extends ToEdge ? Omit<M, 'room' | 'epoch'> : never) : never

/** The room that replies. */
interface ReplyingRoom {
  readonly epoch: number
  readonly durable?: true | undefined
  readonly code?: string | undefined
}

/** The path to edges. */
type ReplyEnvironment = Pick<RoomEnvironment, 'metrics' | 'departures' | 'cluster'>

/** Sends messages of one room to edges, under the room's present epoch. */
export class Replies {
  readonly #room: RoomAddress
  readonly #record: ReplyingRoom
  readonly #environment: ReplyEnvironment

  constructor(room: RoomAddress, record: ReplyingRoom, environment: ReplyEnvironment) {
    this.#room = room
    this.#record = record
    this.#environment = environment
  }

  get epoch(): number {
    return this.#record.epoch
  }

  /** Code of the room, for its members. */
  get code(): string | undefined {
    return this.#record.code
  }

  /** Sends one edge its part of a flush. */
  update(
    edge: string,
    seq: number,
    frames: UpdateFrames | undefined,
    personal: readonly PersonalPart[],
    joined: readonly JoinedMember[],
    {
      layers,
      leaving,
    }: { readonly layers?: EdgeLayers | undefined; readonly leaving?: readonly string[] | undefined } = {},
  ): void {
    this.#environment.cluster.router.deliver(edge, {
      room: this.#room,
      epoch: this.epoch,
      kind: 'update',
      seq,
      durable: this.#record.durable,
      patch: frames?.patch,
      rest: frames?.rest,
      layers,
      personal,
      joined,
      leaving,
    })
  }

  send(edge: string, reply: Reply): void {
    this.#environment.cluster.router.deliver(edge, {
      room: this.#room,
      epoch: this.epoch,
      ...reply,
    } as ToEdge)
  }

  /** A message without a ref, or a request of an operator, has failed. */
  failed(edge: string, memberId: string, code: ErrorCode, message: string): void {
    this.countError(code)
    this.send(edge, { kind: 'error', member_id: memberId, code, message })
  }

  /** A join was refused. */
  refuse(
    { edge, member_id: memberId, request_id: requestId }: JoinRequest,
    code: ErrorCode,
    message: string,
  ): void {
    this.countError(code)
    this.send(edge, { kind: 'refused', member_id: memberId, request_id: requestId, code, message })
  }

  /** Refuses a message that the room cannot handle. Returns false if such a message has no answer: its edge sends it again. */
  turnAway(arrival: Arrival, place: Nowhere): boolean {
    const answer = refusalOf(arrival, place, this.epoch)
    if (answer) this.answer(arrival.from, answer)
    return answer !== undefined
  }

  /** Sends an answer, and counts its error. */
  readonly answer = (edge: string, answer: ToEdge): void => {
    if ('code' in answer) this.countError(answer.code)
    this.#environment.cluster.router.deliver(edge, answer)
  }

  countError(code: ErrorCode): void {
    this.#environment.metrics.roomErrors.inc({ room_type: this.#room.roomType, code })
  }

  /** The room has ended the seat of a member. The node remembers it, for a session that is moving to another edge. */
  part(edge: string, subscriptionId: string, farewell: Farewell): void {
    // A client that left a room does not ask for that seat again.
    if (farewell.reason !== 'left') this.#environment.departures.add(subscriptionId, farewell)
    this.left(edge, subscriptionId, farewell)
  }

  /** Sends the end of a seat. */
  left(edge: string, subscriptionId: string, farewell: Farewell): void {
    this.send(edge, { kind: 'left', member_id: subscriptionId, farewell })
  }

  /** Answers a session that has no seat in the room: with the end of its seat, if this node remembers it. */
  noSeat(edge: string, memberId: string): void {
    const farewell = this.#environment.departures.of(memberId)
    if (farewell) this.left(edge, memberId, farewell)
    else this.send(edge, { kind: 'no_seat', member_id: memberId })
  }
}

/** Returns the member as clients see it. */
const memberInfo = ({ id, sub, connected }: Member): MemberInfo => ({ member_id: id, sub, connected })

/** A join since the last flush. */
interface PendingJoin {
  readonly membership: Membership
  /** Index of the first event of the flush that was emitted after the join. */
  readonly firstEvent: number
  /** The session takes over a seat that members know. */
  readonly replaces: boolean
}

/** A membership that has ended since the last flush. */
interface PendingLeave {
  readonly membership: Membership
  readonly reason: DepartureReason
  /** Reason for the player. */
  readonly text: string | undefined
  /** Index behind the last event of the flush that was emitted while the member was there. */
  readonly endEvent: number
  /** The join was never delivered to its client. */
  readonly unseen: boolean
  /** True if the other members see a member leave. */
  readonly departs: boolean
}

/** Changes of a room that one flush delivers, except those of the state. */
export class Changes {
  events: RoomEvent[] = []
  joins: PendingJoin[] = []
  leaves: PendingLeave[] = []
  /** Members that may have changed. */
  readonly changed = new Set<Membership>()
  /** Memberships with `ackDue`. */
  acked: Membership[] = []
  /** When the first change was made (monotonic clock). Undefined: there is none. */
  since: number | undefined

  join(membership: Membership): void {
    this.joins.push({ membership, firstEvent: this.events.length, replaces: false })
  }

  part(membership: Membership, reason: DepartureReason, text: string | undefined): void {
    const joined = this.joins.findIndex((join) => join.membership === membership)
    const [join] = joined >= 0 ? this.joins.splice(joined, 1) : []
    const departs = reason !== 'replaced' && (!join || join.replaces)
    this.leaves.push({
      membership,
      reason,
      text,
      endEvent: this.events.length,
      unseen: join !== undefined,
      departs,
    })
  }

  /** Another session takes over the seat. */
  replace(before: Membership, membership: Membership): void {
    const join = this.joins.find((join) => join.membership === before)
    this.part(before, 'replaced', REPLACED)
    this.joins.push({ membership, firstEvent: this.events.length, replaces: !join || join.replaces })
  }

  /** The next update acks the membership's `refs.last`. */
  ack(membership: Membership): void {
    if (membership.ackDue) return
    membership.ackDue = true
    this.acked.push(membership)
  }
}

/** Returns the changes of remaining members since the last flush, and marks them as flushed. */
export function changesOf(
  changed: ReadonlySet<Membership>,
  memberships: Memberships,
): Pick<Update, 'presence' | 'renewed'> {
  if (changed.size === 0) return UNCHANGED
  const presence: Update['presence'][number][] = []
  const renewed: Update['renewed'][number][] = []
  for (const membership of changed) {
    const { member, flushed } = membership
    const { id: memberId, sub, connected, data } = member
    if (!memberships.has(membership)) continue
    if (connected !== flushed.connected) presence.push({ memberId, connected, sub })
    if (data !== flushed.data) renewed.push({ memberId, data })
    membership.flushed = member
  }
  return { presence, renewed }
}

/** Text for a client whose seat another session has taken over. */
const REPLACED = 'the player has joined with another session'

const UNCHANGED: Pick<Update, 'presence' | 'renewed'> = { presence: [], renewed: [] }
