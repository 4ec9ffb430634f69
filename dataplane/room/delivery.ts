import type { Clock } from '../../shared/clock.ts'
import type { WholeName } from '../../shared/protocol/codec.ts'
import type { MemberInfo, Subprotocol } from '../../shared/protocol/messages.ts'
import type { Frame } from '../frame.ts'
import {
  type EdgeLayers,
  type Frames,
  type JoinedMember,
  type Outcome,
  type PersonalPart,
  refusalCode,
  type StateFrames,
} from '../traffic.ts'
import type { Flush, PendingLeave } from './changes.ts'
import type { Member } from './definition-types.ts'
import type { History } from './history.ts'
import type { Position, Update } from './journal.ts'
import type { Grants } from './layer-rules.ts'
import type { Membership, Memberships } from './memberships.ts'
import type { RoomMetrics } from './metrics.ts'
import type { Replies } from './replies.ts'
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
  /** The members, as all members see them. */
  readonly members: readonly Member[]
  readonly playerCount: number
  readonly spectatorCount: number
}

/** The room whose flushes are delivered. */
interface DeliveredRoom {
  readonly epoch: number
  /** Seq of the last flush. */
  readonly seq: number
  readonly code: string | undefined
  readonly state: LiveState
  readonly memberships: Memberships
  readonly grants: Grants
  readonly history: History
  readonly definition: { readonly type: string; readonly spectators: object | undefined }
}

/** Position of a whole state. */
interface WholeAt extends Position {
  readonly checksum: number
}

/** Dependencies of the delivery of a room. */
interface DeliveryNeeds {
  readonly clock: Clock
  readonly metrics: RoomMetrics
}

const NONE: readonly never[] = []
const NO_EDGES: ReadonlyMap<string, never> = new Map<string, never>()
const NO_LAYERS: EdgeLayers = { parts: [], members: [] }
const NOBODY: ReadonlySet<string> = new Set()

/**
 * Sends flushes to the edges. Shared parts are encoded once, and only members with parts of their own cost more. Knows what was delivered
 * last, for members that missed it. The state before a flush is not kept, so a request for the whole state waits while a flush is in
 * flight.
 */
export class Delivery {
  readonly #room: DeliveredRoom
  readonly #frames: RoomFrames
  readonly #replies: Replies
  readonly #needs: DeliveryNeeds
  /** Undefined: the room type has no layers. */
  readonly #layers: LayerDelivery | undefined
  /** Encoded `state.resync` of the delivered state, with its epoch. A room that the store has lost continues under a new epoch. */
  readonly #resyncs = new Map<Subprotocol, { readonly epoch: number; readonly frame: Frame }>()
  #delivered: Delivered

  constructor(room: DeliveredRoom, frames: RoomFrames, replies: Replies, needs: DeliveryNeeds) {
    this.#needs = needs
    const { grants, memberships, seq, state } = room
    this.#room = room
    this.#frames = frames
    this.#replies = replies
    this.#layers = state.layers && new LayerDelivery(state.layers, grants, memberships, frames.layers!)
    const { playerCount, spectatorCount } = memberships
    const members = frames.showsSpectators ? memberships.members : memberships.players
    this.#delivered = { seq, checksum: state.checksum, members, playerCount, spectatorCount }
  }

  /** What members have received of the room. */
  get delivered(): Delivered {
    return this.#delivered
  }

  /** Sends one flush, and keeps it in the history for members that miss it. */
  flush(flush: Flush): void {
    const { acked, changes, packed, update } = flush
    const { clock, metrics } = this.#needs
    const since = changes.since ?? clock.monotonic()
    const frames = this.#send(flush)
    for (let i = 0; i < acked.length; i++) acked[i]!.refs.commit(update.acks[i]!.ref)
    for (const { membership } of changes.joins) membership.announced = true
    const { definition, history } = this.#room
    if (update.visible && frames) history.add(update, packed, frames, since)
    else if (update.visible) history.clear({ epoch: update.epoch, seq: update.seq })
    metrics.deliveryDuration.observe({ room_type: definition.type }, (clock.monotonic() - since) / 1000)
  }

  /** Returns the encoded frames of the flush. Undefined: no member can receive them. */
  #send(flush: Flush): UpdateFrames | undefined {
    const { update, members, playerCount, spectatorCount, changes } = flush
    const { seq, checksum, visible } = update
    if (update.delta) this.#frames.stateChanged(this.#room.state.base)
    const parting: PendingLeave[] = []
    for (const leave of changes.leaves)
      if (getsLeft(leave)) parting.push(leave)
      else this.#release(leave)
    const { personal, leaving } = this.#personal(flush, parting)
    let encoded: UpdateFrames | undefined
    if (!visible) {
      const joined = this.#joined(flush)
      for (const edge of new Set([...personal.keys(), ...joined.keys()]))
        this.#replies.update(edge, seq, undefined, personal.get(edge) ?? NONE, joined.get(edge) ?? NONE)
    } else if (this.#room.memberships.codecs.size > 0) {
      // The order counts: the snapshots contain what the patch announces.
      const layers = this.#layers?.flush(
        update,
        // If a seat is taken over, the leaving session gets its layers up to this flush.
        changes.joins.length === 0
          ? NOBODY
          : new Set(
              changes.joins.filter((join) => !join.replaces).map(({ membership }) => membership.member.id),
            ),
      )
      encoded = this.#frames.update(update, this.#room.memberships.codecs.keys())
      if (layers) encoded = { ...encoded, layers: layers.encoded }
      const joined = this.#joined(flush)
      for (const edge of this.#room.memberships.edges.keys())
        this.#replies.update(edge, seq, encoded, personal.get(edge) ?? NONE, joined.get(edge) ?? NONE, {
          layers: layers && (layers.byEdge.get(edge) ?? NO_LAYERS),
          leaving: leaving.get(edge),
        })
    }
    for (const leave of parting) this.#part(leave)
    this.#delivered = { seq, checksum, members, playerCount, spectatorCount }
    // Mostly empty. A Map that is cleared gets another table.
    if (visible && this.#resyncs.size > 0) this.#resyncs.clear()
    return this.#room.memberships.codecs.size === 0 ? undefined : encoded
  }

  /** Returns a `state.resync` with all that the member may see of the delivered state. */
  resync(membership: Membership): StateFrames {
    const { member, codec } = membership
    const patch = this.#frames.hidesMembers
      ? this.#whole('state.resync', codec, this.#knownTo(membership))
      : this.#resync(codec)
    return this.#complete(patch, member.id, codec)
  }

  /** Adds the member's layers and the number of spectators to a whole state. */
  #complete(
    whole: Frame,
    memberId: string,
    codec: Subprotocol,
    spectatorCount = this.#delivered.spectatorCount,
  ): StateFrames {
    return {
      patch: { [codec]: whole },
      layers: this.#layers?.of(memberId, codec),
      rest: this.#audience(codec, spectatorCount),
    }
  }

  /** Returns what a member missed. The last update has the layers that it was shown since then, and those that were hidden from it. */
  replayed(
    { codec }: Membership,
    missed: readonly StateFrames[],
    shown: readonly string[],
    hidden: readonly string[],
  ): readonly StateFrames[] {
    const last = missed.at(-1)
    const layers = last && this.#layers?.changed(shown, hidden, codec)
    const all = layers ? [...missed.slice(0, -1), { ...last, layers: [...last.layers!, ...layers] }] : missed
    const audience = this.#audience(codec)
    return audience ? [...all, { rest: audience }] : all
  }

  /** Encodes the number of spectators. Undefined: the room type has none. */
  #audience(subprotocol: Subprotocol, count = this.#delivered.spectatorCount): Frames | undefined {
    return this.#room.definition.spectators && { [subprotocol]: this.#frames.spectators(count, subprotocol) }
  }

  /** Tells all members the number of spectators. */
  announceSpectators(): void {
    const { codecs, edges } = this.#room.memberships
    const frames: MutableFrames = {}
    for (const codec of codecs.keys())
      frames[codec] = this.#frames.spectators(this.#delivered.spectatorCount, codec)
    for (const edge of edges.keys()) this.#replies.send(edge, { kind: 'spectators', frames })
  }

  /** Encoded once for all members that need it before the next flush. */
  #resync(subprotocol: Subprotocol): Frame {
    const { epoch } = this.#room
    const known = this.#resyncs.get(subprotocol)
    if (known?.epoch === epoch) return known.frame
    const frame = this.#whole('state.resync', subprotocol, this.#delivered.members)
    this.#resyncs.set(subprotocol, { epoch, frame })
    return frame
  }

  /** Sends the answer to a join again. */
  repeatJoin(membership: Membership): void {
    const { member, edge, codec } = membership
    const whole = this.#whole('state.snapshot', codec, this.#knownTo(membership))
    const snapshot = this.#complete(whole, member.id, codec)
    this.#replies.update(edge, this.#delivered.seq, undefined, NONE, [
      { ...this.#seatOf(membership), snapshot },
    ])
  }

  /** The members that this member sees. */
  #knownTo({ member }: Membership): readonly Member[] {
    return this.#frames.hidesMembers ? [member] : this.#delivered.members
  }

  /** Encodes the whole state. `delivered`: what members receive with it. */
  #whole(
    t: WholeName,
    subprotocol: Subprotocol,
    members: readonly Member[],
    { epoch, seq, checksum }: WholeAt = { ...this.#delivered, epoch: this.#room.epoch },
  ): Frame {
    const state = this.#room.state.base
    const at = { room_id: this.#frames.roomId, epoch, seq, checksum, state }
    return this.#frames.whole(t, at, members.map(memberInfo), subprotocol)
  }

  /** Ends a membership without `left`: its join was never delivered, or its session has ended. */
  #release({ membership, reason, end, unseen }: PendingLeave): void {
    this.#room.memberships.release(membership)
    if (!unseen || reason === 'session_ended') return
    this.#replies.send(membership.edge, {
      kind: 'refused',
      member_id: membership.subscriptionId,
      request_id: membership.joinRequest,
      code: refusalCode(end) ?? 'join_refused',
      message:
        end.message ??
        (reason === 'kicked' ? 'the room removed you as you joined' : 'the room ended as you joined'),
      match: end.match,
    })
  }

  /** Sends `left` to a member, after its parts of the update. */
  #part({ membership, reason, end }: PendingLeave): void {
    this.#room.memberships.release(membership)
    this.#replies.part(membership.edge, membership.subscriptionId, { reason, ...end })
  }

  /** The last part of a leaving member: events until its departure, and outcomes of its last messages. */
  #lastPart({ membership, endEvent }: PendingLeave, update: Update): PersonalPart | undefined {
    const { member, subscriptionId, refs, ackDue } = membership
    const events = update.events
      .slice(0, endEvent)
      .filter(({ to }) => !to || to.includes(member.id))
      .map((event) => this.#frames.event(event))
    if (events.length === 0 && !ackDue) return undefined
    return { member_id: subscriptionId, events, ...(ackDue && refs.unflushed) }
  }

  /** Returns, by edge, the parts for single members, and the members that leave with the update. */
  #personal(
    { update, changes: { joins }, acked }: Flush,
    parting: readonly PendingLeave[],
  ): {
    readonly personal: ReadonlyMap<string, PersonalPart[]>
    readonly leaving: ReadonlyMap<string, string[]>
  } {
    if (update.events.length + acked.length + parting.length === 0)
      return { personal: NO_EDGES, leaving: NO_EDGES }
    const events = update.events.length > 0 ? this.#eventsOf(update, joins, parting) : undefined
    const parts = new Map<string, PersonalPart[]>()
    const allOutcomes = update.outcomes.length > 0 ? outcomesOf(update) : undefined
    for (let i = 0; i < acked.length; i++) {
      const membership = acked[i]!
      const { ref: ack, forgotten } = update.acks[i]!
      const outcomes = allOutcomes?.get(membership.member.id)
      if (!membership.detached)
        append(parts, membership.edge, {
          member_id: membership.subscriptionId,
          events: events?.get(membership) ?? NONE,
          ack,
          ...(outcomes && { outcomes }),
          ...(forgotten > 0 && { forgotten }),
        })
      events?.delete(membership)
    }
    if (events)
      for (const [{ detached, edge, subscriptionId }, own] of events)
        if (!detached) append(parts, edge, { member_id: subscriptionId, events: own })
    const leaving = new Map<string, string[]>()
    for (const leave of parting) {
      const { membership } = leave
      if (membership.detached) continue
      append(leaving, membership.edge, membership.subscriptionId)
      const last = this.#lastPart(leave, update)
      if (last) append(parts, membership.edge, last)
    }
    return { personal: parts, leaving }
  }

  /** Returns the events of a flush that single members get, by member. */
  #eventsOf(
    { events }: Update,
    joins: Flush['changes']['joins'],
    parting: readonly PendingLeave[],
  ): Map<Membership, EventMessage[]> {
    const departed = new Set(parting.map(({ membership }) => membership))
    const byMember = new Map<Membership, EventMessage[]>()
    const give = (membership: Membership, event: EventMessage) => {
      if (byMember.get(membership)?.at(-1) !== event) append(byMember, membership, event)
    }
    for (let index = 0; index < events.length; index++) {
      const event = events[index]!
      // New members do not get the shared frames of the flush with their join. Later events of that flush go to each of them.
      if (!event.to && joins.length === 0) continue
      const message = this.#frames.event(event)
      for (const { membership, firstEvent } of joins)
        if (index >= firstEvent && (!event.to || event.to.includes(membership.member.id)))
          give(membership, message)
      for (const memberId of event.to ?? NONE) {
        const membership = this.#room.memberships.recipient(memberId)
        if (membership?.announced && !departed.has(membership)) give(membership, message)
      }
    }
    return byMember
  }

  /** Returns, by edge, the members that join with this flush, each with its snapshot. */
  #joined({
    update,
    members,
    spectatorCount,
    changes: { joins },
  }: Flush): ReadonlyMap<string, JoinedMember[]> {
    if (joins.length === 0) return NO_EDGES
    const byEdge = new Map<string, JoinedMember[]>()
    const { hidesMembers } = this.#frames
    const shared: MutableFrames = {}
    for (const { membership } of joins) {
      const { codec, edge, member } = membership
      if (!hidesMembers) shared[codec] ??= this.#whole('state.snapshot', codec, members, update)
      const whole = shared[codec] ?? this.#whole('state.snapshot', codec, [member], update)
      const snapshot = this.#complete(whole, member.id, codec, spectatorCount)
      append(byEdge, edge, { ...this.#seatOf(membership), snapshot })
    }
    return byEdge
  }

  /** Ids of a membership in the answer to its join, and the room's code. */
  #seatOf({ member, subscriptionId, joinRequest }: Membership) {
    const { code } = this.#room
    return {
      member_id: subscriptionId,
      ...(subscriptionId !== member.id && { seat: member.id }),
      request_id: joinRequest,
      ...(code !== undefined && { code }),
    }
  }
}

/** True if a leaving member gets `left`. Otherwise its edge has forgotten it, or its client never knew the seat. */
const getsLeft = ({ reason, end, unseen }: PendingLeave): boolean =>
  !unseen && (reason !== 'session_ended' || end.message !== undefined)

/** Returns the outcomes by member id. Most updates have none. */
function outcomesOf({ outcomes }: Update): Map<string, Outcome[]> {
  const byMember = new Map<string, Outcome[]>()
  for (const { memberId, ...outcome } of outcomes) append(byMember, memberId, outcome)
  return byMember
}

function append<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key)
  if (list) list.push(value)
  else lists.set(key, [value])
}

/** Returns the member as clients see it. */
const memberInfo = ({ id, sub, connected, spectator }: Member): MemberInfo => ({
  member_id: id,
  sub,
  connected,
  ...(spectator && { spectator }),
})
