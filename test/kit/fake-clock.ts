import type { Clock } from '../../shared/clock.ts'

interface Timer {
  readonly due: number
  /** Number of timers that were added before. */
  readonly order: number
  readonly callback: () => void
}

/** Scheduled callbacks. */
export class Timers {
  #order = 0
  readonly #timers = new Set<Timer>()

  /** Adds a callback. The returned function removes it. */
  add(due: number, callback: () => void): () => void {
    const timer = { due, order: this.#order++, callback }
    this.#timers.add(timer)
    return () => void this.#timers.delete(timer)
  }

  /** First timer that is due. Among timers with the same time, the one that was added first. */
  get next(): Timer | undefined {
    let next: Timer | undefined
    for (const timer of this.#timers)
      if (!next || timer.due < next.due || (timer.due === next.due && timer.order < next.order)) next = timer
    return next
  }

  get size(): number {
    return this.#timers.size
  }

  /** Removes a timer, and runs its callback. */
  run(timer: Timer): void {
    this.#timers.delete(timer)
    timer.callback()
  }
}

/** A clock that advances only on request. It runs due callbacks in order of their time. */
export class FakeClock implements Clock {
  #elapsed = 0
  readonly #start: number
  readonly #timers = new Timers()

  constructor(start = Date.parse('2026-01-01T00:00:00.000Z')) {
    this.#start = start
  }

  now(): number {
    return this.#start + this.#elapsed
  }

  monotonic(): number {
    return this.#elapsed
  }

  schedule(delayMs: number, callback: () => void): () => void {
    return this.#timers.add(this.#elapsed + Math.max(0, delayMs), callback)
  }

  /** Advances time and runs each due callback at its time. */
  advance(ms: number): void {
    const end = this.#elapsed + ms
    for (;;) {
      const { next } = this.#timers
      if (!next || next.due > end) break
      this.#elapsed = Math.max(this.#elapsed, next.due)
      this.#timers.run(next)
    }
    this.#elapsed = end
  }

  /** Advances time without running callbacks, as if the process hung. Due callbacks run late, in the next `advance`. */
  pause(ms: number): void {
    this.#elapsed += ms
  }

  /** Monotonic time of the next callback; Infinity if there is none. */
  get due(): number {
    return this.#timers.next?.due ?? Number.POSITIVE_INFINITY
  }

  /** Number of scheduled callbacks. */
  get pending(): number {
    return this.#timers.size
  }
}
