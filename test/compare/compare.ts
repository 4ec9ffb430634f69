import { mkdir, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { option, quantity, readValues, type Texts, valid } from '../../loadtest/option-kinds.ts'
import { packageVersion } from '../../shared/version.ts'
import { DIALECTS, type ServerName } from './dialects.ts'
import { measure, type Options } from './measure.ts'
import { installPeers, pin, startRedis } from './processes.ts'
import { type Comparison, type Figures, line, markdown, rowOf, textTable } from './report.ts'
import { needsRedis, SCENARIOS, type Scenario } from './scenarios.ts'

/** `npm run compare`: the same load on this project and on other servers. The server has one core, and the generator has another. */

const NAMES = SCENARIOS.map(({ name }) => name)
const SERVERS = Object.keys(DIALECTS) as ServerName[]

const some = <T extends string>(known: readonly T[]) =>
  option(
    'A,B',
    `some of ${known.join(', ')}`,
    valid(
      known.join(', '),
      (text) => text.split(',') as T[],
      (names) => names.every((name) => known.includes(name)),
    ),
    [...known],
  )
const whole = (meaning: string, given: number, least: number) => {
  const isValid = (value: number): boolean => Number.isInteger(value) && value >= least
  return option(
    'N',
    `${meaning} (${given})`,
    quantity(`a whole number from ${least}`, { '': 1 }, isValid),
    given,
  )
}
const OPTIONS = {
  scenarios: some(NAMES),
  servers: some(SERVERS),
  runs: whole('runs of each, in turn; the table has their medians', 3, 1),
  seconds: whole('length of the measured window', 4, 1),
  warm: whole('seconds of load before it, times the nodes, until the hot code is compiled', 30, 0),
  repeats: whole('most repetitions of a window in which others used the machine', 5, 0),
  out: option(
    'FOLDER',
    'folder of results.json and tables.md (loadtest-report/compare)',
    String,
    'loadtest-report/compare',
  ),
}
const HELP = `npm run compare -- [options] [scenario …]\n\n${Object.entries(OPTIONS)
  .map(([name, { placeholder, meaning }]) => `  ${`--${name} ${placeholder}`.padEnd(15)}  ${meaning}\n`)
  .join('')}`
const say = (line: string): void => void process.stdout.write(`${line}\n`)

/** Reads the command line. `sources`: measures the sources instead of compiled code, without the installed Node. */
function readOptions() {
  const text = { type: 'string' } as const
  const flag = { type: 'boolean', default: false } as const
  const known = Object.fromEntries(Object.keys(OPTIONS).map((name) => [name, text]))
  const options = { ...known, sources: flag, help: flag }
  const {
    values: { sources, help, ...given },
    positionals,
  } = parseArgs({ options, allowPositionals: true })
  const scenarios = positionals.length > 0 ? { scenarios: positionals.join(',') } : {}
  return { ...readValues(OPTIONS, { ...given, ...scenarios } as Texts), sources, help }
}

let values: ReturnType<typeof readOptions>
try {
  values = readOptions()
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n\n${HELP}`)
  process.exit(2)
}

/**
 * Returns the rows of a table, which are the servers. For a scenario that only this project has, they are the scenario and the scenarios
 * that it is compared with. With several nodes also bare servers, which are the lower limit for nodes.
 */
function contenders(scenario: Scenario, servers: readonly ServerName[]) {
  const { against, nodes, kind } = scenario
  if (against === undefined)
    return servers
      .filter((server) => kind !== 'lobby' || DIALECTS[server].finder)
      .map((server) => ({ name: server, server, scenario }))
  return servers
    .filter((server) => server === 'roomful' || (server === 'bare' && nodes !== undefined))
    .flatMap((server) =>
      [...against, scenario].map((each) => ({
        name: server === 'roomful' ? each.name : `${server} ${each.name}`,
        server,
        scenario: each,
      })),
    )
}

/** Measures all rows in turn, so that a change of the machine affects all of them. */
async function compare(
  scenario: Scenario,
  servers: readonly ServerName[],
  runs: number,
  options: Omit<Options, 'report'>,
): Promise<Comparison> {
  const none = () => ({ measured: [] as Figures[], problems: [] as string[] })
  const all = contenders(scenario, servers).map((one) => ({ ...one, ...none() }))
  for (let i = 1; i <= runs; i++)
    for (const { name, server, scenario: measuredScenario, measured, problems } of all) {
      const report = (text: string): void => say(`${scenario.name} ${name} ${i}/${runs}: ${text}`)
      try {
        const figures = await measure(server, measuredScenario, { ...options, report })
        measured.push(figures)
        report(line(figures))
      } catch (error) {
        problems.push((error as Error).message)
        report((error as Error).message)
      }
    }
  return { scenario, rows: all.map(({ name, measured, problems }) => rowOf(name, measured, problems)) }
}

async function run(): Promise<void> {
  const { servers, runs, seconds, warm: warmSeconds, repeats, sources } = values
  const scenarios = values.scenarios.map((name) => SCENARIOS.find((each) => each.name === name)!)
  if (!sources) installPeers()
  pin(process.pid, availableParallelism() > 1 ? 1 : 0)
  const redis = scenarios.some(needsRedis) ? await startRedis() : undefined
  const options = { seconds, warmSeconds, repeats, built: !sources, ...(redis && { redis }) }
  const comparisons: Comparison[] = []
  for (const scenario of scenarios) {
    if (needsRedis(scenario) && !redis) {
      say(`${scenario.name} is skipped: put redis-server or valkey-server on PATH`)
      continue
    }
    const comparison = await compare(scenario, servers, runs, options)
    say(`\n${textTable(comparison)}\n`)
    comparisons.push(comparison)
    await write(comparisons)
  }
  say(`results.json and tables.md are in ${values.out}`)
}

/** Writes the results. Called after each scenario, so that an interrupted run leaves its measurements. */
async function write(comparisons: readonly Comparison[]): Promise<void> {
  await mkdir(values.out, { recursive: true })
  // Not availableParallelism(), which is 1 here because this process is pinned.
  const machine = { cores: cpus().length, cpu: cpus()[0]?.model, roomful: packageVersion() }
  const results = { machine, options: values, comparisons }
  await writeFile(join(values.out, 'results.json'), `${JSON.stringify(results, undefined, 1)}\n`)
  await writeFile(join(values.out, 'tables.md'), markdown(comparisons))
}

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1))
if (values.help) process.stdout.write(HELP)
else {
  await run()
  process.exit()
}
