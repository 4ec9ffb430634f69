import type { Random } from '../shared/random.ts'

/**
 * Waiting times between attempts: exponential with full jitter, so that clients who lost the same node do not come back together
 * (M. Brooker, "Exponential Backoff And Jitter", 2015).
 */
export class Backoff {
  readonly #random: Random
  readonly #base_ms: number
  readonly #max_ms: number
  #attempts = 0

  constructor(random: Random, base_ms: number, max_ms: number) {
    this.#random = random
    this.#base_ms = base_ms
    this.#max_ms = max_ms
  }

  /** How long to wait before the next attempt, in milliseconds: anything from 0 to a bound that doubles each time, up to `max_ms`. */
  next(): number {
    const bound = Math.min(this.#max_ms, this.#base_ms * 2 ** this.#attempts++)
    return this.#random.float() * bound
  }

  /** The last attempt succeeded: the next series starts small again. */
  reset(): void {
    this.#attempts = 0
  }
}
