import type { Clock } from '../../shared/clock.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import { noSpan, type Span, type Tracer } from '../../shared/tracing/tracer.ts'
import { type RoomAddress, roomAttributes } from '../traffic.ts'
import type { GatewayMetrics } from './metrics.ts'
import type { Session } from './session.ts'
import type { Subscription } from './subscription.ts'

/** What a watch is made of. */
export interface JoinWatchParts {
  readonly clock: Clock
  readonly metrics: GatewayMetrics
  readonly tracer: Tracer
}

/** How joins fare, for metrics and traces: each from its request to its answer. */
export class JoinWatch {
  readonly #parts: JoinWatchParts

  constructor(parts: JoinWatchParts) {
    this.#parts = parts
  }

  /** A client asks for a subscription; what the owner does about it belongs to this span. */
  begin(session: Session, room: RoomAddress): Span {
    return this.#parts.tracer.span('join', {
      kind: 'server',
      parent: session.trace,
      attributes: { ...roomAttributes(room), 'roomful.session_id': session.sessionId },
    })
  }

  /** The client of a subscription has its answer. */
  answered(subscription: Subscription, result: 'joined' | ErrorCode): void {
    const { clock, metrics } = this.#parts
    metrics.joins.inc({ result })
    if (result === 'joined') metrics.joinDuration.observe((clock.monotonic() - subscription.askedAt) / 1000)
    conclude(subscription.joinSpan, result)
    // A subscription lives for hours, and would keep all that the span was told.
    subscription.joinSpan = noSpan
  }

  /** The client is refused without a look at the room. */
  refused(session: Session, room: RoomAddress, code: ErrorCode): void {
    this.#parts.metrics.joins.inc({ result: code })
    conclude(this.begin(session, room), code)
  }

  /** The subscription is given up; whoever had asked for it gets no answer any more. */
  abandoned(subscription: Subscription): void {
    subscription.joinSpan.set({ 'roomful.result': 'abandoned' })
    subscription.joinSpan.end()
  }
}

/** The service's own failures; the others tell of what a client may not, or of a full room. */
const FAILURES: ReadonlySet<string> = new Set<ErrorCode>([
  'room_unavailable',
  'overloaded',
  'room_logic_failed',
])

function conclude(span: Span, result: 'joined' | ErrorCode): void {
  span.set({ 'roomful.result': result })
  if (FAILURES.has(result)) span.fail(result)
  span.end()
}
