import type { Json } from '../../shared/json.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import type { Outcome } from '../traffic.ts'
import { deepCopy, frozen } from './copy.ts'
import type { Member } from './definition-types.ts'

/** Returns the member as room code gets it. */
export const memberFor = (member: Member): Member =>
  frozenMember({ ...member, data: frozen(deepCopy(member.data)) })

/** Returns a frozen copy. All members share a hidden class. A frozen spread of the fields would have its own, of 216 bytes. */
export const frozenMember = ({ id, sub, connected, data, spectator }: Member): Member =>
  Object.freeze({ id, sub, connected, data, spectator })

/** Outcomes in the record of a membership. */
export interface OutcomesRecord {
  /** Outcomes of refused and answered messages that the client has not confirmed, in the order of their refs. */
  readonly outcomes: readonly Outcome[]
  /** Highest ref whose outcome was forgotten. 0: none. */
  readonly forgotten: number
}

/** The parts of a membership that updates and snapshots record. */
export interface MembershipRecord extends OutcomesRecord {
  readonly member: Member
  readonly sessionId: string
  /** Id of the edge's subscription. Absent: it equals the member's id. It differs if the session has taken over the seat. */
  readonly subscriptionId?: string | undefined
  /** Request id of the join. A repeated join with the same id gets the same answer. */
  readonly joinRequest: number
  /** The node that has, or had last, the session's socket. */
  readonly edge: string
  readonly codec: Subprotocol
  /** Highest ref that was applied or refused. */
  readonly lastRef: number
  /** Seq of the update with the join. The member may not get anything from before it. Undefined: a version before spectators wrote the record. */
  readonly joinedSeq?: number | undefined
  /** Options of the join, for hooks that run at a change of the role. Undefined: the room type has no spectators. */
  readonly options?: Json | undefined
}
