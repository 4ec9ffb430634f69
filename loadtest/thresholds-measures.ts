import type { Percentiles, RunResult, Second } from './result.ts'
import { lengthOf } from './view/seconds.ts'
import { TIMINGS } from './view/timings.ts'

/** What a threshold can be given for: each figure of a run, by the name of its limit. */

export type Unit = 'ms' | '%' | 'bytes' | '/s' | ''

/** undefined: there was nothing to measure. */
export type Measure = (result: Omit<RunResult, 'verdicts' | 'passed'>) => number | undefined

interface Row {
  readonly name: `max-${string}` | `min-${string}`
  readonly meaning: string
  readonly unit: Unit
  readonly measure: Measure
}

const STATISTICS: readonly (readonly [keyof Percentiles, string])[] = [
  ['mean', 'mean'],
  ['p50', 'median'],
  ['p90', '90th percentile'],
  ['p95', '95th percentile'],
  ['p99', '99th percentile'],
  ['p999', '99.9th percentile'],
  ['max', 'longest'],
]

/** Over how many seconds the CPU time of a server is averaged, so that one garbage collection is no overload. */
const SUSTAINED_SECONDS = 10

const timings: readonly Row[] = TIMINGS.flatMap(({ name: timing, meaning }) =>
  STATISTICS.map(([statistic, word]): Row => {
    return {
      name: `max-${timing}-${statistic}`,
      meaning: `${word} of the time ${meaning}`,
      unit: 'ms',
      measure: ({ timings }) => {
        const values = timings[timing]
        return values === undefined || values.count === 0 ? undefined : values[statistic]
      },
    }
  }),
)

export const MEASURES: readonly Row[] = [
  ...timings,
  {
    name: 'max-errors',
    meaning: 'failures of any kind; without it, none may be',
    unit: '',
    measure: ({ totals }) => totals.errors,
  },
  {
    name: 'max-retries',
    meaning: 'attempts to connect that were made again, since the one before had failed',
    unit: '',
    measure: ({ totals }) => totals.retries,
  },
  {
    name: 'max-resyncs',
    meaning: 'whole states that servers had to send again',
    unit: '',
    measure: ({ seconds_log }) => sumOfServers(seconds_log, ({ resyncs }) => resyncs),
  },
  {
    name: 'max-cpu',
    meaning: `CPU of the busiest server over any ${SUSTAINED_SECONDS} s; 100% is one core`,
    unit: '%',
    measure: ({ seconds_log }) => busiest(seconds_log),
  },
  {
    name: 'max-event-loop-delay',
    meaning: 'delay of the event loop of a server in its worst second',
    unit: 'ms',
    measure: ({ seconds_log }) => most(servers(seconds_log).map((server) => server.event_loop_delay_ms)),
  },
  {
    name: 'max-rss',
    meaning: 'memory of the largest server',
    unit: 'bytes',
    measure: ({ seconds_log }) => most(servers(seconds_log).map((server) => server.rss_bytes)),
  },
  {
    name: 'min-rate',
    meaning: 'reliable messages acked per second, while any were sent',
    unit: '/s',
    measure: ({ seconds_log }) => meanWhile(seconds_log, 'sends', 'acks'),
  },
  {
    name: 'min-updates',
    meaning: 'updates received per second, while any were received',
    unit: '/s',
    measure: ({ seconds_log }) => meanWhile(seconds_log, 'updates', 'updates'),
  },
  {
    name: 'min-online',
    meaning: 'clients connected at once, at the best moment',
    unit: '',
    measure: ({ seconds_log }) => most(seconds_log.map(({ online }) => online)),
  },
]

const servers = (log: readonly Second[]) => log.flatMap((second) => second.servers.filter(({ up }) => up))

const most = (values: readonly number[]): number | undefined =>
  values.length === 0 ? undefined : values.reduce((a, b) => Math.max(a, b))

function sumOfServers(
  log: readonly Second[],
  of: (server: Second['servers'][number]) => number,
): number | undefined {
  const values = servers(log).map(of)
  return values.length === 0 ? undefined : values.reduce((a, b) => a + b)
}

/** Per second, the mean of `counted` over the time in which `gate` was above zero. */
function meanWhile(
  log: readonly Second[],
  gate: 'sends' | 'updates',
  counted: 'acks' | 'updates',
): number | undefined {
  let seconds = 0
  let sum = 0
  log.forEach(({ counts }, i) => {
    if (counts[gate] === 0) return
    seconds += lengthOf(log, i)
    sum += counts[counted]
  })
  return seconds === 0 ? undefined : sum / seconds
}

/** Percent of a core: the highest mean of a server over a window, or over the whole run when that is shorter. */
function busiest(log: readonly Second[]): number | undefined {
  const names = new Set(servers(log).map(({ name }) => name))
  return most([...names].map((name) => 100 * sustained(log, name)))
}

function sustained(log: readonly Second[], name: string): number {
  const used = log.map((second) => second.servers.find((server) => server.name === name)?.cpu_seconds ?? 0)
  const span = Math.min(SUSTAINED_SECONDS, log.at(-1)?.at ?? 0)
  let [first, seconds, sum, peak] = [0, 0, 0, 0]
  used.forEach((cpu, i) => {
    seconds += lengthOf(log, i)
    sum += cpu
    // A second is only let go when the rest is still as long as the window.
    while (first < i && seconds - lengthOf(log, first) >= span * 0.999) {
      seconds -= lengthOf(log, first)
      sum -= used[first]!
      first++
    }
    if (seconds >= span * 0.999) peak = Math.max(peak, sum / seconds)
  })
  return peak
}
