/** Randomness as roomful sees it; passed in everywhere so that tests and simulations can repeat a run. */
export interface Random {
  /** `length` unpredictable bytes. */
  bytes(length: number): Uint8Array
  /** A number in [0, 1). */
  float(): number
}

const POOL = 1024

/** The platform's cryptographic source. Numbers are drawn from it a thousand at a time, since each call into it costs microseconds. */
class SystemRandom implements Random {
  readonly #pool = new Uint32Array(POOL)
  #next = POOL

  bytes(length: number): Uint8Array {
    return crypto.getRandomValues(new Uint8Array(length))
  }

  float(): number {
    if (this.#next === POOL) {
      crypto.getRandomValues(this.#pool)
      this.#next = 0
    }
    return this.#pool[this.#next++]! / 2 ** 32
  }
}

export const systemRandom: Random = new SystemRandom()
