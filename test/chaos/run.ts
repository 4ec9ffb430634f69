import { parseArgs } from 'node:util'
import { type ChaosOptions, runChaos } from './harness/chaos.ts'
import { report } from './harness/report.ts'

const HELP = `npm run chaos -- [options]

Real nodes on a real Redis, clients that write everything down, faults drawn by a seed, and a checker for what must have held.

  --seed N        the seed of the faults (1)
  --seeds A-B     one run after the other, for each seed
  --seconds N     how long faults come (120)
  --nodes N       (3)
  --clients N     (24)
  --rooms N       (6)
  --unfenced      the store does not fence: some seed must fail
  --keep          keep logs and histories also when everything held

Ends with 1 when a promise did not hold. With --unfenced it stops at the first seed that shows it.
`
/** A run that is so much longer than its faults hangs. */
const MOST_SECONDS_MORE = 180

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    seeds: { type: 'string' },
    seconds: { type: 'string', default: '120' },
    nodes: { type: 'string', default: '3' },
    clients: { type: 'string', default: '24' },
    rooms: { type: 'string', default: '6' },
    unfenced: { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
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

function seedsOf(text: string | undefined): number[] {
  if (text === undefined) return [whole('seed', values.seed)]
  const [first = '', last = first] = text.split('-')
  const from = whole('seeds', first)
  return Array.from({ length: whole('seeds', last) - from + 1 }, (_, i) => from + i)
}

async function main(): Promise<number> {
  const failed: number[] = []
  const seeds = seedsOf(values.seeds)
  for (const seed of seeds) {
    const options: ChaosOptions = {
      seed,
      seconds: whole('seconds', values.seconds),
      nodes: whole('nodes', values.nodes),
      clients: whole('clients', values.clients),
      rooms: whole('rooms', values.rooms),
      unfenced: values.unfenced,
      doors: 'any',
      keep: values.keep,
      say,
    }
    const watchdog = setTimeout(
      () => {
        say(`seed ${seed} hangs`)
        process.exit(1)
      },
      (options.seconds + MOST_SECONDS_MORE) * 1000,
    )
    const result = await runChaos(options)
    clearTimeout(watchdog)
    say(report(result, options))
    if (result.violations.length > 0) failed.push(seed)
    if (failed.length > 0 && values.unfenced) break
  }
  if (seeds.length > 1) say(`${seeds.length} seeds, failed: ${failed.join(', ') || 'none'}`)
  return failed.length > 0 ? 1 : 0
}

if (values.help) say(HELP)
else {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
  process.exit(await main())
}
