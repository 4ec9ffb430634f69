import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Clock } from './clock.ts'

/** Time in milliseconds after which a slice ends. Further pieces wait for the next turn. */
const SLICE_MS = 5

/**
 * Runs pieces of work in order, one slice in each turn of the event loop. All sockets are read between the turns, so that other work does not
 * wait behind a long queue. A slice ends after a number of pieces, or after 5 ms.
 */
export class Slices {
  readonly #clock: Clock
  readonly #pieces: number
  readonly #urgent: (() => void)[] = []
  readonly #waiting: (() => void)[] = []
  #running = false

  /** `pieces`: maximum number of pieces in a slice. Default: no limit. */
  constructor(clock: Clock, pieces = Number.POSITIVE_INFINITY) {
    this.#clock = clock
    this.#pieces = pieces
  }

  /** Number of queued pieces. */
  get size(): number {
    return this.#urgent.length + this.#waiting.length
  }

  /** Runs `work` in one of the next turns, and resolves or rejects as it does. `urgent`: before other work, except one piece in each slice. */
  run<T>(work: () => T | Promise<T>, { urgent = false } = {}): Promise<T> {
    const turn = new Promise<void>((resolve) => (urgent ? this.#urgent : this.#waiting).push(resolve))
    if (!this.#running) void this.#runAll()
    return turn.then(work)
  }

  async #runAll(): Promise<void> {
    this.#running = true
    while (this.size > 0) {
      await nextTurn()
      const endMs = this.#clock.monotonic() + SLICE_MS
      const pieces = Math.min(this.#pieces, this.size)
      for (let n = 0; n < pieces && this.#clock.monotonic() < endMs; n++) {
        // The first piece is not urgent, so that urgent ones never keep all others waiting.
        const start =
          (n === 0 ? this.#waiting.shift() : undefined) ?? this.#urgent.shift() ?? this.#waiting.shift()
        start?.()
        await undefined // The piece runs here.
      }
    }
    this.#running = false
  }
}
