import { mkdir, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { packageVersion } from '../../shared/version.ts'
import { count, digits, NONE, percent } from '../view/text.ts'
import { DIALECTS, type ServerName } from './dialects.ts'
import {
  type FigureName,
  type Figures,
  installPeers,
  isBusy,
  isGenerator,
  measure,
  pin,
  quantile,
} from './measure.ts'
import { SCENARIOS, type Scenario } from './scenarios.ts'

/** `npm run compare`: the same scenarios against this project and what else there is, each server on one core, the generator on the other. */

/** The medians of a server in a scenario. */
export interface Row {
  readonly scenario: string
  readonly server: ServerName
  readonly figures: Figures
  /** Of each run. */
  readonly runs: readonly Figures[]
  readonly remarks: readonly string[]
}

const SERVERS = Object.keys(DIALECTS) as ServerName[]
const HELP = `npm run compare -- [options]

  --scenarios A,B  some of ${SCENARIOS.map(({ name }) => name).join(', ')}
  --servers A,B    some of ${SERVERS.join(', ')}
  --runs N         runs of each, in turn; the table has their medians (3)
  --seconds N      how long each is measured (4)
  --repeats N      how often a window is repeated while others use the machine (2)
  --out FOLDER     where results.json goes (loadtest-report/compare)
`
const say = (line: string): void => void process.stdout.write(`${line}\n`)

const { values } = parseArgs({
  options: {
    scenarios: { type: 'string', default: SCENARIOS.map(({ name }) => name).join(',') },
    servers: { type: 'string', default: SERVERS.join(',') },
    runs: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '4' },
    repeats: { type: 'string', default: '2' },
    out: { type: 'string', default: 'loadtest-report/compare' },
    sources: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

/** Those of the known names that are asked for. */
function chosen<T>(known: readonly T[], nameOf: (one: T) => string, asked: string): T[] {
  return asked.split(',').map((name) => {
    const one = known.find((each) => nameOf(each) === name)
    if (one === undefined)
      throw new Error(`There is no ${name}; there are ${known.map(nameOf).join(', ')}. --help says more.`)
    return one
  })
}

const COLUMNS: readonly { name: FigureName; title: string; text: (value: number) => string }[] = [
  { name: 'cost', title: 'CPU-µs', text: digits },
  { name: 'delivered', title: 'delivered', text: percent },
  { name: 'p50', title: 'p50 ms', text: count },
  { name: 'p99', title: 'p99 ms', text: count },
  { name: 'bytes', title: 'bytes', text: count },
  { name: 'slowest', title: 'slowest/s', text: digits },
  { name: 'rss', title: 'RSS KB', text: digits },
  { name: 'redis', title: 'Redis CPU-µs', text: digits },
  { name: 'joinsPerSecond', title: 'joins/s', text: count },
  { name: 'clients', title: 'clients', text: count },
  { name: 'right', title: 'right in the end', text: percent },
  { name: 'held', title: 'held KB', text: digits },
]

/** The runs of a server in a scenario as their medians. */
function rowOf(scenario: Scenario, server: ServerName, runs: readonly Figures[]): Row {
  const names = new Set(runs.flatMap((run) => Object.keys(run) as FigureName[]))
  const median = (name: FigureName): number =>
    quantile(
      runs.flatMap((run) => run[name] ?? []),
      0.5,
    )
  const remarks = [
    ...(runs.some(isBusy) ? ['others used the machine'] : []),
    ...(runs.some(isGenerator) ? ['the generator was the bottleneck'] : []),
  ]
  const figures = Object.fromEntries([...names].map((name) => [name, median(name)]))
  return { scenario: scenario.name, server, figures, runs, remarks }
}

/** Rows below each other, with the cost beside that of the bare server. */
function table(scenario: Scenario, rows: readonly Row[]): string {
  const base = rows.find(({ server }) => server === 'bare')?.figures.cost
  const columns = COLUMNS.filter(({ name }) => rows.some(({ figures }) => figures[name] !== undefined))
  const cells = [
    ['', ...columns.map(({ title }) => title), '× bare'],
    ...rows.map(({ server, figures, remarks }) => [
      server,
      ...columns.map(({ name, text }) => (figures[name] === undefined ? NONE : text(figures[name]))),
      base === undefined || figures.cost === undefined ? NONE : (figures.cost / base).toFixed(2),
      remarks.join('; '),
    ]),
  ]
  const widths = cells[0]!.map((_, i) => Math.max(...cells.map((row) => row[i]!.length)))
  const lines = cells.map((row) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[i] ?? 0))).join('  '),
  )
  return [`${scenario.name}: ${scenario.meaning}; CPU per ${scenario.per}`, ...lines].join('\n')
}

async function run(): Promise<void> {
  const scenarios = chosen(SCENARIOS, ({ name }) => name, values.scenarios)
  const servers = chosen(SERVERS, (name) => name, values.servers)
  const runs = Number(values.runs)
  if (!values.sources) installPeers()
  pin(process.pid, availableParallelism() > 1 ? 1 : 0)
  const rows: Row[] = []
  for (const scenario of scenarios) {
    const measured = new Map(servers.map((server) => [server, [] as Figures[]]))
    for (let i = 0; i < runs; i++)
      for (const server of servers) {
        const tell = (line: string): void => say(`${scenario.name} ${server} ${i + 1}/${runs}: ${line}`)
        const options = {
          seconds: Number(values.seconds),
          repeats: Number(values.repeats),
          built: !values.sources,
          tell,
        }
        const figures = await measure(server, scenario, options).catch((error: Error) => tell(error.message))
        if (!figures) continue
        measured.get(server)!.push(figures)
        tell(
          COLUMNS.flatMap(({ name, title, text }) =>
            figures[name] === undefined ? [] : [`${title} ${text(figures[name])}`],
          ).join(' · '),
        )
      }
    const all = servers.map((server) => rowOf(scenario, server, measured.get(server)!))
    say(`\n${table(scenario, all)}\n`)
    rows.push(...all)
  }
  const folder = values.out
  await mkdir(folder, { recursive: true })
  const machine = {
    cores: availableParallelism(),
    cpu: cpus()[0]?.model,
    node: process.version,
    roomful: packageVersion(),
  }
  await writeFile(
    join(folder, 'results.json'),
    `${JSON.stringify({ machine, options: values, rows }, undefined, 1)}\n`,
  )
  say(join(folder, 'results.json'))
}

if (values.help) process.stdout.write(HELP)
else {
  await run()
  process.exit()
}
