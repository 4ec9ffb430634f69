import type { Clock } from '../../shared/clock.ts'

/** A token bucket: `burst` at once, `per_second` in the long run. Starts full, or with `left` tokens. */
export class RateLimit {
  readonly #clock: Clock
  readonly #per_ms: number
  readonly #burst: number
  #left: number
  #filled_at: number

  constructor(clock: Clock, per_second: number, burst: number, left = burst) {
    this.#clock = clock
    this.#per_ms = per_second / 1000
    this.#burst = burst
    this.#left = Math.min(burst, left)
    this.#filled_at = clock.monotonic()
  }

  /** Takes one; false when there is none left. */
  take(): boolean {
    this.#fill()
    if (this.#left < 1) return false
    this.#left -= 1
    return true
  }

  /** How many tokens there are. */
  get left(): number {
    this.#fill()
    return this.#left
  }

  /** Whether it is as good as new. */
  get full(): boolean {
    return this.left >= this.#burst
  }

  #fill(): void {
    const now = this.#clock.monotonic()
    this.#left = Math.min(this.#burst, this.#left + (now - this.#filled_at) * this.#per_ms)
    this.#filled_at = now
  }
}

/** Fewer than this are not worth a look. */
const FEW = 100

/** A token bucket for each of many. Those that are full again are forgotten when there are twice as many as after the last look. */
export class RateLimits {
  readonly #make: () => RateLimit
  readonly #limits = new Map<string, RateLimit>()
  #look_at = FEW

  constructor(clock: Clock, per_second: number, burst: number) {
    this.#make = () => new RateLimit(clock, per_second, burst)
  }

  /** Takes one of `who`; false when there is none left. */
  take(who: string): boolean {
    return (this.#limits.get(who) ?? this.#add(who)).take()
  }

  #add(who: string): RateLimit {
    if (this.#limits.size >= this.#look_at) {
      for (const [other, limit] of this.#limits) if (limit.full) this.#limits.delete(other)
      this.#look_at = FEW + 2 * this.#limits.size
    }
    const limit = this.#make()
    this.#limits.set(who, limit)
    return limit
  }
}
