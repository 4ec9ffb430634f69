import type { Tally } from './tally.ts'

/** Counts the attempts of one client to connect that come after one which got it nowhere. */
export class Retries {
  readonly #tally: Tally
  /** Since the client was connected last. */
  #attempts = 0

  constructor(tally: Tally) {
    this.#tally = tally
  }

  /** How many there were since the client was connected last. */
  get count(): number {
    return Math.max(0, this.#attempts - 1)
  }

  /** A connection is attempted. */
  dialled(): void {
    this.#attempts += 1
    if (this.#attempts > 1) this.#tally.counts.retries += 1
  }

  /** The last attempt succeeded. */
  connected(): void {
    this.#attempts = 0
  }
}
