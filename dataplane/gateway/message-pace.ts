import type { Clock } from '../../shared/clock.ts'
import type { Limits } from '../../shared/protocol/messages.ts'
import { RateLimit } from './rate-limit.ts'

/** How many seconds' worth of messages beyond the limit end the connection. */
const PATIENCE_SECONDS = 10

/** Whether one more may pass; `too_many`: this has gone on for so long that the connection should end. */
export type PaceVerdict = 'pass' | 'reject' | 'too_many'

/** How fast one client may send, and for how long it is borne with when it is faster. */
export class MessagePace {
  readonly #rate: RateLimit
  readonly #patience: RateLimit

  constructor(clock: Clock, { messages_per_second, message_burst }: Limits) {
    this.#rate = new RateLimit(clock, messages_per_second, message_burst)
    this.#patience = new RateLimit(
      clock,
      messages_per_second / PATIENCE_SECONDS,
      messages_per_second * PATIENCE_SECONDS,
    )
  }

  /** Counts one more message, or ping or pong of the websocket. */
  admit(): PaceVerdict {
    if (this.#rate.take()) return 'pass'
    return this.#patience.take() ? 'reject' : 'too_many'
  }
}
