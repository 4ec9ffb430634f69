/**
 * Implements the port of `tracer.ts` with OpenTelemetry, and sends OTLP over HTTP in JSON. The libraries read their own variables
 * (`OTEL_…`). Parents are passed explicitly: no context manager and no provider are registered, only the destination of the libraries' log.
 */
import {
  type Span as ApiSpan,
  type Context,
  DiagLogLevel,
  defaultTextMapGetter,
  defaultTextMapSetter,
  diag,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api'
import { ExportResultCode, parseKeyPairsIntoRecord, W3CTraceContextPropagator } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base'
import { type Clock, within } from '../clock.ts'
import type { Logger } from '../log.ts'
import { packageVersion } from '../version.ts'
import type { Span, SpanStart, TraceContext, Tracer, Tracing, TracingConfig, TracingParts } from './tracer.ts'

/** Delays before a failed batch is sent again: after 1 and after 2.5 seconds. A collector may just have closed the idle connection. */
const CLOSE_MS = 4000
/** Minimum time between reports of lost spans. A collector can be away for days, or reject every other batch. */
const REPORT_EVERY_MS = 60_000

const KINDS: Readonly<Record<NonNullable<SpanStart['kind']>, SpanKind>> = {
  internal: SpanKind.INTERNAL,
  server: SpanKind.SERVER,
  consumer: SpanKind.CONSUMER,
}

const propagator = new W3CTraceContextPropagator()

/** Opens traces. Spans are sent in batches, no work waits for them, and lost spans are reported. */
export function openOtlp({
  config,
  instanceId,
  clock,
  log,
}: TracingParts & { readonly config: TracingConfig }): Tracing {
  const loss = new LossReport(clock, log)
  const complain = (text: string): void => log.warn(text)
  const ignore = (): void => {}
  // Problems of variables appear while the libraries are set up. Later errors come from exports, which `loss` already reports.
  const logger = { error: complain, warn: complain, info: ignore, debug: ignore, verbose: ignore }
  diag.setLogger(logger, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true })
  const provider = new BasicTracerProvider({
    resource: defaultResource()
      .merge(
        resourceFromAttributes({
          'service.name': config.serviceName,
          'service.version': packageVersion(),
          'service.instance.id': instanceId,
        }),
      )
      .merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [new BatchSpanProcessor(reporting(exporterOf(config), loss))],
  })
  logger.error = ignore
  logger.warn = (text) => {
    if (text.includes('maxQueueSize')) loss.dropped(text)
  }
  return {
    tracer: otlpTracer(provider, clock),
    close: async () => {
      // A rejected batch was already reported with its request.
      const sent = provider.shutdown().catch(ignore)
      await within(clock, CLOSE_MS, sent, () =>
        log.warn({ seconds: CLOSE_MS / 1000 }, 'the last traces could not be exported in time and are lost'),
      )
    },
  }
}

/** Headers are secrets, which may come from a file (`…_FILE`). The library reads the rest. */
function exporterOf({ headers }: TracingConfig): SpanExporter {
  return new OTLPTraceExporter({ headers: parseKeyPairsIntoRecord(headers) })
}

function reporting(exporter: SpanExporter, loss: LossReport): SpanExporter {
  return {
    export: (spans, done) =>
      exporter.export(spans, (result) => {
        // Only the message: the error object may contain the request with its headers.
        if (result.code === ExportResultCode.SUCCESS) loss.over()
        else loss.failed(spans.length, result.error?.message)
        done(result)
      }),
    shutdown: () => exporter.shutdown(),
  }
}

/** Reports lost spans at most once a minute, and when they are accepted again. */
class LossReport {
  readonly #clock: Clock
  readonly #log: Logger
  /** Number of lost spans since the last report. */
  #lost = 0
  #reportedAt = Number.NEGATIVE_INFINITY
  #reported = false

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock
    this.#log = log
  }

  /** An export failed. `why` is a sentence without secrets. */
  failed(spans: number, why: string | undefined): void {
    this.#lost += spans
    this.#say(why)
  }

  /** The queue is or was full. */
  dropped(why: string): void {
    this.#say(why)
  }

  over(): void {
    if (!this.#reported) return
    this.#log.info({ lost: this.#lost }, 'traces are exported again')
    this.#reported = false
    this.#lost = 0
  }

  #say(why: string | undefined): void {
    const now = this.#clock.monotonic()
    if (now - this.#reportedAt < REPORT_EVERY_MS) return
    this.#reported = true
    this.#reportedAt = now
    this.#log.warn({ lost: this.#lost, why }, 'traces cannot be exported and are lost')
  }
}

function otlpTracer(provider: BasicTracerProvider, clock: Clock): Tracer {
  const tracer = provider.getTracer('roomful', packageVersion())
  return {
    span: (
      name,
      { attributes = {}, parent = {}, links = [], kind = 'internal', beganAt = clock.monotonic() } = {},
    ) =>
      spanOf(
        clock,
        tracer.startSpan(
          name,
          {
            attributes,
            kind: KINDS[kind],
            links: links.flatMap((traceparent) => {
              const context = trace.getSpanContext(contextAt({ traceparent }))
              return context ? { context } : []
            }),
            startTime: beganAt,
          },
          contextAt(parent),
        ),
      ),
  }
}

/** The SDK treats values of the monotonic clock as they are. */
function spanOf(clock: Clock, span: ApiSpan): Span {
  const carrier: { traceparent?: string; tracestate?: string } = {}
  propagator.inject(trace.setSpan(ROOT_CONTEXT, span), carrier, defaultTextMapSetter)
  // Spans after the end are dropped here. The SDK would drop them too, but after it has created an error with its stack.
  const unlessEnded = (change: () => void): void => {
    if (span.isRecording()) change()
  }
  return {
    traceparent: carrier.traceparent,
    tracestate: carrier.tracestate || undefined,
    sampled: (span.spanContext().traceFlags & TraceFlags.SAMPLED) === TraceFlags.SAMPLED,
    set: (attributes) => unlessEnded(() => span.setAttributes(attributes)),
    fail: (type, message) =>
      unlessEnded(() => {
        span.setAttribute('error.type', type)
        span.setStatus({ code: SpanStatusCode.ERROR, ...(message !== undefined && { message }) })
      }),
    end: () => unlessEnded(() => span.end(clock.monotonic())),
  }
}

const contextAt = (from: TraceContext): Context =>
  propagator.extract(ROOT_CONTEXT, from, defaultTextMapGetter)
