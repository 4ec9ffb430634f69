import type { Random } from '../../shared/random.ts'

/** Repeatable randomness: the same seed gives the same run. xorshift32 (G. Marsaglia, "Xorshift RNGs", 2003). */
export class SeededRandom implements Random {
  #state: number

  constructor(seed = 1) {
    this.#state = seed >>> 0 || 1
  }

  #next(): number {
    let x = this.#state
    x ^= x << 13
    x ^= x >>> 17
    x ^= x << 5
    this.#state = x >>> 0
    return this.#state
  }

  bytes(length: number): Uint8Array {
    return Uint8Array.from({ length }, () => this.#next() >>> 24)
  }

  float(): number {
    return this.#next() / 2 ** 32
  }

  /** From `least` to `most`, both included. */
  integer(least: number, most: number): number {
    return least + Math.floor(this.float() * (most - least + 1))
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.integer(0, choices.length - 1)]!
  }
}
