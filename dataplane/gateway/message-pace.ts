import type { Clock } from '../../shared/clock.ts'
import type { Limits } from '../../shared/protocol/messages.ts'
import { type Rate, RateLimit, RateLimits } from '../../shared/rate-limit.ts'

/** How many seconds' worth of messages beyond the limit end the connection. */
const PATIENCE_SECONDS = 10

/** How many messages too many are borne with, where so many a second are allowed. */
const patienceWith = (perSecond: number): Rate => ({
  perSecond: perSecond / PATIENCE_SECONDS,
  burst: perSecond * PATIENCE_SECONDS,
})

/** Whether one more may pass; `tooMany`: this has gone on for so long that the connection should end. */
export type PaceVerdict = 'pass' | 'reject' | 'too_many'

/** What a session has left of its rate and of the patience with it: for whichever node has the session next. */
export interface PaceLevel {
  readonly rate: number
  readonly patience: number
  /** When that was so: milliseconds since 1970. */
  readonly at: number
}

/** So many messages cost no more than the handshake of a resume. */
const NEXT_TO_NOTHING = 12

/** The level of a session that is connected: what is left of its rate its client may be using, and next to nothing is there for another node. */
export const spent = (level: PaceLevel): PaceLevel => ({
  ...level,
  rate: Math.min(level.rate, NEXT_TO_NOTHING),
})

/** How many times as much as one session all those of one player may send at a node. */
const SESSIONS_AT_FULL_RATE = 4

/** What a session shares with the others of its player. */
export interface SharedPace {
  /** Whether the player may send one more. */
  readonly take: () => boolean
  /** Whether one that is too many is borne with. */
  readonly bear: () => boolean
  /** Milliseconds until the player may send one more. */
  readonly waitMs: () => number
}

const UNSHARED: SharedPace = { take: () => true, bear: () => true, waitMs: () => 0 }

/** What all sessions of each player may send at a node together, and how long they are borne with: a new session is no way around either. */
export class PlayerPaces {
  readonly #rates: RateLimits
  readonly #patience: RateLimits

  constructor(clock: Clock, { messages_per_second: messagesPerSecond, message_burst: messageBurst }: Limits) {
    const perSecond = SESSIONS_AT_FULL_RATE * messagesPerSecond
    this.#rates = new RateLimits(clock, { perSecond, burst: SESSIONS_AT_FULL_RATE * messageBurst })
    this.#patience = new RateLimits(clock, patienceWith(perSecond))
  }

  of(player: string): SharedPace {
    return {
      take: () => this.#rates.take(player),
      bear: () => this.#patience.take(player),
      waitMs: () => this.#rates.of(player).waitMs,
    }
  }
}

/** How fast one client may send, and for how long it is borne with when it is faster. */
export class MessagePace {
  readonly #clock: Clock
  readonly #rate: RateLimit
  readonly #patience: RateLimit
  readonly #shared: SharedPace

  /** `level`: where another node left off. `shared`: default nothing. */
  constructor(
    clock: Clock,
    { messages_per_second: messagesPerSecond, message_burst: messageBurst }: Limits,
    { level, shared = UNSHARED }: { level?: PaceLevel | undefined; shared?: SharedPace } = {},
  ) {
    const limit = (rate: Rate, left = rate.burst): RateLimit => {
      const seconds = level ? Math.max(0, clock.now() - level.at) / 1000 : 0
      return new RateLimit(clock, rate, left + seconds * rate.perSecond)
    }
    this.#clock = clock
    this.#rate = limit({ perSecond: messagesPerSecond, burst: messageBurst }, level?.rate)
    this.#patience = limit(patienceWith(messagesPerSecond), level?.patience)
    this.#shared = shared
  }

  /** What is left. */
  get level(): PaceLevel {
    return { rate: this.#rate.left, patience: this.#patience.left, at: this.#clock.now() }
  }

  /** Milliseconds until one more may pass; 0: now. */
  get waitMs(): number {
    return Math.max(this.#rate.waitMs, this.#shared.waitMs())
  }

  /** Counts one more message, or ping or pong of the websocket. */
  admit(): PaceVerdict {
    if (this.#rate.take() && this.#shared.take()) return 'pass'
    return this.#patience.take() && this.#shared.bear() ? 'reject' : 'too_many'
  }
}
