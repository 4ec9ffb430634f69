import type { Clock } from '../shared/clock.ts'
import type { Span, Tracer } from '../shared/tracing/tracer.ts'
import { nodeName } from './node-id.ts'
import { type RoomAddress, roomId } from './traffic.ts'

/** What the node has when its drain begins. */
interface Load {
  readonly rooms: number
  readonly sessions: number
}

/** Rooms with a span of their own; a node may have ten thousand. */
const MOST_ROOMS = 100

/** A node's drain as one trace: its steps, and the rooms that it hands over. */
export class DrainTrace {
  readonly #tracer: Tracer
  readonly #clock: Clock
  readonly #whole: Span
  #step: Span
  #rooms = 0

  /** The drain begins. */
  constructor(tracer: Tracer, clock: Clock, { rooms, sessions }: Load) {
    this.#tracer = tracer
    this.#clock = clock
    this.#whole = tracer.span('drain', {
      attributes: { 'roomful.rooms': rooms, 'roomful.sessions': sessions },
    })
    this.#step = this.#begin('drain.start')
  }

  /** The step before is over, and the next begins: rooms move, then clients, then the node lets go of everything. */
  step(name: 'drain.rooms' | 'drain.clients' | 'drain.stop'): void {
    this.#step.end()
    this.#step = this.#begin(name)
  }

  /** A room was handed over to a node, or saved for whoever asks for it first; it took so many seconds. */
  handed(seconds: number, room: RoomAddress, node_id: string | undefined): void {
    this.#rooms += 1
    if (this.#rooms > MOST_ROOMS) return
    const span = this.#tracer.span('room.hand_over', {
      parent: this.#step,
      began_at: this.#clock.monotonic() - seconds * 1000,
      attributes: {
        'roomful.room_id': roomId(room),
        'roomful.room_type': room.room_type,
        'roomful.project_id': room.project_id,
        'roomful.to_node_id': node_id && nodeName(node_id),
      },
    })
    span.end()
  }

  /** The drain is over: `done`, or given up since it took too long. */
  end(result: 'done' | 'timeout'): void {
    this.#step.end()
    this.#whole.set({ 'roomful.rooms_handed_over': this.#rooms, 'roomful.result': result })
    if (result === 'timeout') this.#whole.fail(result)
    this.#whole.end()
  }

  #begin(name: string): Span {
    return this.#tracer.span(name, { parent: this.#whole })
  }
}
