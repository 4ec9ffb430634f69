import { type Options, optional, quantity, type Values } from './option-kinds.ts'
import {
  type GeneratorSecond,
  lengthOf,
  type RunResult,
  type Second,
  STATISTICS,
  statisticTitle,
  TIMINGS,
  timed,
  type Verdict,
} from './result.ts'
import { clock, count, digits, duration, inUnit, plural } from './text.ts'

/** Judges a run: its limits, its outcome, and whether the generator was the limit. */

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
  /** Measured value. Undefined: there was nothing to measure. */
  readonly measure: (result: Unjudged) => number | undefined
  /** Timing that it limits. */
  readonly timing?: string
  /** True: it limits values from the servers' metrics. */
  readonly ofServers?: true
}

/** Time over which the CPU time of a server is averaged, so that one garbage collection is not an overload. */
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
    meaning: 'failures of any kind; by default, none is allowed',
    unit: '',
    measure: ({ totals }) => totals.errors,
  },
  'max-retries': {
    meaning: 'repeated attempts to connect after a failed one',
    unit: '',
    measure: ({ totals }) => totals.retries,
  },
  'max-resyncs': {
    meaning: 'complete states that servers sent again',
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
    meaning: 'largest number of clients that were connected together',
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

/** Returns the given limits among the values of options. */
export const limitsOf = (values: Values<Options>): Limits =>
  Object.fromEntries(
    Object.entries(values).flatMap(([name, limit]) =>
      Object.hasOwn(LIMIT_KINDS, name) && typeof limit === 'number' ? [[name, limit]] : [],
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

/** Returns true if something was wrong up to this point. */
export const wentWrong = (result: Omit<RunResult, 'passed'>): boolean =>
  result.failure !== undefined ||
  result.checks.some(({ violations = 0 }) => violations > 0) ||
  result.verdicts.some(({ held }) => held === false) ||
  (!allowsErrors(result) && result.totals.errors > 0)

/** Returns true if a limit decides how many failures a run may have. */
const allowsErrors = ({ verdicts }: Pick<RunResult, 'verdicts'>): boolean =>
  verdicts.some(({ threshold }) => threshold === `--${MAX_ERRORS}`)

/** Returns the limits as rows of the help. */
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
function rateWhile(
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

/** One criterion of a run, for the terminal, the page and JUnit XML. */
export interface Judgement {
  readonly kind: 'run' | 'check' | 'limit'
  readonly name: string
  readonly meaning: string
  /** `open`: it could not be judged. */
  readonly state: 'kept' | 'broken' | 'open'
  /** Such as `3 violations`, or `183 ms, above 150 ms`. */
  readonly found: string
  /** Description of the check, or the reason why there was none. */
  readonly note: string
  readonly examples: readonly string[]
}

/** Returns the criteria: the end of the run, its checks, its limits, and its failures. */
export function judgementsOf(result: RunResult): Judgement[] {
  const { failure, failures, checks, verdicts, totals } = result
  const run = (name: string, found: string | undefined, examples: readonly string[] = []): Judgement => {
    const state = found === undefined ? 'kept' : 'broken'
    return { kind: 'run', name, meaning: '', state, found: found ?? '', note: '', examples }
  }
  const failed = totals.errors === 0 ? undefined : plural(totals.errors, 'failure')
  return [
    run('ran to its end', failure === undefined ? undefined : `It could not continue: ${failure}`),
    ...checks.map(({ name, meaning, violations, note, examples }): Judgement => {
      const state = violations === undefined ? 'open' : violations > 0 ? 'broken' : 'kept'
      const found = { open: 'not checked', kept: 'none', broken: plural(violations ?? 0, 'violation') }[state]
      return { kind: 'check', name, meaning, state, found, note, examples }
    }),
    ...verdicts.map(({ threshold: name, limit, actual, unit, held }): Judgement => {
      const state = held === undefined ? 'open' : held ? 'kept' : 'broken'
      const allowed = inUnit(limit, unit)
      const how = held ? 'limit' : (actual ?? 0) > limit ? 'above' : 'below'
      const found =
        actual === undefined ? 'nothing was measured' : `${inUnit(actual, unit)}, ${how} ${allowed}`
      const note = state === 'open' ? 'when the run was interrupted' : ''
      return { kind: 'limit', name, meaning: allowed, state, found, note, examples: [] }
    }),
    ...(allowsErrors(result) ? [] : [run('no failures', failed, failures.map(failureLine))]),
  ]
}

/** `connection_failed × 12: no answer`. */
export const failureLine = ({ code, count: times, example }: RunResult['failures'][number]): string =>
  `${code} × ${count(times)}: ${example}`

interface Outcome {
  readonly word: 'passed' | 'failed' | 'interrupted'
  readonly sentence: string
  /** Returns the reasons of the failure, one per line. */
  readonly reasons: readonly string[]
}

/** Returns the outcome of the run. An interrupted run has failed if something was wrong before. */
export function outcomeOf(result: RunResult): Outcome {
  const reasons = judgementsOf(result)
    .filter(({ state }) => state === 'broken')
    .map((judgement) => reason(judgement, result))
  const { interrupted } = result
  if (wentWrong(result)) {
    const things =
      reasons.length === 1
        ? 'One thing was not as it should be.'
        : `${reasons.length} things were not as they should be.`
    const before = `It was ${interruption(result)}, and something had gone wrong before.`
    return { word: 'failed', sentence: interrupted ? before : things, reasons }
  }
  if (!interrupted) return { word: 'passed', sentence: held(result), reasons }
  const checked = result.checks.some(({ violations }) => violations !== undefined)
  const so = checked ? '. Until then nothing was wrong.' : ', before there was anything to check.'
  return { word: 'interrupted', sentence: `It was ${interruption(result)}${so}`, reasons }
}

function reason({ kind, name, found }: Judgement, { failures }: RunResult): string {
  if (kind !== 'run') return `${name}: ${found}`
  if (name !== 'no failures' || failures.length === 0) return found
  const kinds = failures.slice(0, 3).map(({ code, count: times }) => `${code} × ${count(times)}`)
  return `${found}: ${kinds.join(', ')}${failures.length > 3 ? ', …' : ''}`
}

/** Returns true if a client has done anything, or anything was measured. */
export const hasBegun = ({ totals, figures }: RunResult): boolean =>
  figures.length > 0 || Object.values(totals).some((number) => number > 0)

/** `interrupted after 0:12 of about 1:00`. */
export const interruption = ({ seconds, planned_seconds: plannedSeconds }: RunResult): string =>
  `interrupted after ${clock(seconds)} of about ${clock(Math.max(seconds, plannedSeconds))}`

function held({ checks, verdicts, totals }: RunResult): string {
  const checked = checks.filter(({ violations }) => violations !== undefined).length
  const parts = [
    checked === 0 ? '' : `${plural(checked, 'promise')} kept`,
    verdicts.length === 0 ? '' : `${plural(verdicts.length, 'limit')} held`,
    totals.errors === 0 ? 'no failures' : `${plural(totals.errors, 'failure')}, within the limit`,
  ].filter(Boolean)
  const sentence = parts.join(', ')
  return `${sentence[0]?.toUpperCase()}${sentence.slice(1)}.`
}

/** `1,204 (40.1/s)`: a total, and its mean over the seconds with events. */
export function totalText({ totals, seconds_log: log }: RunResult, key: 'sends' | 'updates'): string {
  const rate = rateWhile(log, key, key)
  return rate === undefined ? count(totals[key]) : `${count(totals[key])} (${digits(rate)}/s)`
}

/** Returns the timings with values, as a table with its heading. */
export const timingTable = ({ timings }: RunResult): string[][] => {
  const rows = timed(timings).map(({ name, values }) => [
    name,
    count(values.count),
    ...STATISTICS.map((statistic) => duration(values[statistic])),
  ])
  return rows.length === 0 ? [] : [['', 'count', ...STATISTICS.map(statisticTitle)], ...rows]
}

/** A way in which the generator distorts its measurements. */
interface Strain {
  readonly value: (second: GeneratorSecond) => number
  readonly most: (cores: number) => number
  readonly text: (value: number, cores: number) => string
}

const STRAINS: readonly Strain[] = [
  {
    value: (second) => second.event_loop_utilisation,
    most: () => 0.85,
    text: (value) =>
      `a thread was up to ${Math.round(100 * value)} % busy (more --threads or another machine would help)`,
  },
  {
    value: (second) => second.event_loop_delay_ms,
    most: () => 20,
    text: (value) => `timers fired up to ${Math.round(value)} ms late (99th percentile of a second)`,
  },
  {
    value: (second) => second.late_ms,
    most: () => 50,
    text: (value) => `messages left up to ${Math.round(value)} ms after they were due`,
  },
  {
    value: (second) => second.cpu_seconds,
    most: (cores) => 0.95 * cores,
    text: (value, cores) => `it used ${value.toFixed(1)} of the ${cores} cores of this machine`,
  },
]

/** A single second may be a garbage collection or compilation. */
const SECONDS = 2

/** Returns the reasons why the generator may have been the limit instead of the service. Empty: it was not. */
export function bottlenecks(log: readonly Second[], cores: number): string[] {
  // Without clients there are no times to distort. While threads start, they may be busy.
  const measured = log.flatMap(({ online, counts, generator }, i) =>
    online > 0 || Object.values(counts).some((count) => count > 0)
      ? [{ ...generator, cpu_seconds: generator.cpu_seconds / lengthOf(log, i) }]
      : [],
  )
  return STRAINS.flatMap(({ value, most, text }) => {
    const strained = measured.map(value).filter((each) => each > most(cores))
    if (strained.length < SECONDS) return []
    return [`${text(Math.max(...strained), cores)}, in ${strained.length} of ${measured.length} seconds`]
  })
}
