import type { Clock } from '../../shared/clock.ts'
import { randomToken } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'
import type { RequestAnswer, RequestMessage, RoomAddress, RoomRequest, ToEdge, ToOwner } from '../traffic.ts'

/** Dependencies of RoomRequests. */
interface RoomRequestsParts {
  readonly clock: Clock
  readonly random: Random
  /** Routes a message to the owner of its room (`Router.send`). */
  readonly send: (message: ToOwner) => void
  /** Answer that a room has left when it ended (`RoomHost.endedAnswer`). */
  readonly endedAnswer: (room: RoomAddress, request: RoomRequest) => Promise<RequestAnswer | undefined>
}

/** A request that waits for its answer. */
interface Pending {
  readonly message: RequestMessage
  readonly settle: (answer: RequestAnswer) => void
  cancelResend: () => void
}

/** A request without an answer for so long is sent again: its owner may have died. */
const RESEND_MS = 3000
/** How soon a request is sent again whose room moves. */
const MOVED_MS = 100
const TIMEOUT_MS = 10_000

/** Refusals of a room that does not exist, or may not be made. */
const NO_ROOM: ReadonlySet<string> = new Set([
  'room_not_found',
  'rate_limited',
  'project_full',
  'too_many_rooms',
])

/**
 * Requests of backends, operators and queues to the owners of rooms. They travel as members' messages do, with the id of the attempt in the place
 * of a member's, and are sent again when the room moves or nothing comes back. A room carries out each once, however often it arrives.
 */
export class RoomRequests {
  readonly #parts: RoomRequestsParts
  readonly #pending = new Map<string, Pending>()

  constructor(parts: RoomRequestsParts) {
    this.#parts = parts
  }

  /**
   * Sends a request to the owner of a room. A room without owner is opened. Resolves with the answer of the room, or within 10 s with the code
   * `timeout`: then a request with the same id can be sent again. Never rejects.
   */
  send(room: RoomAddress, request: RoomRequest): Promise<RequestAnswer> {
    const { clock, random } = this.#parts
    const id = `request_${randomToken(random, 16)}`
    return new Promise((resolve) => {
      const late = `${room.roomType}:${room.key} has not answered within ${TIMEOUT_MS / 1000} s`
      const cancelTimeout = clock.schedule(TIMEOUT_MS, () =>
        pending.settle({ code: 'timeout', message: late }),
      )
      const pending: Pending = {
        message: { kind: 'request', room, member_id: id, request },
        cancelResend: () => {},
        settle: (answer) => {
          cancelTimeout()
          pending.cancelResend()
          this.#pending.delete(id)
          resolve(answer)
        },
      }
      this.#pending.set(id, pending)
      this.#send(pending)
    })
  }

  /** Something of an owner for this node. True: it was the answer to a request, and for no one else. */
  receive(message: ToEdge): boolean {
    if (message.kind === 'redirect') {
      for (const pending of this.#pending.values())
        if (pending.message.room.name === message.room.name) this.#sendIn(pending, MOVED_MS)
      return false
    }
    if (message.kind !== 'answer') return false
    const pending = this.#pending.get(message.member_id)
    const { answer } = message
    if (pending && 'code' in answer && NO_ROOM.has(answer.code)) void this.#ended(pending, answer)
    else pending?.settle(answer)
    return true
  }

  /** The room does not exist (any more): it may have carried the request out before it ended. */
  async #ended({ message: { room, request }, settle }: Pending, refusal: RequestAnswer): Promise<void> {
    try {
      settle((await this.#parts.endedAnswer(room, request)) ?? refusal)
    } catch {
      settle({ code: 'room_unavailable', message: 'the store does not answer' })
    }
  }

  #send(pending: Pending): void {
    this.#sendIn(pending, RESEND_MS)
    this.#parts.send(pending.message)
  }

  #sendIn(pending: Pending, ms: number): void {
    pending.cancelResend()
    pending.cancelResend = this.#parts.clock.schedule(ms, () => this.#send(pending))
  }
}
