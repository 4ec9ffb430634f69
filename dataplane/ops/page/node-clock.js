/** A difference below this is how long answers take, and that they tell whole seconds. */
const LEAST_MS = 5000

/** The clock of the node, as far as its answers tell: ages are counted by it, so that a wrong clock of this machine does not show. */
export class NodeClock {
  #ahead_ms = 0

  /** `date`: the header of an answer that just came; null: it had none. */
  hear(date) {
    const ahead_ms = Date.parse(date ?? '') - Date.now()
    if (Number.isNaN(ahead_ms)) return
    this.#ahead_ms = Math.abs(ahead_ms) < LEAST_MS ? 0 : ahead_ms
  }

  /** How far it is ahead of this machine's, milliseconds; 0 for what is next to nothing. */
  get ahead_ms() {
    return this.#ahead_ms
  }

  /** How long ago an RFC 3339 time of the node was, milliseconds. */
  age(stamp) {
    return Date.now() + this.#ahead_ms - Date.parse(stamp)
  }
}
