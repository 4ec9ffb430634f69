import type { Clock } from '../../shared/clock.ts'
import type { RoomLog } from './definition.ts'
import { RoomLogicRefused } from './turn.ts'
import { errorText, failureText } from './validate.ts'

const QUIET_MS = 10_000

/** What a player is told of a turn that did not take place. */
export interface Refused {
  readonly code: 'room_logic_refused' | 'room_logic_failed'
  readonly message: string
}

/**
 * Tells refusals of room logic from its failures, and logs the latter, each kind at most once in ten seconds: a room that throws at every
 * tick must not fill the disk.
 */
export class FailureLog {
  readonly #clock: Clock
  readonly #log: RoomLog
  readonly #reveal: boolean
  readonly #kinds = new Map<string, { until: number; suppressed: number }>()

  /** `reveal`: players are told what was thrown. */
  constructor(clock: Clock, log: RoomLog, reveal: boolean) {
    this.#clock = clock
    this.#log = log
    this.#reveal = reveal
  }

  /** What the player is told of something that room logic threw; a failure is logged. `kind`: what it was, such as `on_tick`. */
  explain(kind: string, error: unknown): Refused {
    if (RoomLogicRefused.is(error)) return { code: 'room_logic_refused', message: error.message }
    this.#add(kind, error)
    return { code: 'room_logic_failed', message: failureText(error, this.#reveal) }
  }

  #add(kind: string, error: unknown): void {
    const now = this.#clock.monotonic()
    const last = this.#kinds.get(kind)
    if (last && now < last.until) {
      last.suppressed++
      return
    }
    this.#kinds.set(kind, { until: now + QUIET_MS, suppressed: 0 })
    logFailure(this.#log, error, { failed: kind, suppressed: last?.suppressed ?? 0 }, 'the room logic failed')
  }
}

/** Logs something that room logic threw. Never throws: a log reads every property of an error, and the reading may throw. */
export function logFailure(log: Pick<RoomLog, 'warn'>, error: unknown, fields: object, text: string): void {
  try {
    log.warn({ ...fields, err: error }, text)
  } catch {
    log.warn({ ...fields, err: new Error(errorText(error)) }, text)
  }
}
