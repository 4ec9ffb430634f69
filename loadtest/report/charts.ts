import type { Percentiles, RunResult, Second, ServerSecond } from '../result.ts'
import { bytes, compact, count, digits, duration, percent } from '../view/text.ts'
import { TIMINGS } from '../view/timings.ts'
import type { Point, Timeline } from './timeline.ts'

/** The charts of a report: what is drawn over time, as data. */

export interface Series {
  readonly name: string
  /** How it is drawn: classes of the style sheet. */
  readonly look: string
  readonly points: readonly Point[]
  /** Shown while no moment is chosen. */
  readonly whole: string
}

export interface Chart extends Unit {
  readonly group: string
  readonly title: string
  readonly description: string
  /** What `whole` of its series is. */
  readonly whole_is: string
  readonly series: readonly Series[]
  /** Limits that were given for what is drawn. */
  readonly limits: readonly { readonly name: string; readonly value: number }[]
}

/** What is counted on the upright axis. */
interface Unit {
  readonly scale: 'log' | 'linear' | 'bytes'
  readonly write: (value: number) => string
  /** For the axis, where there is less room. */
  readonly tick: (value: number) => string
}

/** Something of the whole service or of the generator; its lines are those that are ever above 0. */
interface Row {
  readonly title: string
  readonly about: string
  readonly unit: Unit
  /** `length`: how long the second really was. */
  readonly lines: Readonly<Record<string, (second: Second, length: number) => number>>
  readonly look?: string
  readonly limit?: string
}

/** Something of each server. */
interface ServerRow {
  readonly title: string
  readonly about: string
  readonly unit: Unit
  readonly value: (server: ServerSecond) => number
  readonly limit?: string
  /** From the unit of the limit to that of the chart. */
  readonly limit_factor?: number
}

const COUNT: Unit = { scale: 'linear', write: count, tick: compact }
const RATE: Unit = {
  scale: 'linear',
  write: (value) => `${digits(value)}/s`,
  tick: (value) => `${compact(value)}/s`,
}
const BYTES: Unit = { scale: 'bytes', write: bytes, tick: bytes }
const BYTE_RATE: Unit = {
  scale: 'bytes',
  write: (value) => `${bytes(value)}/s`,
  tick: (value) => `${bytes(value)}/s`,
}
const SHARE: Unit = { scale: 'linear', write: percent, tick: percent }
const TIME: Unit = { scale: 'linear', write: duration, tick: duration }
const LATENCY: Unit = { ...TIME, scale: 'log' }

const PERCENTILES: readonly (keyof Percentiles & string)[] = ['p50', 'p95', 'p99', 'max']
const LOAD: readonly Row[] = [
  {
    title: 'Clients online',
    about: 'Connections of the load generator.',
    unit: COUNT,
    lines: { online: ({ online }) => online },
    look: 'filled',
    limit: '--min-online',
  },
  {
    title: 'Messages',
    about: 'Reliable messages sent, and those the service has acked.',
    unit: RATE,
    lines: {
      sent: ({ counts }, length) => counts.sends / length,
      acked: ({ counts }, length) => counts.acks / length,
    },
    limit: '--min-rate',
  },
  {
    title: 'Updates',
    about: 'What clients received: patches and whole states, and events.',
    unit: RATE,
    lines: {
      updates: ({ counts }, length) => counts.updates / length,
      events: ({ counts }, length) => counts.events / length,
    },
    limit: '--min-updates',
  },
  {
    title: 'Coming and going',
    about: 'What clients did besides playing.',
    unit: RATE,
    lines: {
      connects: ({ counts }, length) => counts.connects / length,
      joins: ({ counts }, length) => counts.joins / length,
      leaves: ({ counts }, length) => counts.leaves / length,
      resumes: ({ counts }, length) => counts.resumes / length,
      retries: ({ counts }, length) => counts.retries / length,
    },
  },
  {
    title: 'Traffic',
    about: 'Bytes of websocket messages.',
    unit: BYTE_RATE,
    lines: {
      'from the service': ({ counts }, length) => counts.bytes_in / length,
      'to it': ({ counts }, length) => counts.bytes_out / length,
    },
  },
  {
    title: 'Failures',
    about: 'Of any kind.',
    unit: RATE,
    lines: { failures: ({ counts }, length) => counts.errors / length },
    look: 'filled wrong',
  },
]
const SERVERS: readonly ServerRow[] = [
  {
    title: 'CPU',
    about: '100% is one core.',
    unit: SHARE,
    value: ({ cpu_seconds, seconds }) => cpu_seconds / seconds,
    limit: '--max-cpu',
    limit_factor: 0.01,
  },
  {
    title: 'Event loop busy',
    about: 'Share of the time in which the event loop worked.',
    unit: SHARE,
    value: (server) => server.event_loop_utilisation,
  },
  {
    title: 'Event loop delay',
    about: 'How late the event loop was.',
    unit: TIME,
    value: (server) => server.event_loop_delay_ms,
    limit: '--max-event-loop-delay',
  },
  {
    title: 'Memory',
    about: 'Resident set of the process.',
    unit: BYTES,
    value: ({ rss_bytes }) => rss_bytes,
    limit: '--max-rss',
  },
  { title: 'Sessions', about: 'At each node.', unit: COUNT, value: ({ sessions }) => sessions },
  { title: 'Rooms', about: 'Owned by each node.', unit: COUNT, value: ({ rooms }) => rooms },
  {
    title: 'Messages in',
    about: 'From clients.',
    unit: RATE,
    value: ({ messages_in, seconds }) => messages_in / seconds,
  },
  {
    title: 'Resyncs',
    about: 'Whole states that were sent again.',
    unit: RATE,
    value: ({ resyncs, seconds }) => resyncs / seconds,
  },
  {
    title: 'Errors',
    about: 'Those that servers counted.',
    unit: RATE,
    value: ({ errors, seconds }) => errors / seconds,
  },
]
const GENERATOR: readonly Row[] = [
  {
    title: 'Generator lateness',
    about: 'How late it was itself; where this is high, so is the latency.',
    unit: TIME,
    lines: {
      'event loop delay': ({ generator }) => generator.event_loop_delay_ms,
      'latest message': ({ generator }) => generator.late_ms,
    },
  },
  {
    title: 'Generator load',
    about: 'Its busiest thread, and the whole process; 100% is one core.',
    unit: SHARE,
    lines: {
      'busiest thread': ({ generator }) => generator.event_loop_utilisation,
      'whole process': ({ generator }, length) => generator.cpu_seconds / length,
    },
  },
]
/** Colours of the style sheet, `c0` and on. */
const COLOURS = 8

/** Every chart that has something to show. */
export function chartsOf(result: RunResult, timeline: Timeline): Chart[] {
  const names = [...new Set(result.seconds_log.flatMap(({ servers }) => servers.map(({ name }) => name)))]
  return [
    ...TIMINGS.map((timing) => latencyChart(timing, result, timeline)),
    ...LOAD.map((row) => chart('Load', row, result, timeline)),
    ...SERVERS.map((row) => serverChart(row, names, result, timeline)),
    ...GENERATOR.map((row) => chart('Load generator', row, result, timeline)),
  ].filter(({ series }) => series.length > 0)
}

function latencyChart(
  { name, title, meaning }: (typeof TIMINGS)[number],
  result: RunResult,
  timeline: Timeline,
): Chart {
  const whole = result.timings[name]
  const series = PERCENTILES.map((of) => ({
    name: of,
    look: of,
    points: timeline.points(({ timings }) => (timings[name]?.count ? timings[name][of] : undefined)),
    whole: whole?.count ? duration(whole[of]) : '',
  }))
  return {
    ...LATENCY,
    group: 'Latency',
    title,
    description: `${meaning[0]!.toUpperCase()}${meaning.slice(1)}. Logarithmic.`,
    whole_is: 'whole run',
    series: series.filter(({ points }) => points.some(Boolean)),
    limits: PERCENTILES.flatMap((of) => limits(result, `--max-${name}-${of}`)),
  }
}

function chart(group: string, row: Row, result: RunResult, timeline: Timeline): Chart {
  const { title, about, unit, lines, look, limit } = row
  const series = Object.entries(lines).map(([name, value], i) =>
    line(name, `c${i} ${look ?? ''}`, timeline.points(value), unit),
  )
  return {
    ...unit,
    group,
    title,
    description: about,
    whole_is: 'highest',
    series: series.filter(isAboveZero),
    limits: limits(result, limit),
  }
}

function serverChart(row: ServerRow, names: readonly string[], result: RunResult, timeline: Timeline): Chart {
  const { title, about, unit, value, limit, limit_factor = 1 } = row
  const series = names.map((name, i) => {
    const points = timeline.points(({ servers }) => {
      const server = servers.find((each) => each.name === name)
      return server?.up ? value(server) : undefined
    })
    return line(name, `c${i % COLOURS} ${i >= COLOURS ? 'dashed' : ''}`, points, unit)
  })
  return {
    ...unit,
    group: 'Servers',
    title,
    description: about,
    whole_is: 'highest',
    series: series.filter(isAboveZero),
    limits: limits(result, limit).map((each) => ({ ...each, value: each.value * limit_factor })),
  }
}

function line(name: string, look: string, points: readonly Point[], { write }: Unit): Series {
  const most = points.reduce((value, point) => Math.max(value, point?.high ?? 0), 0)
  return { name, look: look.trim(), points, whole: write(most) }
}

const isAboveZero = ({ points }: Series): boolean =>
  points.some((point) => point !== undefined && point.high > 0)

const limits = ({ verdicts }: RunResult, threshold: string | undefined): Chart['limits'] =>
  verdicts
    .filter((verdict) => verdict.threshold === threshold)
    .map((verdict) => ({ name: verdict.threshold.replace(/^--/, ''), value: verdict.limit }))
