/** Source of randomness. Code gets it as a parameter, so that tests and simulations can repeat a run. */
export interface Random {
  /** Returns `length` unpredictable bytes. */
  bytes(length: number): Uint8Array
  /** Returns a number in [0, 1). */
  float(): number
}

/** Number of numbers, and of bytes, that are drawn at a time. */
const POOL = 1024
/** Longer requests bypass the pool. */
const MAX_POOLED_BYTES = 64

/**
 * The platform's cryptographic source. It draws numbers and short texts in large batches, because each call into the platform costs
 * microseconds.
 */
class SystemRandom implements Random {
  readonly #numbers = new Uint32Array(POOL)
  readonly #bytes = new Uint8Array(POOL)
  #nextNumber = POOL
  #nextByte = POOL

  bytes(length: number): Uint8Array {
    if (globalThis.crypto === undefined)
      throw new Error(
        'this platform has no crypto.getRandomValues: first import react-native-get-random-values',
      )
    if (length > MAX_POOLED_BYTES) return crypto.getRandomValues(new Uint8Array(length))
    if (this.#nextByte + length > POOL) {
      crypto.getRandomValues(this.#bytes)
      this.#nextByte = 0
    }
    const from = this.#nextByte
    this.#nextByte += length
    const drawn = this.#bytes.slice(from, this.#nextByte)
    // The drawn bytes may become a secret, so the pool must not keep them.
    this.#bytes.fill(0, from, this.#nextByte)
    return drawn
  }

  float(): number {
    // React Native. The client needs such numbers only for delays.
    if (globalThis.crypto === undefined) return Math.random()
    if (this.#nextNumber === POOL) {
      crypto.getRandomValues(this.#numbers)
      this.#nextNumber = 0
    }
    return this.#numbers[this.#nextNumber++]! / 2 ** 32
  }
}

export const systemRandom: Random = new SystemRandom()
