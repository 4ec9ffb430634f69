import type { Clock } from '../../shared/clock.ts'

/** The one time of a simulated world. */
export interface SimTime {
  /** Milliseconds since its beginning; only the world moves it. */
  ms: number
  /** How many things were set on their way so far: of two, the one with the lower number was earlier. */
  order: number
}

interface Timer {
  readonly due: number
  readonly order: number
  readonly run: () => void
}

const START = Date.parse('2026-01-01T00:00:00.000Z')

/** One process' clock: runs with the world's time, but its timers run only when the world says so. */
export class SimClock implements Clock {
  readonly #time: SimTime
  readonly #aheadMs: number
  readonly #timers: Timer[] = []
  #order = 0

  /** `ahead_ms`: how far both clocks of this process are ahead of the world's time. */
  constructor(time: SimTime, aheadMs = 0) {
    this.#time = time
    this.#aheadMs = aheadMs
  }

  now(): number {
    return START + this.monotonic()
  }

  monotonic(): number {
    return this.#time.ms + this.#aheadMs
  }

  schedule(delayMs: number, callback: () => void): () => void {
    const timer = { due: this.#time.ms + Math.max(0, delayMs), order: this.#order++, run: callback }
    this.#timers.push(timer)
    return () => {
      const at = this.#timers.indexOf(timer)
      if (at >= 0) this.#timers.splice(at, 1)
    }
  }

  /** When the next timer is due, in the world's time. */
  get due(): number | undefined {
    return this.#next()?.due
  }

  /** Which of all timers ever set is the next. */
  get next(): number | undefined {
    return this.#next()?.order
  }

  /** Runs the next timer. */
  fire(): void {
    const timer = this.#next()
    if (!timer) return
    this.#timers.splice(this.#timers.indexOf(timer), 1)
    timer.run()
  }

  #next(): Timer | undefined {
    let next: Timer | undefined
    for (const timer of this.#timers)
      if (!next || timer.due < next.due || (timer.due === next.due && timer.order < next.order)) next = timer
    return next
  }
}
