import { allowsErrors, wentWrong } from '../limits.ts'
import type { RunResult } from '../result.ts'
import { clock, count, inUnit, plural } from '../text.ts'

/** One thing a run is judged by, the same in the terminal, on the page and in JUnit XML. */
export interface Judgement {
  readonly kind: 'run' | 'check' | 'limit'
  readonly name: string
  readonly meaning: string
  /** `open`: it could not be judged, or not to the end of an interrupted run. */
  readonly state: 'kept' | 'broken' | 'open'
  /** What was found, in a few words: `3 violations`, `183 ms, above 150 ms`. */
  readonly found: string
  /** What was looked at, or why nothing was. */
  readonly note: string
  readonly examples: readonly string[]
}

/** Whether it could go on, its checks, its limits, and whether anything failed. */
export function judgementsOf(result: RunResult): Judgement[] {
  const { failure, failures, checks, verdicts, totals } = result
  const run = (name: string, found: string | undefined, examples: readonly string[] = []): Judgement => {
    const state = found === undefined ? 'kept' : 'broken'
    return { kind: 'run', name, meaning: '', state, found: found ?? '', note: '', examples }
  }
  const failed = totals.errors === 0 ? undefined : plural(totals.errors, 'failure')
  return [
    run('ran to its end', failure === undefined ? undefined : `It could not go on: ${failure}`),
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

/** What a run comes to, in words: the first thing to read of it. */
interface Outcome {
  readonly word: 'passed' | 'failed' | 'interrupted'
  /** One sentence. */
  readonly sentence: string
  /** Why it failed, a line each; empty when it did not. */
  readonly reasons: readonly string[]
}

/** The outcome of a run. One that was interrupted after something had already gone wrong has failed. */
export function outcomeOf(result: RunResult): Outcome {
  const reasons = judgementsOf(result)
    .filter(({ state }) => state === 'broken')
    .map((judgement) => reason(judgement, result))
  if (wentWrong(result)) {
    const things =
      reasons.length === 1
        ? 'One thing was not as it should be.'
        : `${reasons.length} things were not as they should be.`
    const sentence = `It was ${interruption(result)}, and something had gone wrong before.`
    return { word: 'failed', sentence: result.interrupted ? sentence : things, reasons }
  }
  if (result.interrupted) {
    const checked = result.checks.some(({ violations }) => violations !== undefined)
    const so = checked ? '. Until then nothing was wrong.' : ', before there was anything to check.'
    return { word: 'interrupted', sentence: `It was ${interruption(result)}${so}`, reasons }
  }
  return { word: 'passed', sentence: held(result), reasons }
}

function reason({ kind, name, found }: Judgement, { failures }: RunResult): string {
  if (kind !== 'run') return `${name}: ${found}`
  if (name !== 'no failures' || failures.length === 0) return found
  const kinds = failures.slice(0, 3).map(({ code, count: times }) => `${code} × ${count(times)}`)
  return `${found}: ${kinds.join(', ')}${failures.length > 3 ? ', …' : ''}`
}

/** Whether any client has done anything, or anything was measured; else there is nothing to show but why. */
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
