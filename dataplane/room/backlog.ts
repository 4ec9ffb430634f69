import type { Clock } from '../../shared/clock.ts'
import type { Inbox } from '../inbox.ts'
import { nowhere, unavailableText } from '../place.ts'
import type { Arrival, ToOwner } from '../traffic.ts'
import type { RoomMetrics } from './metrics.ts'
import type { Replies } from './replies.ts'
import type { NodeLoad } from './scheduler.ts'

/** An overloaded node drops or refuses messages that have waited for longer. */
const LATE_MS = 150
const OVERLOADED = 'the service has more to do than it can at the moment: send less'

/** Dependencies of the backlog of a room. */
export interface BacklogNeeds {
  readonly clock: Clock
  readonly load: NodeLoad
  readonly metrics: RoomMetrics
}

/**
 * Adds a message to an inbox. If the inbox is full, the message is refused, or its edge sends it again. Messages without a ref are dropped, and their
 * client gets at most one refusal a second: an answer to each would cost more than handling it.
 */
export function queue(
  arrival: Arrival,
  inbox: Inbox,
  replies: Replies,
  { clock, metrics }: Pick<BacklogNeeds, 'clock' | 'metrics'>,
): void {
  if (inbox.add(arrival)) return
  const { message, from } = arrival
  const { room, member_id: memberId } = message
  metrics.backlogFull.inc({ room_type: room.roomType })
  const isUnreliable = message.kind === 'message' && message.ref === undefined
  if (isUnreliable && !inbox.mayRefuse(memberId, clock.monotonic())) return
  const place = nowhere('busy', unavailableText(room, 'too many messages wait for it'))
  if (!replies.turnAway(arrival, place)) inbox.turnedAway.add(from)
}

/** Messages of a running room that wait in its inbox until the room can act. On an overloaded node, they do not wait for long. */
export class Backlog {
  readonly #inbox: Inbox
  readonly #roomType: string
  readonly #replies: Replies
  readonly #needs: BacklogNeeds

  /** `inbox`: gets the messages. Those that wait at the end of the room go to the next owner. */
  constructor(inbox: Inbox, roomType: string, replies: Replies, needs: BacklogNeeds) {
    this.#inbox = inbox
    this.#roomType = roomType
    this.#replies = replies
    this.#needs = needs
  }

  /** Queues a message, as `queue` does. */
  add({ message, from }: Arrival, inbox = this.#inbox): void {
    queue({ message, from, at: this.#needs.clock.monotonic() }, inbox, this.#replies, this.#needs)
  }

  /**
   * Takes the next message or later work. Undefined: nothing waits. Drops late messages without a ref, and returns refusals of those with a
   * ref. `actsSince`: since when the room could act (monotonic clock).
   */
  next(actsSince: number): Arrival | (() => void) | undefined {
    for (;;) {
      const waiting = this.#inbox.shift()
      if (!waiting || typeof waiting === 'function' || !this.#isLate(waiting, actsSince)) return waiting
      const refusal = this.#refusalOf(waiting.message)
      if (refusal) return { message: refusal, from: waiting.from }
    }
  }

  /** Nothing waits any more: returns the edges whose messages found the queue full. They are to send them again. */
  turnedAway(): readonly string[] {
    const { empty, turnedAway } = this.#inbox
    if (!empty || turnedAway.size === 0) return NONE
    const edges = [...turnedAway]
    turnedAway.clear()
    return edges
  }

  /**
   * True if a message has waited for so long that an overloaded node should drop it. Messages that arrived while the room could not act,
   * such as during an outage of the store, are never late.
   */
  #isLate({ message, at = 0 }: Arrival, actsSince: number): boolean {
    const { clock, load } = this.#needs
    return (
      message.kind === 'message' && load.overloaded && at >= actsSince && clock.monotonic() - at > LATE_MS
    )
  }

  /** Returns the refusal of a late message. Undefined: it is dropped. */
  #refusalOf(message: ToOwner): ToOwner | undefined {
    if (message.kind !== 'message') return undefined
    const { room, member_id, ref } = message
    this.#shed(ref === undefined ? 'dropped' : 'refused')
    if (ref === undefined) return undefined
    return {
      kind: 'refuse',
      room,
      member_id,
      from: ref,
      through: ref,
      code: 'rate_limited',
      message: OVERLOADED,
    }
  }

  #shed(how: 'dropped' | 'refused'): void {
    this.#needs.metrics.inputsShed.inc({ room_type: this.#roomType, how })
  }
}

const NONE: readonly never[] = []
