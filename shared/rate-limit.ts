import type { Clock } from './clock.ts'

/** How often something may happen: `perSecond` in the long run, `burst` at once. */
export interface Rate {
  readonly perSecond: number
  readonly burst: number
  /** Most that `charge` may leave owing. Default: no bound. */
  readonly debt?: number
}

/** How much too early, in milliseconds, is in time all the same: sums of intervals are not exact. */
const ROUNDING_MS = 1e-6

/**
 * A token bucket. Starts full, or with `left` tokens. Kept as the one moment at which it will be full (the generic cell rate algorithm, ITU-T
 * I.371): each message touches the buckets of its session and of its player, and what is not touched need not come from memory.
 */
export class RateLimit {
  readonly #clock: Clock
  readonly #rate: Rate
  /** On the monotonic clock. */
  #fullAt: number

  constructor(clock: Clock, rate: Rate, left = rate.burst) {
    this.#clock = clock
    this.#rate = rate
    this.#fullAt = clock.monotonic() + (Math.max(0, rate.burst - left) * 1000) / rate.perSecond
  }

  /** Takes `count`; false when there are not so many. `now`: the monotonic time, where it was just read. */
  take(now = this.#clock.monotonic(), count = 1): boolean {
    const { perSecond, burst } = this.#rate
    const fullAt = Math.max(this.#fullAt, now) + (count * 1000) / perSecond
    if (fullAt - now > (burst * 1000) / perSecond + ROUNDING_MS) return false
    this.#fullAt = fullAt
    return true
  }

  /**
   * Takes what has been used already, whether there is so much or not; a negative count gives back. Returns how much it took: less than `count` at the
   * bound of the debt.
   */
  charge(count: number): number {
    const { perSecond, debt = Number.POSITIVE_INFINITY } = this.#rate
    const most = count > 0 ? Math.max(0, Math.min(count, this.left + debt)) : count
    this.#fullAt = Math.max(this.#fullAt, this.#clock.monotonic()) + (most * 1000) / perSecond
    return most
  }

  /** How many tokens there are; negative where more was charged. */
  get left(): number {
    const { perSecond, burst } = this.#rate
    return burst - (Math.max(0, this.#fullAt - this.#clock.monotonic()) * perSecond) / 1000
  }

  /** In how many milliseconds there will be `count`, at most a burst; 0: now. */
  waitMs(count = 1): number {
    return Math.max(0, ((Math.min(count, this.#rate.burst) - this.left) * 1000) / this.#rate.perSecond)
  }

  /** Whether it may be forgotten at `now`: it is as good as new, and has been for `UNUSED_MS`. */
  isForgettable(now: number): boolean {
    return now - this.#fullAt >= UNUSED_MS
  }
}

/** Fewer than this are not worth a look. */
const FEW = 100

/** A bucket of `RateLimits` stands for so long after it is full again. */
const UNUSED_MS = 1000

/**
 * A token bucket for each of many. Those that have been full again for a second are forgotten when there are twice as many as after the
 * last look.
 */
export class RateLimits {
  readonly #clock: Clock
  readonly #rate: Rate
  readonly #limits = new Map<string, RateLimit>()
  #lookAt = FEW

  constructor(clock: Clock, rate: Rate) {
    this.#clock = clock
    this.#rate = rate
  }

  /** The bucket of `who`. It may be kept until it is forgettable: from then on it may be another. */
  of(who: string): RateLimit {
    return this.#limits.get(who) ?? this.#add(who)
  }

  /** Takes one of `who`; false when there is none left. */
  take(who: string): boolean {
    return this.of(who).take()
  }

  #add(who: string): RateLimit {
    if (this.#limits.size >= this.#lookAt) {
      const now = this.#clock.monotonic()
      for (const [other, limit] of this.#limits) if (limit.isForgettable(now)) this.#limits.delete(other)
      this.#lookAt = FEW + 2 * this.#limits.size
    }
    const limit = new RateLimit(this.#clock, this.#rate)
    this.#limits.set(who, limit)
    return limit
  }
}
