import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { pino } from 'pino'
import { check } from '../chaos/checker/check.ts'
import { report, summary } from '../chaos/harness/report.ts'
import { FAULTS, type Fault, violationsOf } from './mutations.ts'
import { SimWorld } from './world.ts'

const HELP = `npm run sim -- [options]

Runs real nodes and clients in simulated time, over a simulated network and store, with the faults and the checker of npm run chaos.

  --seeds A-B     seeds of the runs (1-20)
  --seconds N     simulated time in which faults start (20)
  --nodes N       nodes (3)
  --clients N     clients (24)
  --rooms N       rooms (6)
  --queue N       additional players who queue for matches (0)
  --lobby N       additional players who find rooms by lists, codes and reservations (0)
  --backends N    backends that call rooms through the control plane (0)
  --direct        nodes have separate addresses, and most clients move to the node of their room
  --mutation NAME all nodes make this mistake: some seed must fail
  --mutations     prints a table with the first seed that finds each mistake, in a smaller world.
                  Options: --mutation NAME,NAME (all mistakes), --seeds A-B (1-200)
  --log           prints the log of the nodes on standard error

Mistakes: ${Object.keys(FAULTS).join(', ')}

Exits with 1 when a guarantee did not hold, or when --mutations does not find a mistake. Prints each violation, and the folder of the history.
`

const { values } = parseArgs({
  options: {
    seeds: { type: 'string' },
    seconds: { type: 'string', default: '20' },
    nodes: { type: 'string', default: '3' },
    clients: { type: 'string', default: '24' },
    rooms: { type: 'string', default: '6' },
    queue: { type: 'string', default: '0' },
    lobby: { type: 'string', default: '0' },
    backends: { type: 'string', default: '0' },
    mutations: { type: 'boolean', default: false },
    direct: { type: 'boolean', default: false },
    mutation: { type: 'string' },
    log: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

const faults: Readonly<Record<string, Fault>> = FAULTS
const chosen = values.mutation?.split(',') ?? (values.mutations ? Object.keys(faults) : [])
const unknown = chosen.find((name) => !faults[name])
const say = (line: string): void => void process.stdout.write(`${line}\n`)

const seedsOr = (range: string): [first: number, last: number] => {
  const [first = 1, last = first] = (values.seeds ?? range).split('-').map(Number)
  return [first, last]
}

async function runSeed(seed: number): Promise<boolean> {
  const begun = performance.now()
  const fault = faults[chosen[0] ?? '']
  const history = await SimWorld.run({
    seed,
    seconds: Number(values.seconds),
    nodes: Number(values.nodes),
    clients: Number(values.clients),
    rooms: Number(values.rooms),
    queue: Number(values.queue),
    lobby: Number(values.lobby),
    backends: Number(values.backends),
    direct: values.direct,
    say,
    ...fault?.players,
    ...(fault && { mutation: fault }),
    ...(values.log && { log: pino({}, process.stderr) }),
  })
  fault?.plant?.(history as never)
  const { violations, excused } = check(history)
  const result = { history, violations, excused, folder: undefined }
  say(`seed ${seed}: ${summary(result)} (${((performance.now() - begun) / 1000).toFixed(1)} s)`)
  if (violations.length === 0) return true
  const folder = await mkdtemp(join(tmpdir(), 'roomful-sim-'))
  await writeFile(join(folder, 'history.json'), JSON.stringify(history))
  say(
    report(
      { ...result, folder },
      `npm run sim -- ${process.argv.slice(2).join(' ')} --seeds ${seed}-${seed}`,
    ),
  )
  return false
}

async function runAll(): Promise<void> {
  const [first, last] = seedsOr('1-20')
  const failed: number[] = []
  for (let seed = first; seed <= last; seed++) if (!(await runSeed(seed))) failed.push(seed)
  const count = last - first + 1
  say(
    `${count - failed.length} of ${count} seeds held${failed.length > 0 ? `; failed: ${failed.join(', ')}` : ''}`,
  )
  process.exit(failed.length > 0 ? 1 : 0)
}

/** Prints each mistake with the first seed that shows it, as rows of the table in README.md. */
async function findAll(): Promise<void> {
  const [first, last] = seedsOr('1-200')
  const missed: string[] = []
  for (const name of chosen) {
    const { what, breaks } = faults[name]!
    const seeds = new Map<string, number>()
    for (let seed = first; seed <= last && seeds.size < breaks.length; seed++)
      for (const broken of await violationsOf(faults[name]!, seed))
        if (breaks.includes(broken) && !seeds.has(broken)) seeds.set(broken, seed)
    const rules = breaks.map((rule) => `\`${rule}\` ${seeds.get(rule) ?? 'not found'}`)
    if (seeds.size < breaks.length) missed.push(name)
    say(`| \`${name}\` | ${what} | ${rules.join(', ')} |`)
  }
  say(
    `${chosen.length - missed.length} of ${chosen.length} mistakes found${missed.length > 0 ? `; not: ${missed.join(', ')}` : ''}`,
  )
  process.exit(missed.length > 0 ? 1 : 0)
}

if (values.help) say(HELP)
else if (unknown !== undefined) {
  process.stderr.write(`--mutation is ${unknown}: use one of the names below\n\n${HELP}`)
  process.exitCode = 2
} else await (values.mutations ? findAll() : runAll())
