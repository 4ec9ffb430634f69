import type { Clock } from '../clock.ts'
import type { Config } from '../config.ts'
import type { Logger } from '../log.ts'

/** What a span is described with: words and numbers that are no secret. Never tokens, payloads or room state. */
export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>

/** Where a trace is, as W3C Trace Context writes it: what is told to the process that goes on with it. Every `Span` is one. */
export interface TraceContext {
  /** A span; absent: there is none. */
  readonly traceparent?: string | undefined
  /** What the systems of the trace have noted about it, passed on as it is. Worth nothing without `traceparent`. */
  readonly tracestate?: string | undefined
}

/** How a span begins. */
export interface SpanStart {
  readonly attributes?: Attributes
  /** The span that this one is part of. Absent, or not one: the span begins a trace. What is no `tracestate` is dropped. */
  readonly parent?: TraceContext | undefined
  /** The `traceparent` of spans in other traces that have to do with this one. */
  readonly links?: readonly string[]
  /** Default: work inside a process. `server`: the answer to a request; `consumer`: to a message of another process. */
  readonly kind?: 'internal' | 'server' | 'consumer'
  /** When it began, on the monotonic clock; default: now. */
  readonly beganAt?: number
}

/** A piece of work that takes time, as traces show it. */
export interface Span extends TraceContext {
  /** What the process that goes on with the trace is given (W3C `traceparent`); undefined: traces are off. */
  readonly traceparent: string | undefined
  readonly tracestate: string | undefined
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

/** What is left of a span for those who go on with it for hours; undefined: traces are off. */
export const contextOf = ({ traceparent, tracestate }: Span): TraceContext | undefined =>
  traceparent === undefined ? undefined : { traceparent, ...(tracestate !== undefined && { tracestate }) }

/** The span where traces are off. */
export const noSpan: Span = {
  traceparent: undefined,
  tracestate: undefined,
  sampled: false,
  set() {},
  fail() {},
  end() {},
}

/** Traces nothing. */
export const noTracer: Tracer = { span: () => noSpan }

/** What roomful itself says of traces; the rest OpenTelemetry's libraries read from the environment. */
export interface TracingConfig {
  /** What the service is called unless the environment says otherwise. */
  readonly serviceName: string
  /** Headers for the collector, as `name=value` pairs. Secrets. */
  readonly headers: string
}

/** What exporting works with. */
export interface TracingParts {
  /** Undefined: traces are off. */
  readonly config: TracingConfig | undefined
  /** Tells this process from the others of the service. */
  readonly instanceId: string
  readonly clock: Clock
  readonly log: Logger
}

/** The traces of a process. */
export interface Tracing {
  readonly tracer: Tracer
  /** Sends what has not been sent; resolves after four seconds at the latest, whether or not it was taken. */
  close(): Promise<void>
}

/** What the variables of a process say of traces; undefined: they are off. */
export function tracingConfig(
  config: Config<'control'> | Config<'dataplane'> | Config<'dev'>,
  serviceName: string,
): TracingConfig | undefined {
  if (config.otelTracesExporter === 'none' || config.otelSdkDisabled) return undefined
  return { serviceName, headers: config.otelExporterOtlpHeaders ?? '' }
}

/** Loads the module that exports spans; a parameter, since OpenTelemetry's packages need not be there. */
const loadOtlp = () => import('./otlp.ts')

/**
 * Opens the traces of a process. The libraries of OpenTelemetry are loaded here, and only when traces are on: rejects with what to install
 * where they are missing.
 */
export async function openTracing({ config, ...parts }: TracingParts, load = loadOtlp): Promise<Tracing> {
  if (!config) return { tracer: noTracer, close: async () => {} }
  const { openOtlp } = await load().catch((error: unknown) => {
    const [, missing] = /'(@opentelemetry\/[^']+)'/.exec(error instanceof Error ? error.message : '') ?? []
    if (missing === undefined) throw error
    throw new PackageMissing(
      `OTEL_TRACES_EXPORTER is otlp, but the package ${missing} is not installed. Traces need: npm install ${PACKAGES.join(' ')}`,
      { cause: error },
    )
  })
  return openOtlp({ config, ...parts })
}

/** A package that a variable asks for is not installed. */
class PackageMissing extends Error {
  override readonly name = 'PackageMissing'
}

/** Optional peers of the package, which `otlp.ts` imports. */
const PACKAGES = ['api', 'core', 'exporter-trace-otlp-http', 'resources', 'sdk-trace-base'].map(
  (name) => `@opentelemetry/${name}`,
)
