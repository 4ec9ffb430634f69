import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { pino } from 'pino'
import { check } from '../chaos/checker/check.ts'
import { report, summary } from '../chaos/harness/report.ts'
import { MUTATIONS } from './mutations.ts'
import { SimWorld } from './world.ts'

const HELP = `npm run sim -- [options]

Real nodes and clients in simulated time, over a simulated network and store, with the faults and the checker of npm run chaos.

  --seeds A-B     the seeds of the runs (1-20)
  --seconds N     how long faults come, in simulated time (20)
  --nodes N       (3)
  --clients N     (24)
  --rooms N       (6)
  --queue N       so many more queue for matches (0)
  --direct        nodes have addresses of their own, and most clients go to that of their room
  --mutation NAME breaks every node on purpose: some seed must fail (${Object.keys(MUTATIONS).join(', ')})
  --log           the log of the nodes on standard error

Ends with 1 when a promise did not hold. Then it says how, and where the history is.
`

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1-20' },
    seconds: { type: 'string', default: '20' },
    nodes: { type: 'string', default: '3' },
    clients: { type: 'string', default: '24' },
    rooms: { type: 'string', default: '6' },
    queue: { type: 'string', default: '0' },
    direct: { type: 'boolean', default: false },
    mutation: { type: 'string' },
    log: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

const mutation = values.mutation === undefined ? undefined : MUTATIONS[values.mutation]
const say = (line: string): void => void process.stdout.write(`${line}\n`)

async function runSeed(seed: number): Promise<boolean> {
  const begun = performance.now()
  const history = await SimWorld.run({
    seed,
    seconds: Number(values.seconds),
    nodes: Number(values.nodes),
    clients: Number(values.clients),
    rooms: Number(values.rooms),
    queue: Number(values.queue),
    direct: values.direct,
    say,
    ...(mutation && { mutation }),
    ...(values.log && { log: pino({}, process.stderr) }),
  })
  const { violations, excused } = check(history)
  const result = { history, violations, excused, folder: undefined }
  say(`seed ${seed}: ${summary(result)} (${((performance.now() - begun) / 1000).toFixed(1)} s)`)
  if (violations.length === 0) return true
  const folder = await mkdtemp(join(tmpdir(), 'roomful-sim-'))
  await writeFile(join(folder, 'history.json'), JSON.stringify(history))
  say(report({ ...result, folder }, `npm run sim -- --seeds ${seed}-${seed}`))
  return false
}

async function runAll(): Promise<void> {
  const [first = 1, last = first] = values.seeds.split('-').map(Number)
  const failed: number[] = []
  for (let seed = first; seed <= last; seed++) if (!(await runSeed(seed))) failed.push(seed)
  const count = last - first + 1
  say(
    `${count - failed.length} of ${count} seeds held${failed.length > 0 ? `; failed: ${failed.join(', ')}` : ''}`,
  )
  process.exit(failed.length > 0 ? 1 : 0)
}

if (values.help) say(HELP)
else if (values.mutation !== undefined && !mutation) {
  process.stderr.write(`--mutation is ${values.mutation}\n\n${HELP}`)
  process.exitCode = 2
} else await runAll()
