import { mkdir, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { count, option, readValues, someOf, type Texts } from '../../loadtest/option-kinds.ts'
import { optionHelp, section } from '../../loadtest/options.ts'
import { packageVersion } from '../../shared/version.ts'
import { findRedisProgram } from '../support/redis-server.ts'
import { DIALECTS, type ServerName } from './dialects.ts'
import { measure } from './measure.ts'
import { installPeers, pin } from './processes.ts'
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

/**
 * Returns the rows of a table, which are the servers. For a scenario that only this project has, they are the scenario and the scenarios
 * that it is compared with. With several nodes also bare servers, which are the lower limit for nodes.
 */
function contenders(scenario: Scenario, servers: readonly ServerName[]) {
  const { against, nodes, kind } = scenario
  if (against === undefined)
    return servers
      .filter((server) => kind !== 'lobby' || DIALECTS[server].finder)
      .map((server) => ({ name: server, server, each: scenario }))
  return servers
    .filter((server) => server === 'roomful' || (server === 'bare' && nodes !== undefined))
    .flatMap((server) => {
      const nameOf = ({ name }: Scenario): string => (server === 'roomful' ? name : `${server} ${name}`)
      return [...against, scenario].map((each) => ({ name: nameOf(each), server, each }))
    })
}

/** Measures all rows in turn, so that a change of the machine affects all of them. */
async function compare(scenario: Scenario): Promise<Comparison> {
  const { servers, runs, seconds, warm: warmSeconds, repeats } = values
  const none = () => ({ measured: [] as Figures[], problems: [] as string[] })
  const all = contenders(scenario, servers).map((one) => ({ ...one, ...none() }))
  for (let i = 1; i <= runs; i++)
    for (const { name, server, each, measured, problems } of all) {
      const report = (text: string): void => say(`${scenario.name} ${name} ${i}/${runs}: ${text}`)
      try {
        const figures = await measure(server, each, { seconds, warmSeconds, repeats, built: true, report })
        measured.push(figures)
        report(line(figures))
      } catch (error) {
        problems.push((error as Error).message)
        report((error as Error).message)
      }
    }
  return { scenario, rows: all.map(({ name, measured, problems }) => rowOf(name, measured, problems)) }
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
    const comparison = await compare(scenario)
    say(`\n${table(comparison)}`)
    comparisons.push(comparison)
    await write(comparisons)
  }
  say(`results.json and tables.md are in ${values.out}`)
  return comparisons.every(({ rows }) => rows.every(({ runs }) => runs.length > 0))
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
