import type { Clock } from './clock.ts'

/** A rate: `perSecond` on average, and bursts of `burst`. */
export interface Rate {
  readonly perSecond: number
  readonly burst: number
  /** Largest debt that `charge` may cause. Default: no bound. */
  readonly debt?: number
}

/** Tolerance in milliseconds, because sums of intervals are not exact. */
const ROUNDING_MS = 1e-6

/**
 * A token bucket. It starts full, or with `left` tokens. It stores only the time at which it will be full (the generic cell rate algorithm,
 * ITU-T I.371): each message uses the buckets of its session and of its player, and a small bucket costs fewer memory reads.
 */
export class RateLimit {
  readonly #clock: Clock
  readonly #rate: Rate
  /** On the monotonic clock. It starts as a number: V8 then changes it in place, where it would allocate each new value. */
  #fullAt = 0

  constructor(clock: Clock, rate: Rate, left = rate.burst) {
    this.#clock = clock
    this.#rate = rate
    this.#fullAt = clock.monotonic() + (Math.max(0, rate.burst - left) * 1000) / rate.perSecond
  }

  /** Takes `count` tokens. Returns false if there are not enough. `now`: the monotonic time, if the caller has just read it. */
  take(now = this.#clock.monotonic(), count = 1): boolean {
    const { perSecond, burst } = this.#rate
    const fullAt = Math.max(this.#fullAt, now) + (count * 1000) / perSecond
    if (fullAt - now > (burst * 1000) / perSecond + ROUNDING_MS) return false
    this.#fullAt = fullAt
    return true
  }

  /**
   * Takes `count` tokens, also if there are not enough. A negative count returns tokens. Returns the number of taken tokens, which is less
   * than `count` at the bound of the debt.
   */
  charge(count: number): number {
    const { perSecond, debt = Number.POSITIVE_INFINITY } = this.#rate
    const most = count > 0 ? Math.max(0, Math.min(count, this.left + debt)) : count
    this.#fullAt = Math.max(this.#fullAt, this.#clock.monotonic()) + (most * 1000) / perSecond
    return most
  }

  /** Number of tokens. It is negative after larger charges. */
  get left(): number {
    const { perSecond, burst } = this.#rate
    return burst - (Math.max(0, this.#fullAt - this.#clock.monotonic()) * perSecond) / 1000
  }

  /** Milliseconds until there are `count` tokens, at most a burst. 0: there are enough now. */
  waitMs(count = 1): number {
    return Math.max(0, ((Math.min(count, this.#rate.burst) - this.left) * 1000) / this.#rate.perSecond)
  }

  /** Returns true if the bucket has been full for `UNUSED_MS` at `now`, so that a new one would be equal. */
  isForgettable(now: number): boolean {
    return now - this.#fullAt >= UNUSED_MS
  }
}

/** With fewer buckets, a sweep is not worth its cost. */
const FEW = 100

/** Time for which a full bucket of `RateLimits` is kept. */
const UNUSED_MS = 1000

/**
 * A token bucket for each of many callers. When their number has doubled since the last sweep, buckets that have been full for a second are
 * removed.
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

  /** Returns the bucket of `who`. Keep it at most until it is forgettable, because then `RateLimits` may replace it. */
  of(who: string): RateLimit {
    return this.#limits.get(who) ?? this.#add(who)
  }

  /** Takes one token of `who`. Returns false if there is none. */
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
