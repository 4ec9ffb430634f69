import {
  lengthOf,
  type Percentiles,
  type RunResult,
  type Second,
  type ServerSecond,
  TIMINGS,
} from '../result.ts'

/** The charts of a report as data: what is drawn over time. */

export interface Chart {
  readonly group: string
  readonly title: string
  readonly about: string
  /** How values are written; `log`: on a logarithmic axis. */
  readonly unit: ChartUnit
  readonly log?: true
  /** One value for each second of the log; null: there was none. */
  readonly series: readonly { readonly name: string; readonly values: readonly (number | null)[] }[]
  /** Limits that were given for what is drawn. */
  readonly limits: readonly { readonly name: string; readonly value: number }[]
}

export type ChartUnit = 'count' | 'rate' | 'bytes' | 'byterate' | 'share' | 'ms'

/** What is drawn of each second, which was so many seconds long; undefined: nothing. */
type Line = (second: Second, length: number) => number | undefined

interface Row extends Pick<Chart, 'title' | 'about' | 'unit'> {
  readonly lines: Readonly<Record<string, Line>>
  readonly limit?: string
}
interface ServerRow extends Omit<Row, 'lines'> {
  readonly value: (server: ServerSecond) => number
}

const rate =
  (name: keyof Second['counts']): Line =>
  ({ counts }, length) =>
    counts[name] / length

const LOAD: readonly Row[] = [
  {
    title: 'Clients online',
    about: 'Connections of the load generator.',
    unit: 'count',
    lines: { online: ({ online }) => online },
    limit: 'min-online',
  },
  {
    title: 'Messages',
    about: 'Reliable messages sent, and those the service has acked.',
    unit: 'rate',
    lines: { sent: rate('sends'), acked: rate('acks') },
    limit: 'min-rate',
  },
  {
    title: 'Updates',
    about: 'What clients received: patches and whole states, and events.',
    unit: 'rate',
    lines: { updates: rate('updates'), events: rate('events') },
    limit: 'min-updates',
  },
  {
    title: 'Coming and going',
    about: 'What clients did besides playing.',
    unit: 'rate',
    lines: {
      connects: rate('connects'),
      joins: rate('joins'),
      leaves: rate('leaves'),
      resumes: rate('resumes'),
      retries: rate('retries'),
    },
  },
  {
    title: 'Traffic',
    about: 'Bytes of websocket messages.',
    unit: 'byterate',
    lines: { 'from the service': rate('bytes_in'), 'to it': rate('bytes_out') },
  },
  { title: 'Failures', about: 'Of any kind.', unit: 'rate', lines: { failures: rate('errors') } },
]

const SERVERS: readonly ServerRow[] = [
  {
    title: 'CPU',
    about: '100% is one core.',
    unit: 'share',
    value: ({ cpu_seconds: cpuSeconds, seconds }) => cpuSeconds / seconds,
    limit: 'max-cpu',
  },
  {
    title: 'Event loop busy',
    about: 'Share of the time in which the event loop worked.',
    unit: 'share',
    value: (server) => server.event_loop_utilisation,
  },
  {
    title: 'Event loop delay',
    about: 'How late the event loop was.',
    unit: 'ms',
    value: (server) => server.event_loop_delay_ms,
    limit: 'max-event-loop-delay',
  },
  {
    title: 'Memory',
    about: 'Resident set of the process.',
    unit: 'bytes',
    value: ({ rss_bytes: rssBytes }) => rssBytes,
    limit: 'max-rss',
  },
  { title: 'Sessions', about: 'At each node.', unit: 'count', value: ({ sessions }) => sessions },
  { title: 'Rooms', about: 'Owned by each node.', unit: 'count', value: ({ rooms }) => rooms },
  {
    title: 'Messages in',
    about: 'From clients.',
    unit: 'rate',
    value: ({ messages_in: messagesIn, seconds }) => messagesIn / seconds,
  },
  {
    title: 'Resyncs',
    about: 'Whole states that were sent again.',
    unit: 'rate',
    value: ({ resyncs, seconds }) => resyncs / seconds,
  },
  {
    title: 'Errors',
    about: 'Those that servers counted.',
    unit: 'rate',
    value: ({ errors, seconds }) => errors / seconds,
  },
]

const GENERATOR: readonly Row[] = [
  {
    title: 'Generator lateness',
    about: 'How late it was itself; where this is high, so is the latency.',
    unit: 'ms',
    lines: {
      'event loop delay': ({ generator }) => generator.event_loop_delay_ms,
      'latest message': ({ generator }) => generator.late_ms,
    },
  },
  {
    title: 'Generator load',
    about: 'Its busiest thread, and the whole process; 100% is one core.',
    unit: 'share',
    lines: {
      'busiest thread': ({ generator }) => generator.event_loop_utilisation,
      'whole process': ({ generator }, length) => generator.cpu_seconds / length,
    },
  },
]

const PERCENTILES: readonly (keyof Percentiles & string)[] = ['p50', 'p95', 'p99', 'max']

/** Every chart that has something to show. */
export function chartsOf(result: RunResult): Chart[] {
  const { seconds_log: log, verdicts } = result
  const servers = [...new Set(log.flatMap((second) => second.servers.map(({ name }) => name)))]
  const chart = (
    group: string,
    { lines, limit, ...rest }: Row,
    limits = limit === undefined ? [] : [limit],
  ): Chart => ({
    ...rest,
    group,
    series: Object.entries(lines)
      .map(([name, line]) => ({
        name,
        values: log.map((second, i) => rounded(line(second, lengthOf(log, i)))),
      }))
      .filter(({ values }) => values.some((value) => value !== null && value > 0)),
    limits: verdicts
      .filter(({ threshold }) => limits.includes(threshold.slice(2)))
      .map(({ threshold, limit: value, unit }) => ({
        name: threshold.slice(2),
        value: unit === '%' ? value / 100 : value,
      })),
  })
  const latency = TIMINGS.map(({ name, title, meaning }): Chart => {
    const lines = Object.fromEntries(
      PERCENTILES.map((of): [string, Line] => [
        of,
        ({ timings }) => (timings[name]?.count ? timings[name][of] : undefined),
      ]),
    )
    const about = `${meaning[0]!.toUpperCase()}${meaning.slice(1)}. Logarithmic.`
    const limits = PERCENTILES.map((of) => `max-${name}-${of}`)
    return { ...chart('Latency', { title, about, unit: 'ms', lines }, limits), log: true }
  })
  const ofServers = SERVERS.map(({ value, ...row }) => {
    const lines = Object.fromEntries(
      servers.map((name): [string, Line] => [
        name,
        (second) => {
          const server = second.servers.find((each) => each.name === name)
          return server?.up ? value(server) : undefined
        },
      ]),
    )
    return chart('Servers', { ...row, lines })
  })
  return [
    ...latency,
    ...LOAD.map((row) => chart('Load', row)),
    ...ofServers,
    ...GENERATOR.map((row) => chart('Load generator', row)),
  ].filter(({ series }) => series.length > 0)
}

/** Four digits are more than can be seen. */
const rounded = (value: number | undefined): number | null =>
  value === undefined ? null : Number(value.toPrecision(4))
