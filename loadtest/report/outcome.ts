import { allowsErrors, rateWhile, wentWrong } from '../limits.ts'
import { type RunResult, STATISTICS, statisticTitle, timed } from '../result.ts'
import { alignedRows, clock, count, digits, duration, figureText, inUnit, oneLine, plural } from '../text.ts'

/** One criterion of a run, for the terminal, the page and JUnit XML. */
export interface Judgement {
  readonly kind: 'run' | 'check' | 'limit'
  readonly name: string
  readonly meaning: string
  /** `open`: it could not be judged. */
  readonly state: 'kept' | 'broken' | 'open'
  /** Such as `3 violations`, or `183 ms, above 150 ms`. */
  readonly found: string
  /** What was checked, or why nothing was. */
  readonly note: string
  readonly examples: readonly string[]
}

/** Whether it ran to its end, its checks, its limits, and whether anything failed. */
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
const failureLine = ({ code, count: times, example }: RunResult['failures'][number]): string =>
  `${code} × ${count(times)}: ${example}`

interface Outcome {
  readonly word: 'passed' | 'failed' | 'interrupted'
  readonly sentence: string
  /** Why it failed, a line each. */
  readonly reasons: readonly string[]
}

/** The outcome of a run. An interrupted run has failed if something was wrong before. */
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

/** Whether a client has done anything, or anything was measured. */
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
    totals.errors === 0 ? 'no failures' : `${plural(totals.errors, 'failure')}, as many as allowed`,
  ].filter(Boolean)
  const sentence = parts.join(', ')
  return `${sentence[0]?.toUpperCase()}${sentence.slice(1)}.`
}

/** `1,204 (40.1/s)`: a total, and its mean over the seconds in which there were any. */
export function totalText({ totals, seconds_log: log }: RunResult, key: 'sends' | 'updates'): string {
  const rate = rateWhile(log, key, key)
  return rate === undefined ? count(totals[key]) : `${count(totals[key])} (${digits(rate)}/s)`
}

const MARKS = { kept: '✓', broken: '✗', open: '–' } as const

/** The end of the terminal output: the verdict, checks, limits and timings. */
export function summary(result: RunResult): string {
  const { word, sentence, reasons } = outcomeOf(result)
  const { totals, figures, scenario, interrupted, seconds } = result
  const judged = (kind: Judgement['kind']): string =>
    list(judgementsOf(result).flatMap((each) => (each.kind === kind ? [judgementLine(each)] : [])))
  const times = timed(result.timings).map(({ name, values }) => [
    name,
    count(values.count),
    ...STATISTICS.map((statistic) => duration(values[statistic])),
  ])
  const played = totals.connects > 0 || totals.errors > 0
  const parts = [
    `${word.toUpperCase()}  ${scenario}${interrupted ? '' : `, ${clock(seconds)}`}. ${sentence}`,
    list(reasons.map((reason) => `✗ ${reason}`)),
    list(result.bottleneck.map((reason) => `! The generator may have been the limit: ${reason}`)),
    times.length === 0 ? '' : list(alignedRows([['', 'count', ...STATISTICS.map(statisticTitle)], ...times])),
    list([
      played
        ? `${totalText(result, 'sends')} sent, ${count(totals.acks)} acked, ${totalText(result, 'updates')} updates, ${plural(totals.errors, 'failure')}`
        : '',
      totals.retries > 0 ? `${plural(totals.retries, 'attempt')} to connect made again` : '',
      ...figures.map((figure) => `${figure.name}: ${figureText(figure)}`),
    ]),
    hasBegun(result) ? judged('check') : '',
    judged('limit'),
    list(result.failures.map((failure) => `✗ ${oneLine(failureLine(failure))}`)),
  ]
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`
}

function judgementLine({ kind, name, state, found, note, examples }: Judgement): string {
  const checked = note === '' ? '' : kind === 'limit' || state === 'open' ? `, ${note}` : ` (${note})`
  const shown = examples.map((example) => `\n    ${oneLine(example)}`).join('')
  return `${MARKS[state]} ${name}: ${found}${checked}${shown}`
}

const list = (lines: readonly string[]): string => lines.filter((line) => line !== '').join('\n')
