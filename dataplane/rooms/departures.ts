import type { Clock } from '../../shared/clock.ts'
import type { Farewell } from '../traffic.ts'

/** Maximum number of departures that a node remembers, of all its rooms together. */
const MAX_DEPARTURES = 4096

/**
 * Memory of the seats that rooms of this node have ended, the latest ones. A session whose edge died, or that was on its way to another
 * edge, comes back and asks for a seat of which its record does not know that it has ended.
 */
export class Departures {
  readonly #clock: Clock
  readonly #keptMs: number
  /** By subscription id, the latest last. */
  readonly #departures = new Map<string, { readonly farewell: Farewell; readonly until: number }>()

  /** Keeps each for `keptMs`: for as long as a session may be resumed. */
  constructor(clock: Clock, keptMs: number) {
    this.#clock = clock
    this.#keptMs = keptMs
  }

  add(subscriptionId: string, farewell: Farewell): void {
    const now = this.#clock.monotonic()
    this.#departures.set(subscriptionId, { farewell, until: now + this.#keptMs })
    for (const [oldest, { until }] of this.#departures) {
      if (until > now && this.#departures.size <= MAX_DEPARTURES) break
      this.#departures.delete(oldest)
    }
  }

  /** What a member was told when its seat ended; undefined: unknown, or too long ago. */
  of(subscriptionId: string): Farewell | undefined {
    const departure = this.#departures.get(subscriptionId)
    return departure && departure.until > this.#clock.monotonic() ? departure.farewell : undefined
  }
}
