/**
 * Traces by OpenTelemetry's SDK, sent as OTLP over HTTP. Loaded only when traces are on. Nothing of it is global: parents are handed
 * over explicitly, so neither a context manager nor a provider is registered.
 */
import {
  type Span as ApiSpan,
  type Tracer as ApiTracer,
  type Context,
  type HrTime,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api'
import { TraceState } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources'
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BasicTracerProvider,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-base'
import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import { packageVersion } from '../version.ts'
import type { SamplerName, TracingConfig } from './config.ts'
import type { Tracing, TracingParts } from './open.ts'
import { SpanQueue } from './span-queue.ts'
import { readTraceparent, writeTraceparent } from './traceparent.ts'
import type { Attributes, Span, SpanStart, TraceContext, Tracer } from './tracer.ts'
import { readTracestate } from './tracestate.ts'

const CLOSE_MS = 2000

/** OpenTelemetry’s defaults. */
const SPAN_LIMITS = {
  attributeCountLimit: 128,
  attributeValueLengthLimit: Number.POSITIVE_INFINITY,
  linkCountLimit: 128,
  eventCountLimit: 128,
  attributePerEventCountLimit: 128,
  attributePerLinkCountLimit: 128,
}

const KINDS: Readonly<Record<NonNullable<SpanStart['kind']>, SpanKind>> = {
  internal: SpanKind.INTERNAL,
  server: SpanKind.SERVER,
  consumer: SpanKind.CONSUMER,
}

/** The traces of a process, sent in batches behind its back: nothing ever waits for them. */
export class OtlpTracing implements Tracing {
  readonly tracer: Tracer
  readonly #provider: BasicTracerProvider
  readonly #clock: Clock
  readonly #log: Logger

  constructor({
    config,
    instance_id,
    clock,
    random,
    log,
  }: TracingParts & { readonly config: TracingConfig }) {
    const id = (bytes: number): string => Buffer.from(random.bytes(bytes)).toString('hex')
    this.#clock = clock
    this.#log = log
    this.#provider = new BasicTracerProvider({
      resource: defaultResource()
        .merge(
          resourceFromAttributes({ 'service.version': packageVersion(), 'service.instance.id': instance_id }),
        )
        .merge(resourceFromAttributes(config.attributes))
        .merge(resourceFromAttributes({ 'service.name': config.service_name })),
      sampler: samplerOf(config.sampler, config.ratio),
      idGenerator: { generateTraceId: () => id(16), generateSpanId: () => id(8) },
      spanLimits: SPAN_LIMITS,
      spanProcessors: [new SpanQueue(config.batches, exporterOf(config), { clock, log })],
    })
    this.tracer = new OtlpTracer(this.#provider.getTracer('roomful', packageVersion()), clock)
  }

  async close(): Promise<void> {
    let cancel = () => {}
    const patience = new Promise<'late'>((resolve) => {
      cancel = this.#clock.schedule(CLOSE_MS, () => resolve('late'))
    })
    // What was refused was reported with the request that failed.
    const sent = this.#provider.shutdown().then(
      () => 'over',
      () => 'over',
    )
    if ((await Promise.race([sent, patience])) === 'late')
      this.#log.warn(`the last traces were not taken within ${CLOSE_MS / 1000} seconds, and are lost`)
    cancel()
  }
}

type Compression = NonNullable<NonNullable<ConstructorParameters<typeof OTLPTraceExporter>[0]>['compression']>

/** All that is said is said here: where an option is missing, the library looks into the environment. */
function exporterOf({ url, headers, timeout_ms, compression, tls }: TracingConfig): OTLPTraceExporter {
  return new OTLPTraceExporter({
    url,
    headers: { ...headers },
    timeoutMillis: timeout_ms,
    compression: compression as Compression,
    httpAgentOptions: { keepAlive: true, ...tls },
  })
}

function samplerOf(name: SamplerName, ratio: number): Sampler {
  switch (name) {
    case 'always_on':
      return new AlwaysOnSampler()
    case 'always_off':
      return new AlwaysOffSampler()
    case 'traceidratio':
      return new TraceIdRatioBasedSampler(ratio)
    case 'parentbased_always_on':
      return new ParentBasedSampler({ root: new AlwaysOnSampler() })
    case 'parentbased_always_off':
      return new ParentBasedSampler({ root: new AlwaysOffSampler() })
    case 'parentbased_traceidratio':
      return new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) })
  }
}

class OtlpTracer implements Tracer {
  readonly #tracer: ApiTracer
  readonly #time: EpochTime

  constructor(tracer: ApiTracer, clock: Clock) {
    this.#tracer = tracer
    this.#time = new EpochTime(clock)
  }

  span(name: string, { attributes = {}, parent, links = [], kind, began_at }: SpanStart = {}): Span {
    const span = this.#tracer.startSpan(
      name,
      {
        attributes,
        kind: KINDS[kind ?? 'internal'],
        links: links.flatMap((link) => {
          const context = spanContextOf(link)
          return context ? { context } : []
        }),
        startTime: this.#time.at(began_at),
      },
      parentContext(parent),
    )
    return new OtlpSpan(span, this.#time)
  }
}

class OtlpSpan implements Span {
  readonly traceparent: string
  readonly tracestate: string | undefined
  readonly sampled: boolean
  readonly #span: ApiSpan
  readonly #time: EpochTime
  /** What comes later is dropped here: the SDK would drop it, too, but make an error of it first, with its stack. */
  #ended = false

  constructor(span: ApiSpan, time: EpochTime) {
    const { traceId, spanId, traceFlags, traceState } = span.spanContext()
    this.#span = span
    this.#time = time
    this.tracestate = traceState?.serialize() || undefined
    this.sampled = (traceFlags & TraceFlags.SAMPLED) === TraceFlags.SAMPLED
    this.traceparent = writeTraceparent({ trace_id: traceId, span_id: spanId, sampled: this.sampled })
  }

  set(attributes: Attributes): void {
    if (!this.#ended) this.#span.setAttributes(attributes)
  }

  fail(type: string, message?: string): void {
    if (this.#ended) return
    this.#span.setAttribute('error.type', type)
    this.#span.setStatus({ code: SpanStatusCode.ERROR, ...(message !== undefined && { message }) })
  }

  end(): void {
    if (this.#ended) return
    this.#ended = true
    this.#span.end(this.#time.at(undefined))
  }
}

const spanContextOf = (traceparent: string): SpanContext | undefined => {
  const read = readTraceparent(traceparent)
  return (
    read && {
      traceId: read.trace_id,
      spanId: read.span_id,
      traceFlags: read.sampled ? TraceFlags.SAMPLED : TraceFlags.NONE,
      isRemote: true,
    }
  )
}

function parentContext({ traceparent, tracestate }: TraceContext = {}): Context {
  const context = traceparent === undefined ? undefined : spanContextOf(traceparent)
  if (!context) return ROOT_CONTEXT
  const state = tracestate === undefined ? undefined : readTracestate(tracestate)
  return trace.setSpanContext(ROOT_CONTEXT, {
    ...context,
    ...(state !== undefined && { traceState: new TraceState(state) }),
  })
}

/** A clock that was set, or is slow, is followed once it is off by this much. */
const STEP_MS = 5

/** Moments of the monotonic clock as times since 1970, finer than the wall clock tells them. */
class EpochTime {
  readonly #clock: Clock
  #origin: number

  constructor(clock: Clock) {
    this.#clock = clock
    this.#origin = clock.now() - clock.monotonic()
  }

  /** `moment` in milliseconds of the monotonic clock; undefined: now. */
  at(moment: number | undefined): HrTime {
    const now = this.#clock.monotonic()
    const off = this.#clock.now() - now - this.#origin
    if (Math.abs(off) > STEP_MS) this.#origin += off
    const ms = this.#origin + (moment ?? now)
    const seconds = Math.floor(ms / 1000)
    return [seconds, Math.floor((ms - seconds * 1000) * 1e6)]
  }
}
