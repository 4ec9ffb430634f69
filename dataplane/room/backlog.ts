import type { Clock } from '../../shared/clock.ts'
import type { Inbox } from '../inbox.ts'
import { nowhere } from '../place.ts'
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

/** Messages and later work of a running room that wait until the room can act. On an overloaded node, messages do not wait for long. */
export class Backlog {
  readonly #inbox: Inbox
  readonly #roomId: string
  readonly #roomType: string
  readonly #replies: Replies
  readonly #needs: BacklogNeeds

  /** `inbox`: gets the messages. Those that wait at the end of the room go to the next owner. */
  constructor(inbox: Inbox, roomId: string, roomType: string, replies: Replies, needs: BacklogNeeds) {
    this.#inbox = inbox
    this.#roomId = roomId
    this.#roomType = roomType
    this.#replies = replies
    this.#needs = needs
  }

  /** Arrival of the oldest message (monotonic clock). Undefined: none waits. */
  get since(): number | undefined {
    return this.#inbox.since
  }

  /** Queues a message. If the queue is full, the message is refused, or its edge sends it again. */
  add({ message, from }: Arrival, inbox = this.#inbox): void {
    const { clock, load, metrics } = this.#needs
    const arrival = { message, from, at: clock.monotonic() }
    if (inbox.add(arrival)) return
    // On a node that is behind, an answer to each message would cost more than handling it.
    if (message.kind === 'message' && message.ref === undefined && load.slowdown > 1) {
      this.#shed('dropped')
      return
    }
    metrics.backlogFull.inc({ room_type: this.#roomType })
    if (!this.#replies.turnAway(arrival, nowhere('busy', `${this.#roomId} has to wait: try again`)))
      this.#inbox.turnedAway.add(arrival.from)
  }

  /** Queues later work. */
  defer(run: () => void): void {
    this.#inbox.defer(run)
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
