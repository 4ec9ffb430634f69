import type { Percentiles, RunResult, Second, Verdict } from './result.ts'
import { lengthOf, TIMINGS } from './result.ts'

/** Limits for a run, given as `--max-rtt-p99 150ms`, and whether they held. They decide the exit code. */

type Unit = 'ms' | '%' | 'bytes' | '/s' | ''

type Unjudged = Omit<RunResult, 'verdicts' | 'passed'>

/** What a limit can be given for. */
export interface LimitKind {
  /** As it is typed, without its dashes: `max-rtt-p99`. The figure must stay at or below a `max-`, and reach a `min-`. */
  readonly name: string
  readonly meaning: string
  readonly unit: Unit
  /** The figure of a run; undefined: there was nothing to measure. */
  readonly measure: (result: Unjudged) => number | undefined
  /** Which figure of which timing, where it is of one. */
  readonly timing?: string
  /** It is about what the servers tell of themselves. */
  readonly ofServers?: true
}

/** A limit that was given; in its own unit. */
export interface Limit {
  readonly kind: LimitKind
  readonly limit: number
}

/** How values of a unit are written: by suffix, the factor to the unit itself. */
const UNITS: Readonly<
  Record<Unit, { readonly factors: Readonly<Record<string, number>>; takes: string; placeholder: string }>
> = {
  ms: {
    factors: { ms: 1, s: 1000, min: 60_000 },
    takes: 'a duration with its unit, such as 150ms or 1.5s',
    placeholder: 'DURATION',
  },
  '%': { factors: { '%': 1 }, takes: 'a percentage, such as 80%', placeholder: 'PERCENT' },
  bytes: {
    factors: { MB: 1024 ** 2, GB: 1024 ** 3, KB: 1024 },
    takes: 'a size with its unit, such as 512MB or 1.5GB',
    placeholder: 'SIZE',
  },
  '/s': { factors: { '': 1, '/s': 1 }, takes: 'a number per second, such as 500', placeholder: 'N' },
  '': { factors: { '': 1 }, takes: 'a plain number, such as 0', placeholder: 'N' },
}
const NUMBER = /^(\d+(?:\.\d+)?)\s*([A-Za-z%/]*)$/

const STATISTICS: readonly (keyof Percentiles)[] = ['mean', 'p50', 'p90', 'p95', 'p99', 'p999', 'max']

/** Over how many seconds the CPU time of a server is averaged, so that one garbage collection is no overload. */
const SUSTAINED_SECONDS = 10

/** The limit that says how many failures a run may have. */
export const MAX_ERRORS = 'max-errors'

/** Everything that can be limited, in the order of the help. */
export const LIMIT_KINDS: readonly LimitKind[] = [
  ...TIMINGS.flatMap(({ name: timing, meaning }) =>
    STATISTICS.map((statistic): LimitKind => {
      return {
        name: `max-${timing}-${statistic}`,
        meaning: `${statistic} of the time ${meaning}`,
        unit: 'ms',
        timing,
        measure: ({ timings }) => (timings[timing]?.count ? timings[timing][statistic] : undefined),
      }
    }),
  ),
  {
    name: MAX_ERRORS,
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
    ofServers: true,
    measure: ({ seconds_log: secondsLog }) => {
      const all = servers(secondsLog).map(({ resyncs }) => resyncs)
      return all.length === 0 ? undefined : all.reduce((a, b) => a + b)
    },
  },
  {
    name: 'max-cpu',
    meaning: `CPU of the busiest server over any ${SUSTAINED_SECONDS} s; 100% is one core`,
    unit: '%',
    ofServers: true,
    measure: ({ seconds_log: secondsLog }) => {
      const names = new Set(servers(secondsLog).map(({ name }) => name))
      return most([...names].map((name) => 100 * sustainedCpu(secondsLog, name)))
    },
  },
  {
    name: 'max-event-loop-delay',
    meaning: 'delay of the event loop of a server in its worst second',
    unit: 'ms',
    ofServers: true,
    measure: ({ seconds_log: secondsLog }) =>
      most(servers(secondsLog).map((server) => server.event_loop_delay_ms)),
  },
  {
    name: 'max-rss',
    meaning: 'memory of the largest server',
    unit: 'bytes',
    ofServers: true,
    measure: ({ seconds_log: secondsLog }) => most(servers(secondsLog).map((server) => server.rss_bytes)),
  },
  {
    name: 'min-rate',
    meaning: 'reliable messages acked per second, while any were sent',
    unit: '/s',
    measure: ({ seconds_log: secondsLog }) => rateWhile(secondsLog, 'sends', 'acks'),
  },
  {
    name: 'min-updates',
    meaning: 'updates received per second, while any were received',
    unit: '/s',
    measure: ({ seconds_log: secondsLog }) => rateWhile(secondsLog, 'updates', 'updates'),
  },
  {
    name: 'min-online',
    meaning: 'clients connected at once, at the best moment',
    unit: '',
    measure: ({ seconds_log: secondsLog }) => most(secondsLog.map(({ online }) => online)),
  },
]

/** The limits among options by their names; others are left alone. Throws an Error that lists every wrong one, and what would be right. */
export function parseLimits(values: Readonly<Record<string, unknown>>): Limit[] {
  const problems: string[] = []
  const limits = LIMIT_KINDS.flatMap((kind): Limit[] => {
    const given = values[kind.name]
    if (given === undefined) return []
    const { factors, takes } = UNITS[kind.unit]
    const [, digits, suffix = ''] = NUMBER.exec(String(given).trim()) ?? []
    const factor = factors[suffix]
    if (digits !== undefined && factor !== undefined) return [{ kind, limit: Number(digits) * factor }]
    problems.push(`--${kind.name} is "${String(given)}", but takes ${takes}.`)
    return []
  })
  if (problems.length > 0) throw new Error(problems.join('\n'))
  return limits
}

/**
 * Whether each limit held. One on something that was never measured did not. Of an interrupted run it is not known whether it would have
 * measured that, or reached a limit from below.
 */
export function judge(limits: readonly Limit[], result: Unjudged): Verdict[] {
  return limits.map(({ kind: { name, unit, measure }, limit }) => {
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
  ...LIMIT_KINDS.filter(({ timing }) => timing === undefined).map(
    ({ name, meaning, unit }): [string, string] => [`--${name} ${UNITS[unit].placeholder}`, meaning],
  ),
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
