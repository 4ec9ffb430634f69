import { alignedRows, count, digits, NONE, percent, quantile } from '../../loadtest/text.ts'
import type { Scenario } from './scenarios.ts'

/** Figures of a measurement, in the order of the tables. lab-book.md explains them. */
const COLUMNS = [
  { name: 'cost', title: 'CPU-µs', text: digits },
  { name: 'finding', title: 'CPU-µs per joinOrCreate', text: digits },
  { name: 'delivered', title: 'delivered', text: percent },
  { name: 'crossing', title: 'over the bus', text: percent },
  { name: 'p50', title: 'p50 ms', text: count },
  { name: 'p99', title: 'p99 ms', text: count },
  { name: 'bytes', title: 'bytes', text: count },
  { name: 'slowest', title: 'slowest/s', text: digits },
  { name: 'rss', title: 'RSS KB', text: digits },
  { name: 'live', title: 'live KB', text: digits },
  { name: 'further', title: 'further RSS KB', text: digits },
  { name: 'redis', title: 'Redis CPU-µs', text: digits },
  { name: 'commands', title: 'Redis commands/s', text: count },
  { name: 'joinsPerSecond', title: 'joins/s', text: count },
  { name: 'back', title: 'all back s', text: digits },
  { name: 'stall', title: 'longest stall ms', text: count },
  { name: 'clients', title: 'clients', text: count },
  { name: 'right', title: 'right in the end', text: percent },
  { name: 'held', title: 'held KB', text: digits },
  { name: 'core', title: 'of a core', text: percent },
  { name: 'recovered', title: 'recovered s', text: digits },
  { name: 'lost', title: 'lost', text: count },
] as const

/** `others`: CPU time of other processes, as a share of one core. `busy`: utilization of the generator's event loop. */
type FigureName = (typeof COLUMNS)[number]['name'] | 'others' | 'busy'
/** Results of one measurement. Figures that a scenario does not have are absent. */
export type Figures = Readonly<Partial<Record<FigureName, number>>>

/** Share of one core that other processes may use. */
const QUIET = 0.05
/** Above this utilization the generator is the bottleneck. */
const BUSY = 0.85
/** True if other processes may have changed the figures. */
export const isDisturbed = ({ others = 0 }: Figures): boolean => others > QUIET

/** Measurements of one scenario. */
export interface Comparison {
  readonly scenario: Scenario
  readonly rows: readonly Row[]
}

/** Returns the figures of one run in a line. */
export const line = (figures: Figures): string =>
  COLUMNS.flatMap(({ name, title, text }) =>
    figures[name] === undefined ? [] : [`${title} ${text(figures[name])}`],
  ).join(' · ')

/** Returns the medians of all runs of a server. A run without figures has failed, for one of the `problems`. `first`: the first row of its server. */
export function rowOf(
  name: string,
  first: string,
  all: readonly (Figures | undefined)[],
  problems: readonly string[],
) {
  const runs = all.filter((run) => run !== undefined)
  const names = new Set(runs.flatMap((run) => Object.keys(run) as FigureName[]))
  const valuesOf = (each: FigureName): number[] => runs.flatMap((run) => run[each] ?? [])
  const medians = [...names].map((each) => [each, quantile(valuesOf(each), 0.5)])
  const remarks = [
    ...(runs.some(isDisturbed) ? ['others used the machine'] : []),
    ...(runs.some(({ busy = 0 }) => busy > BUSY) ? ['the generator was the bottleneck'] : []),
    ...new Set(problems),
  ]
  return { name, first, figures: Object.fromEntries(medians) as Figures, runs: all, remarks }
}
type Row = ReturnType<typeof rowOf>

/** Returns the ratio of two rows: the median of the ratios of each round, with the smallest and the largest. */
function ratioOf(one: Row, base: Row): string {
  const ratios = (['cost', 'finding', 'live', 'further'] as const).flatMap((name) => {
    const all = one.runs.flatMap((run, round) => {
      const [over, under] = [run?.[name], base.runs[round]?.[name]]
      return over === undefined || under === undefined ? [] : over / under
    })
    const [median, least, most] = [quantile(all, 0.5), Math.min(...all), Math.max(...all)]
    if (all.length < 2 || one === base) return all.length === 0 ? [] : median.toFixed(2)
    return `${median.toFixed(2)} (${least.toFixed(2)}–${most.toFixed(2)})`
  })
  return ratios.join(' and ') || NONE
}

/** Returns the cells of a table, with its head first. The last columns are the cost relative to other rows, and remarks. */
function cellsOf({ scenario: { against }, rows }: Comparison): string[][] {
  const columns = COLUMNS.filter(({ name }) => rows.some(({ figures }) => figures[name] !== undefined))
  const find = (wanted: string): Row[] => rows.filter(({ name }) => name === wanted)
  const bases = ['bare', 'colyseus', 'before'].flatMap(find)
  // Beside other scenarios, each row is relative to the first scenario on its own server.
  const basesOf = ({ first }: Row): Row[] => (against ? find(first) : bases)
  const titles = against ? [against[0]!.name] : bases.map(({ name }) => name)
  return [
    ['', ...columns.map(({ title }) => title), ...titles.map((title) => `× ${title}`), ''],
    ...rows.map((row) => [
      row.name,
      ...columns.map(({ name, text }) => (row.figures[name] === undefined ? NONE : text(row.figures[name]))),
      ...basesOf(row).map((base) => ratioOf(row, base)),
      row.remarks.join('; '),
    ]),
  ]
}

/** Returns a table as aligned Markdown, for the terminal and for pages of the documentation. */
export function table(comparison: Comparison): string {
  const { name, meaning, per } = comparison.scenario
  const [head = [], ...rows] = cellsOf(comparison)
  const rule = head.map((_, i) => (i === 0 || i === head.length - 1 ? '---' : '--:'))
  const lines = alignedRows([head, rule, ...rows], ' | ')
  return `**${name}**: ${meaning}; CPU per ${per}.\n\n${lines.map((line) => `| ${line} |\n`).join('')}`
}
