import type { Clock } from '../../shared/clock.ts'
import type { RoomLog } from './definition.ts'
import { errorText } from './validate.ts'

const QUIET_MS = 10_000

/** Logs failures of room logic, each kind at most once in ten seconds: a room that throws at every tick must not fill the disk. */
export class FailureLog {
  readonly #clock: Clock
  readonly #log: RoomLog
  readonly #kinds = new Map<string, { until: number; suppressed: number }>()

  constructor(clock: Clock, log: RoomLog) {
    this.#clock = clock
    this.#log = log
  }

  /** `kind`: what failed, such as `on_tick`. */
  add(kind: string, error: unknown): void {
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
