import type { Random } from '../shared/random.ts'

/**
 * Waiting times between attempts: exponential with full jitter, so that clients who lost the same node do not come back together
 * (M. Brooker, "Exponential Backoff And Jitter", 2015).
 */
export class Backoff {
  readonly #random: Random
  readonly #baseMs: number
  readonly #maxMs: number
  #attempts = 0

  constructor(random: Random, baseMs: number, maxMs: number) {
    this.#random = random
    this.#baseMs = baseMs
    this.#maxMs = maxMs
  }

  /** How long to wait before the next attempt, in milliseconds: anything from 0 to a bound that doubles each time, up to `maxMs`. */
  next(): number {
    const bound = Math.min(this.#maxMs, this.#baseMs * 2 ** this.#attempts++)
    return this.#random.float() * bound
  }

  /** The last attempt succeeded: the next series starts small again. */
  reset(): void {
    this.#attempts = 0
  }
}
