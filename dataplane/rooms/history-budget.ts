/** A history that can be made shorter. */
export interface Shrinkable {
  /** What it holds. */
  readonly bytes: number
  /** Forgets its oldest entry; false: it has none. */
  dropOldest(): boolean
}

/**
 * What the histories of all rooms of a node may hold together. Above that the room in which nothing has happened for longest loses its
 * oldest updates first: whoever of its members comes back late gets the whole state instead.
 */
export class HistoryBudget {
  readonly #most_bytes: number
  readonly #on_dropped: (entries: number) => void
  /** What each history holds, the least recently used first. */
  readonly #held = new Map<Shrinkable, number>()
  #bytes = 0

  constructor(most_bytes: number, on_dropped: (entries: number) => void) {
    this.#most_bytes = most_bytes
    this.#on_dropped = on_dropped
  }

  /** Of all histories together. */
  get bytes(): number {
    return this.#bytes
  }

  /** A history has changed, since something happened in its room. */
  used(history: Shrinkable): void {
    this.forget(history)
    this.#hold(history)
    let dropped = 0
    for (const oldest of this.#held.keys()) {
      if (this.#bytes <= this.#most_bytes) break
      while (this.#bytes > this.#most_bytes && oldest.dropOldest()) {
        dropped++
        this.#bytes += oldest.bytes - this.#held.get(oldest)!
        this.#held.set(oldest, oldest.bytes)
      }
      if (oldest.bytes === 0) this.#held.delete(oldest)
    }
    if (dropped > 0) this.#on_dropped(dropped)
  }

  /** Its room is no longer here. */
  forget(history: Shrinkable): void {
    this.#bytes -= this.#held.get(history) ?? 0
    this.#held.delete(history)
  }

  #hold(history: Shrinkable): void {
    if (history.bytes === 0) return
    this.#held.set(history, history.bytes)
    this.#bytes += history.bytes
  }
}
