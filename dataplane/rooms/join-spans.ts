import type { Attributes, Span, Tracer } from '../../shared/tracing/tracer.ts'
import { roomId } from '../traffic.ts'
import type { JoinRequest } from './admissions.ts'

/** A join under way: the whole of it, and the part it is at. */
interface Open {
  readonly whole: Span
  part: Span | undefined
}

/**
 * The spans of the joins that a room is at, until their members hear of it: parts of the trace of whoever asked. Joins whose edge does not
 * record them, which are all while traces are off, are none of its business.
 */
export class JoinSpans {
  readonly #tracer: Tracer
  /** By member id. */
  readonly #open = new Map<string, Open>()

  constructor(tracer: Tracer) {
    this.#tracer = tracer
  }

  /** A join has reached the room. */
  begin(request: JoinRequest, attributes: Attributes): void {
    if (request.traceparent === undefined) return
    const { room, member_id, session_id } = request
    const whole = this.#tracer.span('room.join', {
      kind: 'consumer',
      parent: request,
      attributes: {
        'roomful.room_id': roomId(room),
        'roomful.room_type': room.room_type,
        'roomful.project_id': room.project_id,
        'roomful.session_id': session_id,
        ...attributes,
      },
    })
    this.#open.set(member_id, { whole, part: undefined })
  }

  /** The join goes on with its next part. */
  part(member_id: string, name: 'room.admit' | 'room.commit'): void {
    const open = this.#open.get(member_id)
    if (!open) return
    open.part?.end()
    open.part = this.#tracer.span(name, { parent: open.whole })
  }

  /** The join of a member is over for the room, if it was under way; `result` is one word. */
  end(member_id: string, result: string): void {
    const open = this.#open.get(member_id)
    if (!open) return
    this.#open.delete(member_id)
    open.part?.end()
    open.whole.set({ 'roomful.result': result })
    open.whole.end()
  }

  /** Ends those that `resultOf` knows the result of. Costs nothing when no join is under way. */
  settle(resultOf: (member_id: string) => string | undefined): void {
    if (this.#open.size === 0) return
    for (const member_id of [...this.#open.keys()]) {
      const result = resultOf(member_id)
      if (result !== undefined) this.end(member_id, result)
    }
  }
}
