import type { Clock } from '../../shared/clock.ts'
import type { Limits } from '../../shared/protocol/messages.ts'
import { RateLimit, RateLimits } from './rate-limit.ts'

/** How many seconds' worth of messages beyond the limit end the connection. */
const PATIENCE_SECONDS = 10

/** Whether one more may pass; `too_many`: this has gone on for so long that the connection should end. */
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

/** What all sessions of each player may send at a node together. */
export const playerRates = (clock: Clock, { messages_per_second, message_burst }: Limits): RateLimits =>
  new RateLimits(clock, SESSIONS_AT_FULL_RATE * messages_per_second, SESSIONS_AT_FULL_RATE * message_burst)

/** How fast one client may send, and for how long it is borne with when it is faster. */
export class MessagePace {
  readonly #clock: Clock
  readonly #rate: RateLimit
  readonly #patience: RateLimit
  readonly #shared: () => boolean

  /** `level`: where another node left off. `shared`: whether the session's player may send one more, whichever session it is from. */
  constructor(
    clock: Clock,
    { messages_per_second, message_burst }: Limits,
    { level, shared = () => true }: { level?: PaceLevel | undefined; shared?: () => boolean } = {},
  ) {
    const limit = (per_second: number, burst: number, left = burst): RateLimit => {
      const seconds = level ? Math.max(0, clock.now() - level.at) / 1000 : 0
      return new RateLimit(clock, per_second, burst, left + seconds * per_second)
    }
    this.#clock = clock
    this.#rate = limit(messages_per_second, message_burst, level?.rate)
    this.#patience = limit(
      messages_per_second / PATIENCE_SECONDS,
      messages_per_second * PATIENCE_SECONDS,
      level?.patience,
    )
    this.#shared = shared
  }

  /** What is left. */
  get level(): PaceLevel {
    return { rate: this.#rate.left, patience: this.#patience.left, at: this.#clock.now() }
  }

  /** Counts one more message, or ping or pong of the websocket. */
  admit(): PaceVerdict {
    if (this.#rate.take() && this.#shared()) return 'pass'
    return this.#patience.take() ? 'reject' : 'too_many'
  }
}
