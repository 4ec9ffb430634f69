const EVERY_MS = 1000
const LONGEST_MS = 5000
/** The node is to be busy with this page for a small part of the time at most, however long it takes to answer. */
const REST = 5

/** Does one round after another, a second apart; less often when rounds take long or fail, and not while the tab is hidden. */
export class Poller {
  #round
  #timer = 0
  #running = false
  #turn = 0
  #failures = 0

  /** `round` does the work: it resolves with whether it succeeded, and is told by `isLatest()` whether a newer one has begun. */
  constructor(round) {
    this.#round = round
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) clearTimeout(this.#timer)
      else if (this.#running) this.now()
    })
  }

  /** Begins a round at once, and goes on from there. */
  async now() {
    clearTimeout(this.#timer)
    this.#running = true
    const turn = ++this.#turn
    const isLatest = () => turn === this.#turn
    const began = performance.now()
    const succeeded = await this.#round(isLatest)
    if (!isLatest()) return
    this.#failures = succeeded ? 0 : this.#failures + 1
    const took = performance.now() - began
    const pause = Math.min(LONGEST_MS, EVERY_MS * 2 ** Math.max(0, this.#failures - 1))
    if (!document.hidden) this.#timer = setTimeout(() => this.now(), Math.max(pause, REST * took))
  }

  stop() {
    clearTimeout(this.#timer)
    this.#running = false
    this.#turn++
  }
}
