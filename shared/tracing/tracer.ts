/** What a span is described with: words and numbers that are nobody's secret. Never tokens, payloads or room state. */
export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>

/** How a span begins. */
export interface SpanStart {
  readonly attributes?: Attributes
  /** The `traceparent` (W3C) of the span that this one is part of. Absent, or not one: the span begins a trace. */
  readonly parent?: string | undefined
  /** The `tracestate` (W3C) that came with `parent`. */
  readonly state?: string | undefined
  /** The `traceparent` of spans in other traces that have to do with this one. */
  readonly links?: readonly string[]
  /** Default: work inside a process. `server`: the answer to a request; `consumer`: to a message of another process. */
  readonly kind?: 'internal' | 'server' | 'consumer'
  /** When it began, on the monotonic clock; default: now. */
  readonly began_at?: number
}

/** A piece of work that takes time, as traces show it. */
export interface Span {
  /** What whoever goes on with the trace is given (W3C `traceparent`); undefined: traces are off. */
  readonly traceparent: string | undefined
  /** Whether the span is recorded: if not, what is worth something only in a trace need not be done. */
  readonly sampled: boolean
  /** Adds attributes, or replaces them. */
  set(attributes: Attributes): void
  /** The work failed: `type` is one word of few, such as an error code; `message` a sentence without secrets. */
  fail(type: string, message?: string): void
  /** The work is over. Only the first call counts, and nothing can be added after it. */
  end(): void
}

/** Where spans come from. Its methods never throw. */
export interface Tracer {
  /** Begins a span. `name` is one of few: what differs from span to span belongs into attributes. */
  span(name: string, start?: SpanStart): Span
}

/** The span of whoever does not trace. */
export const noSpan: Span = {
  traceparent: undefined,
  sampled: false,
  set() {},
  fail() {},
  end() {},
}

/** Traces nothing. */
export const noTracer: Tracer = { span: () => noSpan }
