import type { Claim } from '../../shared/store/port.ts'
import { decodeNote, type TurnCause } from '../watchdog/turns.ts'

/** So many turns without an end, within so long, and the room is not run again for a while. */
const MAX_RECENT = 3
const WITHIN_MS = 60_000

/**
 * The turns of a room that its earlier owners did not come to the end of, and that the present one must not begin again. They are never
 * done with, since an owner may die before it has written anything: a ref that is settled is not asked for here any more.
 */
export class StuckTurns {
  readonly #causes: readonly TurnCause[]
  /** The one that ended the last owner, if it was that. */
  readonly last: TurnCause | undefined
  /** How many there were in the last minute. */
  readonly recent: number

  constructor({ stuck, over }: Pick<Claim, 'stuck' | 'over'>) {
    this.#causes = stuck.flatMap(({ note }) => decodeNote(note) ?? [])
    const last = stuck.findLast(({ epoch }) => epoch === over)
    this.last = last && decodeNote(last.note)
    this.recent = stuck.filter(({ ageMs }) => ageMs < WITHIN_MS).length
  }

  /** Whether the room is to be run no more, for a while. */
  get tooMany(): boolean {
    return this.recent >= MAX_RECENT
  }

  /** Whether a member's message is one. */
  hasMessage(memberId: string, ref: number): boolean {
    return this.#has('onMessage', memberId, ref)
  }

  /** Whether a session's join is one. */
  hasJoin(sessionId: string, ref: number): boolean {
    return (['create', 'options', 'admit', 'onJoin'] as const).some((hook) => this.#has(hook, sessionId, ref))
  }

  /** Whether that a member leaves is one. */
  hasLeave(memberId: string): boolean {
    return this.#has('onLeave', memberId, 0)
  }

  #has(hook: TurnCause['hook'], subject: string, ref: number): boolean {
    return this.#causes.some((cause) => cause.hook === hook && cause.subject === subject && cause.ref === ref)
  }
}

/** A room that nothing has happened to. */
export const NO_STUCK_TURNS = new StuckTurns({ stuck: [], over: 0 })
