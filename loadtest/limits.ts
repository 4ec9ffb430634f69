import { type Options, optional, quantity, readValues, type Texts } from './option-kinds.ts'
import { lengthOf, type RunResult, type Second, STATISTICS, TIMINGS, type Verdict } from './result.ts'

/** Limits of a run, such as `--max-rtt-p99 150ms`. They decide the exit code. */

type Unjudged = Omit<RunResult, 'verdicts' | 'passed'>

const takes = (placeholder: string, expected: string, units: Readonly<Record<string, number>>) => ({
  placeholder,
  read: quantity(expected, units, (value) => value >= 0),
})
const BYTES = { KB: 1024, MB: 1024 ** 2, GB: 1024 ** 3 }
const UNITS = {
  ms: takes('DURATION', 'a duration with its unit, such as 150ms or 1.5s', { ms: 1, s: 1000, min: 60_000 }),
  '%': takes('PERCENT', 'a percentage, such as 80%', { '%': 1 }),
  bytes: takes('SIZE', 'a size with its unit, such as 512MB or 1.5GB', BYTES),
  '/s': takes('N', 'a number per second, such as 500', { '': 1, '/s': 1 }),
  '': takes('N', 'a plain number, such as 0', { '': 1 }),
} as const

interface LimitKind {
  readonly meaning: string
  readonly unit: keyof typeof UNITS
  /** The measured value; undefined: there was nothing to measure. */
  readonly measure: (result: Unjudged) => number | undefined
  /** The timing that it limits. */
  readonly timing?: string
  /** It limits what the servers report in their metrics. */
  readonly ofServers?: true
}

/** The CPU time of a server is averaged over this time, so that one garbage collection is no overload. */
const SUSTAINED_SECONDS = 10
const MAX_ERRORS = 'max-errors'

/** Every limit by name, in the order of the help. The value must stay at or below a `max-`, and reach a `min-`. */
export const LIMIT_KINDS: Readonly<Record<string, LimitKind>> = {
  ...Object.fromEntries(
    TIMINGS.flatMap(({ name: timing, meaning }) =>
      STATISTICS.map((statistic): [string, LimitKind] => [
        `max-${timing}-${statistic}`,
        {
          meaning: `${statistic} of the time ${meaning}`,
          unit: 'ms',
          timing,
          measure: ({ timings }) => (timings[timing]?.count ? timings[timing][statistic] : undefined),
        },
      ]),
    ),
  ),
  [MAX_ERRORS]: {
    meaning: 'failures of any kind; without it, none may be',
    unit: '',
    measure: ({ totals }) => totals.errors,
  },
  'max-retries': {
    meaning: 'attempts to connect that were made again, since the one before had failed',
    unit: '',
    measure: ({ totals }) => totals.retries,
  },
  'max-resyncs': {
    meaning: 'whole states that servers had to send again',
    unit: '',
    ofServers: true,
    measure: ({ seconds_log: log }) => {
      const all = servers(log).map(({ resyncs }) => resyncs)
      return all.length === 0 ? undefined : all.reduce((a, b) => a + b)
    },
  },
  'max-cpu': {
    meaning: `CPU of the busiest server over any ${SUSTAINED_SECONDS} s; 100% is one core`,
    unit: '%',
    ofServers: true,
    measure: ({ seconds_log: log }) => {
      const names = new Set(servers(log).map(({ name }) => name))
      return most([...names].map((name) => 100 * sustainedCpu(log, name)))
    },
  },
  'max-event-loop-delay': {
    meaning: 'delay of the event loop of a server in its worst second',
    unit: 'ms',
    ofServers: true,
    measure: ({ seconds_log: log }) => most(servers(log).map((server) => server.event_loop_delay_ms)),
  },
  'max-rss': {
    meaning: 'memory of the largest server',
    unit: 'bytes',
    ofServers: true,
    measure: ({ seconds_log: log }) => most(servers(log).map((server) => server.rss_bytes)),
  },
  'min-rate': {
    meaning: 'reliable messages acked per second, while any were sent',
    unit: '/s',
    measure: ({ seconds_log: log }) => rateWhile(log, 'sends', 'acks'),
  },
  'min-updates': {
    meaning: 'updates received per second, while any were received',
    unit: '/s',
    measure: ({ seconds_log: log }) => rateWhile(log, 'updates', 'updates'),
  },
  'min-online': {
    meaning: 'clients connected at once, at the best moment',
    unit: '',
    measure: ({ seconds_log: log }) => most(log.map(({ online }) => online)),
  },
}

/** The limits as options of the command. */
export const LIMIT_OPTIONS: Options = Object.fromEntries(
  Object.entries(LIMIT_KINDS).map(([name, { meaning, unit }]) => {
    const { placeholder, read } = UNITS[unit]
    return [name, optional(placeholder, meaning, read)]
  }),
)

/** The given limits by name, each in its unit. */
export type Limits = Readonly<Record<string, number>>

/** Reads the limits among options. Throws as `readValues` does. */
export const parseLimits = (texts: Texts): Limits =>
  Object.fromEntries(
    Object.entries(readValues(LIMIT_OPTIONS, texts)).flatMap(([name, limit]) =>
      typeof limit === 'number' ? [[name, limit]] : [],
    ),
  )

/**
 * Judges each limit. A limit on something that was never measured does not hold. In an interrupted run it stays open, as does a `min-`
 * that the run has not reached.
 */
export function judge(limits: Limits, result: Unjudged): Verdict[] {
  return Object.entries(limits).map(([name, limit]) => {
    const { unit, measure } = LIMIT_KINDS[name]!
    const actual = measure(result)
    const isMaximum = name.startsWith('max-')
    const held = actual !== undefined && (isMaximum ? actual <= limit : actual >= limit)
    const open = result.interrupted && (actual === undefined || (!isMaximum && !held))
    return { threshold: `--${name}`, limit, actual, unit, held: open ? undefined : held }
  })
}

/** Whether something was wrong, as far as the run got. */
export const wentWrong = (result: Omit<RunResult, 'passed'>): boolean =>
  result.failure !== undefined ||
  result.checks.some(({ violations = 0 }) => violations > 0) ||
  result.verdicts.some(({ held }) => held === false) ||
  (!allowsErrors(result) && result.totals.errors > 0)

/** Whether a limit decides how many failures a run may have. */
export const allowsErrors = ({ verdicts }: Pick<RunResult, 'verdicts'>): boolean =>
  verdicts.some(({ threshold }) => threshold === `--${MAX_ERRORS}`)

/** The limits as rows of the help. */
export const limitHelp = (): [string, string][] => [
  [
    '--max-<what>-<of> DURATION',
    `what: ${TIMINGS.map(({ name }) => name).join(', ')}; of: ${STATISTICS.join(', ')}`,
  ],
  ...Object.entries(LIMIT_KINDS)
    .filter(([, { timing }]) => timing === undefined)
    .map(([name, { meaning, unit }]): [string, string] => [`--${name} ${UNITS[unit].placeholder}`, meaning]),
]

const servers = (log: readonly Second[]) => log.flatMap((second) => second.servers.filter(({ up }) => up))

const most = (values: readonly number[]): number | undefined =>
  values.length === 0 ? undefined : values.reduce((a, b) => Math.max(a, b))

/** Mean of `counted` per second over the seconds in which `gate` was above zero. */
export function rateWhile(
  log: readonly Second[],
  gate: 'sends' | 'updates',
  counted: 'sends' | 'acks' | 'updates',
): number | undefined {
  let [seconds, sum] = [0, 0]
  log.forEach(({ counts }, i) => {
    if (counts[gate] === 0) return
    seconds += lengthOf(log, i)
    sum += counts[counted]
  })
  return seconds === 0 ? undefined : sum / seconds
}

/** The highest mean of a server over a window, or over the whole run if that is shorter. 1 is one core. */
function sustainedCpu(log: readonly Second[], name: string): number {
  const used = log.map((second) => second.servers.find((server) => server.name === name)?.cpu_seconds ?? 0)
  const ends = log.map(({ at }) => at)
  const span = Math.min(SUSTAINED_SECONDS, ends.at(-1) ?? 0)
  // Each window begins with second `first`, and ends with the first second that makes it long enough.
  const windows = used.map((_, first) => {
    const from = ends[first - 1] ?? 0
    const last = ends.findIndex((end) => end - from >= span * 0.999)
    if (last < first) return 0
    return used.slice(first, last + 1).reduce((a, b) => a + b, 0) / (ends[last]! - from)
  })
  return Math.max(0, ...windows)
}
