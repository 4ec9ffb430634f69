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
  readonly #perSecond: number
  readonly #limits: RateLimits

  constructor(clock: Clock, perSecond: number) {
    this.#perSecond = perSecond
    this.#limits = new RateLimits(clock, { perSecond, burst: perSecond * BURST_SECONDS })
  }

  /** Counts one more join of a session; false: there are too many. */
  take({ player }: Session): boolean {
    return this.#limits.take(player)
  }

  /** What is allowed, for people. */
  get text(): string {
    return `more than ${this.#perSecond} joins a second, or ${this.#perSecond * BURST_SECONDS} at once: try again later`
  }
}
