import type { Clock } from '../../shared/clock.ts'
import type { Scheduler, Timer } from './scheduler.ts'

/** Least time between two announcements of the number of spectators. */
const ANNOUNCE_MS = 1000

/** Announces the number of spectators of one room to all members: after each change, at most once a second. */
export class Audience {
  readonly #scheduler: Scheduler
  readonly #clock: Clock
  readonly #announce: () => void
  /** Undefined: the number has not changed yet, as in rooms without spectators. */
  #timer: Timer | undefined
  #announcedAt = Number.NEGATIVE_INFINITY
  #count: number

  /** `count`: number that members receive with their first whole state. `announce`: sends the number as of the last flush. */
  constructor(count: number, scheduler: Scheduler, announce: () => void) {
    this.#count = count
    this.#scheduler = scheduler
    this.#clock = scheduler.clock
    this.#announce = announce
  }

  /** A flush is delivered, with this number of spectators. */
  delivered(count: number): void {
    if (count === this.#count) return
    this.#count = count
    this.#timer ??= this.#scheduler.timer(() => {
      this.#announcedAt = this.#clock.monotonic()
      this.#announce()
    })
    const due = Math.max(this.#clock.monotonic(), this.#announcedAt + ANNOUNCE_MS)
    if (!this.#timer.waiting) this.#timer.at(due)
  }

  end(): void {
    this.#timer?.cancel()
  }
}
