import type { Clock } from '../../shared/clock.ts'
import { Pace } from './pace.ts'
import type { Scheduler, Timer } from './scheduler.ts'

/** The ticks of a room: at a steady rate, with absolute deadlines, none while it is not set. */
export class Ticks {
  readonly #clock: Clock
  readonly #phase: number
  readonly #timer: Timer
  #pace: Pace | undefined

  /** `phase`, 0–1: where in an interval this room ticks. */
  constructor(
    { clock, scheduler }: { readonly clock: Clock; readonly scheduler: Scheduler },
    phase: number,
    tick: () => void,
  ) {
    this.#clock = clock
    this.#phase = phase
    this.#timer = scheduler.timer(() => {
      this.#wait()
      tick()
    })
  }

  /** So many a second from now on; undefined: none. */
  set(rate: number | undefined): void {
    this.#pace = rate === undefined ? undefined : new Pace(rate, this.#phase)
    if (this.#pace) this.#wait()
    else this.#timer.cancel()
  }

  /** No more until they are set again. */
  cancel(): void {
    this.#timer.cancel()
  }

  #wait(): void {
    if (this.#pace) this.#timer.at(this.#pace.following(this.#clock.monotonic()))
  }
}
