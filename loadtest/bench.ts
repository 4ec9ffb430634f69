import { mkdir, writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { dirname } from 'node:path'
import { parseArgs } from 'node:util'
import { BenchControl } from './bench/control.ts'
import { Load } from './bench/load.ts'
import { type InputKind, joinBare, joinRoomful } from './bench/players.ts'
import { median, table } from './bench/report.ts'
import { canPin, ServerUnderTest } from './bench/server-under-test.ts'

/**
 * `npm run bench`: what an update and an input cost the server in CPU time, beside bare `ws` that broadcasts the same number of bytes at
 * the same rate and takes the same inputs, in the same run. The two servers are measured in turn, round by round, so that a machine
 * that speeds up or slows down does so for both; the ratio is that of each round's pair, and the median of the rounds is reported.
 */
const HELP = `npm run bench -- [options]

  --rooms N      rooms (20)
  --members N    clients in each room (25)
  --inputs N     inputs per second and client where the scenario has inputs (10)
  --rounds N     rounds of each scenario (7)
  --seconds N    length of one measurement (4)
  --json FILE    where the figures go (coverage/bench.json)`

interface Scenario {
  readonly name: string
  readonly meaning: string
  readonly ticks: boolean
  readonly inputs: InputKind | undefined
  /** What the CPU time is divided by. */
  readonly per: 'update' | 'input'
}

const SCENARIOS: readonly Scenario[] = [
  {
    name: 'updates',
    meaning: 'every player moves each tick, no inputs',
    ticks: true,
    inputs: undefined,
    per: 'update',
  },
  {
    name: 'game',
    meaning: 'players send moves, rooms flush them',
    ticks: false,
    inputs: 'move',
    per: 'update',
  },
  { name: 'inputs', meaning: 'inputs that change nothing', ticks: false, inputs: 'nudge', per: 'input' },
]

interface Figure {
  readonly cpu_us: number
  readonly updates: number
  readonly inputs: number
  readonly bytes_per_update: number
}

const { values } = parseArgs({
  options: {
    rooms: { type: 'string', default: '20' },
    members: { type: 'string', default: '25' },
    inputs: { type: 'string', default: '10' },
    rounds: { type: 'string', default: '7' },
    seconds: { type: 'string', default: '4' },
    json: { type: 'string', default: 'coverage/bench.json' },
    help: { type: 'boolean', default: false },
  },
})
const say = (line: string) => process.stdout.write(`${line}\n`)
if (values.help) {
  say(HELP)
  process.exit(0)
}
const [rooms, members, rate, rounds, seconds] = [
  values.rooms,
  values.members,
  values.inputs,
  values.rounds,
  values.seconds,
].map(positive) as [number, number, number, number, number]

function positive(text: string | undefined): number {
  const number = Number(text)
  if (Number.isInteger(number) && number > 0) return number
  say(`"${text}" is not a positive whole number.\n\n${HELP}`)
  process.exit(2)
}

say(
  `${rooms} rooms × ${members} clients × 20 Hz, ${rounds} rounds of ${seconds} s, ${cpus().length} cores, Node ${process.version}${canPin() ? ', server on core 0' : ''}`,
)
const control = await BenchControl.start()
const results = []
for (const scenario of SCENARIOS) results.push(await measure(scenario))
await control.stop()

const columns = ['scenario', 'per', 'roomful µs', 'bare ws µs', 'ratio', 'min–max', 'bytes/update']
say('')
say(
  table(
    columns,
    results.map((r) => [
      r.scenario,
      r.per,
      r.roomful_us.toFixed(1),
      r.bare_us.toFixed(1),
      r.ratio.toFixed(2),
      `${r.ratio_min.toFixed(2)}–${r.ratio_max.toFixed(2)}`,
      r.bytes_per_update.toFixed(0),
    ]),
  ),
)
await mkdir(dirname(values.json), { recursive: true })
await writeFile(
  values.json,
  `${JSON.stringify({ rooms, members, inputs_per_second: rate, rounds, seconds, node: process.version, results }, undefined, 2)}\n`,
)
say(`\nCPU-µs of the server process, user and system. Written to ${values.json}.`)

/** One scenario: both servers with their clients connected all the time, measured in turn. */
async function measure(scenario: Scenario) {
  const roomful = await ServerUnderTest.start('./roomful-server.ts', {
    BENCH_CONTROL_URL: control.url,
    BENCH_INTERNAL_TOKEN: control.internal_token,
    BENCH_TICK: scenario.ticks ? '1' : '0',
  })
  const room_type = scenario.ticks ? 'bench-tick' : 'bench'
  const ours = []
  for (let i = 0; i < rooms * members; i++) {
    const room = { room_type, key: `r${i % rooms}` }
    ours.push(await joinRoomful(roomful.port, await control.credentials(), room, scenario.inputs ?? 'move'))
  }
  const ourLoad = new Load(ours)
  const inputs = scenario.inputs === undefined ? 0 : rate
  const window = async (server: ServerUnderTest, load: Load): Promise<Figure> => {
    await load.run(0.5, inputs)
    const before = await server.sample()
    const received = await load.run(seconds, inputs)
    const after = await server.sample()
    return {
      cpu_us: after.cpu_us - before.cpu_us,
      updates: received.updates,
      inputs: after.inputs - before.inputs,
      bytes_per_update: received.bytes / Math.max(1, received.updates),
    }
  }
  // The first window of roomful tells how many bytes the baseline has to send.
  const { bytes_per_update } = await window(roomful, ourLoad)
  const bare = await ServerUnderTest.start('./bare-server.ts')
  const theirs = []
  for (let i = 0; i < rooms * members; i++)
    theirs.push(await joinBare(bare.port, `r${i % rooms}`, scenario.inputs ?? 'move'))
  const theirLoad = new Load(theirs)

  const cost = (figure: Figure) => figure.cpu_us / figure[scenario.per === 'input' ? 'inputs' : 'updates']
  const pairs: { roomful: number; bare: number }[] = []
  for (let round = 1; round <= rounds; round++) {
    process.stdout.write(`\r${scenario.name}: ${scenario.meaning} — round ${round} of ${rounds} `)
    const ourFigure = await window(roomful, ourLoad)
    if (scenario.per === 'update') bare.payload(Math.round(ourFigure.bytes_per_update))
    const theirFigure = await window(bare, theirLoad)
    bare.payload(0)
    pairs.push({ roomful: cost(ourFigure), bare: cost(theirFigure) })
  }
  say('')
  await Promise.all([ourLoad.close(), theirLoad.close()])
  await Promise.all([roomful.stop(), bare.stop()])
  const ratios = pairs.map((pair) => pair.roomful / pair.bare)
  return {
    scenario: scenario.name,
    per: scenario.per,
    roomful_us: median(pairs.map((pair) => pair.roomful)),
    bare_us: median(pairs.map((pair) => pair.bare)),
    ratio: median(ratios),
    ratio_min: Math.min(...ratios),
    ratio_max: Math.max(...ratios),
    bytes_per_update,
  }
}
