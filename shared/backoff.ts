import type { Random } from './random.ts'

/**
 * Delays between attempts: exponential backoff with full jitter, so that the clients of a lost node do not reconnect at the same moment
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

  /** Returns the delay before the next attempt in milliseconds: a random value up to a bound that doubles each time, at most `maxMs`. */
  next(): number {
    const bound = Math.min(this.#maxMs, this.#baseMs * 2 ** this.#attempts++)
    return this.#random.float() * bound
  }

  /** Resets the bound after a successful attempt. */
  reset(): void {
    this.#attempts = 0
  }
}
