const FIRST_RETRY_MS = 1000
const LONGEST_MS = 5000
/** The node is to be busy with this page for a small part of the time at most, however long it takes to answer. */
const REST = 5

/**
 * Does the work of one round: resolves with how long to wait for the next, in milliseconds, or undefined when it failed. `isLatest()` tells
 * whether a newer one has begun.
 */
export type Round = (isLatest: () => boolean) => Promise<number | undefined>

/** Does one round after another; less often when rounds take long or fail, and not while the tab is hidden. */
export class Poller {
  readonly #round: Round
  #timer = 0
  #running = false
  #turn = 0
  #failures = 0

  constructor(round: Round) {
    this.#round = round
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) clearTimeout(this.#timer)
      else if (this.#running) void this.now()
    })
  }

  /** Begins a round at once, and goes on from there. */
  async now(): Promise<void> {
    clearTimeout(this.#timer)
    this.#running = true
    const turn = ++this.#turn
    const isLatest = () => turn === this.#turn
    const began = performance.now()
    const pause = await this.#round(isLatest)
    if (!isLatest()) return
    this.#failures = pause === undefined ? this.#failures + 1 : 0
    const wait = pause ?? Math.min(LONGEST_MS, FIRST_RETRY_MS * 2 ** (this.#failures - 1))
    const took = performance.now() - began
    if (!document.hidden) this.#timer = window.setTimeout(() => this.now(), Math.max(wait, REST * took))
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#running = false
    this.#turn++
  }
}
