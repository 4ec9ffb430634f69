import { count, digits, NONE, percent } from '../view/text.ts'
import { type FigureName, type Figures, isBusy, isGenerator, quantile } from './measure.ts'
import type { Scenario } from './scenarios.ts'

/** What was measured, as people read it. */

/** The medians of one server in a scenario. */
export interface Row {
  /** The server; of a scenario that is measured beside another one: that, or itself. */
  readonly name: string
  readonly figures: Figures
  /** Of each run. */
  readonly runs: readonly Figures[]
  /** What to know of them. */
  readonly remarks: readonly string[]
}

/** All that was measured in a scenario. */
export interface Comparison {
  readonly scenario: Scenario
  readonly rows: readonly Row[]
}

export interface Column {
  readonly name: FigureName
  readonly title: string
  readonly text: (value: number) => string
}

export const COLUMNS: readonly Column[] = [
  { name: 'cost', title: 'CPU-µs', text: digits },
  { name: 'delivered', title: 'delivered', text: percent },
  { name: 'crossing', title: 'over the bus', text: percent },
  { name: 'p50', title: 'p50 ms', text: count },
  { name: 'p99', title: 'p99 ms', text: count },
  { name: 'bytes', title: 'bytes', text: count },
  { name: 'slowest', title: 'slowest/s', text: digits },
  { name: 'rss', title: 'RSS KB', text: digits },
  { name: 'redis', title: 'Redis CPU-µs', text: digits },
  { name: 'commands', title: 'Redis commands/s', text: count },
  { name: 'joinsPerSecond', title: 'joins/s', text: count },
  { name: 'clients', title: 'clients', text: count },
  { name: 'right', title: 'right in the end', text: percent },
  { name: 'held', title: 'held KB', text: digits },
  { name: 'lost', title: 'lost', text: count },
]

/** The figures of one run in a line. */
export const line = (figures: Figures): string =>
  COLUMNS.flatMap(({ name, title, text }) =>
    figures[name] === undefined ? [] : [`${title} ${text(figures[name])}`],
  ).join(' · ')

/** The runs of a server as their medians. `problems`: why others of its runs gave nothing. */
export function rowOf(name: string, runs: readonly Figures[], problems: readonly string[]): Row {
  const names = new Set(runs.flatMap((run) => Object.keys(run) as FigureName[]))
  const medians = [...names].map((each) => [
    each,
    quantile(
      runs.flatMap((run) => run[each] ?? []),
      0.5,
    ),
  ])
  const remarks = [
    ...(runs.some(isBusy) ? ['others used the machine'] : []),
    ...(runs.some(isGenerator) ? ['the generator was the bottleneck'] : []),
    ...new Set(problems),
  ]
  return { name, figures: Object.fromEntries(medians), runs, remarks }
}

/** A table as texts, its head first. The last columns: the cost beside that of the first row that others are measured beside, and remarks. */
export function cellsOf({ scenario, rows }: Comparison): string[][] {
  const base = rows.find(({ name }) => name === (scenario.against?.[0]?.name ?? 'bare'))
  const columns = COLUMNS.filter(({ name }) => rows.some(({ figures }) => figures[name] !== undefined))
  const ratio = ({ figures }: Row): string =>
    base?.figures.cost === undefined || figures.cost === undefined
      ? NONE
      : (figures.cost / base.figures.cost).toFixed(2)
  return [
    ['', ...columns.map(({ title }) => title), `× ${base?.name ?? NONE}`, ''],
    ...rows.map((row) => [
      row.name,
      ...columns.map(({ name, text }) => (row.figures[name] === undefined ? NONE : text(row.figures[name]))),
      ratio(row),
      row.remarks.join('; '),
    ]),
  ]
}

const titleOf = ({ scenario: { name, meaning, per } }: Comparison): string =>
  `${name}: ${meaning}; CPU per ${per}`

/** For the terminal. */
export function textTable(comparison: Comparison): string {
  const cells = cellsOf(comparison)
  const widths = cells[0]!.map((_, i) => Math.max(...cells.map((row) => row[i]!.length)))
  const padded = (cell: string, i: number, { length }: readonly string[]): string =>
    i === 0 ? cell.padEnd(widths[i]!) : i === length - 1 ? cell : cell.padStart(widths[i]!)
  const lines = cells.map((row) =>
    row
      .map((cell, i) => padded(cell, i, row))
      .join('  ')
      .trimEnd(),
  )
  return [titleOf(comparison), ...lines].join('\n')
}

/** For pages of the documentation. */
export function markdown(comparisons: readonly Comparison[]): string {
  const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  return comparisons
    .map((comparison) => {
      const [head = [], ...rows] = cellsOf(comparison)
      const rule = head.map((_, i) => (i === 0 || i === head.length - 1 ? '---' : '--:'))
      return `**${titleOf(comparison).replace(':', '**:')}.\n\n${[head, rule, ...rows].map(row).join('\n')}\n`
    })
    .join('\n')
}
