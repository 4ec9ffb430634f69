import type { LocalService } from '../local.ts'
import * as option from '../option-kinds.ts'
import type { Figure } from '../result.ts'
import { defineScenario, type RunContext } from '../scenario.ts'

/** Measurements: the cost of messages, rooms and sessions, and the pauses when a process ends. */

const KIB = 1024
const MIB = 1024 * 1024
/** Time in which nodes finish their work after a burst. */
const CALM_SECONDS = 3
/** Utilization of a core that players do not notice. */
const FULL = 0.7

/** Returns the CPU seconds per second of a node. */
const ofNode = ({ local }: RunContext, { cpu }: { cpu(of: readonly string[]): number }): number =>
  cpu(local.nodes) / local.nodes.length

/** Returns the memory of all nodes together, after a garbage collection. */
async function memoryOf({ local }: RunContext): Promise<{ used: number; rss: number }> {
  const total = { used: 0, rss: 0 }
  for (const node of local.nodes) {
    const { used, rss } = await local.memory(node)
    total.used += used
    total.rss += rss
  }
  return total
}

/** The cost of a message that another node forwards. */
export const hop = defineScenario({
  name: 'hop',
  meaning:
    'Round trips of two members of one room, who take turns: one at the owner of the room, and one at another node.',
  options: { messages: option.count('round trips of each in a run', 250) },
  local: { direct: true },
  runs: 20,

  async run(ctx, { messages }) {
    const { clients, local } = ctx
    await clients.connect({ count: 2, perSecond: 10 })
    await clients.join({ rooms: 1, perSecond: 10, room: 'hop' })
    const owner = local.nodes.indexOf(await local.ownerOf(`${ctx.roomType}:hop-0`))
    if (owner > 1) throw new Error('a third node was given the room: run it again')
    await ctx.phase('warm', 1, () => clients.loop({ messages: 500 }))
    const times: { near: number[]; far: number[] } = { near: [], far: [] }
    for (let run = 1; run <= ctx.runs; run++)
      for (const side of ['near', 'far'] as const) {
        const of = side === 'near' ? owner : 1 - owner
        await ctx.phase(`${side} ${run}`, 0.3, () => clients.loop({ messages, of }))
        times[side].push(ctx.timed('rtt', `${side} ${run}`).p50)
      }
    ctx.samples({ name: 'round trip at the owner, median of a run', unit: 'ms', values: times.near })
    ctx.samples({ name: 'round trip at another node, median of a run', unit: 'ms', values: times.far })
    const values = times.far.map((ms, run) => ms - times.near[run]!)
    ctx.samples({ name: 'added by the hop', unit: 'ms', values, goal: { value: 1 } })
  },
})

/** Throughput of commits. */
export const commits = defineScenario({
  name: 'commits',
  meaning: 'Commits per second of one node: a member in each room sends one message after the other.',
  options: { rooms: option.count('rooms', 64) },
  local: { direct: true },
  runs: 20,

  async run(ctx, { rooms: count }) {
    const { clients, local } = ctx
    const [node = ''] = local.nodes
    const windows: number[] = []
    await clients.connect({ count, perSecond: 200 })
    await clients.join({ rooms: count, perSecond: 200 })
    await ctx.phase('commits', ctx.runs + 2, async () => {
      const looping = clients.loop({ seconds: ctx.runs + 4 })
      await ctx.pass(2)
      const usage = await ctx.local.usageDuring(async () => {
        for (let run = 0; run < ctx.runs; run++) {
          const [from, before] = [performance.now(), await local.metric(node, COMMITS)]
          await ctx.pass(1)
          const made = (await local.metric(node, COMMITS)) - before
          windows.push((made * 1000) / (performance.now() - from))
        }
      })
      await looping
      ctx.samples({ name: 'commits', unit: '/s', values: windows })
      ctx.figure({ name: 'CPU of the node', value: 100 * ofNode(ctx, usage), unit: '%' })
      ctx.figure({ name: 'CPU of Redis', value: 100 * usage.redis, unit: '%' })
      ctx.figure({ name: 'CPU of the clients', value: 100 * usage.clients, unit: '%' })
    })
  },
})
const COMMITS = 'service_commit_duration_seconds_count'

/** The cost of idle rooms. */
export const rooms = defineScenario({
  name: 'rooms',
  meaning: 'Cost of a room while its only member is connected, and after the connections are lost.',
  options: {
    rooms: option.count('rooms, with one member each', 5000),
    seconds: option.seconds('time for which each state is measured', 20),
  },
  local: { direct: true, env: { SESSION_RESUME_TTL: '3600' } },
  runs: 1,

  async run(ctx, { rooms: count, seconds }) {
    const { clients } = ctx
    const come = async (number: number, room: string, rooms: number): Promise<void> => {
      await clients.idle({ count: number, perSecond: 1000, room, rooms })
      await ctx.pass(CALM_SECONDS)
    }
    const watch = async (when: string): Promise<number> => {
      const { used } = await memoryOf(ctx)
      const usage = await ctx.local.usageDuring(() => ctx.pass(seconds))
      ctx.figure({ name: `${when}: Redis commands`, value: usage.commands, unit: '/s' })
      ctx.figure({ name: `${when}: CPU of a node`, value: 100 * ofNode(ctx, usage), unit: '%' })
      ctx.figure({ name: `${when}: CPU of Redis`, value: 100 * usage.redis, unit: '%' })
      return used
    }
    const abandoned = async (): Promise<void> => {
      await clients.abandon()
      await ctx.pass(CALM_SECONDS)
    }
    // Compilation and caches for the first rooms are not part of their cost.
    await ctx.phase('warm', 5, () => come(Math.ceil(count / 10), 'warm', count))
    await clients.leave()
    await ctx.pass(CALM_SECONDS)
    const { used: before } = await memoryOf(ctx)
    // The same sessions in one room: their part of the cost.
    await ctx.phase('sessions', count / 500, () => come(count, 'all', 1))
    const sessions = (await memoryOf(ctx)).used - before
    await abandoned()
    const idleSessions = await ctx.phase('no rooms', seconds, () => watch('no rooms'))
    const began = performance.now()
    await ctx.phase('open rooms', count / 500, () => come(count, 'idle', count))
    const took = (performance.now() - began) / 1000 - CALM_SECONDS
    ctx.figure({ name: 'rooms opened', value: count / took, unit: '/s' })
    const connected = await ctx.phase('connected', seconds, () => watch('members connected'))
    await abandoned()
    const idle = await ctx.phase('idle', seconds, () => watch('idle'))
    const ofRoom = (used: number, ofSessions: number): number =>
      (used - idleSessions - ofSessions) / count / KIB
    ctx.figure({ name: 'a room, member connected', value: ofRoom(connected, sessions), unit: 'KiB' })
    ctx.figure({
      name: 'an idle room',
      value: ofRoom(idle, idleSessions - before),
      unit: 'KiB',
      goal: { value: 20 },
    })
  },
})

/** The cost of sessions. */
export const sessions = defineScenario({
  name: 'sessions',
  meaning: 'Cost of sessions for their node, idle and while they send.',
  options: {
    idle: option.count('idle sessions', 5000),
    playing: option.count('sending sessions', 400),
    members: option.count('members of a room', 10),
    rate: option.decimal('unreliable messages each sends per second', 5),
    seconds: option.seconds('how long each state is watched', 15),
  },
  local: { direct: true, env: { SESSION_RESUME_TTL: '1' } },
  runs: 1,

  async run(ctx, { idle, playing: count, members, rate, seconds }) {
    const { clients } = ctx
    const roomsOf = (sessions: number): number => Math.ceil(sessions / members)
    const come = async (number: number, room: string): Promise<void> => {
      await clients.idle({ count: number, perSecond: 1000, room, rooms: roomsOf(number) })
      await ctx.pass(CALM_SECONDS)
    }
    // Compilation and caches for the first sessions are not part of their cost.
    await ctx.phase('warm', 4, () => come(idle / 10, 'warm'))
    await clients.leave()
    await ctx.pass(CALM_SECONDS)
    const before = await memoryOf(ctx)
    const empty = await ctx.phase('empty', seconds, () => ctx.local.usageDuring(() => ctx.pass(seconds)))
    await ctx.phase('connect', idle / 500, () => come(idle, 'idle'))
    const after = await memoryOf(ctx)
    await ctx.phase('idle', seconds, async () => {
      const usage = await ctx.local.usageDuring(() => ctx.pass(seconds))
      const each = 10_000 / idle
      const of = (what: string): string => `10,000 idle sessions: ${what}`
      ctx.figure({ name: of('in use'), value: (each * (after.used - before.used)) / MIB, unit: 'MiB' })
      ctx.figure({ name: of('resident'), value: (each * (after.rss - before.rss)) / MIB, unit: 'MiB' })
      ctx.figure({
        name: of('CPU'),
        value: 100 * each * (ofNode(ctx, usage) - ofNode(ctx, empty)),
        unit: '%',
      })
    })
    await clients.leave()
    await clients.connect({ count, perSecond: 200 })
    await clients.join({ rooms: roomsOf(count), perSecond: 200, room: 'play' })
    await clients.start({ rate, reliable: false })
    await ctx.pass(CALM_SECONDS)
    await ctx.phase('play', seconds, async () => {
      const usage = await ctx.local.usageDuring(() => ctx.pass(seconds))
      const of = (what: string): string => `${count} sessions that play: ${what}`
      ctx.figure({ name: of('CPU of the node'), value: 100 * ofNode(ctx, usage), unit: '%' })
      ctx.figure({ name: of('CPU of Redis'), value: 100 * usage.redis, unit: '%' })
      ctx.figure({
        name: of('calls of Redis a room'),
        value: usage.evals / roomsOf(count),
        unit: '/s',
      })
      ctx.figure({
        name: of('sessions a core carries'),
        value: (FULL * count) / ofNode(ctx, usage),
        unit: '',
      })
    })
    await clients.stop()
  },
})

/** Shorter than the default. The pauses do not depend on it. */
const DRAIN_SECONDS = '3'
const LEASE_SECONDS = 2
const MEMBERS_PER_NODE = 2
/** Reliable messages of each member per second. */
const RATE = 100
/** Time before the fault. It is random, so that the age of the last save varies. */
const BEFORE_SECONDS = { least: 0.8, more: 0.7 }
/** Time for which members are watched after the fault. */
const WATCH_SECONDS = 3
const ANSWERS_SECONDS = 20

interface Place {
  readonly owner: string
  /** A node that does not own the room. */
  readonly other: string
}

interface Fault {
  /** Resolves when the fault has ended, except for `repair`. */
  strike(service: LocalService, at: Place, ctx: RunContext): Promise<void>
  /** Restarts processes after the watch, because on one machine a start takes CPU time from all others. */
  repair?(service: LocalService, at: Place): Promise<void>
  /** The node with the fault. Absent: none, or all. */
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
    'Pause of a room’s members when a process ends, hangs or is replaced. Two members at each node send a message every 10 ms.',
  options: {
    fault: option.oneOf('the fault', Object.keys(FAULTS) as FaultName[], 'kill'),
  },
  timings: ['resume', 'pause'],
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
        await ctx.pass(BEFORE_SECONDS.least + Math.random() * BEFORE_SECONDS.more)
        const owner = await local.ownerOf(`${ctx.roomType}:${room}-0`)
        const at = { owner, other: local.nodes.find((node) => node !== owner) ?? owner }
        await clients.markPauses()
        const began = performance.now()
        await fault.strike(local, at, ctx)
        took.push(performance.now() - began)
        await ctx.pass(WATCH_SECONDS)
        await clients.stop()
        await clients.awaitAnswers({ withinSeconds: ANSWERS_SECONDS })
        const pauses = (await clients.takePauses()).flat()
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
