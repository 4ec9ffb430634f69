import { mkdtemp, readFile, rmdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { check } from './checker/check.ts'
import type { History } from './checker/history.ts'
import { type ChaosOptions, runChaos, runSeeds, type SeedOutcome } from './harness/chaos.ts'
import { commandFor, report, summary } from './harness/report.ts'

const HELP = `npm run chaos -- [options]

Real nodes on a real Redis, clients that write everything down, faults drawn by a seed, and a checker for what must have held.

  --seed N        the seed of the faults (1)
  --seeds A-B     each of these, in a process of its own; goes on when one fails
  --parallel N    so many of them at once (1); a machine that is too busy shows as stalls, which excuse more
  --seconds N     how long faults come (120)
  --nodes N       (3)
  --clients N     (24)
  --rooms N       (6)
  --lobby N       so many more find rooms by lists, codes and reservations (6)
  --backends N    so many call rooms over control, and get their notices (3)
  --queue N       so many more queue for matches, alone or in parties (6)
  --direct        nodes have addresses of their own, and most clients go to that of their room, with connections cut on the way
  --unfenced      the store does not fence: some seed must fail; with --seeds it stops at the first that does
  --keep          keep logs and histories also when everything held
  --folder PATH   where they go (a new folder for temporary files)
  --check FILE    runs nothing, and checks the history.json of an earlier run again

Ends with 1 when a promise did not hold.
`

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    seeds: { type: 'string' },
    parallel: { type: 'string', default: '1' },
    seconds: { type: 'string', default: '120' },
    nodes: { type: 'string', default: '3' },
    clients: { type: 'string', default: '24' },
    rooms: { type: 'string', default: '6' },
    lobby: { type: 'string', default: '6' },
    backends: { type: 'string', default: '3' },
    queue: { type: 'string', default: '6' },
    direct: { type: 'boolean', default: false },
    unfenced: { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
    folder: { type: 'string' },
    check: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

const say = (line: string): void => void process.stdout.write(`${line}\n`)

function whole(name: string, text: string): number {
  const number = Number(text)
  if (Number.isInteger(number) && number >= 0) return number
  process.stderr.write(`--${name} is ${text}; it must be a whole number\n\n${HELP}`)
  process.exit(2)
}

function seedsOf(text: string): number[] {
  const [first = '', last = first] = text.split('-')
  const from = whole('seeds', first)
  return Array.from({ length: whole('seeds', last) - from + 1 }, (_, i) => from + i)
}

const newFolder = () => mkdtemp(join(tmpdir(), 'roomful-chaos-'))

async function one(): Promise<boolean> {
  const options: ChaosOptions = {
    seed: whole('seed', values.seed),
    seconds: whole('seconds', values.seconds),
    nodes: whole('nodes', values.nodes),
    clients: whole('clients', values.clients),
    rooms: whole('rooms', values.rooms),
    lobby: whole('lobby', values.lobby),
    backends: whole('backends', values.backends),
    queue: whole('queue', values.queue),
    unfenced: values.unfenced,
    direct: values.direct,
    keep: values.keep,
    folder: values.folder ?? (await newFolder()),
    say,
  }
  const result = await runChaos(options)
  const held = result.violations.length === 0
  say(report(result, commandFor(options)))
  if (process.send) {
    const outcome: SeedOutcome = { held, summary: summary(result), excused: result.excused }
    await new Promise((resolve) => process.send?.(outcome, resolve))
  }
  return held
}

async function again(file: string): Promise<boolean> {
  const history: History = JSON.parse(await readFile(file, 'utf8'))
  const verdict = check(history)
  say(report({ history, ...verdict, folder: undefined }, `npm run chaos -- --check ${file}`))
  return verdict.violations.length === 0
}

async function many(seeds: readonly number[]): Promise<boolean> {
  const folder = values.folder ?? (await newFolder())
  const { seconds, nodes, clients, rooms, lobby, queue, backends, unfenced, direct, keep } = values
  const failed = await runSeeds({
    seeds,
    parallel: Math.max(1, whole('parallel', values.parallel)),
    seconds: whole('seconds', seconds),
    command: [
      process.execPath,
      '--import',
      'tsx',
      fileURLToPath(import.meta.url),
      ...['--seconds', seconds, '--nodes', nodes, '--clients', clients, '--rooms', rooms],
      ...['--lobby', lobby, '--queue', queue, '--backends', backends],
      ...(direct ? ['--direct'] : []),
      ...(unfenced ? ['--unfenced'] : []),
      ...(keep ? ['--keep'] : []),
    ],
    folder,
    keep,
    stop_at_failure: unfenced,
    say,
  })
  // Only when there is nothing in it.
  await rmdir(folder).catch(() => {})
  return failed.length === 0
}

if (values.help) say(HELP)
else {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
  // The parent of a run of many seeds is gone.
  process.once('disconnect', () => process.exit(1))
  const { check: file, seeds } = values
  const run = file === undefined ? (seeds === undefined ? one() : many(seedsOf(seeds))) : again(file)
  process.exit((await run) ? 0 : 1)
}
