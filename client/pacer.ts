import type { Clock } from '../shared/clock.ts'
import type { Limits } from '../shared/protocol/messages.ts'
import { RateLimit } from '../shared/rate-limit.ts'

/** Used fraction of the server's limits. The rest is for pings, and for frames that arrive closer together than they were sent. */
const SHARE = 0.8

type Payload = Uint8Array<ArrayBuffer>

/** Keeps the send rate below the server's limits, so that a burst after a reconnect is delayed and not rejected. */
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

  /** Starts a connection with these limits. The used quota stays, because the server may be the same. */
  start({ messages_per_second: messagesPerSecond, message_burst: messageBurst }: Limits): void {
    const rate = { perSecond: messagesPerSecond * SHARE, burst: Math.max(1, messageBurst * SHARE) }
    this.#limit = new RateLimit(this.#clock, rate, this.#limit?.left)
  }

  /** Ends the connection and drops queued payloads. */
  stop(): void {
    this.#cancel()
    this.#queue = []
  }

  /** Writes the payload, or queues it until the limit allows. */
  send(payload: Payload): void {
    if (this.trySend(payload)) return
    this.#queue.push(payload)
    if (this.#queue.length === 1) this.#wait()
  }

  /** Writes the payload if the limit allows, and returns whether it did. */
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
