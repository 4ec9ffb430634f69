/** Randomness as roomful sees it; passed in everywhere so that tests and simulations can repeat a run. */
export interface Random {
  /** `length` unpredictable bytes. */
  bytes(length: number): Uint8Array
  /** A number in [0, 1). */
  float(): number
}

/** How many numbers, and how many bytes, are drawn at a time. */
const POOL = 1024
/** More than this at once is not taken from the pool. */
const MAX_POOLED_BYTES = 64

/** The platform's cryptographic source. Numbers and short texts are drawn from it many at a time, since each call into it costs microseconds. */
class SystemRandom implements Random {
  readonly #numbers = new Uint32Array(POOL)
  readonly #bytes = new Uint8Array(POOL)
  #nextNumber = POOL
  #nextByte = POOL

  bytes(length: number): Uint8Array {
    if (length > MAX_POOLED_BYTES) return crypto.getRandomValues(new Uint8Array(length))
    if (this.#nextByte + length > POOL) {
      crypto.getRandomValues(this.#bytes)
      this.#nextByte = 0
    }
    const from = this.#nextByte
    this.#nextByte += length
    const drawn = this.#bytes.slice(from, this.#nextByte)
    // What becomes a secret stays nowhere else.
    this.#bytes.fill(0, from, this.#nextByte)
    return drawn
  }

  float(): number {
    if (this.#nextNumber === POOL) {
      crypto.getRandomValues(this.#numbers)
      this.#nextNumber = 0
    }
    return this.#numbers[this.#nextNumber++]! / 2 ** 32
  }
}

export const systemRandom: Random = new SystemRandom()
