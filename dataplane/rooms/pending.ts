import type { Json } from '../../shared/json.ts'
import type { LeaveReason } from '../../shared/protocol/messages.ts'
import type { Member } from './definition.ts'
import type { Seat } from './seat.ts'
import type { RoomEvent, Update } from './update.ts'

/** A join since the last flush. */
export interface Join {
  readonly seat: Seat
  /** Events of the flush from this one on came after it. */
  readonly first_event: number
}

/** A seat given up since the last flush. */
export interface Parting {
  readonly seat: Seat
  readonly reason: LeaveReason
  /** The `leave` to answer. */
  readonly ref: number | undefined
  /** Events of the flush before this one came while the member was there. */
  readonly end_event: number
  /** The join was never delivered: to the others, nobody came and nobody went. */
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
  readonly joins: readonly Join[]
  readonly partings: readonly Parting[]
  /** The seats of `update.acks`, in the same order. */
  readonly acked: readonly Seat[]
  /** When the first change in it happened, on the monotonic clock. */
  readonly since: number
}

/** What has happened in a room since its last flush, besides the state. */
export class Pending {
  events: RoomEvent[] = []
  joins: Join[] = []
  partings: Parting[] = []
  /** Seats with `ack_due`. */
  acked: Seat[] = []
  /** When the first of it happened, on the monotonic clock; undefined: nothing has. */
  since: number | undefined

  join(seat: Seat): void {
    this.joins.push({ seat, first_event: this.events.length })
  }

  part(seat: Seat, reason: LeaveReason, ref: number | undefined): void {
    const joined = this.joins.findIndex((join) => join.seat === seat)
    if (joined >= 0) this.joins.splice(joined, 1)
    this.partings.push({ seat, reason, ref, end_event: this.events.length, unseen: joined >= 0 })
  }

  /** The seat's `last_ref` goes out as an ack. */
  ack(seat: Seat): void {
    if (seat.ack_due) return
    seat.ack_due = true
    this.acked.push(seat)
  }
}
