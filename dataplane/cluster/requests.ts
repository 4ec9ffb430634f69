import type { Clock } from '../../shared/clock.ts'
import { randomToken } from '../../shared/ids.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Random } from '../../shared/random.ts'
import type { RoomAddress, ToEdge, ToOwner } from '../traffic.ts'

/** Dependencies of RoomRequests. */
interface RoomRequestsParts {
  readonly clock: Clock
  readonly random: Random
  /** Routes a message to the owner of its room (`Router.send`). */
  readonly send: (message: ToOwner) => void
}

/** How a request ended: carried out, no such room, refused with a code of the protocol, or without an answer in time. */
export type RequestOutcome =
  | 'done'
  | 'not_found'
  | 'timed_out'
  | { readonly code: ErrorCode; readonly message: string }

/** A request that waits for its answer. */
interface Pending {
  readonly message: ToOwner
  readonly settle: (outcome: RequestOutcome) => void
  sent: number
  cancelResend: () => void
}

/** A request without an answer for so long is sent again: its owner may have died. */
const RESEND_MS = 3000
/** How soon a request is sent again whose room moves. */
const MOVED_MS = 100
const TIMEOUT_MS = 10_000

/**
 * Requests of operators to the owners of rooms. They travel as members' messages do, with the id of the request in the place of a member's,
 * and are sent again when the room moves or nothing comes back. A room carries out each once, however often it arrives.
 */
export class RoomRequests {
  readonly #parts: RoomRequestsParts
  readonly #pending = new Map<string, Pending>()

  constructor(parts: RoomRequestsParts) {
    this.#parts = parts
  }

  /** Ends a room as `ctx.close()` does, on whichever node it is; one without owner is opened for that. Resolves within 10 s. */
  end(room: RoomAddress): Promise<RequestOutcome> {
    const { clock, random } = this.#parts
    const id = `request_${randomToken(random, 16)}`
    return new Promise((resolve) => {
      const cancelTimeout = clock.schedule(TIMEOUT_MS, () => pending.settle('timed_out'))
      const pending: Pending = {
        message: { kind: 'end', room, member_id: id },
        sent: 0,
        cancelResend: () => {},
        settle: (outcome) => {
          cancelTimeout()
          pending.cancelResend()
          this.#pending.delete(id)
          resolve(outcome)
        },
      }
      this.#pending.set(id, pending)
      this.#send(pending)
    })
  }

  /** Something of an owner for this node. True: it was the answer to a request, and for no one else. */
  receive(message: ToEdge): boolean {
    if (this.#pending.size === 0) return false
    if (message.kind === 'redirect') {
      for (const pending of this.#pending.values())
        if (pending.message.room.name === message.room.name) this.#sendIn(pending, MOVED_MS)
      return false
    }
    const pending = 'member_id' in message ? this.#pending.get(message.member_id) : undefined
    if (!pending) return false
    if (message.kind === 'done') pending.settle('done')
    else if (message.kind === 'error') pending.settle({ code: message.code, message: message.message })
    // Its owner may have carried it out before, and its answer was lost.
    else if (message.kind === 'no_seat') pending.settle(pending.sent > 1 ? 'done' : 'not_found')
    return true
  }

  #send(pending: Pending): void {
    pending.sent++
    this.#sendIn(pending, RESEND_MS)
    this.#parts.send(pending.message)
  }

  #sendIn(pending: Pending, ms: number): void {
    pending.cancelResend()
    pending.cancelResend = this.#parts.clock.schedule(ms, () => this.#send(pending))
  }
}
