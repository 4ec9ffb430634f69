import type { Clock } from '../../shared/clock.ts'
import { randomToken } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'
import type { RequestAnswer, RequestMessage, RoomAddress, RoomRequest, ToOwner } from '../traffic.ts'

/** Dependencies of `RoomRequests`. */
export interface RequestsEnvironment {
  readonly clock: Clock
  readonly random: Random
  /** Resolves to the stored answer of a room that has ended, if the room has carried out the request. `StoredRooms.answerLeft`. */
  readonly endedAnswer: (room: RoomAddress, request: RoomRequest) => Promise<RequestAnswer | undefined>
}

/** An unanswered request. */
interface Pending {
  readonly message: RequestMessage
  readonly resolve: (answer: RequestAnswer) => void
  cancelResend: () => void
}

/** Time after which an unanswered request is sent again, because its owner may have crashed. */
const RESEND_MS = 3000
/** Time after which a request is sent again whose room moves. */
const MOVED_MS = 100
const TIMEOUT_MS = 10_000

/** Error codes for a room that does not exist, or may not be created. */
const NO_ROOM: ReadonlySet<string> = new Set([
  'room_not_found',
  'rate_limited',
  'project_full',
  'too_many_rooms',
])

/**
 * Requests of backends, operators and queues to the owners of rooms. They use the messages of members, with the id of the attempt as member id.
 * They are sent again when the room moves or no answer comes. The room runs each once, however often it arrives.
 */
export class RoomRequests {
  readonly #environment: RequestsEnvironment
  readonly #router: { send(message: ToOwner): void }
  readonly #pending = new Map<string, Pending>()

  constructor(environment: RequestsEnvironment, router: { send(message: ToOwner): void }) {
    this.#environment = environment
    this.#router = router
  }

  /**
   * Sends a request to the owner of a room. A room without an owner is opened. Resolves with the answer of the room, or after `waitMs` with the
   * code `timeout`. After a timeout, a request with the same id can be sent again. Never rejects.
   */
  send(room: RoomAddress, request: RoomRequest, waitMs = TIMEOUT_MS): Promise<RequestAnswer> {
    const { clock, random } = this.#environment
    const id = `request_${randomToken(random, 16)}`
    return new Promise((resolve) => {
      const late = `${room.roomType}:${room.key} has not answered within ${waitMs / 1000} s`
      const cancelTimeout = clock.schedule(waitMs, () => pending.resolve({ code: 'timeout', message: late }))
      const pending: Pending = {
        message: { kind: 'request', room, member_id: id, request },
        cancelResend: () => {},
        resolve: (answer) => {
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

  /** Takes the answer of a room to a request. `id`: the `member_id` of the request. */
  answered(id: string, answer: RequestAnswer): void {
    const pending = this.#pending.get(id)
    if (pending && 'code' in answer && NO_ROOM.has(answer.code)) void this.#ended(pending, answer)
    else pending?.resolve(answer)
  }

  /** The room moves: sends its requests again. */
  moved(room: RoomAddress): void {
    for (const pending of this.#pending.values())
      if (pending.message.room.name === room.name) this.#sendIn(pending, MOVED_MS)
  }

  /** The room does not exist (any more). It may have run the request before it ended, so looks for a stored outcome. */
  async #ended({ message: { room, request }, resolve }: Pending, refusal: RequestAnswer): Promise<void> {
    try {
      resolve((await this.#environment.endedAnswer(room, request)) ?? refusal)
    } catch {
      resolve({ code: 'room_unavailable', message: 'the store does not answer' })
    }
  }

  #send(pending: Pending): void {
    this.#sendIn(pending, RESEND_MS)
    this.#router.send(pending.message)
  }

  #sendIn(pending: Pending, ms: number): void {
    pending.cancelResend()
    pending.cancelResend = this.#environment.clock.schedule(ms, () => this.#send(pending))
  }
}
