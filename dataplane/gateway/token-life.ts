import type { Clock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import type { TokenClaims } from '../../shared/tokens.ts'

/** Part of a token's life after which a fresh one is requested, give or take `SPREAD`: a crowd must not ask its backend in one second. */
const REQUEST_AT = 0.8
const SPREAD = 0.05
/** Minimum time between the first request and the end of the token: 5 s, and the time between two calls of `request`. */
const NOTICE_MS = 6000
/** First and longest pause between two requests. Each is twice as long as the one before. */
const PAUSE_MS = 1000
const LONGEST_PAUSE_MS = 30_000
/** Time past the end of a token for which a fresh one may wait for its check. */
const UNCHECKED_MS = 300_000

/** Decides when a session's client has to send a fresh token, and when it is too late. */
export class TokenLife {
  /** The fresh token that is being checked, or that cannot be checked at the moment. */
  fresh: string | undefined
  readonly #clock: Clock
  readonly #random: Random
  #endsAt = 0
  #requestAt = 0
  #requests = 0
  /** End of the extra time for a session that resumes with an expired token, on the monotonic clock. */
  #graceUntil = Number.NEGATIVE_INFINITY

  constructor(clock: Clock, random: Random, claims: TokenClaims) {
    this.#clock = clock
    this.#random = random
    this.renew(claims)
  }

  /** The session has a token with these claims. */
  renew(claims: TokenClaims): void {
    this.#endsAt = Date.parse(claims.expires_at)
    const lifeMs = this.#endsAt - Date.parse(claims.issued_at)
    const part = 1 - REQUEST_AT + SPREAD * (1 - 2 * this.#random.float())
    this.#requestAt = this.#endsAt - Math.max(NOTICE_MS, lifeMs * part)
    this.#requests = 0
    this.#graceUntil = Number.NEGATIVE_INFINITY
  }

  /** Time since the token expired, in milliseconds; 0 or less: it is valid. */
  get expiredMs(): number {
    return this.#clock.now() - this.#endsAt
  }

  /** Keeps a session with an expired token for `ms`, so that its client can send a fresh one. */
  extend(ms: number): void {
    this.#graceUntil = this.#clock.monotonic() + ms
  }

  /** Returns the seconds within which a fresh token is needed, if it is time to request one. Undefined: it is not. */
  request(): number | undefined {
    const now = this.#clock.now()
    if (this.fresh !== undefined || now < this.#requestAt) return undefined
    this.#requestAt = now + Math.min(LONGEST_PAUSE_MS, PAUSE_MS * 2 ** this.#requests++)
    return Math.max(0, Math.ceil(this.#leftMs / 1000))
  }

  /** True if the time for a fresh token has passed. */
  get overdue(): boolean {
    return this.#leftMs + (this.fresh === undefined ? 0 : UNCHECKED_MS) <= 0
  }

  get #leftMs(): number {
    return Math.max(-this.expiredMs, this.#graceUntil - this.#clock.monotonic())
  }
}
