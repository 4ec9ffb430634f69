import type { Clock } from '../../shared/clock.ts'
import type { Attributes, Span, SpanStart, Tracer } from '../../shared/tracing/tracer.ts'

/** A span that was begun. */
interface RecordedSpan {
  readonly name: string
  readonly traceparent: string
  /** Its `traceparent`. */
  readonly parent: string | undefined
  readonly links: readonly string[]
  readonly attributes: Readonly<Record<string, unknown>>
  readonly failed: string | undefined
  /** In milliseconds; undefined: it has not ended. */
  readonly took: number | undefined
}

/** Keeps every span, also of those that have not ended. */
export class RecordingTracer implements Tracer {
  readonly spans: RecordedSpan[] = []
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The spans that have ended, in the order in which they began: their names, and `roomful.result` where they have one. */
  get ended(): string[] {
    return this.spans
      .filter(({ took }) => took !== undefined)
      .map(({ name, attributes }) =>
        [name, attributes['roomful.result']].filter((word) => word !== undefined).join(' '),
      )
  }

  /** The names of those that have not. */
  get open(): string[] {
    return this.spans.filter(({ took }) => took === undefined).map(({ name }) => name)
  }

  span(name: string, start: SpanStart = {}): Span {
    const clock = this.#clock
    const { links = [], beganAt = clock.monotonic() } = start
    const parent = start.parent?.traceparent
    const number = (this.spans.length + 1).toString(16)
    const traceId = parent?.split('-')[1] ?? number.padStart(32, '0')
    const traceparent = `00-${traceId}-${number.padStart(16, '0')}-01`
    const attributes: Record<string, unknown> = { ...start.attributes }
    const recorded = { name, traceparent, parent, links, attributes, failed: undefined, took: undefined } as {
      -readonly [K in keyof RecordedSpan]: RecordedSpan[K]
    }
    this.spans.push(recorded)
    const unlessEnded = (change: () => void): void => {
      if (recorded.took === undefined) change()
    }
    return {
      traceparent,
      tracestate: start.parent?.tracestate,
      sampled: true,
      set: (more: Attributes) => unlessEnded(() => void Object.assign(attributes, more)),
      fail: (type) =>
        unlessEnded(() => {
          recorded.failed = type
        }),
      end: () =>
        unlessEnded(() => {
          recorded.took = clock.monotonic() - beganAt
        }),
    }
  }
}
