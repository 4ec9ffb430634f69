import type { Clock } from '../shared/clock.ts'
import type { Limits } from '../shared/protocol/messages.ts'
import { RateLimit } from '../shared/rate-limit.ts'

/** The share of the server's limits that is used: frames bunch up on the way, and pings count too. */
const SHARE = 0.8

type Payload = Uint8Array<ArrayBuffer>

/** Keeps what is sent below the server's limits, so that a burst after a reconnect is delayed instead of refused. */
export class Pacer {
  readonly #clock: Clock
  readonly #write: (payload: Payload) => void
  #limit: RateLimit | undefined
  #queue: Payload[] = []
  #cancel = () => {}

  constructor(clock: Clock, write: (payload: Payload) => void) {
    this.#clock = clock
    this.#write = write
  }

  /** A connection begins, with these limits. What the ones before have used is not forgotten: it may be the same server. */
  start({ messages_per_second: messagesPerSecond, message_burst: messageBurst }: Limits): void {
    const rate = { perSecond: messagesPerSecond * SHARE, burst: Math.max(1, messageBurst * SHARE) }
    this.#limit = new RateLimit(this.#clock, rate, this.#limit?.left)
  }

  /** The connection has ended; what still waited is forgotten. */
  stop(): void {
    this.#cancel()
    this.#queue = []
  }

  /** Writes the payload at once, or in its turn as soon as the limit allows. */
  send(payload: Payload): void {
    if (this.trySend(payload)) return
    this.#queue.push(payload)
    if (this.#queue.length === 1) this.#wait()
  }

  /** Writes the payload at once; false when the limit does not allow that. */
  trySend(payload: Payload): boolean {
    if (this.#queue.length > 0 || !this.#limit!.take()) return false
    this.#write(payload)
    return true
  }

  #wait(): void {
    const limit = this.#limit!
    this.#cancel = this.#clock.schedule(Math.ceil(limit.waitMs), () => {
      let written = 0
      while (written < this.#queue.length && limit.take()) this.#write(this.#queue[written++]!)
      this.#queue = this.#queue.slice(written)
      if (this.#queue.length > 0) this.#wait()
    })
  }
}
