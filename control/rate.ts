import type { Clock } from '../shared/clock.ts'

/** How often something may happen: `per_second` on average, `burst` at once. */
export interface Rate {
  readonly per_second: number
  readonly burst: number
}

interface Bucket {
  tokens: number
  at: number
}

const SWEEP_ABOVE = 10_000

/** A token bucket for each caller; full buckets are forgotten. */
export class RateLimiter {
  readonly #clock: Clock
  readonly #rate: Rate
  readonly #buckets = new Map<string, Bucket>()
  #sweep_above = SWEEP_ABOVE

  constructor(clock: Clock, rate: Rate) {
    this.#clock = clock
    this.#rate = rate
  }

  /** Takes one token of this caller: 0, or the seconds until there is one again. */
  take(caller_id: string): number {
    const now = this.#clock.monotonic()
    const bucket = this.#buckets.get(caller_id) ?? { tokens: this.#rate.burst, at: now }
    bucket.tokens = this.#level(bucket, now)
    bucket.at = now
    this.#buckets.set(caller_id, bucket)
    if (this.#buckets.size > this.#sweep_above) this.#sweep(now)
    if (bucket.tokens < 1) return (1 - bucket.tokens) / this.#rate.per_second
    bucket.tokens -= 1
    return 0
  }

  #level(bucket: Bucket, now: number): number {
    return Math.min(this.#rate.burst, bucket.tokens + ((now - bucket.at) / 1000) * this.#rate.per_second)
  }

  #sweep(now: number): void {
    for (const [id, bucket] of this.#buckets)
      if (this.#level(bucket, now) >= this.#rate.burst) this.#buckets.delete(id)
    this.#sweep_above = Math.max(SWEEP_ABOVE, this.#buckets.size * 2)
  }
}
