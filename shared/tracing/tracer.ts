import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'

/** Attributes of a span: words and numbers. Never secrets, tokens, payloads or room state. */
export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>

/** Position in a trace, as W3C Trace Context defines it. It is sent to the process that continues the trace. Every `Span` has one. */
export interface TraceContext {
  /** Span. Absent: there is none. */
  readonly traceparent?: string | undefined
  /** `tracestate` of the trace, which is passed on unchanged. It has no meaning without `traceparent`. */
  readonly tracestate?: string | undefined
}

/** Options of a new span. */
export interface SpanStart {
  readonly attributes?: Attributes
  /** Parent of the span. Absent or invalid: the span starts a trace. An invalid `tracestate` is dropped. */
  readonly parent?: TraceContext | undefined
  /** `traceparent` of related spans in other traces. */
  readonly links?: readonly string[]
  /** Default: work inside a process. `server`: the answer to a request. `consumer`: the handling of a message of another process. */
  readonly kind?: 'internal' | 'server' | 'consumer'
  /** Start on the monotonic clock. Default: now. */
  readonly beganAt?: number
}

/** One span of a trace. */
export interface Span extends TraceContext {
  /** `traceparent` (W3C) for the process that continues the trace. Undefined: traces are off. */
  readonly traceparent: string | undefined
  readonly tracestate: string | undefined
  /** True if the span is recorded. If not, skip work that only serves traces. */
  readonly sampled: boolean
  /** Adds or replaces attributes. */
  set(attributes: Attributes): void
  /** Marks the span as failed. `type` is one of few words, such as an error code. `message` is a sentence without secrets. */
  fail(type: string, message?: string): void
  /** Ends the span. Only the first call has an effect, and nothing can be added after it. */
  end(): void
}

/** Source of spans. Its methods never throw. */
export interface Tracer {
  /** Starts a span. `name` is one of few names. Values that differ from span to span belong in attributes. */
  span(name: string, start?: SpanStart): Span
}

/** Returns a span's context for work that continues it hours later. Undefined: traces are off. */
export const contextOf = ({ traceparent, tracestate }: Span): TraceContext | undefined =>
  traceparent === undefined ? undefined : { traceparent, ...(tracestate !== undefined && { tracestate }) }

/** The span while traces are off. */
export const noSpan: Span = {
  traceparent: undefined,
  tracestate: undefined,
  sampled: false,
  set() {},
  fail() {},
  end() {},
}

/** A tracer without traces. */
export const noTracer: Tracer = { span: () => noSpan }

/** Configuration of traces by roomful. OpenTelemetry's libraries read the rest from the environment. */
export interface TracingConfig {
  /** Name of the service, unless the environment sets another. */
  readonly serviceName: string
  /** Headers for the collector, as `name=value` pairs. Secrets. */
  readonly headers: string
}

/** Dependencies of the export. */
export interface TracingParts {
  /** Undefined: traces are off. */
  readonly config: TracingConfig | undefined
  /** Identifies this process among those of the service. */
  readonly instanceId: string
  readonly clock: Clock
  readonly log: Logger
}

/** Traces of a process. */
export interface Tracing {
  readonly tracer: Tracer
  /** Sends the remaining spans. Resolves after at most four seconds, also if they were not sent. */
  close(): Promise<void>
}
