import { mkdir, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { count, option, optional, readValues, someOf, type Texts } from '../../loadtest/option-kinds.ts'
import { optionHelp, section } from '../../loadtest/options.ts'
import { packageVersion } from '../../shared/version.ts'
import { findRedisProgram } from '../support/redis-server.ts'
import { DIALECTS, type ServerName } from './dialects.ts'
import { measure, measureTogether } from './measure.ts'
import { type Contender, installPeers, pin } from './processes.ts'
import { type Comparison, type Figures, line, rowOf, table } from './report.ts'
import { needsRedis, SCENARIOS, type Scenario } from './scenarios.ts'

/** `npm run compare`: the same load on this project and on other servers. The server has one core, and the generator has another. */

const OPTIONS = {
  scenarios: someOf(
    'scenarios, which may also be given without --scenarios',
    SCENARIOS.map(({ name }) => name),
  ),
  servers: someOf('servers', Object.keys(DIALECTS) as ServerName[]),
  runs: count('runs of each, in turn; the table has their medians', 3),
  seconds: count('length of the measured window', 4),
  warm: count('seconds of load before it, times the nodes, until the hot code is compiled', 30, 0),
  together: count(
    'measures all servers at the same time, with N clients each: shows differences of 3 %. 0: in turn',
    0,
    0,
  ),
  before: optional(
    'FOLDER',
    'checkout of another commit, with npm run build done: measured as "before"',
    String,
  ),
  repeats: count('most repetitions of a window in which others used the machine', 5, 0),
  out: option('FOLDER', 'folder of results.json and tables.md', String, 'loadtest-report/compare'),
}
const HELP = section('npm run compare -- [options] [scenario …]\n', optionHelp(OPTIONS))
const say = (line: string): void => void process.stdout.write(`${line}\n`)

function readOptions() {
  try {
    const text = { type: 'string' } as const
    const known = Object.fromEntries(Object.keys(OPTIONS).map((name) => [name, text]))
    const options = { ...known, help: { type: 'boolean', default: false } as const }
    const { values, positionals } = parseArgs({ options, allowPositionals: true })
    const { help, ...given } = values
    const scenarios = positionals.length > 0 ? { scenarios: positionals.join(',') } : {}
    return { ...readValues(OPTIONS, { ...given, ...scenarios } as Texts), help }
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n\n${HELP}`)
    return process.exit(2)
  }
}
const values = readOptions()

/** One row of a table. */
interface Row extends Contender {
  readonly name: string
}

/**
 * Returns the rows of a table in groups that can be measured together. They are the servers. For a scenario that only this project has, they
 * are the scenario and the scenarios that it is compared with. With several nodes also bare servers, which are the lower limit for nodes.
 */
function groupsOf(scenario: Scenario): Row[][] {
  const { against, nodes, kind } = scenario
  const { servers, before, together } = values
  const sized = (each: Scenario): Scenario =>
    together === 0 ? each : { ...each, clients: Math.max(together, each.perRoom) }
  const all = [
    ...servers.map((server) => ({ label: server as string, server })),
    ...(before === undefined ? [] : [{ label: 'before', server: 'roomful' as const, checkout: before }]),
  ]
  if (against === undefined)
    return [
      all
        .filter(({ server }) => kind !== 'lobby' || DIALECTS[server].finder)
        .map(({ label, ...of }) => ({ ...of, name: label, scenario: sized(scenario) })),
    ]
  return all
    .filter(({ server }) => server === 'roomful' || (server === 'bare' && nodes !== undefined))
    .map(({ label, ...of }) =>
      [...against, scenario].map((each) => ({
        ...of,
        name: label === 'roomful' ? each.name : `${label} ${each.name}`,
        scenario: sized(each),
      })),
    )
}

/** Measures all rows, together or in turn, so that a change of the machine affects all of them. */
async function compare(scenario: Scenario): Promise<Comparison> {
  const { runs, seconds, warm: warmSeconds, repeats, together } = values
  const none = () => ({ measured: [] as (Figures | undefined)[], problems: [] as string[] })
  const groups = groupsOf(scenario).map((group) => group.map((row) => ({ ...row, ...none() })))
  for (let i = 1; i <= runs; i++)
    for (const group of together > 0 ? groups : groups.flat().map((row) => [row])) {
      const report = (text: string, { name } = group[0]!): void =>
        say(`${scenario.name} ${name} ${i}/${runs}: ${text}`)
      const options = { seconds, warmSeconds, repeats, built: true, report }
      try {
        const figures =
          together > 0 ? await measureTogether(group, options) : [await measure(group[0]!, options)]
        for (const [index, row] of group.entries()) {
          row.measured.push(figures[index]!)
          report(line(figures[index]!), row)
        }
      } catch (error) {
        for (const row of group) {
          row.measured.push(undefined)
          row.problems.push((error as Error).message)
          report((error as Error).message, row)
        }
      }
    }
  const rows = groups.flatMap((group) =>
    group.map(({ name, measured, problems }) => rowOf(name, group[0]!.name, measured, problems)),
  )
  const meaning = `${scenario.meaning}. Here all servers at the same time, with ${together} clients each`
  return { scenario: together > 0 ? { ...scenario, meaning } : scenario, rows }
}

/** Measures all chosen scenarios. Returns true if every row has figures. */
async function run(): Promise<boolean> {
  installPeers()
  pin(process.pid, availableParallelism() > 1 ? 1 : 0)
  const hasRedis = findRedisProgram() !== undefined
  const comparisons: Comparison[] = []
  for (const name of values.scenarios) {
    const scenario = SCENARIOS.find((each) => each.name === name)!
    if (needsRedis(scenario) && !hasRedis) {
      say(`${scenario.name} is skipped: put redis-server or valkey-server on PATH`)
      continue
    }
    if (values.together > 0 && scenario.kind !== 'play') {
      say(`${scenario.name} is skipped: --together is for loads in which all clients play`)
      continue
    }
    const comparison = await compare(scenario)
    say(`\n${table(comparison)}`)
    comparisons.push(comparison)
    await write(comparisons)
  }
  say(`results.json and tables.md are in ${values.out}`)
  return comparisons.every(({ rows }) => rows.every(({ runs }) => runs.some((run) => run !== undefined)))
}

/** Writes the results. Called after each scenario, so that an interrupted run leaves its measurements. */
async function write(comparisons: readonly Comparison[]): Promise<void> {
  await mkdir(values.out, { recursive: true })
  // Not availableParallelism(), which is 1 here because this process is pinned.
  const machine = { cores: cpus().length, cpu: cpus()[0]?.model, roomful: packageVersion() }
  const results = { machine, options: values, comparisons }
  await writeFile(join(values.out, 'results.json'), `${JSON.stringify(results, undefined, 1)}\n`)
  await writeFile(join(values.out, 'tables.md'), comparisons.map(table).join('\n'))
}

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1))
if (values.help) process.stdout.write(HELP)
else {
  process.exit((await run()) ? 0 : 1)
}
