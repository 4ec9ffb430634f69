import type { Clock } from '../../shared/clock.ts'

/** A token bucket: `burst` at once, `per_second` in the long run. Starts full. */
export class RateLimit {
  readonly #clock: Clock
  readonly #per_ms: number
  readonly #burst: number
  #left: number
  #filled_at: number

  constructor(clock: Clock, per_second: number, burst: number) {
    this.#clock = clock
    this.#per_ms = per_second / 1000
    this.#burst = burst
    this.#left = burst
    this.#filled_at = clock.monotonic()
  }

  /** Takes one; false when there is none left. */
  take(): boolean {
    const now = this.#clock.monotonic()
    this.#left = Math.min(this.#burst, this.#left + (now - this.#filled_at) * this.#per_ms)
    this.#filled_at = now
    if (this.#left < 1) return false
    this.#left -= 1
    return true
  }
}
