import type { DepartureReason } from '../../shared/protocol/messages.ts'
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
  /** The members after the flush. */
  readonly members: readonly Member[]
  /** True if turns have changed the state. */
  readonly stateChanged: boolean
  /** The changes that it delivers. */
  readonly changes: Changes
  /** The memberships of `update.acks`, in the same order. */
  readonly acked: readonly Membership[]
}

/** Text for a client whose seat another session has taken over. */
const REPLACED = 'the player has joined with another session'

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
  /** The code of the room is another one. */
  code = false
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
