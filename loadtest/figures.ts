import { spawnSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { availableParallelism, cpus, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { findProgram } from '../deploy/local/programs.ts'
import { packageVersion } from '../shared/version.ts'
import { runCommand } from './command.ts'
import { parseRun } from './options.ts'
import type { Figure, RunResult } from './result.ts'
import { SCENARIOS } from './scenarios/index.ts'
import { count, digits } from './view/text.ts'

/**
 * `npm run figures`: what members see when a process of a cluster ends, hangs or is replaced, and what a cluster costs. Makes the
 * measurements of the load test one after the other on this machine and writes docs/figures.md.
 */

/** One section of the page. */
interface Section {
  /** What `--only` calls it. */
  readonly name: string
  readonly title: string
  readonly method: string
  readonly words: string
  /** Otherwise as many as `--runs` says. */
  readonly once?: true
}

const SNAPSHOT = '--room-type load-snapshot --message op:{"n":1}'
const NONE = '--room-type load-none --message op:{"n":1}'
const GAME = '--room-type load-game --message move:{"x":1,"y":2}'

const fault = (name: string, title: string, method: string, words = ''): Section => ({
  name,
  title,
  method,
  words: `faults --local 3 --fault ${name.replace('-snapshot', '')} ${words}`.trim(),
})

const SECTIONS: readonly Section[] = [
  fault('none', 'Nothing happens', 'What this machine does by itself, which is in all that follows.'),
  fault(
    'kill',
    'SIGKILL of the owner, journal room',
    'A new process takes its place when the watch is over.',
  ),
  fault(
    'kill-snapshot',
    'SIGKILL of the owner, snapshot room',
    'As above; what was acked in the second before the crash may be taken back.',
    SNAPSHOT,
  ),
  fault(
    'edge',
    'SIGKILL of an edge that is not the owner',
    'The members of the edge come back through another node and resume.',
  ),
  fault(
    'stop',
    'SIGSTOP of the owner for two leases',
    'The process keeps its connections, so that no one is told that it is away: its lease (2 s) has to run out. Its own members have a silent connection, which is not what is measured here.',
  ),
  fault('drain', 'Drain of the owner (SIGTERM)', 'DRAIN_SECONDS=3. Its members are told when to reconnect.'),
  fault(
    'rolling',
    'Rolling restart of all three nodes',
    'One node after the other is drained and started again.',
  ),
  fault(
    'redis',
    'Restart of Redis in order (SIGTERM), with its data',
    'Redis is started again as soon as it has ended; appendonly, appendfsync everysec.',
  ),
  fault('redis-kill', 'SIGKILL of Redis and restart, with its data', 'As above, with a crash.'),
  {
    name: 'hop',
    title: 'What an edge hop adds',
    method:
      'A room of durability none with one member at the node that owns it and one at another, who take turns with a reliable message, 250 in a run.',
    words: `hop --local 3 ${NONE}`,
  },
  {
    name: 'journal',
    title: 'What a journal adds',
    method: 'The same in a journal room: compare the round trips at the owner.',
    words: 'hop --local 3',
  },
  ...[1, 16, 64, 256].map((rooms) => ({
    name: `commits-${rooms}`,
    title: `Commits per second of one node, ${rooms === 1 ? '1 room' : `${rooms} rooms`}`,
    method: 'A member in each journal room sends one message after the other; windows of one second.',
    words: `commits --local 1 --rooms ${rooms}`,
  })),
  {
    name: 'rooms',
    title: '5,000 rooms on three nodes',
    method:
      'Journal rooms with one member each. Memory is what is in use after a garbage collection, of all three nodes, less what as many sessions take in one room. "Idle": all connections broke, and the sessions may be resumed.',
    words: 'rooms --local 3',
    once: true,
  },
  ...[200, 400, 800].map((playing) => ({
    name: `sessions-${playing}`,
    title: `Sessions of one node, ${playing} of them playing`,
    method: `Journal rooms of 10 members, sync.rate 20. Each sends 5 moves a second. "Sessions a core carries" is what the CPU time of the node comes to at 70 % of a core.`,
    words: `sessions --local 1 --playing ${playing} ${GAME}`,
    once: true as const,
  })),
]

const HELP = `npm run figures -- [options]

  --only A,B      some sections; all are ${SECTIONS.map(({ name }) => name).join(', ')}
  --runs N        runs of each (20)
  --out FILE      where the page goes (docs/figures.md when everything is measured, else nowhere)

Needs redis-server (or valkey-server) and an otherwise quiet machine.
`
const say = (line: string): void => void process.stdout.write(`${line}\n`)

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    runs: { type: 'string', default: '20' },
    out: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

function fail(text: string): never {
  process.stderr.write(`${text}\n\n${HELP}`)
  process.exit(2)
}

/** Makes the measurement of one section. */
async function measure({ words, once }: Section, runs: string, out: string): Promise<RunResult> {
  const all = [...words.split(' '), ...(once ? [] : ['--runs', runs]), '--out', out]
  const request = parseRun(all, SCENARIOS, process.env, availableParallelism())
  if (request.kind !== 'run') throw new Error(request.kind === 'mistake' ? request.message : words)
  const { exitCode, result } = await runCommand(request.options)
  // What is measured of a run that was not asked for to the end says nothing; one with failures is told as what it is.
  if (result === undefined || result.interrupted || result.failure !== undefined) process.exit(exitCode)
  return result
}

const table = (columns: readonly string[], rows: readonly (readonly string[])[]): string =>
  [columns, columns.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')

/** `p99 ≤ 2000`, and whether it is. */
function goalOf({ goal, value, samples }: Figure): [goal: string, verdict: string] {
  if (goal === undefined) return ['', '']
  const p99 = samples?.p99 ?? value
  const isMet = value <= (goal.value ?? value) && p99 <= (goal.p99 ?? p99)
  const told = [
    ...(goal.value === undefined ? [] : [`${samples ? 'p50 ' : ''}≤ ${goal.value}`]),
    ...(goal.p99 === undefined ? [] : [`p99 ≤ ${goal.p99}`]),
  ]
  return [told.join(', '), isMet ? 'met' : '**missed**']
}

const section = ({ title, method, words }: Section, { figures, checks, failures }: RunResult): string => {
  const wrong = [
    ...checks
      .filter(({ violations = 0 }) => violations > 0)
      .map(({ name, violations = 0 }) => `${name}: ${count(violations)}`),
    ...failures.map((failure) => `${failure.code}: ${count(failure.count)}`),
  ]
  const rows = figures.map((figure) => {
    const { samples } = figure
    const more = samples ? [samples.p95, samples.p99, samples.max].map(digits) : ['', '', '']
    return [
      figure.name,
      figure.unit,
      samples ? count(samples.count) : '',
      digits(figure.value),
      ...more,
      ...goalOf(figure),
    ]
  })
  const kept =
    wrong.length === 0 ? 'No promise was broken and nothing failed.' : `Went wrong: ${wrong.join(', ')}.`
  return [
    `## ${title}`,
    `${method} \`npm run loadtest -- ${words}\``,
    table(['', 'unit', 'n', 'p50', 'p95', 'p99', 'max', 'goal', ''], rows),
    kept,
  ].join('\n\n')
}

function redisVersion(): string {
  const program = findProgram(['redis-server', 'valkey-server'], process.env.PATH)
  const { stdout = '' } = program ? spawnSync(program, ['--version'], { encoding: 'utf8' }) : {}
  return /v=(\S+)/.exec(stdout)?.[1] ?? 'unknown'
}

if (values.help) {
  say(HELP)
  process.exit(0)
}
if (!/^[1-9]\d{0,2}$/.test(values.runs)) fail(`--runs is "${values.runs}"; it may be: 1 to 999`)
const chosen =
  values.only
    ?.split(',')
    .map(
      (name) => SECTIONS.find((each) => each.name === name.trim()) ?? fail(`there is no section "${name}"`),
    ) ?? SECTIONS
const date = new Date().toISOString().slice(0, 16).replace('T', ' ')
const load = (loadavg()[0] ?? 0) / cpus().length
const folder = await mkdtemp(join(tmpdir(), 'roomful-figures-'))
const sections: string[] = []
for (const each of chosen) sections.push(section(each, await measure(each, values.runs, folder)))
await rm(folder, { recursive: true })
const page = `${[
  '# Figures',
  'What players see when processes end, and what a cluster costs. Written by `npm run figures`; do not edit, run it again.',
  `Measured ${date} UTC on one machine with ${cpus().length} cores (${cpus()[0]?.model ?? 'unknown'}), load ${load.toFixed(2)} per core before; Node ${process.version}, Redis ${redisVersion()}, roomful ${packageVersion()}. Real processes on loopback: one Redis (\`appendonly yes\`, \`appendfsync everysec\`), one control process, and nodes with the default configuration (lease 2 s) where nothing else is said. Clients, which are the SDK's, share the cores with them, so that a pause includes what they take from each other.`,
  'Pauses: a room (`sync.rate` 0) has two members at each node, who send a reliable message every 10 ms. A pause is the longest time from when a message of a member was due to its ack, from the fault on; n counts members in all runs. A percentile is a sample: the smallest that so many samples do not exceed.',
  `To repeat it: \`npm run figures\`, or some of it: \`npm run figures -- --only ${chosen[0]?.name} --runs ${values.runs}\`. It needs a machine that does nothing else.`,
  ...sections,
].join('\n\n')}\n`
say(`\n${page}`)
const out = values.out ?? (values.only === undefined ? 'docs/figures.md' : undefined)
if (out !== undefined) await writeFile(out, page)
process.exit(0)
