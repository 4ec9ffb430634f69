/**
 * A rhythm with absolute deadlines: time is cut into slots of equal length, beginning at a phase of its own for each room, so that
 * rooms do not all work at once and nothing drifts.
 */
export class Pace {
  readonly #interval_ms: number
  readonly #phase_ms: number
  #last_slot = Number.NEGATIVE_INFINITY

  /** `phase` 0–1: which part of an interval after monotonic 0 the slots begin. */
  constructor(per_second: number, phase: number) {
    this.#interval_ms = 1000 / per_second
    this.#phase_ms = phase * this.#interval_ms
  }

  /** When to act, at most once per slot: `now` while nothing was done in this slot, otherwise when the next one begins. */
  next(now: number): number {
    const slot = this.#slot(now)
    return slot > this.#last_slot ? now : this.#begin(this.#last_slot + 1)
  }

  /** Something was done at `now`. */
  done(now: number): void {
    this.#last_slot = Math.max(this.#last_slot, this.#slot(now))
  }

  /** The first beginning of a slot after `now`: slots that were missed are skipped. */
  following(now: number): number {
    return this.#begin(this.#slot(now) + 1)
  }

  /** A time that is the beginning of a slot, give or take rounding, belongs to that slot. */
  #slot(now: number): number {
    return Math.floor((now - this.#phase_ms) / this.#interval_ms + 1e-9)
  }

  #begin(slot: number): number {
    return this.#phase_ms + slot * this.#interval_ms
  }
}
