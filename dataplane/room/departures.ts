import type { Clock } from '../../shared/clock.ts'
import type { Farewell } from '../traffic.ts'

interface Departure {
  readonly farewell: Farewell
  /** The edge that gets the `left`. */
  readonly edge: string
  readonly until: number
}

/** Maximum number of departures that a node remembers, for all its rooms together. */
const MAX_DEPARTURES = 4096

/**
 * The latest seats that rooms of this node have ended. If a session's edge died, or the session moved to another edge, its record may still
 * name a seat that has ended. Its next message is then answered from here.
 */
export class Departures {
  readonly #clock: Clock
  readonly #keptMs: number
  /** By subscription id, the latest last. */
  readonly #departures = new Map<string, Departure>()

  /** `keptMs`: how long a departure is kept, which is as long as a session can be resumed. */
  constructor(clock: Clock, keptMs: number) {
    this.#clock = clock
    this.#keptMs = keptMs
  }

  add(subscriptionId: string, farewell: Farewell, edge: string): void {
    const now = this.#clock.monotonic()
    this.#departures.set(subscriptionId, { farewell, edge, until: now + this.#keptMs })
    for (const [oldest, { until }] of this.#departures) {
      if (until > now && this.#departures.size <= MAX_DEPARTURES) break
      this.#departures.delete(oldest)
    }
  }

  /** Returns how the seat of a subscription ended. Undefined: unknown, or too long ago. */
  of(subscriptionId: string): Departure | undefined {
    const departure = this.#departures.get(subscriptionId)
    return departure && departure.until > this.#clock.monotonic() ? departure : undefined
  }
}
