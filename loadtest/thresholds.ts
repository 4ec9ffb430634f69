import type { RunResult, Verdict } from './result.ts'
import { MEASURES, type Measure, type Unit } from './thresholds-measures.ts'

/** Limits for a run, given as `--max-rtt-p99 150ms`, and whether they held. They decide the exit code. */

/** A limit as it may be given. */
export interface Threshold {
  /** With its dashes, as it is typed: `--max-rtt-p99`. */
  readonly name: string
  readonly meaning: string
  readonly unit: Unit
  /** Whether the figure must stay at or below the limit, or reach it. */
  readonly side: 'at most' | 'at least'
  /** The figure of a run; undefined: there was nothing to measure. */
  readonly measure: Measure
}

/** A limit that was given; in the unit of its threshold. */
export interface Limit {
  readonly threshold: Threshold
  readonly limit: number
}

/** Some limits cannot be understood; the message names each one, and what would be right. */
export class ThresholdError extends Error {
  override readonly name = 'ThresholdError'
}

/** How values of a unit are written: by suffix, the factor to the unit itself. The first is the one messages show. */
const SUFFIXES: Readonly<Record<Unit, { readonly factors: Readonly<Record<string, number>>; say: string }>> =
  {
    ms: {
      factors: { ms: 1, s: 1000, min: 60_000 },
      say: 'a duration with its unit, such as 150ms or 1.5s',
    },
    '%': { factors: { '%': 1 }, say: 'a percentage, such as 80%' },
    bytes: {
      factors: { MB: 1024 ** 2, GB: 1024 ** 3, KB: 1024 },
      say: 'a size with its unit, such as 512MB or 1.5GB',
    },
    '/s': { factors: { '': 1, '/s': 1 }, say: 'a number per second, such as 500' },
    '': { factors: { '': 1 }, say: 'a plain number, such as 0' },
  }
const NUMBER = /^(\d+(?:\.\d+)?)\s*([A-Za-z%/]*)$/

/** Every threshold there is, in the order of the help. */
export const THRESHOLDS: readonly Threshold[] = MEASURES.map(({ name, ...rest }) => ({
  name: `--${name}`,
  ...rest,
  side: name.startsWith('min-') ? 'at least' : 'at most',
}))

/** For `parseArgs`: each threshold takes a text. */
export const THRESHOLD_OPTIONS: Readonly<Record<string, { readonly type: 'string' }>> = Object.fromEntries(
  THRESHOLDS.map(({ name }) => [name.slice(2), { type: 'string' }]),
)

/** The limits among the options that `parseArgs` has read; other options are left alone. Throws a ThresholdError that lists every wrong one. */
export function parseThresholds(values: Readonly<Record<string, unknown>>): Limit[] {
  const problems: string[] = []
  const limits = THRESHOLDS.flatMap((threshold): Limit[] => {
    const given = values[threshold.name.slice(2)]
    if (given === undefined) return []
    const limit = typeof given === 'string' ? read(given, threshold.unit) : undefined
    if (limit !== undefined) return [{ threshold, limit }]
    problems.push(`${threshold.name} is "${String(given)}", but takes ${SUFFIXES[threshold.unit].say}.`)
    return []
  })
  if (problems.length > 0) throw new ThresholdError(problems.join('\n'))
  return limits
}

function read(text: string, unit: Unit): number | undefined {
  const [, digits, suffix] = NUMBER.exec(text.trim()) ?? []
  if (digits === undefined || suffix === undefined) return undefined
  const factor = SUFFIXES[unit].factors[suffix]
  return factor === undefined ? undefined : Number(digits) * factor
}

/**
 * Whether each limit held. One on something that was never measured did not. Of an interrupted run it is not known whether it would have
 * measured that, or reached a limit from below.
 */
export function judge(limits: readonly Limit[], result: Omit<RunResult, 'verdicts' | 'passed'>): Verdict[] {
  return limits.map(({ threshold, limit }) => {
    const { name, unit, side, measure } = threshold
    const actual = measure(result)
    const held = actual !== undefined && (side === 'at most' ? actual <= limit : actual >= limit)
    const open = result.interrupted && (actual === undefined || (side === 'at least' && !held))
    return { threshold: name, limit, actual, unit, held: open ? undefined : held }
  })
}

/**
 * Whether a run is what was asked for: it ran to its end, no check was broken, every limit held, and nothing failed. How many failures
 * are too many is for `--max-errors` to say where it was given.
 */
export const hasPassed = (result: Omit<RunResult, 'passed'>): boolean =>
  !result.interrupted && !wentWrong(result)

/** Whether something was not as it should be, as far as the run got. */
export function wentWrong(result: Omit<RunResult, 'passed'>): boolean {
  const allows_errors = result.verdicts.some(({ threshold }) => threshold === MAX_ERRORS)
  return (
    result.failure !== undefined ||
    result.checks.some(({ violations = 0 }) => violations > 0) ||
    result.verdicts.some(({ held }) => held === false) ||
    (!allows_errors && result.totals.errors > 0)
  )
}

/** The threshold that says how many failures a run may have. */
export const MAX_ERRORS = '--max-errors'

/** The part of `--help` that tells of thresholds, without a heading. */
export function thresholdHelp(): string {
  const rows = [
    [
      '--max-<what>-<of> DURATION',
      'what: connect, join, rtt, resume, pause; of: mean, p50, p90, p95, p99, p999, max',
    ],
    ...THRESHOLDS.filter(({ name }) => !TIMING_NAME.test(name)).map(({ name, meaning, unit }) => [
      `${name} ${WORDS[unit]}`,
      meaning,
    ]),
  ] as [string, string][]
  const width = Math.max(...rows.map(([left]) => left.length))
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n')
}

const TIMING_NAME = /^--max-(connect|join|rtt|resume|pause)-/
const WORDS: Readonly<Record<Unit, string>> = {
  ms: 'DURATION',
  '%': 'PERCENT',
  bytes: 'SIZE',
  '/s': 'N',
  '': 'N',
}
