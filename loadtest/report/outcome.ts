import { allowsErrors, wentWrong } from '../limits.ts'
import type { RunResult, Verdict } from '../result.ts'
import { clock, count, inUnit, plural } from '../view/text.ts'

/** What a run comes to, in words: the first thing to read of it. */
export interface Outcome {
  readonly word: 'passed' | 'failed' | 'interrupted'
  /** One sentence. */
  readonly sentence: string
  /** Why it failed, a line each; empty when it did not. */
  readonly reasons: readonly string[]
}

/** The outcome of a run. One that was interrupted after something had already gone wrong has failed. */
export function outcomeOf(result: RunResult): Outcome {
  const reasons = reasonsOf(result)
  if (wentWrong(result))
    return {
      word: 'failed',
      sentence: result.interrupted
        ? `It was ${interruption(result)}, and something had gone wrong before.`
        : reasons.length === 1
          ? 'One thing was not as it should be.'
          : `${reasons.length} things were not as they should be.`,
      reasons,
    }
  if (result.interrupted)
    return {
      word: 'interrupted',
      sentence: result.checks.some(({ violations }) => violations !== undefined)
        ? `It was ${interruption(result)}. Until then nothing was wrong.`
        : `It was ${interruption(result)}, before there was anything to check.`,
      reasons,
    }
  return { word: 'passed', sentence: held(result), reasons }
}

/** Whether any client has done anything, or anything was measured; else there is nothing to tell but why. */
export const hasBegun = ({ totals, figures }: RunResult): boolean =>
  figures.length > 0 || Object.values(totals).some((number) => number > 0)

/** `interrupted after 0:12 of 1:00`; how long a run takes to its end is never known exactly. */
export const interruption = ({ seconds, planned_seconds: plannedSeconds }: RunResult): string =>
  `interrupted after ${clock(seconds)} of about ${clock(Math.max(seconds, plannedSeconds))}`

function held({ checks, verdicts, totals }: RunResult): string {
  const checked = checks.filter(({ violations }) => violations !== undefined).length
  const parts = [
    checked === 0 ? '' : `${plural(checked, 'promise')} kept`,
    verdicts.length === 0 ? '' : `${plural(verdicts.length, 'limit')} held`,
    totals.errors === 0 ? 'no failures' : `${plural(totals.errors, 'failure')}, as many as allowed`,
  ].filter(Boolean)
  const sentence = parts.join(', ')
  return `${sentence[0]?.toUpperCase()}${sentence.slice(1)}.`
}

function reasonsOf(result: RunResult): string[] {
  const { failure, checks, verdicts, totals } = result
  return [
    ...(failure === undefined ? [] : [`It could not go on: ${failure}`]),
    ...checks
      .filter(({ violations = 0 }) => violations > 0)
      .map(({ name, violations = 0 }) => `${name}: ${plural(violations, 'violation')}`),
    ...verdicts.filter(({ held }) => held === false).map(brokenLimit),
    ...(totals.errors > 0 && !allowsErrors(result)
      ? [`${plural(totals.errors, 'failure')}${kinds(result)}`]
      : []),
  ]
}

/** Why a limit did not hold, or may not have: `--max-rtt-p99: 183 ms, above 150 ms`. */
export function brokenLimit({ threshold, actual, limit, unit }: Verdict): string {
  if (actual === undefined) return `${threshold}: nothing was measured`
  return `${threshold}: ${inUnit(actual, unit)}, ${actual > limit ? 'above' : 'below'} ${inUnit(limit, unit)}`
}

function kinds({ failures }: RunResult): string {
  if (failures.length === 0) return ''
  const named = failures.slice(0, 3).map(({ code, count: times }) => `${code} × ${count(times)}`)
  return `: ${named.join(', ')}${failures.length > 3 ? ', …' : ''}`
}
