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

Runs real nodes on a real Redis with clients that record everything. A seed decides the faults. A checker then checks the guarantees.

  --seed N        seed of the faults (1)
  --seeds A-B     runs each of these seeds in a separate process, and continues after a failure
  --parallel N    parallel seeds (1); an overloaded machine causes stalls, which excuse more
  --seconds N     time in which faults start (120)
  --nodes N       nodes (3)
  --clients N     clients (24)
  --rooms N       rooms (6)
  --lobby N       additional players who find rooms by lists, codes and reservations (6)
  --backends N    backends that call rooms through the control plane and receive notices (3)
  --queue N       additional players who queue for matches, alone or in parties (6)
  --direct        nodes have separate addresses; most clients move to the node of their room, and some connections are cut on the way
  --unfenced      the store does not fence: some seed must fail; with --seeds, stops at the first failure
  --keep          keeps logs and histories even if every guarantee held
  --folder PATH   folder of logs and histories (a new temporary folder)
  --check FILE    runs nothing; checks the history.json of an earlier run again

Exits with 1 when a guarantee did not hold.
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
  process.stderr.write(`--${name} is ${text}; use a whole number from 0\n\n${HELP}`)
  process.exit(2)
}

function seedsOf(text: string): number[] {
  const [first = '', last = first] = text.split('-')
  const from = whole('seeds', first)
  return Array.from({ length: whole('seeds', last) - from + 1 }, (_, i) => from + i)
}

const newFolder = () => mkdtemp(join(tmpdir(), 'roomful-chaos-'))

async function runOne(): Promise<boolean> {
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

async function checkAgain(file: string): Promise<boolean> {
  const history: History = JSON.parse(await readFile(file, 'utf8'))
  const verdict = check(history)
  say(report({ history, ...verdict, folder: undefined }, `npm run chaos -- --check ${file}`))
  return verdict.violations.length === 0
}

async function runMany(seeds: readonly number[]): Promise<boolean> {
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
    stopAtFailure: unfenced,
    say,
  })
  // Fails if the folder has the reports of failed seeds. They stay.
  await rmdir(folder).catch(() => {})
  return failed.length === 0
}

if (values.help) say(HELP)
else {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
  // The parent process, which runs many seeds, has ended.
  process.once('disconnect', () => process.exit(1))
  const { check: file, seeds } = values
  const run = file !== undefined ? checkAgain(file) : seeds === undefined ? runOne() : runMany(seedsOf(seeds))
  process.exit((await run) ? 0 : 1)
}
