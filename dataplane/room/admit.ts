import type { Clock } from '../../shared/clock.ts'
import type { RoomAddress } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import type { Member, RoomLog } from './definition-types.ts'
import { kindOf, RoomLogicError } from './failures.ts'
import type { Memberships } from './memberships.ts'
import { isPromise, type RoomCode, type RoomTurn } from './room-code.ts'
import type { LiveState } from './state.ts'

/** Result of `admit` for one player. */
export type Verdict =
  | { readonly admitted: true }
  | { readonly admitted: false; readonly why: string }
  | { readonly admitted: false; readonly failure: unknown }

/** The room that a player wants to join. */
interface AskedRoom {
  readonly roomId: string
  readonly address: RoomAddress
  readonly log: RoomLog
  readonly definition: RoomDefinition
  readonly memberships: Memberships
  readonly state: LiveState
}

interface AdmitNeeds {
  readonly clock: Clock
  readonly code: RoomCode
}

/** Calls `admit` for a player with checked options. Returns its verdict, now or later. Neither throws nor rejects. */
export function askAdmit(
  { address, definition, log, memberships, roomId, state }: AskedRoom,
  member: Member,
  options: unknown,
  turn: RoomTurn,
  { clock, code }: AdmitNeeds,
): Verdict | Promise<Verdict> {
  const ctx = {
    roomId,
    key: address.key,
    now: clock.now(),
    get members() {
      return memberships.members
    },
    get players() {
      return memberships.players
    },
    get spectators() {
      return memberships.spectators
    },
    get state() {
      return state.present as never
    },
    log,
  }
  try {
    const answer: unknown = code.start(turn, () => definition.admit?.(member, options, ctx))
    return isPromise(answer) ? Promise.resolve(answer).then(verdictOf, failed) : verdictOf(answer)
  } catch (error) {
    return failed(error)
  }
}

/** Refuses a player. `why`: text for the player. */
export const refused = (why: string): Verdict => ({ admitted: false, why })

/** Any answer except nothing and a text fails the join, because the author of `return false` does not mean to admit. */
function verdictOf(answer: unknown): Verdict {
  if (answer === undefined) return { admitted: true }
  if (typeof answer === 'string') return refused(answer.slice(0, 300) || 'the room refused the join')
  return failed(
    new RoomLogicError(
      `admit returned ${kindOf(answer)}; return nothing to admit, or a text for the player to refuse`,
    ),
  )
}

const failed = (failure: unknown): Verdict => ({ admitted: false, failure })
