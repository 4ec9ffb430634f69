import type { ServerSecond } from './metrics.ts'
import { count, inUnit } from './text.ts'

/** Result of a load test: recorded while it runs, and written as JSON, JUnit and a page. Plain data. Durations are in milliseconds. */

/** A timing starts when an action was due, not when the generator started it. */
export type Timing = 'connect' | 'join' | 'rtt' | 'resume' | 'pause'

/** A timing without values. */
export const NO_VALUES = { count: 0, mean: 0, p50: 0, p90: 0, p95: 0, p99: 0, p999: 0, max: 0 }
export type Percentiles = Readonly<typeof NO_VALUES>

export const noCounts = () => ({
  connects: 0,
  joins: 0,
  leaves: 0,
  /** Reliable messages sent. */
  sends: 0,
  acks: 0,
  /** Patches and complete states received. */
  updates: 0,
  events: 0,
  resumes: 0,
  /** Attempts to connect after a failed attempt. The final failure of a client counts as a failure. */
  retries: 0,
  /** Bytes of websocket messages from and to the server. */
  bytes_in: 0,
  bytes_out: 0,
  /** Failures of any kind, those of `Failure`. */
  errors: 0,
})
export type Counting = ReturnType<typeof noCounts>
export type Counts = Readonly<Counting>

/** The load generator in one second: the worst of its threads. */
export interface GeneratorSecond {
  /** 99th percentile of the delay of its event loops. */
  readonly event_loop_delay_ms: number
  /** Utilization of the busiest event loop, 0 to 1. */
  readonly event_loop_utilisation: number
  /** Delay of the latest message. */
  readonly late_ms: number
  /** CPU time of the whole process. */
  readonly cpu_seconds: number
  readonly rss_bytes: number
}

/** One second of the run. */
export interface Second {
  /** Seconds since the start. */
  readonly at: number
  readonly phase: string
  /** Connections at the end of the second. */
  readonly online: number
  readonly counts: Counts
  readonly timings: Readonly<Partial<Record<Timing, Percentiles>>>
  readonly generator: GeneratorSecond
  readonly servers: readonly ServerSecond[]
}

/** An action or event, such as the end of a node. */
export interface Incident {
  readonly at: number
  readonly text: string
}

/** A promise of the service that was checked under load. */
export interface Check {
  /** Such as `sequence gaps`. */
  readonly name: string
  readonly meaning: string
  /** Undefined: it could not be checked, for the reason in `note`. */
  readonly violations: number | undefined
  /** Such as `81,204 updates`. */
  readonly note: string
  /** The first violations, a line each. */
  readonly examples: readonly string[]
}

/** Maximum number of examples of a check. */
export const MAX_EXAMPLES = 5

/** A check of a scenario. `examples`: violations, a line each. */
export const checkOf = (
  name: string,
  meaning: string,
  note: string,
  examples: readonly string[],
  violations = examples.length,
): Check => ({ name, meaning, violations, note, examples: examples.slice(0, MAX_EXAMPLES) })

/** Verdict on a limit. */
export interface Verdict {
  /** `--max-rtt-p99`. */
  readonly threshold: string
  readonly limit: number
  /** Undefined: there was nothing to measure. */
  readonly actual: number | undefined
  /** `ms`, `%`, `bytes`, `/s`, or empty for a plain number. */
  readonly unit: string
  /** Undefined: the run was interrupted too early. */
  readonly held: boolean | undefined
}

/** Failures of one kind. */
export interface Failure {
  /** A code of the server or the SDK, such as `connection_failed`. */
  readonly code: string
  readonly count: number
  /** Message of the first one. */
  readonly example: string
}

/** A figure of one scenario, such as the worst pause of a player. */
export interface Figure {
  readonly name: string
  /** The median, if it was measured several times. */
  readonly value: number
  readonly unit: string
  /** For repeated measurements. A percentile is the smallest sample that this fraction of the samples does not exceed. */
  readonly samples?: {
    readonly count: number
    readonly min: number
    readonly p95: number
    readonly p99: number
    readonly max: number
  }
  /** Upper limits of the value and of the 99th percentile of the samples. */
  readonly goal?: { readonly value?: number; readonly p99?: number }
}

/** A figure with its goal, and with the range of its samples: `1.38, goal 2 (1.31 to 1.44, 7 times, p99 1.44, goal 3)`. */
export function figureText({ value, unit, samples, goal = {} }: Figure): string {
  const text = (number: number): string => inUnit(number, unit)
  const most = (limit: number | undefined): string => (limit === undefined ? '' : `, goal ${text(limit)}`)
  const median = `${text(value)}${most(goal.value)}`
  if (samples === undefined || samples.count === 1) return median
  const { min, max, p99 } = samples
  return `${median} (${text(min)} to ${text(max)}, ${count(samples.count)} times, p99 ${text(p99)}${most(goal.p99)})`
}

export interface RunResult {
  readonly scenario: string
  readonly meaning: string
  /** Every option, given or default, without secrets. */
  readonly options: Readonly<Record<string, string>>
  /** RFC 3339. */
  readonly started_at: string
  readonly seconds: number
  /** Expected duration. */
  readonly planned_seconds: number
  /** Ended early, by Ctrl-C or a signal. */
  readonly interrupted: boolean
  /** Reason why it could not continue. Undefined: it ran to its end, or was interrupted. */
  readonly failure: string | undefined
  readonly machine: { readonly cores: number; readonly node: string; readonly roomful: string }
  /** Addresses that clients used, and the service behind them if it is known (`3 nodes, haproxy`). */
  readonly target: string
  readonly totals: Counts
  readonly timings: Readonly<Partial<Record<Timing, Percentiles>>>
  readonly seconds_log: readonly Second[]
  readonly incidents: readonly Incident[]
  readonly checks: readonly Check[]
  readonly failures: readonly Failure[]
  readonly figures: readonly Figure[]
  readonly verdicts: readonly Verdict[]
  /** Reasons why the generator may have been the limit instead of the service. */
  readonly bottleneck: readonly string[]
  /** True: it ran to its end, every check and limit held, and nothing failed. */
  readonly passed: boolean
}

/** The timings in the order of the reports. */
export const TIMINGS: readonly { readonly name: Timing; readonly title: string; readonly meaning: string }[] =
  [
    { name: 'rtt', title: 'Round trip', meaning: 'from when a reliable message was due to its ack' },
    { name: 'connect', title: 'Connect', meaning: 'from the wish to connect to the welcome' },
    { name: 'join', title: 'Join', meaning: 'from the wish to join to the first snapshot' },
    { name: 'resume', title: 'Resume', meaning: 'from the loss of a connection to the session going on' },
    { name: 'pause', title: 'Pause', meaning: 'the longest wait of a player for the effect of its message' },
  ]

export const STATISTICS = ['mean', 'p50', 'p90', 'p95', 'p99', 'p999', 'max'] as const
export const statisticTitle = (name: (typeof STATISTICS)[number]): string =>
  name === 'p999' ? 'p99.9' : name

/** Returns the timings that have values. */
export const timed = (
  timings: Readonly<Partial<Record<Timing, Percentiles>>>,
): { readonly name: Timing; readonly values: Percentiles }[] =>
  TIMINGS.flatMap(({ name }) => {
    const values = timings[name]
    return values !== undefined && values.count > 0 ? [{ name, values }] : []
  })

/** Returns the length of the i-th second of a log. A busy generator records it late, and the last one is shorter. */
export function lengthOf(log: readonly Second[], i: number): number {
  const length = log[i]!.at - (log[i - 1]?.at ?? 0)
  return length > 0 ? length : 1
}
