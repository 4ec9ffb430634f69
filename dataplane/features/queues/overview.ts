import { type Clock, timestamp } from '../../../shared/clock.ts'
import type { Json } from '../../../shared/json.ts'
import type { QueueDescription } from '../../descriptions.ts'
import type { RoomDefinition } from '../../room/definition.ts'
import type { QueueFigures, RoomLog } from '../../room/definition-types.ts'
import type { RoomMetrics } from '../../room/metrics.ts'
import type { RoomAddress } from '../../traffic.ts'

/** A room of the node, which may be a queue. */
interface QueueRoom {
  readonly core: {
    readonly definition: RoomDefinition
    readonly address: RoomAddress
    readonly roomId: string
    readonly log: RoomLog
    readonly state: { readonly flushed: Json }
    readonly memberships: { readonly size: number }
  }
}

/** The queues among the rooms of a node, as operators see them. */
export class QueueOverview {
  readonly #rooms: () => readonly QueueRoom[]

  /** `rooms`: returns the rooms that the node runs. Sets the gauges of `metrics`. */
  constructor(rooms: () => readonly QueueRoom[], metrics: RoomMetrics, clock: Clock) {
    this.#rooms = rooms
    metrics.queueTickets.read(() => this.#byType(({ core }) => core.memberships.size, sum))
    metrics.queueOldest.read(() =>
      this.#byType((room) => {
        const { oldestSince = clock.now() } = figuresOf(room)
        return Math.max(0, clock.now() - oldestSince) / 1000
      }, Math.max),
    )
  }

  describe(): QueueDescription[] {
    return this.#queues.map((room) => {
      const { oldestSince, pendingMatches, ...figures } = figuresOf(room)
      return {
        room_id: room.core.roomId,
        project_id: room.core.address.projectId,
        ...figures,
        oldest_since: oldestSince === undefined ? null : timestamp(oldestSince),
        pending_matches: pendingMatches,
      }
    })
  }

  get #queues(): readonly QueueRoom[] {
    return this.#rooms().filter(({ core }) => core.definition.matches)
  }

  /** Returns a figure of the queues by room type. `join` combines the figures of several projects. */
  #byType(
    of: (room: QueueRoom) => number,
    join: (one: number, other: number) => number,
  ): [{ room_type: string }, number][] {
    const found = new Map<string, number>()
    for (const room of this.#queues) {
      const { type } = room.core.definition
      found.set(type, join(found.get(type) ?? 0, of(room)))
    }
    return [...found].map(([type, figure]) => [{ room_type: type }, figure])
  }
}

const sum = (one: number, other: number): number => one + other

const figuresOf = ({ core: { definition, log, state } }: QueueRoom): QueueFigures =>
  definition.matches!.figures(log, state.flushed)
