import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gunzipSync } from 'node:zlib'
import type { Clock } from '../../shared/clock.ts'
import type { Attributes, Span, SpanStart, Tracer } from '../../shared/tracing/tracer.ts'
import { until } from './redis-server.ts'

/** A started span. */
interface RecordedSpan {
  readonly name: string
  readonly traceparent: string
  /** The `traceparent` of its parent. */
  readonly parent: string | undefined
  readonly links: readonly string[]
  readonly attributes: Readonly<Record<string, unknown>>
  readonly failed: string | undefined
  /** Duration in milliseconds. Undefined: the span has not ended. */
  readonly took: number | undefined
}

/** Records all spans, also those that have not ended. */
export class RecordingTracer implements Tracer {
  readonly spans: RecordedSpan[] = []
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Names of the ended spans in the order of their starts, each with its `roomful.result` if it has one. */
  get ended(): string[] {
    return this.spans
      .filter(({ took }) => took !== undefined)
      .map(({ name, attributes }) =>
        [name, attributes['roomful.result']].filter((word) => word !== undefined).join(' '),
      )
  }

  /** Names of the spans that have not ended. */
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

type AttributeValue = string | number | boolean | undefined

/** A span that a collector has received. */
export interface CollectedSpan {
  readonly service: string
  /** Id of the process, such as a node's id. */
  readonly instance: string
  readonly name: string
  readonly trace_id: string
  readonly span_id: string
  /** Empty: the span is the root of its trace. */
  readonly parent_id: string
  readonly state: string
  /** Number of OTLP: 1 internal, 2 server, 5 consumer. */
  readonly kind: number
  readonly attributes: Readonly<Record<string, AttributeValue>>
  readonly links: readonly { readonly trace_id: string; readonly span_id: string }[]
  readonly failed: boolean
  /** Milliseconds since 1970, as `end`. */
  readonly start: number
  readonly end: number
}

/** A request of an exporter. */
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

/** A span in the JSON of OTLP. */
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

/** Status code of a failed span in OTLP. */
const ERROR = 2

/** A trace collector: OTLP over HTTP, in JSON. It stores all requests and spans. */
export class TraceCollector {
  readonly requests: TraceRequest[] = []
  readonly spans: CollectedSpan[] = []
  /** Status of its answers. Only 200 stores the spans. `silent`: no answer. */
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
    // Exporters send spans every 5 s, and a server closes connections that were idle for 5 s by default. A request would sometimes be repeated.
    this.#server.keepAliveTimeout = 0
  }

  /** Starts a collector. Default port: a free one. */
  static async start(port = 0): Promise<TraceCollector> {
    const collector = new TraceCollector()
    await new Promise<void>((resolve) => collector.#server.listen(port, '127.0.0.1', resolve))
    return collector
  }

  /** Value of `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Returns the spans with this name for which `fits` returns true. */
  named(name: string, fits: (span: CollectedSpan) => boolean = () => true): CollectedSpan[] {
    return this.spans.filter((span) => span.name === name && fits(span))
  }

  /** As `named`, for exactly one span. Throws if there are none or several. */
  one(name: string, fits?: (span: CollectedSpan) => boolean): CollectedSpan {
    const [span, ...more] = this.named(name, fits)
    if (span && more.length === 0) return span
    const names = this.spans.map((each) => `${each.service} ${each.name}`)
    throw new Error(`${span ? more.length + 1 : 'no'} spans ${name} of: ${names.join(', ')}`)
  }

  /** As `one`, but waits until the span arrives. */
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
    const attributes = attributesOf(resource.attributes)
    return scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        service: String(attributes['service.name']),
        instance: String(attributes['service.instance.id']),
        name: span.name,
        trace_id: span.traceId,
        span_id: span.spanId,
        parent_id: span.parentSpanId ?? '',
        state: span.traceState ?? '',
        kind: span.kind,
        attributes: attributesOf(span.attributes),
        links: (span.links ?? []).map(({ traceId, spanId }) => ({ trace_id: traceId, span_id: spanId })),
        failed: span.status.code === ERROR,
        start: Number(span.startTimeUnixNano) / 1e6,
        end: Number(span.endTimeUnixNano) / 1e6,
      })),
    )
  })

const attributesOf = (attributes: readonly OtlpAttribute[]): Record<string, AttributeValue> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, attributeValue(value)]))

const attributeValue = ({
  stringValue,
  boolValue,
  doubleValue,
  intValue,
}: OtlpAttribute['value']): AttributeValue =>
  stringValue ?? boolValue ?? doubleValue ?? (intValue === undefined ? undefined : Number(intValue))
