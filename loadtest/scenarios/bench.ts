import { type BenchOptions, startBench, type Window } from '../bench/bench.ts'
import * as option from '../option.ts'
import { defineScenario } from '../scenario.ts'

interface Kind {
  readonly name: string
  readonly meaning: string
  readonly ticks: boolean
  readonly input: BenchOptions['input']
  /** What the CPU time is divided by. */
  readonly per: 'updates' | 'inputs'
}

const KINDS: readonly Kind[] = [
  {
    name: 'updates',
    meaning: 'every player moves each tick, no inputs',
    ticks: true,
    input: undefined,
    per: 'updates',
  },
  {
    name: 'game',
    meaning: 'players send moves, rooms flush them',
    ticks: false,
    input: 'move',
    per: 'updates',
  },
  { name: 'inputs', meaning: 'inputs that change nothing', ticks: false, input: 'nudge', per: 'inputs' },
]

/**
 * What an update and an input cost the server in CPU time, beside bare `ws` that broadcasts the same number of bytes at the same rate and
 * takes the same inputs. The ratio is that of each pair of windows.
 */
export const bench = defineScenario({
  name: 'bench',
  meaning:
    'What an update and an input cost a node in CPU time, beside bare ws that sends as many bytes and takes the same inputs.',
  options: {
    rooms: option.count('rooms', 20),
    members: option.count('clients in each room', 25),
    inputs: option.count('inputs per second and client where there are inputs', 10),
    seconds: option.seconds('length of one measurement', 4),
  },
  service: 'own',
  runs: 7,

  async run(ctx, { rooms, members, inputs: rate, seconds }) {
    for (const { name, meaning, per, ...kind } of KINDS) {
      await ctx.phase(name, (ctx.runs + 1) * 2 * (seconds + 0.5) + 5, async () => {
        ctx.incident(`${name}: ${meaning}`)
        const servers = await startBench({ rooms, members, rate, ...kind })
        try {
          // The first windows compile.
          await servers.measure(seconds)
          const pairs: { roomful: number; bare: number }[] = []
          let bytes = 0
          const cost = (window: Window): number => window.cpuUs / window[per]
          while (pairs.length < ctx.runs) {
            ctx.signal.throwIfAborted()
            const { roomful, bare } = await servers.measure(seconds)
            pairs.push({ roomful: cost(roomful), bare: cost(bare) })
            bytes = roomful.bytesPerUpdate
          }
          const each = per.slice(0, -1)
          ctx.samples({
            name: `${name}: roomful / bare ws`,
            unit: '×',
            values: pairs.map(({ roomful, bare }) => roomful / bare),
          })
          for (const side of ['roomful', 'bare'] as const) {
            const values = pairs.map((pair) => pair[side])
            ctx.samples({ name: `${name}: ${side}, CPU an ${each}`, unit: 'µs', values })
          }
          ctx.figure({ name: `${name}: bytes an update`, value: bytes, unit: 'B' })
        } finally {
          await servers.close()
        }
      })
    }
  },
})
