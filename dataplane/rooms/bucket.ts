import type { Rate } from './definition.ts'

/** A token bucket for one member's messages of one type; starts full. */
export class Bucket {
  readonly #per_ms: number
  readonly #burst: number
  #left: number
  #filled_at: number

  constructor({ per_second, burst }: Required<Rate>, now: number) {
    this.#per_ms = per_second / 1000
    this.#burst = burst
    this.#left = burst
    this.#filled_at = now
  }

  /** Takes one at monotonic `now`; false when there is none left. */
  take(now: number): boolean {
    this.#left = Math.min(this.#burst, this.#left + (now - this.#filled_at) * this.#per_ms)
    this.#filled_at = now
    if (this.#left < 1) return false
    this.#left -= 1
    return true
  }
}
