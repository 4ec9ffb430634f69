import type { Json } from '../../shared/json.ts'
import type { LeaveReason } from '../../shared/protocol/messages.ts'
import type { Delta } from '../../shared/sync/delta.ts'
import type { RefusedRef } from '../traffic.ts'
import type { Member } from './definition.ts'
import type { Membership, SeatRecord } from './memberships.ts'

/** A place in a room's history: after the update `seq`, as seen under `epoch`. */
export interface Position {
  readonly epoch: number
  readonly seq: number
}

/** Epochs between two others, both not meant: a member who saw the room under one of them saw a history that was lost. */
export interface LostEpochs {
  readonly after: number
  readonly before: number
}

/** A room-defined event of one flush. */
export interface RoomEvent {
  readonly name: string
  readonly data: Json
  /** Member ids; undefined: everyone. */
  readonly to: readonly string[] | undefined
}

/** How far the messages of a member are settled. */
export interface Ack {
  readonly memberId: string
  /** The highest ref that is settled. */
  readonly ref: number
  /** The highest ref of which it is forgotten whether it was refused. */
  readonly forgotten: number
}

/** A message of a member that was refused. */
export interface Refusal extends RefusedRef {
  readonly memberId: string
}

/** A member who has left. */
export interface Departure {
  readonly member: Member
  readonly reason: LeaveReason
}

/**
 * What one flush did to a room: everything that members are told, that the journal records, and that a resume replays. Immutable and
 * free of anything that lives in this process only.
 */
export interface Update {
  readonly epoch: number
  /** One more than the update before when members can see it, otherwise the same. */
  readonly seq: number
  /** Whether members can see it; otherwise it carries acks only. */
  readonly visible: boolean
  /** Of the state after it. */
  readonly checksum: number
  readonly delta: Delta | undefined
  readonly events: readonly RoomEvent[]
  readonly joined: readonly SeatRecord[]
  readonly left: readonly Departure[]
  readonly acks: readonly Ack[]
  /** Those among the refs of `acks`, since the update before, that were refused, in the order of their refs. */
  readonly refused: readonly Refusal[]
}

/** A join since the last flush. */
export interface PendingJoin {
  readonly membership: Membership
  /** Events of the flush from this one on came after it. */
  readonly firstEvent: number
}

/** A membership given up since the last flush. */
export interface PendingLeave {
  readonly membership: Membership
  readonly reason: LeaveReason
  /** The `leave` to answer. */
  readonly ref: number | undefined
  /** Events of the flush before this one came while the member was there. */
  readonly endEvent: number
  /** The join was never delivered: to the others, no one came and no one went. */
  readonly unseen: boolean
}

/** One flush on its way out: the update, and what its delivery needs to know. */
export interface Flush {
  readonly update: Update
  /** Its journal entry; undefined in a room that is kept nowhere. */
  readonly packed: Uint8Array | undefined
  /** State and members after it. */
  readonly state: Json
  readonly members: readonly Member[]
  readonly joins: readonly PendingJoin[]
  readonly leaves: readonly PendingLeave[]
  /** The memberships of `update.acks`, in the same order. */
  readonly acked: readonly Membership[]
  /** When the first change in it happened, on the monotonic clock. */
  readonly since: number
}

/** What has happened in a room since its last flush, besides the state. */
export class Pending {
  events: RoomEvent[] = []
  joins: PendingJoin[] = []
  leaves: PendingLeave[] = []
  /** Memberships with `ackDue`. */
  acked: Membership[] = []
  /** When the first of it happened, on the monotonic clock; undefined: nothing has. */
  since: number | undefined

  join(membership: Membership): void {
    this.joins.push({ membership, firstEvent: this.events.length })
  }

  part(membership: Membership, reason: LeaveReason, ref: number | undefined): void {
    const joined = this.joins.findIndex((join) => join.membership === membership)
    if (joined >= 0) this.joins.splice(joined, 1)
    this.leaves.push({ membership, reason, ref, endEvent: this.events.length, unseen: joined >= 0 })
  }

  /** The membership's `refs.last` goes out as an ack. */
  ack(membership: Membership): void {
    if (membership.ackDue) return
    membership.ackDue = true
    this.acked.push(membership)
  }
}
