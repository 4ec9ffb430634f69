import { type Option, type Options, quantity, readValues, type Texts } from './option-kinds.ts'
import { lengthOf, type RunResult, type Second, STATISTICS, TIMINGS, type Verdict } from './result.ts'

/** Limits for a run, given as `--max-rtt-p99 150ms`, and whether they held. They decide the exit code. */

type Unjudged = Omit<RunResult, 'verdicts' | 'passed'>

/** How values of a unit are given, and what of. */
const takes = (placeholder: string, expected: string, units: Readonly<Record<string, number>>) => ({
  placeholder,
  schema: quantity(expected, units, (value) => value >= 0),
})
const UNITS = {
  ms: takes('DURATION', 'a duration with its unit, such as 150ms or 1.5s', { ms: 1, s: 1000, min: 60_000 }),
  '%': takes('PERCENT', 'a percentage, such as 80%', { '%': 1 }),
  bytes: takes('SIZE', 'a size with its unit, such as 512MB or 1.5GB', {
    KB: 1024,
    MB: 1024 ** 2,
    GB: 1024 ** 3,
  }),
  '/s': takes('N', 'a number per second, such as 500', { '': 1, '/s': 1 }),
  '': takes('N', 'a plain number, such as 0', { '': 1 }),
} as const

/** What a limit can be given for. */
interface LimitKind {
  readonly meaning: string
  readonly unit: keyof typeof UNITS
  /** The figure of a run; undefined: there was nothing to measure. */
  readonly measure: (result: Unjudged) => number | undefined
  /** Which timing it is of, where it is of one. */
  readonly timing?: string
  /** It is about what the servers report about themselves. */
  readonly ofServers?: true
}

/** Over how many seconds the CPU time of a server is averaged, so that one garbage collection is no overload. */
const SUSTAINED_SECONDS = 10

/** The limit that says how many failures a run may have. */
const MAX_ERRORS = 'max-errors'

/**
 * Everything that can be limited, in the order of the help, by the name it is typed with: the figure must stay at or below a `max-`, and
 * reach a `min-`.
 */
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
  Object.entries(LIMIT_KINDS).map(([name, { meaning, unit }]): [string, Option] => [
    name,
    { ...UNITS[unit], meaning, default: undefined },
  ]),
)

/** Limits that were given, by their names, each in its own unit. */
export type Limits = Readonly<Record<string, number>>

/** The limits among options by their names. Throws an Error that lists every wrong one, and what would be right. */
export const parseLimits = (texts: Texts): Limits =>
  Object.fromEntries(
    Object.entries(readValues(LIMIT_OPTIONS, texts)).flatMap(([name, limit]) =>
      typeof limit === 'number' ? [[name, limit]] : [],
    ),
  )

/**
 * Whether each limit held. One on something that was never measured did not. Of an interrupted run it is not known whether it would have
 * measured that, or reached a limit from below.
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

/**
 * Whether a run is what was asked for: it ran to its end, no check failed, every limit held, and nothing failed. How many failures are
 * too many is for `--max-errors` to say where it was given.
 */
export const succeeded = (result: Omit<RunResult, 'passed'>): boolean =>
  !result.interrupted && !wentWrong(result)

/** Whether something was not as it should be, as far as the run got. */
export const wentWrong = (result: Omit<RunResult, 'passed'>): boolean =>
  result.failure !== undefined ||
  result.checks.some(({ violations = 0 }) => violations > 0) ||
  result.verdicts.some(({ held }) => held === false) ||
  (!allowsErrors(result) && result.totals.errors > 0)

/** Whether a limit says how many failures a run may have. */
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

/** Per second, the mean of `counted` over the time in which `gate` was above zero. */
function rateWhile(
  log: readonly Second[],
  gate: 'sends' | 'updates',
  counted: 'acks' | 'updates',
): number | undefined {
  let [seconds, sum] = [0, 0]
  log.forEach(({ counts }, i) => {
    if (counts[gate] === 0) return
    seconds += lengthOf(log, i)
    sum += counts[counted]
  })
  return seconds === 0 ? undefined : sum / seconds
}

/** Of one core: the highest mean of a server over a window, or over the whole run when that is shorter. */
function sustainedCpu(log: readonly Second[], name: string): number {
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
