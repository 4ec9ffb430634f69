/** Randomness as roomful sees it; passed in everywhere so that tests and simulations can repeat a run. */
export interface Random {
  /** `length` unpredictable bytes. */
  bytes(length: number): Uint8Array
  /** A number in [0, 1). */
  float(): number
}

/** The platform's cryptographic source. */
export const systemRandom: Random = {
  bytes: (length) => crypto.getRandomValues(new Uint8Array(length)),
  float: () => crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32,
}
