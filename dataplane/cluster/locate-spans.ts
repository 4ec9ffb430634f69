import type { Span, Tracer } from '../../shared/tracing/tracer.ts'
import { nodeName } from '../node-id.ts'
import { roomId, roomName, type ToOwner } from '../traffic.ts'

/**
 * How a look for the owner of a room ended. `found`: somebody has the room. `placed`: nobody living has, and another node was chosen to.
 * `claimed`, `taken_over`: this node has it now. `refused`: it did not want it, and has told the client why.
 */
export interface Located {
  readonly result: 'found' | 'placed' | 'claimed' | 'taken_over' | 'refused' | 'overloaded' | 'unavailable'
  /** The node that has the room, or is to have it. */
  readonly owner?: string | undefined
  readonly epoch?: number | undefined
  /** The dead node that the room was taken from. */
  readonly from?: string | undefined
}

/** Nobody has the room now, and the client cannot help it. */
const FAILURES: ReadonlySet<Located['result']> = new Set(['overloaded', 'unavailable'])

/**
 * The spans of those joins that wait until the owner of their room is known: parts of the join, at each node that has to look. Joins
 * whose edge does not record them, which are all while traces are off, are none of its business.
 */
export class LocateSpans {
  readonly #tracer: Tracer
  /** By room name, and by member id. */
  readonly #open = new Map<string, Map<string, Span>>()

  constructor(tracer: Tracer) {
    this.#tracer = tracer
  }

  /** A message waits. */
  begin(message: ToOwner): void {
    if (message.kind !== 'join' || message.traceparent === undefined) return
    const { room, member_id, session_id } = message
    const name = roomName(room)
    const waiting = this.#open.get(name) ?? new Map<string, Span>()
    // Asked again by its edge.
    if (waiting.has(member_id)) return
    this.#open.set(name, waiting)
    const span = this.#tracer.span('room.locate', {
      parent: message,
      attributes: {
        'roomful.room_id': roomId(room),
        'roomful.room_type': room.room_type,
        'roomful.project_id': room.project_id,
        'roomful.session_id': session_id,
      },
    })
    waiting.set(member_id, span)
  }

  /** Nobody waits for the owner of a room (`project/type:key`) any more: what is returned is to be told how that ended. */
  settle(room: string): (located: Located) => void {
    const waiting = this.#open.get(room)
    this.#open.delete(room)
    return (located) => {
      for (const span of waiting?.values() ?? []) end(span, located)
    }
  }
}

function end(span: Span, { result, owner, epoch, from }: Located): void {
  span.set({
    'roomful.result': result,
    'roomful.owner_node_id': owner && nodeName(owner),
    'roomful.epoch': epoch,
    'roomful.from_node_id': from && nodeName(from),
  })
  if (FAILURES.has(result)) span.fail(result)
  span.end()
}
