import type { ServerSecond } from './metrics.ts'

/** What a load test found: made while it runs, shown live, and written as JSON, JUnit and a page. Plain data. Durations in milliseconds. */

/** What is timed, from the moment it was due (not from when the generator got round to it) to its end. */
export type Timing =
  /** From the wish to connect to the welcome. */
  | 'connect'
  /** From the wish to join to the first snapshot. */
  | 'join'
  /** From when a reliable message was due to its ack; to the end of the run where none came. */
  | 'rtt'
  /** From the loss of a connection to the session going on. */
  | 'resume'
  /** The longest time a player waited for an effect of its own, one value for each player and disturbance. */
  | 'pause'

/** What is known of a timing of which there are no values. */
export const NO_VALUES = { count: 0, mean: 0, p50: 0, p90: 0, p95: 0, p99: 0, p999: 0, max: 0 }
/** Some values of one timing. `count` 0: all others are 0. */
export type Percentiles = Readonly<typeof NO_VALUES>

/** What is counted. */
export const noCounts = () => ({
  connects: 0,
  joins: 0,
  leaves: 0,
  /** Reliable messages sent. */
  sends: 0,
  acks: 0,
  /** Patches and whole states received. */
  updates: 0,
  events: 0,
  resumes: 0,
  /** Attempts to connect, at first or after a loss, that were made since the one before had failed. No failures: those who give up are. */
  retries: 0,
  /** Bytes of websocket messages, from the server and to it. */
  bytes_in: 0,
  bytes_out: 0,
  /** Failures of any kind, those of `Failure`. */
  errors: 0,
})
/** Counts that go up. */
export type Counting = ReturnType<typeof noCounts>
export type Counts = Readonly<Counting>

/** The load generator itself in one second, the worst of its threads. */
export interface GeneratorSecond {
  /** 99th percentile of the delay of its event loops. */
  readonly event_loop_delay_ms: number
  /** Share of the second in which the busiest event loop worked, 0–1. */
  readonly event_loop_utilisation: number
  /** How late the latest message left. */
  readonly late_ms: number
  /** CPU seconds of the whole process in this second. */
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
  /** In this second. */
  readonly counts: Counts
  readonly timings: Readonly<Partial<Record<Timing, Percentiles>>>
  readonly generator: GeneratorSecond
  readonly servers: readonly ServerSecond[]
}

/** Something that was done or happened at a moment: a node was told to end, all sockets were cut. */
export interface Incident {
  readonly at: number
  readonly text: string
}

/** One promise of the service that was checked while it was under load. */
export interface Check {
  /** Such as `sequence gaps`. */
  readonly name: string
  /** What it means, one sentence. */
  readonly meaning: string
  /** How often it was broken; undefined: it could not be checked, and `note` says why. */
  readonly violations: number | undefined
  /** What was looked at, such as `81,204 updates`, or why nothing was. */
  readonly note: string
  /** The first few violations, a line each. */
  readonly examples: readonly string[]
}

/** A limit that was given, and whether it held. */
export interface Verdict {
  /** As it was given: `--max-rtt-p99`. */
  readonly threshold: string
  readonly limit: number
  /** undefined: there was nothing to measure. */
  readonly actual: number | undefined
  /** `ms`, `%`, `bytes`, `/s`, or empty for a plain number. */
  readonly unit: string
  /** What was never measured did not hold. undefined: the run was interrupted before this could be known. */
  readonly held: boolean | undefined
}

/** Failures of one kind. */
export interface Failure {
  /** A code of the server or the SDK, such as `connection_failed`. */
  readonly code: string
  readonly count: number
  /** The message of the first. */
  readonly example: string
}

/** A figure of the whole run that only this scenario has, such as the worst pause of a player. */
export interface Figure {
  readonly name: string
  /** Of one that was measured several times the median. */
  readonly value: number
  readonly unit: string
  /** Of one that was measured several times. A percentile is a sample: the smallest that so many samples do not exceed. */
  readonly samples?: {
    readonly count: number
    readonly min: number
    readonly p95: number
    readonly p99: number
    readonly max: number
  }
  /** What its value, or the 99th percentile of its samples, is to be at most. */
  readonly goal?: { readonly value?: number; readonly p99?: number }
}

export interface RunResult {
  readonly scenario: string
  readonly meaning: string
  /** Every option, given or default, as it held. No secret is among them. */
  readonly options: Readonly<Record<string, string>>
  /** RFC 3339. */
  readonly started_at: string
  /** How long it ran. */
  readonly seconds: number
  /** How long it should have taken, by its options. */
  readonly planned_seconds: number
  /** Ended before its time, by Ctrl-C or a signal: it did not do all that was asked. */
  readonly interrupted: boolean
  /** Why it could not go on; undefined: it ran to its end, or was interrupted. */
  readonly failure: string | undefined
  readonly machine: { readonly cores: number; readonly node: string; readonly roomful: string }
  /** Addresses the clients used, and what is behind them where that is known (`3 nodes, haproxy`). */
  readonly target: string
  readonly totals: Counts
  readonly timings: Readonly<Partial<Record<Timing, Percentiles>>>
  readonly seconds_log: readonly Second[]
  readonly incidents: readonly Incident[]
  readonly checks: readonly Check[]
  readonly failures: readonly Failure[]
  readonly figures: readonly Figure[]
  readonly verdicts: readonly Verdict[]
  /** Why the generator, not the service, may have been the limit; empty: it was not. */
  readonly bottleneck: readonly string[]
  /** It ran to its end: no check broken, no threshold exceeded, no failure. */
  readonly passed: boolean
}

/** What is timed in a run, and in which order it is shown. */
export const TIMINGS: readonly { readonly name: Timing; readonly title: string; readonly meaning: string }[] =
  [
    { name: 'rtt', title: 'Round trip', meaning: 'from when a reliable message was due to its ack' },
    { name: 'connect', title: 'Connect', meaning: 'from the wish to connect to the welcome' },
    { name: 'join', title: 'Join', meaning: 'from the wish to join to the first snapshot' },
    { name: 'resume', title: 'Resume', meaning: 'from the loss of a connection to the session going on' },
    { name: 'pause', title: 'Pause', meaning: 'the longest time a player waited for an effect of its own' },
  ]

/** What is told of a timing, besides how many values there were. */
export const STATISTICS = ['mean', 'p50', 'p90', 'p95', 'p99', 'p999', 'max'] as const
export const statisticTitle = (name: (typeof STATISTICS)[number]): string =>
  name === 'p999' ? 'p99.9' : name

/** The timings of which there are values, in the order they are shown. */
export const timed = (
  timings: Readonly<Partial<Record<Timing, Percentiles>>>,
): { readonly name: Timing; readonly values: Percentiles }[] =>
  TIMINGS.flatMap(({ name }) => {
    const values = timings[name]
    return values !== undefined && values.count > 0 ? [{ name, values }] : []
  })

/**
 * How long a second of the log really was, in seconds: a busy generator records it late, and the last one is cut short. `before`: the one
 * before it; undefined: it is the first.
 */
export function lengthAfter(second: Second, before: Second | undefined): number {
  const length = second.at - (before?.at ?? 0)
  return length > 0 ? length : 1
}

/** The same of the i-th second of a log. */
export const lengthOf = (log: readonly Second[], i: number): number => lengthAfter(log[i]!, log[i - 1])

/** How many of something there were each second, on average over the seconds in which there were any; undefined: there were none. */
export function averageRate(
  { totals, seconds_log: secondsLog }: RunResult,
  key: keyof Counts,
): number | undefined {
  let busy = 0
  for (const [i, { counts }] of secondsLog.entries()) if (counts[key] > 0) busy += lengthOf(secondsLog, i)
  return busy === 0 ? undefined : totals[key] / busy
}
