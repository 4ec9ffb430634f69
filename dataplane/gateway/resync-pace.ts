import type { Clock } from '../../shared/clock.ts'

const SHORTEST_MS = 250
const LONGEST_MS = 8000

/**
 * How often one seat may have the whole state: at once, and then after intervals that double for as long as it goes on asking. What is
 * asked in between waits, however often, for one answer.
 */
export class ResyncPace {
  readonly #clock: Clock
  #interval_ms = SHORTEST_MS
  #allowed_at = Number.NEGATIVE_INFINITY
  #cancel: (() => void) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Calls `send` now, or when the interval is over. False: it waits, or another one does already. */
  ask(send: () => void): boolean {
    if (this.#cancel) return false
    const now = this.#clock.monotonic()
    if (now >= this.#allowed_at) {
      this.#send(now, send)
      return true
    }
    this.#cancel = this.#clock.schedule(this.#allowed_at - now, () => {
      this.#cancel = undefined
      this.#send(this.#clock.monotonic(), send)
    })
    return false
  }

  /** The client is given a whole state, or is gone: what waits need not be asked any more. */
  settle(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }

  #send(now: number, send: () => void): void {
    const quiet = now - this.#allowed_at >= this.#interval_ms
    this.#interval_ms = quiet ? SHORTEST_MS : Math.min(LONGEST_MS, 2 * this.#interval_ms)
    this.#allowed_at = now + this.#interval_ms
    send()
  }
}
