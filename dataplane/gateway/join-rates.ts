import type { Clock } from '../../shared/clock.ts'
import { RateLimits } from '../../shared/rate-limit.ts'
import type { Session } from './session.ts'

/** So many seconds' worth of joins may come at once. */
const BURST_SECONDS = 3

/**
 * How fast subscriptions may be asked for at this node: by each player, whichever sessions that one comes with, and where a token names no player, by
 * each session, since many clients may share such a token.
 */
export class JoinRates {
  readonly #per_second: number
  readonly #limits: RateLimits

  constructor(clock: Clock, per_second: number) {
    this.#per_second = per_second
    this.#limits = new RateLimits(clock, { per_second, burst: per_second * BURST_SECONDS })
  }

  /** Counts one more join of a session; false: there are too many. */
  take({ player }: Session): boolean {
    return this.#limits.take(player)
  }

  /** What is allowed, for people. */
  get text(): string {
    return `more than ${this.#per_second} joins a second, or ${this.#per_second * BURST_SECONDS} at once: try again later`
  }
}
