import type { Counts, Percentiles, RunResult, Second, ServerSecond, Timing } from '../result.ts'
import { bytes, compact, count, digits, duration, percent } from '../view/text.ts'
import type { Point, Timeline } from './timeline.ts'

/** The charts of a report: what is drawn over time, as data. */

export interface Series {
  readonly name: string
  /** How it is drawn: a class of the style sheet. */
  readonly look: string
  readonly points: readonly Point[]
  /** Shown while no moment is chosen. */
  readonly whole: string
}

export interface Limit {
  readonly name: string
  readonly value: number
}

export interface Chart {
  readonly group: string
  readonly title: string
  readonly description: string
  readonly scale: 'log' | 'linear' | 'bytes'
  readonly write: (value: number) => string
  /** For the axis, where there is less room. */
  readonly tick: (value: number) => string
  /** What `whole` of its series is. */
  readonly whole_is: string
  readonly series: readonly Series[]
  readonly limits: readonly Limit[]
}

const LATENCY: readonly (readonly [Timing, string, string])[] = [
  ['rtt', 'Round trip', 'From when a reliable message was due to its ack.'],
  ['connect', 'Connect', 'From the wish to connect to the welcome.'],
  ['join', 'Join', 'From the wish to join to the first snapshot.'],
  ['resume', 'Resume', 'From the loss of a connection to the session going on.'],
  ['pause', 'Pause', 'The longest time a player waited for an effect of its own.'],
]
const PERCENTILES: readonly (readonly [keyof Percentiles, string])[] = [
  ['p50', 'p50'],
  ['p95', 'p95'],
  ['p99', 'p99'],
  ['max', 'max'],
]
const RATES: readonly (readonly [string, string, readonly (readonly [keyof Counts, string])[]])[] = [
  [
    'Messages',
    'Reliable messages sent, and those the service has acked, per second.',
    [
      ['sends', 'sent'],
      ['acks', 'acked'],
    ],
  ],
  [
    'Updates',
    'What clients received per second: patches and whole states, and events.',
    [
      ['updates', 'updates'],
      ['events', 'events'],
    ],
  ],
  [
    'Coming and going',
    'Connects, joins, leaves and resumes per second.',
    [
      ['connects', 'connects'],
      ['joins', 'joins'],
      ['leaves', 'leaves'],
      ['resumes', 'resumes'],
    ],
  ],
  ['Failures', 'Failures of any kind per second.', [['errors', 'failures']]],
]
const perSecond = (value: number) => `${digits(value)}/s`
const COLOURS = 8

/** Every chart that has something to show. Limits that were given are drawn where their figure is. */
export function chartsOf(result: RunResult, timeline: Timeline): Chart[] {
  const all = [
    ...LATENCY.map((row) => latency(result, timeline, ...row)),
    online(result, timeline),
    ...RATES.map((row) => rates(result, timeline, ...row)),
    traffic(result, timeline),
    ...servers(result, timeline),
    ...generator(result, timeline),
  ]
  return all.filter(({ series }) => series.some(({ points }) => points.some(Boolean)))
}

function latency(
  result: RunResult,
  timeline: Timeline,
  timing: Timing,
  title: string,
  description: string,
): Chart {
  const whole = result.timings[timing]
  return {
    group: 'Latency',
    title,
    description: `${description} Logarithmic.`,
    scale: 'log',
    write: duration,
    tick: duration,
    whole_is: 'whole run',
    series: PERCENTILES.map(([key, name]) => ({
      name,
      look: name,
      points: timeline.points(({ timings }) => (timings[timing]?.count ? timings[timing][key] : undefined)),
      whole: whole?.count ? duration(whole[key]) : '',
    })),
    limits: PERCENTILES.flatMap(([key]) => limit(result, `--max-${timing}-${key}`)),
  }
}

function online(result: RunResult, timeline: Timeline): Chart {
  return {
    ...counted('Load', 'Clients online', 'Connections of the load generator.', count),
    series: [
      line(
        'online',
        'filled c0',
        timeline.points((second) => second.online),
        count,
      ),
    ],
    limits: limit(result, '--min-online'),
  }
}

function rates(
  result: RunResult,
  timeline: Timeline,
  title: string,
  description: string,
  keys: readonly (readonly [keyof Counts, string])[],
): Chart {
  const series = keys
    .filter(([key]) => result.seconds_log.some(({ counts }) => counts[key] > 0))
    .map(([key, name], i) =>
      line(
        name,
        key === 'errors' ? 'filled bad' : `c${i}`,
        timeline.points(({ counts }) => counts[key]),
        perSecond,
      ),
    )
  return { ...counted('Load', title, description, perSecond), series }
}

function traffic(result: RunResult, timeline: Timeline): Chart {
  const write = (value: number) => `${bytes(value)}/s`
  const moved = result.seconds_log.some(({ counts }) => counts.bytes_in + counts.bytes_out > 0)
  const of = (key: 'bytes_in' | 'bytes_out') =>
    timeline.points(({ counts }) => (moved ? counts[key] : undefined))
  return {
    ...counted(
      'Load',
      'Traffic',
      'Bytes of websocket messages per second, from the service and to it.',
      write,
    ),
    scale: 'bytes',
    tick: write,
    series: [
      line('from the service', 'c0', of('bytes_in'), write),
      line('to it', 'c1', of('bytes_out'), write),
    ],
  }
}

function servers(result: RunResult, timeline: Timeline): Chart[] {
  const names = [...new Set(result.seconds_log.flatMap(({ servers: all }) => all.map(({ name }) => name)))]
  const perNode = (
    title: string,
    description: string,
    write: (value: number) => string,
    value: (server: ServerSecond) => number,
    more: Partial<Chart> = {},
  ): Chart => ({
    ...counted('Servers', title, description, write),
    tick: write,
    series: names.map((name, i) =>
      line(
        name,
        `c${i % COLOURS}${i >= COLOURS ? ' dashed' : ''}`,
        timeline.points((second) => of(second, name, value)),
        write,
      ),
    ),
    ...more,
  })
  const ever = (value: (server: ServerSecond) => number) =>
    result.seconds_log.some(({ servers: all }) => all.some((server) => server.up && value(server) > 0))
  const cpu = limit(result, '--max-cpu').map(({ name, value }) => ({ name, value: value / 100 }))
  const optional = [
    {
      title: 'Resyncs',
      description: 'Whole states sent again, per second.',
      value: (s: ServerSecond) => s.resyncs,
    },
    {
      title: 'Errors of servers',
      description: 'Errors that servers counted, per second.',
      value: (s: ServerSecond) => s.errors,
    },
  ].filter(({ value }) => ever(value))
  return [
    perNode('CPU', 'CPU time per second; 100% is one core.', percent, (s) => s.cpu_seconds, { limits: cpu }),
    perNode(
      'Event loop busy',
      'Share of the time in which the event loop worked.',
      percent,
      (s) => s.event_loop_utilisation,
    ),
    perNode(
      'Event loop delay',
      '99th percentile of how late the event loop was.',
      duration,
      (s) => s.event_loop_delay_ms,
      {
        limits: limit(result, '--max-event-loop-delay'),
      },
    ),
    perNode('Memory', 'Resident memory.', bytes, (s) => s.rss_bytes, {
      scale: 'bytes',
      limits: limit(result, '--max-rss'),
    }),
    perNode('Sessions', 'Sessions at each node.', count, (s) => s.sessions, { tick: compact }),
    perNode('Messages in', 'Messages from clients per second.', perSecond, (s) => s.messages_in, {
      tick: (v) => `${compact(v)}/s`,
    }),
    ...optional.map(({ title, description, value }) => perNode(title, description, perSecond, value)),
  ]
}

function of(second: Second, name: string, value: (server: ServerSecond) => number): number | undefined {
  const server = second.servers.find((each) => each.name === name)
  return server?.up ? value(server) : undefined
}

function generator(_result: RunResult, timeline: Timeline): Chart[] {
  const delay = timeline.points((second) => second.generator.event_loop_delay_ms)
  const late = timeline.points((second) => second.generator.late_ms)
  return [
    {
      ...counted(
        'Load generator',
        'Generator lateness',
        'How late it was itself; where this is high, so is the latency.',
        duration,
      ),
      tick: duration,
      series: [line('event loop delay', 'c0', delay, duration), line('latest message', 'c1', late, duration)],
    },
    {
      ...counted(
        'Load generator',
        'Generator load',
        'Its busiest thread, and the CPU of the whole process; 100% is one core.',
        percent,
      ),
      tick: percent,
      series: [
        line(
          'busiest thread',
          'c0',
          timeline.points((second) => second.generator.event_loop_utilisation),
          percent,
        ),
        line(
          'CPU',
          'c1',
          timeline.points((second) => second.generator.cpu_seconds),
          percent,
        ),
      ],
    },
  ]
}

/** A chart of counts, with no lines yet. */
const counted = (
  group: string,
  title: string,
  description: string,
  write: (value: number) => string,
): Chart => ({
  group,
  title,
  description,
  scale: 'linear',
  write,
  tick: (value) => (write === perSecond ? `${compact(value)}/s` : compact(value)),
  whole_is: 'highest',
  series: [],
  limits: [],
})

function line(
  name: string,
  look: string,
  points: readonly Point[],
  write: (value: number) => string,
): Series {
  const most = points.reduce<number | undefined>(
    (value, point) => (point === undefined ? value : Math.max(value ?? point.high, point.high)),
    undefined,
  )
  return { name, look, points, whole: most === undefined ? '' : write(most) }
}

const limit = ({ verdicts }: RunResult, threshold: string): Limit[] =>
  verdicts
    .filter((verdict) => verdict.threshold === threshold)
    .map((verdict) => ({ name: threshold.replace(/^--/, ''), value: verdict.limit }))
