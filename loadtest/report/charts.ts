import { SERVER_FIGURES, type ServerFigure, type ServerFigureName, serverValue } from '../metrics.ts'
import { lengthOf, type Percentiles, type RunResult, type Second, TIMINGS } from '../result.ts'
import type { Unit } from '../text.ts'

/** The charts of a report as data: what is drawn over time. */

export interface Chart {
  readonly group: string
  readonly title: string
  readonly about: string
  readonly unit: Unit
  /** On a logarithmic axis. */
  readonly log?: true
  /** One value for each second of the log; null: there was none. */
  readonly series: readonly { readonly name: string; readonly values: readonly (number | null)[] }[]
  /** Limits that were given for what is drawn. */
  readonly limits: readonly { readonly name: string; readonly value: number }[]
}

/** What is drawn of each second, which was so many seconds long; undefined: nothing. */
type Line = (second: Second, length: number) => number | undefined

interface Row extends Omit<Chart, 'series' | 'limits'> {
  readonly lines: Readonly<Record<string, Line>>
  /** The limits that can be given for it. */
  readonly limited?: readonly string[]
}

const rate =
  (name: keyof Second['counts']): Line =>
  ({ counts }, length) =>
    counts[name] / length

const LOAD: readonly Row[] = [
  {
    group: 'Load',
    title: 'Clients online',
    about: 'Connections of the load generator.',
    unit: '',
    lines: { online: ({ online }) => online },
    limited: ['min-online'],
  },
  {
    group: 'Load',
    title: 'Messages',
    about: 'Reliable messages sent, and those the service has acked.',
    unit: '/s',
    lines: { sent: rate('sends'), acked: rate('acks') },
    limited: ['min-rate'],
  },
  {
    group: 'Load',
    title: 'Updates',
    about: 'What clients received: patches and whole states, and events.',
    unit: '/s',
    lines: { updates: rate('updates'), events: rate('events') },
    limited: ['min-updates'],
  },
  {
    group: 'Load',
    title: 'Coming and going',
    about: 'What clients did besides playing.',
    unit: '/s',
    lines: Object.fromEntries(
      (['connects', 'joins', 'leaves', 'resumes', 'retries'] as const).map((name) => [name, rate(name)]),
    ),
  },
  {
    group: 'Load',
    title: 'Traffic',
    about: 'Bytes of websocket messages.',
    unit: 'bytes/s',
    lines: { 'from the service': rate('bytes_in'), 'to it': rate('bytes_out') },
  },
  {
    group: 'Load',
    title: 'Failures',
    about: 'Of any kind.',
    unit: '/s',
    lines: { failures: rate('errors') },
  },
]

const GENERATOR: readonly Row[] = [
  {
    group: 'Load generator',
    title: 'Generator lateness',
    about: 'How late it was itself; where this is high, so is the latency.',
    unit: 'ms',
    lines: {
      'event loop delay': ({ generator }) => generator.event_loop_delay_ms,
      'latest message': ({ generator }) => generator.late_ms,
    },
  },
  {
    group: 'Load generator',
    title: 'Generator load',
    about: 'Its busiest thread, and the whole process; 100% is one core.',
    unit: '%',
    lines: {
      'busiest thread': ({ generator }) => 100 * generator.event_loop_utilisation,
      'whole process': ({ generator }, length) => (100 * generator.cpu_seconds) / length,
    },
  },
]

const PERCENTILES: readonly (keyof Percentiles & string)[] = ['p50', 'p95', 'p99', 'max']

const LATENCY = TIMINGS.map(
  ({ name, title, meaning }): Row => ({
    group: 'Latency',
    title,
    about: `${meaning[0]!.toUpperCase()}${meaning.slice(1)}. Logarithmic.`,
    unit: 'ms',
    log: true,
    lines: Object.fromEntries(
      PERCENTILES.map((of): [string, Line] => [
        of,
        ({ timings }) => (timings[name]?.count ? timings[name][of] : undefined),
      ]),
    ),
    limited: PERCENTILES.map((of) => `max-${name}-${of}`),
  }),
)

/** What servers have of themselves, a line each. */
const ofServers = (names: readonly string[]): Row[] =>
  Object.entries<ServerFigure>(SERVER_FIGURES).flatMap(([figure, { unit, chart }]) => {
    if (chart === undefined) return []
    const { limit, ...shown } = chart
    const line =
      (name: string): Line =>
      ({ servers }) => {
        const server = servers.find((each) => each.name === name)
        return server?.up ? serverValue(server, figure as ServerFigureName) : undefined
      }
    const lines = Object.fromEntries(names.map((name) => [name, line(name)]))
    return [{ group: 'Servers', ...shown, unit, lines, limited: limit === undefined ? [] : [limit] }]
  })

/** Every chart that has something to show. */
export function chartsOf({ seconds_log: log, verdicts }: RunResult): Chart[] {
  const servers = [...new Set(log.flatMap((second) => second.servers.map(({ name }) => name)))]
  return [...LATENCY, ...LOAD, ...ofServers(servers), ...GENERATOR]
    .map(({ lines, limited = [], ...row }) => ({
      ...row,
      series: Object.entries(lines)
        .map(([name, line]) => ({
          name,
          values: log.map((second, i) => rounded(line(second, lengthOf(log, i)))),
        }))
        .filter(({ values }) => values.some((value) => value !== null && value > 0)),
      limits: verdicts
        .map(({ threshold, limit }) => ({ name: threshold.slice(2), value: limit }))
        .filter(({ name }) => limited.includes(name)),
    }))
    .filter(({ series }) => series.length > 0)
}

/** Four digits are more than can be seen. */
const rounded = (value: number | undefined): number | null =>
  value === undefined ? null : Number(value.toPrecision(4))
