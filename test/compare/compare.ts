import { mkdir, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { packageVersion } from '../../shared/version.ts'
import { DIALECTS, type ServerName } from './dialects.ts'
import { measure, type Options } from './measure.ts'
import { installPeers, pin, startRedis } from './processes.ts'
import { type Comparison, type Figures, line, markdown, rowOf, textTable } from './report.ts'
import { needsRedis, SCENARIOS, type Scenario } from './scenarios.ts'

/** `npm run compare`: the same load on this project and on other servers. Each server has one core, the generator has another. */

const SERVERS = Object.keys(DIALECTS) as ServerName[]
const HELP = `npm run compare -- [options] [scenario …]

  --scenarios A,B  some of ${SCENARIOS.map(({ name }) => name).join(', ')}
  --servers A,B    some of ${SERVERS.join(', ')}
  --runs N         runs of each, in turn; the table has their medians (3)
  --seconds N      length of the measured window (4)
  --warm N         seconds of load before it, times the nodes, until the hot code is compiled (30)
  --repeats N      most repetitions of a window in which others used the machine (5)
  --out FOLDER     folder of results.json and tables.md (loadtest-report/compare)
`
const say = (line: string): void => void process.stdout.write(`${line}\n`)

/** Ends the process: the command line is wrong. */
const refuse = (error: unknown): never => {
  process.stderr.write(`${(error as Error).message}\n\n${HELP}`)
  process.exit(2)
}

function readOptions() {
  const text = (given: string) => ({ type: 'string', default: given }) as const
  const options = {
    scenarios: text(SCENARIOS.map(({ name }) => name).join(',')),
    servers: text(SERVERS.join(',')),
    runs: text('3'),
    seconds: text('4'),
    warm: text('30'),
    repeats: text('5'),
    out: text('loadtest-report/compare'),
    sources: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  } as const
  try {
    const { values: given, positionals } = parseArgs({ options, allowPositionals: true })
    return positionals.length > 0 ? { ...given, scenarios: positionals.join(',') } : given
  } catch (error) {
    return refuse(error)
  }
}
const values = readOptions()

function wholeNumber(name: 'runs' | 'seconds' | 'warm' | 'repeats', least: number): number {
  const value = Number(values[name])
  return Number.isInteger(value) && value >= least
    ? value
    : refuse(new Error(`--${name} is ${values[name]}; use a whole number from ${least}`))
}

/** The entries of `known` that `asked` lists by name. */
function chosen<T extends { readonly name: string }>(known: readonly T[], asked: string): T[] {
  const names = known.map(({ name }) => name)
  return asked.split(',').map((name) => {
    const one = known.find((each) => each.name === name)
    return one ?? refuse(new Error(`there is no ${name}; there are ${names.join(', ')}`))
  })
}

/**
 * The rows of a table: the servers. A scenario that only this project has is measured with and without its subject; with several
 * nodes also on bare servers, which are the lower limit for nodes.
 */
function contenders(scenario: Scenario, servers: readonly ServerName[]) {
  const { against, nodes, kind } = scenario
  if (kind === 'lobby')
    return servers
      .filter((server) => DIALECTS[server].finder)
      .map((server) => ({ name: server, server, scenario }))
  if (against === undefined) return servers.map((server) => ({ name: server, server, scenario }))
  return servers
    .filter((server) => server === 'roomful' || (server === 'bare' && nodes !== undefined))
    .flatMap((server) =>
      [...against, scenario].map((each) => {
        const name = server === 'roomful' ? each.name : `${server} ${each.name}`
        return { name, server, scenario: each }
      }),
    )
}

/** Measures all in turn, so that a change of the machine affects all of them. */
async function compare(
  scenario: Scenario,
  servers: readonly ServerName[],
  runs: number,
  options: Omit<Options, 'tell'>,
): Promise<Comparison> {
  const none = () => ({ measured: [] as Figures[], problems: [] as string[] })
  const all = contenders(scenario, servers).map((one) => ({ ...one, ...none() }))
  for (let i = 1; i <= runs; i++)
    for (const { name, server, scenario: own, measured, problems } of all) {
      const tell = (text: string): void => say(`${scenario.name} ${name} ${i}/${runs}: ${text}`)
      try {
        const figures = await measure(server, own, { ...options, tell })
        measured.push(figures)
        tell(line(figures))
      } catch (error) {
        problems.push((error as Error).message)
        tell((error as Error).message)
      }
    }
  return { scenario, rows: all.map(({ name, measured, problems }) => rowOf(name, measured, problems)) }
}

async function run(): Promise<void> {
  const scenarios = chosen(SCENARIOS, values.scenarios)
  const named = SERVERS.map((name) => ({ name }))
  const servers = chosen(named, values.servers).map(({ name }) => name)
  const runs = wholeNumber('runs', 1)
  const windows = {
    seconds: wholeNumber('seconds', 1),
    warmSeconds: wholeNumber('warm', 0),
    repeats: wholeNumber('repeats', 0),
  }
  if (!values.sources) installPeers()
  pin(process.pid, availableParallelism() > 1 ? 1 : 0)
  const redis = scenarios.some(needsRedis) ? await startRedis() : undefined
  const options = { ...windows, built: !values.sources, ...(redis && { redis }) }
  const comparisons: Comparison[] = []
  for (const scenario of scenarios) {
    if (needsRedis(scenario) && !redis) {
      say(`${scenario.name} is left out: there is no redis-server (or valkey-server) in PATH`)
      continue
    }
    const comparison = await compare(scenario, servers, runs, options)
    say(`\n${textTable(comparison)}\n`)
    comparisons.push(comparison)
    await write(comparisons)
  }
  say(`results.json and tables.md are in ${values.out}`)
}

/** Called after each scenario, so that an interrupted run leaves its measurements. */
async function write(comparisons: readonly Comparison[]): Promise<void> {
  await mkdir(values.out, { recursive: true })
  // The cores of the machine. availableParallelism() is 1 here: this process is pinned.
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
