import type { Clock } from '../shared/clock.ts'
import type { ServerSecond } from './result.ts'

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
export type Metrics = ReadonlyMap<string, number>

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

/** What a process did from one reading to the next, so many seconds later. */
export function secondOf(name: string, now: Metrics, before: Metrics, seconds: number): ServerSecond {
  const gauge = (metric: string): number => now.get(metric) ?? 0
  // A counter that is lower than before belongs to another process.
  const counted = (metric: string): number => {
    const [to, from] = [now.get(metric) ?? 0, before.get(metric) ?? 0]
    return to >= from ? to - from : to
  }
  return {
    name,
    up: true,
    seconds,
    cpu_seconds: counted(CPU),
    rss_bytes: gauge('service_process_resident_memory_bytes'),
    event_loop_utilisation: gauge('service_event_loop_utilisation_ratio'),
    event_loop_delay_ms: meanOf(counted, 'service_event_loop_delay_seconds') * 1000,
    connections: gauge('service_connections'),
    sessions: gauge('service_sessions'),
    rooms: gauge('service_rooms'),
    members: gauge('service_members'),
    messages_in: counted('service_messages_received_total'),
    socket_writes: counted('service_socket_writes_total'),
    bytes_out: counted('service_written_bytes_total'),
    resyncs: counted('service_resyncs_total'),
    errors: counted('service_websocket_errors_total'),
  }
}

function meanOf(counted: (metric: string) => number, histogram: string): number {
  const count = counted(`${histogram}_count`)
  return count === 0 ? 0 : counted(`${histogram}_sum`) / count
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
