import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gunzipSync } from 'node:zlib'
import type { Clock } from '../../shared/clock.ts'
import type { Attributes, Span, SpanStart, Tracer } from '../../shared/tracing/tracer.ts'
import { until } from './redis-server.ts'

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

type Word = string | number | boolean | undefined

/** A span as a collector knows it. */
export interface CollectedSpan {
  readonly service: string
  /** The process: a node's id. */
  readonly instance: string
  readonly name: string
  readonly trace_id: string
  readonly span_id: string
  /** Empty: it begins its trace. */
  readonly parent_id: string
  readonly state: string
  /** As OTLP numbers them: 1 internal, 2 server, 5 consumer. */
  readonly kind: number
  readonly attributes: Readonly<Record<string, Word>>
  readonly links: readonly { readonly trace_id: string; readonly span_id: string }[]
  readonly failed: boolean
  /** Milliseconds since 1970. */
  readonly start: number
  readonly end: number
}

/** A request with spans. */
interface TraceRequest {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

interface OtlpAttribute {
  readonly key: string
  readonly value: {
    readonly stringValue?: string
    readonly intValue?: number | string
    readonly doubleValue?: number
    readonly boolValue?: boolean
  }
}

/** As the OTLP specification has them in JSON. */
interface OtlpSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly traceState?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: readonly OtlpAttribute[]
  readonly links?: readonly { readonly traceId: string; readonly spanId: string }[]
  readonly status: { readonly code?: number }
}

interface OtlpRequest {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly OtlpAttribute[] }
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[]
  }[]
}

const ERROR = 2

/** Takes traces as a collector does: OTLP over HTTP, in JSON. Keeps all it is sent. */
export class TraceCollector {
  readonly requests: TraceRequest[] = []
  readonly spans: CollectedSpan[] = []
  /** What it answers; 200 takes the spans, `silent` lets their sender wait. */
  status: number | 'silent' = 200
  readonly #server: Server

  private constructor() {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => chunks.push(chunk))
      request.on('end', () => {
        const bytes = Buffer.concat(chunks)
        const body = (request.headers['content-encoding'] === 'gzip' ? gunzipSync(bytes) : bytes).toString()
        this.requests.push({ path: request.url ?? '', headers: request.headers, body })
        if (this.status === 200) this.spans.push(...spansOf(JSON.parse(body)))
        if (this.status === 'silent') return
        response.writeHead(this.status, { 'content-type': 'application/json' })
        response.end('{}')
      })
    })
    // Spans are sent each 5 seconds, after which a server closes idle connections by default: now and then one would be sent again.
    this.#server.keepAliveTimeout = 0
  }

  /** Starts one on a port; default: a free one. */
  static async start(port = 0): Promise<TraceCollector> {
    const collector = new TraceCollector()
    await new Promise<void>((resolve) => collector.#server.listen(port, '127.0.0.1', resolve))
    return collector
  }

  /** For `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** The spans of a name that `fits` says yes to. */
  named(name: string, fits: (span: CollectedSpan) => boolean = () => true): CollectedSpan[] {
    return this.spans.filter((span) => span.name === name && fits(span))
  }

  /** The one span of a name that `fits` says yes to; throws when there are none or several. */
  one(name: string, fits?: (span: CollectedSpan) => boolean): CollectedSpan {
    const [span, ...more] = this.named(name, fits)
    if (span && more.length === 0) return span
    const names = this.spans.map((each) => `${each.service} ${each.name}`)
    throw new Error(`${span ? more.length + 1 : 'no'} spans ${name} of: ${names.join(', ')}`)
  }

  /** Resolves with the one span of a name that `fits` says yes to, once it is here. */
  async has(name: string, fits?: (span: CollectedSpan) => boolean): Promise<CollectedSpan> {
    await until(`a span ${name} arrives`, async () => this.named(name, fits).length > 0)
    return this.one(name, fits)
  }

  close(): Promise<void> {
    this.#server.closeAllConnections()
    return new Promise((resolve) => void this.#server.close(() => resolve()))
  }
}

const spansOf = ({ resourceSpans }: OtlpRequest): CollectedSpan[] =>
  resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const of = wordsOf(resource.attributes)
    return scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        service: String(of['service.name']),
        instance: String(of['service.instance.id']),
        name: span.name,
        trace_id: span.traceId,
        span_id: span.spanId,
        parent_id: span.parentSpanId ?? '',
        state: span.traceState ?? '',
        kind: span.kind,
        attributes: wordsOf(span.attributes),
        links: (span.links ?? []).map(({ traceId, spanId }) => ({ trace_id: traceId, span_id: spanId })),
        failed: span.status.code === ERROR,
        start: Number(span.startTimeUnixNano) / 1e6,
        end: Number(span.endTimeUnixNano) / 1e6,
      })),
    )
  })

const wordsOf = (attributes: readonly OtlpAttribute[]): Record<string, Word> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, wordOf(value)]))

const wordOf = ({ stringValue, boolValue, doubleValue, intValue }: OtlpAttribute['value']): Word =>
  stringValue ?? boolValue ?? doubleValue ?? (intValue === undefined ? undefined : Number(intValue))
