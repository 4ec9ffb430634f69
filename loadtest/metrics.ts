import type { Redis } from 'ioredis'
import type { Clock } from '../shared/clock.ts'
import type { Unit } from './text.ts'

/** One process of the service in one second, from its metrics. */
export interface ServerSecond extends Readonly<Record<ServerFigureName, number>> {
  /** `node-1`, or the address of its metrics. */
  readonly name: string
  /** False: it did not answer, and all figures are 0. */
  readonly up: boolean
  /** Seconds since the last answer, in which the counters were counted. */
  readonly seconds: number
}

export interface MetricsSource {
  readonly name: string
  /** The address before `/metrics`. */
  readonly url: string
}

/** Time limit of a reading. Metrics are read once a second. The first answer of a process that has just started may take longer. */
const TIME_LIMIT_MS = 900
const REACH_TIME_LIMIT_MS = 5000

/** Metric of every process of the service. */
const CPU = 'service_process_cpu_seconds_total'
const HINT =
  'After --metrics come the admin addresses of nodes (port 9100) and the addresses of control processes (port 3000).'

/** A series of Prometheus text, without its timestamp. */
const SERIES = /^([A-Za-z_:][\w:]*)(?:\{.*\})? +(\S+)/

/** The sum of all series of each name. */
type Metrics = ReadonlyMap<string, number>

/** Reads metrics in the text format of Prometheus. */
export function parseMetrics(text: string): Metrics {
  const sums = new Map<string, number>()
  for (const line of text.split('\n')) {
    const [, name, digits] = SERIES.exec(line) ?? []
    if (name === undefined) continue
    const value = Number(digits)
    if (Number.isFinite(value)) sums.set(name, (sums.get(name) ?? 0) + value)
  }
  return sums
}

/** Returns the fields of a section of Redis' INFO, by name. */
export async function redisInfo(redis: Redis, section = 'default'): Promise<ReadonlyMap<string, string>> {
  const fields = (await redis.info(section)).matchAll(/^([^#:\r\n]+):(.*)$/gm)
  return new Map([...fields].map(([, name = '', value = '']) => [name, value]))
}

/** Returns the CPU time of Redis since its start. */
export const redisCpuSeconds = (info: ReadonlyMap<string, string>): number =>
  Number(info.get('used_cpu_user')) + Number(info.get('used_cpu_sys'))

interface ServerFigure {
  /** `counter`: the increase in the second. `mean`: the mean of a histogram of seconds, in milliseconds. */
  readonly kind: 'gauge' | 'counter' | 'mean'
  readonly metric: string
  /** Unit on the page. A counter is shown per second. */
  readonly unit: Unit
  /** Factor from the value to its unit; default 1. */
  readonly times?: number
  /** Heading of its chart and its column. Absent: it is not shown. */
  readonly title?: string
  /** Name of a limit on it. */
  readonly limit?: string
}

/** Figures of a server by their names in the report. */
const SERVER_FIGURES = {
  cpu_seconds: { kind: 'counter', metric: CPU, unit: '%', times: 100, title: 'CPU', limit: 'max-cpu' },
  event_loop_utilisation: {
    kind: 'gauge',
    metric: 'service_event_loop_utilisation_ratio',
    unit: '%',
    times: 100,
    title: 'Event loop busy',
  },
  event_loop_delay_ms: {
    kind: 'mean',
    metric: 'service_event_loop_delay_seconds',
    unit: 'ms',
    title: 'Event loop delay',
    limit: 'max-event-loop-delay',
  },
  rss_bytes: {
    kind: 'gauge',
    metric: 'service_process_resident_memory_bytes',
    unit: 'bytes',
    title: 'Memory',
    limit: 'max-rss',
  },
  sessions: { kind: 'gauge', metric: 'service_sessions', unit: '', title: 'Sessions' },
  rooms: { kind: 'gauge', metric: 'service_rooms', unit: '', title: 'Rooms' },
  connections: { kind: 'gauge', metric: 'service_connections', unit: '' },
  members: { kind: 'gauge', metric: 'service_members', unit: '' },
  messages_in: {
    kind: 'counter',
    metric: 'service_messages_received_total',
    unit: '/s',
    title: 'Messages from clients',
  },
  socket_writes: { kind: 'counter', metric: 'service_socket_writes_total', unit: '/s' },
  bytes_out: { kind: 'counter', metric: 'service_written_bytes_total', unit: 'bytes/s' },
  resyncs: { kind: 'counter', metric: 'service_resyncs_total', unit: '/s', title: 'Resyncs' },
  errors: { kind: 'counter', metric: 'service_websocket_errors_total', unit: '/s', title: 'Errors' },
} as const satisfies Readonly<Record<string, ServerFigure>>
type ServerFigureName = keyof typeof SERVER_FIGURES
const FIGURES: [ServerFigureName, ServerFigure][] = Object.entries(SERVER_FIGURES) as []

/** Figures on the page. */
export const SHOWN_FIGURES = FIGURES.flatMap(([name, { title, unit, limit }]) =>
  title === undefined ? [] : [{ name, title, unit, limit }],
)

/** Returns a figure of a server in one second, in its unit. */
export function serverValue(server: ServerSecond, name: ServerFigureName): number {
  const { kind, times = 1 }: ServerFigure = SERVER_FIGURES[name]
  return (times * server[name]) / (kind === 'counter' ? server.seconds : 1)
}

/** Returns the figures of a process between two readings, which are `seconds` apart. */
export function secondOf(name: string, now: Metrics, before: Metrics, seconds: number): ServerSecond {
  const gauge = (metric: string): number => now.get(metric) ?? 0
  // If a counter is lower than before, it belongs to a new process.
  const counter = (metric: string): number => {
    const [to, from] = [gauge(metric), before.get(metric) ?? 0]
    return to >= from ? to - from : to
  }
  const mean = (histogram: string): number => {
    const count = counter(`${histogram}_count`)
    return count === 0 ? 0 : (counter(`${histogram}_sum`) / count) * 1000
  }
  const read = { gauge, counter, mean }
  const figures = FIGURES.map(([figure, { kind, metric }]) => [figure, read[kind](metric)])
  return { name, up: true, seconds, ...(Object.fromEntries(figures) as Record<ServerFigureName, number>) }
}

const DOWN = secondOf('', new Map(), new Map(), 1)

async function metricsAt(url: string, limitMs: number): Promise<Metrics> {
  const response = await fetch(`${url}/metrics`, { signal: AbortSignal.timeout(limitMs) })
  if (!response.ok) throw new Error(`it answers with ${response.status}`)
  return parseMetrics(await response.text())
}

/** Reads the metrics of the service's processes. */
export class Scraper {
  readonly #sources: readonly MetricsSource[]
  readonly #clock: Clock
  /** `at`: of the monotonic clock. */
  readonly #last = new Map<string, { readonly metrics: Metrics; readonly at: number }>()

  constructor(sources: readonly MetricsSource[], clock: Clock) {
    this.#sources = sources
    this.#clock = clock
  }

  /** Rejects with an Error that names the address without metrics, and why. */
  async reach(): Promise<void> {
    await Promise.all(
      this.#sources.map(async ({ url }) => {
        const metrics = await metricsAt(url, REACH_TIME_LIMIT_MS).catch((error: Error) => {
          const why = error.cause instanceof Error ? error.cause.message : error.message
          throw new Error(`There are no metrics at ${url}/metrics (${why}). ${HINT}`)
        })
        if (!metrics.has(CPU)) throw new Error(`What ${url}/metrics has are no metrics of roomful. ${HINT}`)
      }),
    )
  }

  /** Returns the figures of each process since its last answer. In the first call the counters are 0. */
  read(): Promise<ServerSecond[]> {
    return Promise.all(this.#sources.map((source) => this.#read(source)))
  }

  async #read({ name, url }: MetricsSource): Promise<ServerSecond> {
    try {
      const metrics = await metricsAt(url, TIME_LIMIT_MS)
      const [at, last] = [this.#clock.monotonic(), this.#last.get(name)]
      this.#last.set(name, { metrics, at })
      if (!last) return secondOf(name, metrics, metrics, 1)
      return secondOf(name, metrics, last.metrics, (at - last.at) / 1000)
    } catch {
      return { ...DOWN, name, up: false }
    }
  }
}
