import type { ServerMessage } from '../../shared/protocol/messages.ts'

/** An `error`, as a client gets it. */
export type ErrorMessage = Extract<ServerMessage, { t: 'error' }>

/** More than a client that stays within its rate can have on the wire. */
const KEPT = 64

/**
 * The reliable messages of a session that were refused lately. An ack covers every earlier ref, so a client that lost the refusal with
 * its connection would take the message for applied: at a resume it is told again, before any ack. Clients pass over what is settled.
 */
export class Refusals {
  readonly #kept: ErrorMessage[] = []

  /** Remembers the answer to a ref. */
  add(error: ErrorMessage): void {
    if (this.#kept.push(error) > KEPT) this.#kept.shift()
  }

  [Symbol.iterator](): IterableIterator<ErrorMessage> {
    return this.#kept.values()
  }
}
