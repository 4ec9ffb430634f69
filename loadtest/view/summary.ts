import { failureLine, hasBegun, type Judgement, judgementsOf, outcomeOf } from '../report/outcome.ts'
import { averageRate, type RunResult, STATISTICS, statisticTitle, timed } from '../result.ts'
import { alignedRows, clock, count, digits, duration, figureText, oneLine, plural } from '../text.ts'

const MARKS = { kept: '✓', broken: '✗', open: '–' } as const

/** What a run found, as text to end with: the verdict, what was checked and limited, how long things took. */
export function summary(result: RunResult): string {
  const { word, sentence, reasons } = outcomeOf(result)
  const judged = (kind: Judgement['kind']): string =>
    list(judgementsOf(result).flatMap((each) => (each.kind === kind ? [judgementLine(each)] : [])))
  const parts = [
    `${word.toUpperCase()}  ${result.scenario}${result.interrupted ? '' : `, ${clock(result.seconds)}`}. ${sentence}`,
    list(reasons.map((reason) => `✗ ${reason}`)),
    list(result.bottleneck.map((reason) => `! The generator may have been the limit: ${reason}`)),
    timings(result),
    ...(hasBegun(result) ? [totals(result), judged('check')] : []),
    judged('limit'),
    list(result.failures.map((failure) => `✗ ${oneLine(failureLine(failure))}`)),
  ]
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`
}

function judgementLine({ kind, name, state, found, note, examples }: Judgement): string {
  const looked = note === '' ? '' : kind === 'limit' || state === 'open' ? `, ${note}` : ` (${note})`
  const shown = examples.map((example) => `\n    ${oneLine(example)}`).join('')
  return `${MARKS[state]} ${name}: ${found}${looked}${shown}`
}

function timings({ timings: all }: RunResult): string {
  const known = timed(all)
  if (known.length === 0) return ''
  return alignedRows([
    ['', 'count', ...STATISTICS.map(statisticTitle)],
    ...known.map(({ name, values }) => [
      name,
      count(values.count),
      ...STATISTICS.map((statistic) => duration(values[statistic])),
    ]),
  ]).join('\n')
}

function totals(result: RunResult): string {
  const { totals: all, figures } = result
  const rate = (key: 'sends' | 'updates') => {
    const average = averageRate(result, key)
    return average === undefined ? count(all[key]) : `${count(all[key])} (${digits(average)}/s)`
  }
  const played = all.connects > 0 || all.errors > 0
  return list([
    !played
      ? ''
      : `${rate('sends')} sent, ${count(all.acks)} acked, ${rate('updates')} updates, ${plural(all.errors, 'failure')}`,
    all.retries > 0 ? `${plural(all.retries, 'attempt')} to connect made again` : '',
    ...figures.map((figure) => `${figure.name}: ${figureText(figure)}`),
  ])
}

const list = (lines: readonly string[]): string => lines.filter((line) => line !== '').join('\n')
