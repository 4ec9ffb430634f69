import { mkdir, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { systemClock, timestamp } from '../../shared/clock.ts'
import { packageVersion } from '../../shared/version.ts'
import { DIALECTS, type ServerName } from './dialects.ts'
import { type Figures, measure, type Options } from './measure.ts'
import { comparisonPage } from './page.ts'
import { installPeers, pin, startRedis } from './processes.ts'
import { type Comparison, line, markdown, rowOf, textTable } from './report.ts'
import { needsRedis, SCENARIOS, type Scenario } from './scenarios.ts'

/** `npm run compare`: the same scenarios against this project and what else there is, each server on one core, the generator on the other. */

const SERVERS = Object.keys(DIALECTS) as ServerName[]
const HELP = `npm run compare -- [options]

  --scenarios A,B  some of ${SCENARIOS.map(({ name }) => name).join(', ')}
  --servers A,B    some of ${SERVERS.join(', ')}
  --runs N         runs of each, in turn; the table has their medians (3)
  --seconds N      how long each is measured (4)
  --warm N         how long it plays before, times the nodes, until what it runs is compiled (30)
  --repeats N      how often a window is repeated while others use the machine (5)
  --out FOLDER     where results.json, tables.md and report.html go (loadtest-report/compare)
`
const say = (line: string): void => void process.stdout.write(`${line}\n`)

/** What was typed is wrong. */
const refuse = (error: unknown): never => {
  process.stderr.write(`${(error as Error).message}\n\n${HELP}`)
  process.exit(2)
}

const OPTIONS = {
  options: {
    scenarios: { type: 'string', default: SCENARIOS.map(({ name }) => name).join(',') },
    servers: { type: 'string', default: SERVERS.join(',') },
    runs: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '4' },
    warm: { type: 'string', default: '30' },
    repeats: { type: 'string', default: '5' },
    out: { type: 'string', default: 'loadtest-report/compare' },
    sources: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
} as const

const values = (() => {
  try {
    return parseArgs(OPTIONS).values
  } catch (error) {
    return refuse(error)
  }
})()

/** The value of an option that counts something. */
function count(name: 'runs' | 'seconds' | 'warm' | 'repeats', least: number): number {
  const value = Number(values[name])
  return Number.isInteger(value) && value >= least
    ? value
    : refuse(new Error(`--${name} is ${values[name]}; it may be a whole number from ${least} on.`))
}

/** Those of the known names that are asked for. */
function chosen<T>(known: readonly T[], nameOf: (one: T) => string, asked: string): T[] {
  return asked.split(',').map((name) => {
    const one = known.find((each) => nameOf(each) === name)
    if (one === undefined)
      return refuse(new Error(`There is no ${name}; there are ${known.map(nameOf).join(', ')}.`))
    return one
  })
}

/** One of what is measured in turn. */
interface Contender {
  readonly name: string
  readonly server: ServerName
  readonly scenario: Scenario
}

/**
 * The servers, or where only this project can take part, itself with and without what the scenario is about; beside several nodes the
 * bare ones, which no nodes can go below.
 */
const contenders = (scenario: Scenario, servers: readonly ServerName[]): Contender[] =>
  scenario.against === undefined
    ? servers.map((server) => ({ name: server, server, scenario }))
    : servers
        .filter((server) => server === 'roomful' || (server === 'bare' && scenario.nodes !== undefined))
        .flatMap((server) =>
          [...scenario.against!, scenario].map((each) => ({
            name: nameOf(server, each),
            server,
            scenario: each,
          })),
        )

const nameOf = (server: ServerName, { name }: Scenario): string =>
  server === 'roomful' ? name : `${server} ${name}`

/** Measures all in turn, so that a machine that changes does so for all of them. */
async function compare(
  scenario: Scenario,
  servers: readonly ServerName[],
  runs: number,
  options: Omit<Options, 'tell'>,
): Promise<Comparison> {
  const all = contenders(scenario, servers).map((one) => ({
    ...one,
    measured: [] as Figures[],
    problems: [] as string[],
  }))
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
  const scenarios = chosen(SCENARIOS, ({ name }) => name, values.scenarios)
  const servers = chosen(SERVERS, (name) => name, values.servers)
  const runs = count('runs', 1)
  const seconds = count('seconds', 1)
  const repeats = count('repeats', 0)
  if (!values.sources) installPeers()
  pin(process.pid, availableParallelism() > 1 ? 1 : 0)
  const redis = scenarios.some(needsRedis) ? await startRedis() : undefined
  const comparisons: Comparison[] = []
  for (const scenario of scenarios) {
    if (needsRedis(scenario) && !redis) {
      say(`${scenario.name} is left out: there is no redis-server (or valkey-server) in PATH`)
      continue
    }
    const options = {
      seconds,
      warmSeconds: count('warm', 0),
      repeats,
      built: !values.sources,
      ...(redis && { redis }),
    }
    const comparison = await compare(scenario, servers, runs, options)
    say(`\n${textTable(comparison)}\n`)
    comparisons.push(comparison)
    await write(comparisons)
  }
  say(`results.json, tables.md and report.html are in ${values.out}`)
}

/** After each scenario, so that a run that is ended leaves what it has measured. */
async function write(comparisons: readonly Comparison[]): Promise<void> {
  await mkdir(values.out, { recursive: true })
  const machine = {
    // Not what this process may use: it is tied to one of them.
    cores: cpus().length,
    cpu: cpus()[0]?.model,
    roomful: packageVersion(),
  }
  const results = { machine, options: values, comparisons }
  await writeFile(join(values.out, 'results.json'), `${JSON.stringify(results, undefined, 1)}\n`)
  await writeFile(join(values.out, 'tables.md'), markdown(comparisons))
  const facts = `${timestamp(systemClock.now()).replace('T', ' ').slice(0, 16)} UTC · roomful ${machine.roomful} · ${machine.cores} cores · ${machine.cpu} · medians of ${values.runs}`
  await writeFile(join(values.out, 'report.html'), await comparisonPage(comparisons, facts))
}

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1))
if (values.help) process.stdout.write(HELP)
else {
  await run()
  process.exit()
}
