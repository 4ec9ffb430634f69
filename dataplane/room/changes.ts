import type { DepartureReason } from '../../shared/protocol/messages.ts'
import type { SeatEnd } from '../traffic.ts'
import type { Member } from './definition-types.ts'
import type { RoomEvent, Update } from './journal.ts'
import type { Membership } from './memberships.ts'

/** One flush, with everything that its delivery needs. */
export interface Flush {
  /** What a feature adds to the write of the update. */
  readonly additions: readonly Uint8Array[]
  readonly update: Update
  /** Its journal entry. Undefined: the room is not stored. */
  readonly packed: Uint8Array | undefined
  /** The members after the flush, as all members see them. */
  readonly members: readonly Member[]
  readonly playerCount: number
  readonly spectatorCount: number
  /** True if turns have changed the state. */
  readonly stateChanged: boolean
  /** The changes that it delivers. */
  readonly changes: Changes
  /** The memberships of `update.acks`, in the same order. */
  readonly acked: readonly Membership[]
}

/** End of a seat for another session of the player. */
export const REPLACED: SeatEnd = { message: 'the player has joined with another session' }

/** A join since the last flush. */
interface PendingJoin {
  readonly membership: Membership
  /** Index of the first event of the flush that was emitted after the join. */
  readonly firstEvent: number
  /** The session takes over a seat that members know. */
  readonly replaces: boolean
}

/** A membership that has ended since the last flush. */
export interface PendingLeave {
  readonly membership: Membership
  readonly reason: DepartureReason
  readonly end: SeatEnd
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
  /** The code of the room is another one. */
  code = false
  /** When the first change was made (monotonic clock). Undefined: there is none. */
  since: number | undefined

  join(membership: Membership): void {
    this.joins.push({ membership, firstEvent: this.events.length, replaces: false })
  }

  part(membership: Membership, reason: DepartureReason, end: SeatEnd): void {
    const join = this.#takeJoin(membership)
    this.leaves.push({ ...this.#leave(membership, join), reason, end, departs: !join || join.replaces })
  }

  /** Another session takes over the seat. */
  replace(before: Membership, membership: Membership): void {
    const join = this.#takeJoin(before)
    this.leaves.push({ ...this.#leave(before, join), reason: 'replaced', end: REPLACED, departs: false })
    this.joins.push({ membership, firstEvent: this.events.length, replaces: !join || join.replaces })
  }

  /** Removes and returns the join of a membership, if it was not delivered yet. */
  #takeJoin(membership: Membership): PendingJoin | undefined {
    const at = this.joins.findIndex((join) => join.membership === membership)
    return at >= 0 ? this.joins.splice(at, 1)[0] : undefined
  }

  #leave(membership: Membership, join: PendingJoin | undefined) {
    return { membership, endEvent: this.events.length, unseen: join !== undefined }
  }

  /** The next update acks the membership's `refs.last`. */
  ack(membership: Membership): void {
    if (membership.ackDue) return
    membership.ackDue = true
    this.acked.push(membership)
  }
}
