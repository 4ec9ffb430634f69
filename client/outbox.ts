import type { ClientMessage } from '../shared/protocol/messages.ts'
import { RoomfulError } from './errors.ts'

/** A message that is kept until the server has settled it. */
export type ReliableMessage = Extract<ClientMessage, { t: 'message' }> & { readonly ref: number }

interface Entry {
  readonly message: ReliableMessage
  readonly resolve: () => void
  readonly reject: (error: RoomfulError) => void
}

/** Reliable messages of one member that are not settled yet, in the order of their refs. */
export class Outbox {
  readonly #limit: number
  #entries: Entry[] = []

  /** At most `limit` messages are kept. */
  constructor(limit: number) {
    this.#limit = limit
  }

  /** Keeps `message`; resolves when it is acked, rejects with why it was not applied. */
  add(message: ReliableMessage): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#entries.push({ message, resolve, reject })
    })
  }

  /** Throws a RoomfulError (queue_full) when no more can be kept. */
  checkRoom(): void {
    if (this.#entries.length < this.#limit) return
    const text = `${this.#limit} reliable messages wait for their ack already (option maxUnacked).`
    throw new RoomfulError('queue_full', text, { retryable: true })
  }

  /** Everything up to `ref` is applied. */
  ack(ref: number): void {
    const settled = this.#entries.filter((entry) => entry.message.ref <= ref)
    this.#entries = this.#entries.slice(settled.length)
    for (const entry of settled) entry.resolve()
  }

  /** One message was refused. False when it is none of these. */
  refuse(ref: number, error: RoomfulError): boolean {
    const refused = this.#entries.find((entry) => entry.message.ref === ref)
    if (!refused) return false
    this.#entries = this.#entries.filter((entry) => entry !== refused)
    refused.reject(error)
    return true
  }

  /** None of these will be applied, or nobody will know. */
  refuseAll(error: RoomfulError): void {
    const refused = this.#entries
    this.#entries = []
    for (const entry of refused) entry.reject(error)
  }

  /** What is not settled, oldest first. */
  get messages(): readonly ReliableMessage[] {
    return this.#entries.map((entry) => entry.message)
  }
}
