import { type Clock, systemClock } from '../../../shared/clock.ts'

/** The machine's clock, whose wall time can be made to jump; its monotonic time goes on. */
export class JumpingClock implements Clock {
  #offset_ms = 0

  jump(by_ms: number): void {
    this.#offset_ms += by_ms
  }

  now(): number {
    return systemClock.now() + this.#offset_ms
  }

  monotonic(): number {
    return systemClock.monotonic()
  }

  schedule(delay_ms: number, callback: () => void): () => void {
    return systemClock.schedule(delay_ms, callback)
  }
}
