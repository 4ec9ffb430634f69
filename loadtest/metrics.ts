import type { Clock } from '../shared/clock.ts'
import type { Unit } from './text.ts'

/** One process of the service in one second, from its own metrics. */
export interface ServerSecond extends Readonly<Record<ServerFigureName, number>> {
  /** `node-1`, or the address where metrics are read. */
  readonly name: string
  /** False: it did not answer; the figures are 0. */
  readonly up: boolean
  /** What is counted was counted in so many seconds: since it answered last. 1 when nothing is counted. */
  readonly seconds: number
}

/** Where something tells its metrics. */
export interface MetricsSource {
  readonly name: string
  /** The address before `/metrics`. */
  readonly url: string
}

/** Metrics are read once a second; an answer after that is of no use. */
const PATIENCE_MS = 900

/** Every process of the service has it. */
const CPU = 'service_process_cpu_seconds_total'
const HINT =
  'After --metrics come the admin addresses of nodes (port 9100) and the addresses of control processes (port 3000).'

/** A series of Prometheus text; a time behind the value is left out. */
const SERIES = /^([A-Za-z_:][\w:]*)(?:\{.*\})? +(\S+)/

/** The sums of all series of each name. */
type Metrics = ReadonlyMap<string, number>

/** Reads Prometheus text: the sum over the series of each name. */
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

/** A figure that a process of the service has of itself each second: from which metric it comes, and how it is shown. */
export interface ServerFigure {
  /** `counter`: how much was added in the second. `mean`: of a histogram of seconds, in milliseconds. */
  readonly kind: 'gauge' | 'counter' | 'mean'
  readonly metric: string
  /** A counter is shown per second. */
  readonly unit: Unit
  /** What multiplies the value to be in its unit; default 1. */
  readonly times?: number
  /** The heading over it in a table; absent: it is in none. */
  readonly column?: string
  /** Its chart; absent: it has none. */
  readonly chart?: { readonly title: string; readonly about: string; readonly limit?: string }
}

/** By its name in the report. */
export const SERVER_FIGURES = {
  cpu_seconds: {
    kind: 'counter',
    metric: CPU,
    unit: '%',
    times: 100,
    column: 'CPU',
    chart: { title: 'CPU', about: '100% is one core.', limit: 'max-cpu' },
  },
  event_loop_utilisation: {
    kind: 'gauge',
    metric: 'service_event_loop_utilisation_ratio',
    unit: '%',
    times: 100,
    column: 'loop',
    chart: { title: 'Event loop busy', about: 'Share of the time in which the event loop worked.' },
  },
  event_loop_delay_ms: {
    kind: 'mean',
    metric: 'service_event_loop_delay_seconds',
    unit: 'ms',
    column: 'delay',
    chart: {
      title: 'Event loop delay',
      about: 'How late the event loop was.',
      limit: 'max-event-loop-delay',
    },
  },
  rss_bytes: {
    kind: 'gauge',
    metric: 'service_process_resident_memory_bytes',
    unit: 'bytes',
    column: 'memory',
    chart: { title: 'Memory', about: 'Resident set of the process.', limit: 'max-rss' },
  },
  sessions: {
    kind: 'gauge',
    metric: 'service_sessions',
    unit: '',
    column: 'sessions',
    chart: { title: 'Sessions', about: 'At each node.' },
  },
  rooms: {
    kind: 'gauge',
    metric: 'service_rooms',
    unit: '',
    column: 'rooms',
    chart: { title: 'Rooms', about: 'Owned by each node.' },
  },
  connections: { kind: 'gauge', metric: 'service_connections', unit: '' },
  members: { kind: 'gauge', metric: 'service_members', unit: '' },
  messages_in: {
    kind: 'counter',
    metric: 'service_messages_received_total',
    unit: '/s',
    chart: { title: 'Messages in', about: 'From clients.' },
  },
  socket_writes: { kind: 'counter', metric: 'service_socket_writes_total', unit: '/s' },
  bytes_out: { kind: 'counter', metric: 'service_written_bytes_total', unit: 'bytes/s' },
  resyncs: {
    kind: 'counter',
    metric: 'service_resyncs_total',
    unit: '/s',
    chart: { title: 'Resyncs', about: 'Whole states that were sent again.' },
  },
  errors: {
    kind: 'counter',
    metric: 'service_websocket_errors_total',
    unit: '/s',
    chart: { title: 'Errors', about: 'Those that servers counted.' },
  },
} as const satisfies Readonly<Record<string, ServerFigure>>
export type ServerFigureName = keyof typeof SERVER_FIGURES
const FIGURES: [ServerFigureName, ServerFigure][] = Object.entries(SERVER_FIGURES) as []

/** What is in the tables about servers, with its heading. */
export const SERVER_COLUMNS = FIGURES.flatMap(([name, { column, unit }]) =>
  column === undefined ? [] : [{ name, column, unit }],
)

/** A figure of a server in one second, in its unit. */
export function serverValue(server: ServerSecond, name: ServerFigureName): number {
  const { kind, times = 1 }: ServerFigure = SERVER_FIGURES[name]
  return (times * server[name]) / (kind === 'counter' ? server.seconds : 1)
}

/** What a process did from one reading to the next, so many seconds later. */
export function secondOf(name: string, now: Metrics, before: Metrics, seconds: number): ServerSecond {
  const gauge = (metric: string): number => now.get(metric) ?? 0
  // A counter that is lower than before belongs to another process.
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

async function metricsAt(url: string): Promise<Metrics> {
  const response = await fetch(`${url}/metrics`, { signal: AbortSignal.timeout(PATIENCE_MS) })
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

  /** Rejects with an Error that says which address has no metrics, and why. */
  async reach(): Promise<void> {
    await Promise.all(
      this.#sources.map(async ({ url }) => {
        const metrics = await metricsAt(url).catch((error: Error) => {
          const why = error.cause instanceof Error ? error.cause.message : error.message
          throw new Error(`There are no metrics at ${url}/metrics (${why}). ${HINT}`)
        })
        if (!metrics.has(CPU)) throw new Error(`What ${url}/metrics has are no metrics of roomful. ${HINT}`)
      }),
    )
  }

  /** What each did since it answered last; of the first call the counters are 0. */
  read(): Promise<ServerSecond[]> {
    return Promise.all(this.#sources.map((source) => this.#read(source)))
  }

  async #read({ name, url }: MetricsSource): Promise<ServerSecond> {
    const down = { ...DOWN, name, up: false }
    try {
      const metrics = await metricsAt(url)
      const [at, last] = [this.#clock.monotonic(), this.#last.get(name)]
      this.#last.set(name, { metrics, at })
      return last
        ? secondOf(name, metrics, last.metrics, (at - last.at) / 1000)
        : secondOf(name, metrics, metrics, 1)
    } catch {
      return down
    }
  }
}
