import { randomToken } from '../../shared/ids.ts'
import type { RequestAnswer, RequestMessage, RoomAddress, RoomRequest, ToEdge } from '../traffic.ts'
import type { ClusterEnvironment, LocalRooms } from './ownership.ts'
import type { Router } from './router.ts'

interface RequestsEnvironment extends Pick<ClusterEnvironment, 'clock' | 'random'> {
  readonly rooms: () => Pick<LocalRooms, 'endedAnswer'>
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
  readonly #router: Pick<Router, 'send'>
  readonly #pending = new Map<string, Pending>()

  constructor(environment: RequestsEnvironment, router: Pick<Router, 'send'>) {
    this.#environment = environment
    this.#router = router
  }

  /**
   * Sends a request to the owner of a room. A room without an owner is opened. Resolves with the answer of the room, or after 10 s with the code
   * `timeout`. After a timeout, a request with the same id can be sent again. Never rejects.
   */
  send(room: RoomAddress, request: RoomRequest): Promise<RequestAnswer> {
    const { clock, random } = this.#environment
    const id = `request_${randomToken(random, 16)}`
    return new Promise((resolve) => {
      const late = `${room.roomType}:${room.key} has not answered within ${TIMEOUT_MS / 1000} s`
      const cancelTimeout = clock.schedule(TIMEOUT_MS, () =>
        pending.resolve({ code: 'timeout', message: late }),
      )
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

  /** Takes a message of an owner to this node. Returns true if it was the answer to a request. */
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
    else pending?.resolve(answer)
    return true
  }

  /** The room does not exist (any more). It may have run the request before it ended, so looks for a stored outcome. */
  async #ended({ message: { room, request }, resolve }: Pending, refusal: RequestAnswer): Promise<void> {
    try {
      resolve((await this.#environment.rooms().endedAnswer(room, request)) ?? refusal)
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
