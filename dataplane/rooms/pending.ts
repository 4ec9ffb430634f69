import type { DepartureReason } from '../../shared/protocol/messages.ts'
import type { RoomEvent, Update } from './journal.ts'
import type { Membership, Memberships } from './memberships.ts'

/** A join since the last flush. */
export interface PendingJoin {
  readonly membership: Membership
  /** Events of the flush from this one on came after it. */
  readonly firstEvent: number
  /** The session takes over a seat that members know of. */
  readonly replaces: boolean
}

/** A membership given up since the last flush. */
export interface PendingLeave {
  readonly membership: Membership
  readonly reason: DepartureReason
  /** Why, in words for the player. */
  readonly text: string | undefined
  /** Events of the flush before this one came while the member was there. */
  readonly endEvent: number
  /** The join was never delivered to its client. */
  readonly unseen: boolean
  /** A member that the others know of is gone. */
  readonly departs: boolean
}

/** What has happened in a room since its last flush, besides the state. */
export class Pending {
  events: RoomEvent[] = []
  joins: PendingJoin[] = []
  leaves: PendingLeave[] = []
  /** Members of whom something may have changed. */
  readonly changed = new Set<Membership>()
  /** Memberships with `ackDue`. */
  acked: Membership[] = []
  /** When the first of it happened, on the monotonic clock; undefined: nothing has. */
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

  /** Another session takes the seat over. */
  replace(before: Membership, membership: Membership): void {
    const join = this.joins.find((join) => join.membership === before)
    this.part(before, 'replaced', REPLACED)
    this.joins.push({ membership, firstEvent: this.events.length, replaces: !join || join.replaces })
  }

  /** The membership's `refs.last` goes out as an ack. */
  ack(membership: Membership): void {
    if (membership.ackDue) return
    membership.ackDue = true
    this.acked.push(membership)
  }
}

/** What of members who are still there is another since the last flush, which is told of with this one. */
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

/** Text for the client whose seat another session has. */
const REPLACED = 'the player has joined with another session'

const UNCHANGED: Pick<Update, 'presence' | 'renewed'> = { presence: [], renewed: [] }
