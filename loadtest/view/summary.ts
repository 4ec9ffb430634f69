import { brokenLimit, hasBegun, outcomeOf } from '../report/outcome.ts'
import { averageRate, type Check, type RunResult, timed } from '../result.ts'
import { clock, count, digits, duration, figureText, inUnit, oneLine, plural } from './text.ts'

const COLUMNS = ['count', 'mean', 'p50', 'p95', 'p99', 'p999', 'max'] as const

/** What a run found, as text to end with: the verdict, what was checked and limited, how long things took. */
export function summary(result: RunResult): string {
  const { word, sentence, reasons } = outcomeOf(result)
  const parts = [
    `${word.toUpperCase()}  ${result.scenario}${result.interrupted ? '' : `, ${clock(result.seconds)}`}. ${sentence}`,
    list(reasons.map((reason) => `✗ ${reason}`)),
    list(result.bottleneck.map((reason) => `! The generator may have been the limit: ${reason}`)),
    timings(result),
    ...(hasBegun(result) ? [totals(result), rows(result.checks.map(check))] : []),
    rows(
      result.verdicts.map((verdict) => [
        verdict.held === undefined ? '–' : verdict.held ? '✓' : '✗',
        verdict.held
          ? `${verdict.threshold}: ${inUnit(verdict.actual ?? 0, verdict.unit)}, limit ${inUnit(verdict.limit, verdict.unit)}`
          : `${brokenLimit(verdict)}${verdict.held === undefined ? ', when it was interrupted' : ''}`,
      ]),
    ),
    list(
      result.failures.map(
        ({ code, count: times, example }) => `✗ ${code} × ${count(times)}: ${oneLine(example)}`,
      ),
    ),
  ]
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`
}

function timings({ timings: all }: RunResult): string {
  const known = timed(all)
  if (known.length === 0) return ''
  const head = ['', ...COLUMNS.map((column) => (column === 'p999' ? 'p99.9' : column))]
  const body = known.map(({ name, values }) => [
    name,
    ...COLUMNS.map((column) => (column === 'count' ? count(values.count) : duration(values[column]))),
  ])
  const widths = head.map((_, i) => Math.max(...[head, ...body].map((row) => row[i]!.length)))
  return [head, ...body]
    .map((row) =>
      row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  '),
    )
    .join('\n')
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

function check({ name, violations, note, examples }: Check): [string, string] {
  if (violations === undefined) return ['–', `${name}: not checked, ${note}`]
  if (violations === 0) return ['✓', `${name}: none (${note})`]
  const shown = examples.map((example) => `\n    ${oneLine(example)}`).join('')
  return ['✗', `${name}: ${plural(violations, 'violation')} (${note})${shown}`]
}

const rows = (cells: readonly (readonly string[])[]): string => list(cells.map((row) => row.join(' ')))
const list = (lines: readonly string[]): string => lines.filter((line) => line !== '').join('\n')
