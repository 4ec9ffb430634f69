import { type Limits, MAX } from '../shared/protocol/messages.ts'
import type { Encoded } from './session.ts'

/** Bytes before the messages of a batch: the array header and the opcode. */
const HEAD_BYTES = 4

/**
 * Sends all messages of one turn of the event loop in one frame, at the end of that turn, so that no message is delayed.
 */
export class Batcher {
  readonly #endOfTurn: (callback: () => void) => void
  readonly #join: (messages: readonly Encoded[]) => Encoded
  readonly #send: (frame: Encoded) => void
  #mostBytes = 0
  #messages: Encoded[] = []
  #bytes = HEAD_BYTES

  /** `join` makes one frame of several messages, `send` takes each frame. */
  constructor(
    endOfTurn: (callback: () => void) => void,
    join: (messages: readonly Encoded[]) => Encoded,
    send: (frame: Encoded) => void,
  ) {
    this.#endOfTurn = endOfTurn
    this.#join = join
    this.#send = send
  }

  /** Starts a connection with these limits. */
  start({ max_message_bytes: maxMessageBytes }: Limits): void {
    this.#mostBytes = maxMessageBytes
  }

  write(message: Encoded): void {
    if (this.#messages.length === MAX.batch || this.#bytes + message.length > this.#mostBytes) this.flush()
    this.#bytes += message.length
    if (this.#messages.push(message) === 1) this.#endOfTurn(() => this.flush())
  }

  /** Sends the written messages. */
  flush(): void {
    const [first, ...others] = this.#messages
    if (!first) return
    const frame = others.length > 0 ? this.#join(this.#messages) : first
    this.#messages = []
    this.#bytes = HEAD_BYTES
    this.#send(frame)
  }
}
