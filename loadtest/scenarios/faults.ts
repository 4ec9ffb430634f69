import type { LocalService } from '../local.ts'
import * as option from '../option-kinds.ts'
import type { Figure } from '../result.ts'
import { defineScenario, type RunContext } from '../scenario.ts'

/** Shorter than the default. The pauses do not depend on it. */
const DRAIN_SECONDS = '3'
const LEASE_SECONDS = 2
const MEMBERS_PER_NODE = 2
/** Reliable messages of each member per second. */
const RATE = 100
/** Time before the fault. Random, so that the last save of the room is not always equally old. */
const CALM_SECONDS = { least: 0.8, more: 0.7 }
/** How long members are watched after the fault. */
const WATCH_SECONDS = 3
const SETTLE_SECONDS = 20

interface Place {
  readonly owner: string
  /** A node that does not own the room. */
  readonly other: string
}

interface Fault {
  /** Resolves when the fault is over, except for `repair`. */
  strike(service: LocalService, at: Place, ctx: RunContext): Promise<void>
  /** Restarts processes after the watch: on one machine a start takes CPU time from all others. */
  repair?(service: LocalService, at: Place): Promise<void>
  /** The node with the fault; absent: none, or all. */
  readonly victim?: keyof Place
  /** Upper limit of the pause of members at other nodes, milliseconds. */
  readonly goal?: Figure['goal'] | undefined
}

const killed = (victim: keyof Place, goal?: Figure['goal']): Fault => ({
  strike: (service, at) => service.process(at[victim]).kill(),
  repair: (service, at) => service.process(at[victim]).start(),
  victim,
  goal,
})

const FAULTS = {
  none: { strike: async () => undefined },
  kill: killed('owner', { value: 600, p99: 2000 }),
  edge: killed('other'),
  stop: {
    async strike(service, { owner }, ctx) {
      service.process(owner).pause()
      await ctx.pass(2 * LEASE_SECONDS)
      service.process(owner).resume()
    },
    victim: 'owner',
  },
  drain: {
    async strike(service, { owner }, ctx) {
      await service.end(owner)
      await ctx.pass(LEASE_SECONDS)
    },
    repair: (service, { owner }) => service.process(owner).start(),
    victim: 'owner',
    goal: { p99: 100 },
  },
  rolling: {
    async strike(service) {
      for (const node of service.nodes) await service.restart(node)
    },
  },
  redis: {
    async strike(service) {
      await service.end('redis')
      await service.process('redis').start()
    },
  },
  'redis-kill': {
    async strike(service) {
      await service.process('redis').kill()
      await service.process('redis').start()
    },
  },
} as const satisfies Readonly<Record<string, Fault>>
type FaultName = keyof typeof FAULTS

/** Pauses when a process ends, hangs or is replaced. */
export const faults = defineScenario({
  name: 'faults',
  meaning:
    'The pause that members of a room see when a process ends, hangs or is replaced: two at each node, who send a message every 10 ms.',
  options: {
    fault: option.oneOf('what is done', Object.keys(FAULTS) as FaultName[], 'kill'),
  },
  service: 'local',
  local: { direct: true, env: { DRAIN_SECONDS } },
  runs: 5,

  async run(ctx, { fault: name }) {
    const { clients, local } = ctx
    const fault: Fault = FAULTS[name]
    const elsewhere: number[] = []
    const there: number[] = []
    const took: number[] = []
    const count = local.nodes.length * MEMBERS_PER_NODE
    for (let run = 1; run <= ctx.runs; run++)
      await ctx.phase(`run ${run}`, 8, async () => {
        const room = `run-${run}`
        await clients.connect({ count, perSecond: 100 })
        await clients.join({ rooms: 1, perSecond: 100, room })
        await clients.start({ rate: RATE })
        await ctx.pass(CALM_SECONDS.least + Math.random() * CALM_SECONDS.more)
        const owner = await local.ownerOf(`${ctx.roomType}:${room}-0`)
        const at = { owner, other: local.nodes.find((node) => node !== owner) ?? owner }
        await clients.markPauses()
        const began = performance.now()
        await fault.strike(local, at, ctx)
        took.push(performance.now() - began)
        await ctx.pass(WATCH_SECONDS)
        await clients.stop()
        await clients.settle({ withinSeconds: SETTLE_SECONDS })
        const pauses = await clients.takePauses()
        await clients.leave()
        await fault.repair?.(local, at)
        // Client i connects to node i mod n first.
        const victim = fault.victim && at[fault.victim]
        for (const { number, ms } of pauses) {
          const home = local.nodes[number % local.nodes.length]
          ;(home === victim ? there : elsewhere).push(ms)
        }
      })
    ctx.samples({
      name: fault.victim ? 'pause of members at other nodes' : 'pause of all members',
      unit: 'ms',
      values: elsewhere,
      ...(fault.goal && { goal: fault.goal }),
    })
    ctx.samples({ name: 'pause of members at the node', unit: 'ms', values: there })
    ctx.samples({ name: 'time that it took', unit: 'ms', values: took })
  },
})
