import { type Clock, systemClock } from '../../../shared/clock.ts'

/** The machine's clock, whose wall time can be made to jump; its monotonic time goes on. */
export class JumpingClock implements Clock {
  #offsetMs = 0

  jump(byMs: number): void {
    this.#offsetMs += byMs
  }

  now(): number {
    return systemClock.now() + this.#offsetMs
  }

  monotonic(): number {
    return systemClock.monotonic()
  }

  schedule(delayMs: number, callback: () => void): () => void {
    return systemClock.schedule(delayMs, callback)
  }
}
