import type { Clock } from './clock.ts'

/** How often something may happen: `perSecond` in the long run, `burst` at once. */
export interface Rate {
  readonly perSecond: number
  readonly burst: number
}

/** A token bucket. Starts full, or with `left` tokens. */
export class RateLimit {
  readonly #clock: Clock
  readonly #perMs: number
  readonly #burst: number
  #left: number
  #filledAt: number

  constructor(clock: Clock, { perSecond, burst }: Rate, left = burst) {
    this.#clock = clock
    this.#perMs = perSecond / 1000
    this.#burst = burst
    this.#left = Math.min(burst, left)
    this.#filledAt = clock.monotonic()
  }

  /** Takes one; false when there is none left. `now`: the monotonic time, where it was just read. */
  take(now = this.#clock.monotonic()): boolean {
    if (this.#fill(now) < 1) return false
    this.#left -= 1
    return true
  }

  /** Takes what has been used already, whether there is so much or not; a negative count gives back. */
  charge(count: number): void {
    this.#left = Math.min(this.#burst, this.left - count)
  }

  /** How many tokens there are; negative where more was charged. */
  get left(): number {
    return this.#fill(this.#clock.monotonic())
  }

  #fill(now: number): number {
    this.#left = Math.min(this.#burst, this.#left + (now - this.#filledAt) * this.#perMs)
    this.#filledAt = now
    return this.#left
  }

  /** In how many milliseconds there will be one; 0: there is. */
  get waitMs(): number {
    return Math.max(0, (1 - this.left) / this.#perMs)
  }

  /** Whether it is as good as new. */
  get full(): boolean {
    return this.left >= this.#burst
  }
}

/** Fewer than this are not worth a look. */
const FEW = 100

/** A token bucket for each of many. Those that are full again are forgotten when there are twice as many as after the last look. */
export class RateLimits {
  readonly #clock: Clock
  readonly #rate: Rate
  readonly #limits = new Map<string, RateLimit>()
  #lookAt = FEW

  constructor(clock: Clock, rate: Rate) {
    this.#clock = clock
    this.#rate = rate
  }

  /** The bucket of `who`; not to be kept, since a full one is forgotten. */
  of(who: string): RateLimit {
    return this.#limits.get(who) ?? this.#add(who)
  }

  /** Takes one of `who`; false when there is none left. */
  take(who: string): boolean {
    return this.of(who).take()
  }

  #add(who: string): RateLimit {
    if (this.#limits.size >= this.#lookAt) {
      for (const [other, limit] of this.#limits) if (limit.full) this.#limits.delete(other)
      this.#lookAt = FEW + 2 * this.#limits.size
    }
    const limit = new RateLimit(this.#clock, this.#rate)
    this.#limits.set(who, limit)
    return limit
  }
}
