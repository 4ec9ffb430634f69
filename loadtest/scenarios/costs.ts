import * as option from '../option-kinds.ts'
import { defineScenario, type RunContext } from '../scenario.ts'

/** Measurements of the cost of messages, rooms and sessions. */

const KIB = 1024
const MIB = 1024 * 1024
/** After a burst, nodes finish their work within this time. */
const CALM_SECONDS = 3
/** Utilisation of a core that players do not notice. */
const FULL = 0.7

/** CPU time of a node, of Redis and of the clients, and Redis commands, all per second, while `work` runs. */
async function usageDuring(ctx: RunContext, work: () => Promise<unknown>) {
  const { local } = ctx
  const read = async () => {
    const cpu = await local.redisInfo('cpu')
    const stats = [...(await local.redisInfo('commandstats'))].filter(([name]) => name !== 'cmdstat_info')
    const calls = (text: string): number => Number(/calls=(\d+)/.exec(text)?.[1] ?? 0)
    const { user, system } = process.cpuUsage()
    const nodes = local.nodes.map((node) => local.metric(node, 'service_process_cpu_seconds_total'))
    return {
      at: performance.now() / 1000,
      nodes: (await Promise.all(nodes)).reduce((sum, seconds) => sum + seconds, 0) / local.nodes.length,
      redis: Number(cpu.get('used_cpu_user') ?? 0) + Number(cpu.get('used_cpu_sys') ?? 0),
      clients: (user + system) / 1e6,
      commands: stats.reduce((sum, [, text]) => sum + calls(text), 0),
      evals: calls(stats.find(([name]) => name === 'cmdstat_evalsha')?.[1] ?? ''),
    }
  }
  const before = await read()
  await work()
  const after = await read()
  const seconds = Math.max(after.at - before.at, 0.001)
  const rate = (of: keyof typeof before): number => (after[of] - before[of]) / seconds
  return {
    nodes: rate('nodes'),
    redis: rate('redis'),
    clients: rate('clients'),
    commands: rate('commands'),
    evals: rate('evals'),
  }
}

/** Memory of all nodes together, after a garbage collection. */
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
    'Round trips of two members of one room, one at the node that owns it and one at another, who take turns.',
  options: { messages: option.count('round trips of each in a run', 250) },
  service: 'local',
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
  service: 'local',
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
      const usage = await usageDuring(ctx, async () => {
        for (let run = 0; run < ctx.runs; run++) {
          const [from, before] = [performance.now(), await local.metric(node, COMMITS)]
          await ctx.pass(1)
          const made = (await local.metric(node, COMMITS)) - before
          windows.push((made * 1000) / (performance.now() - from))
        }
      })
      await looping
      ctx.samples({ name: 'commits', unit: '/s', values: windows })
      ctx.figure({ name: 'CPU of the node', value: 100 * usage.nodes, unit: '%' })
      ctx.figure({ name: 'CPU of Redis', value: 100 * usage.redis, unit: '%' })
      ctx.figure({ name: 'CPU of the clients', value: 100 * usage.clients, unit: '%' })
    })
  },
})
const COMMITS = 'service_commit_duration_seconds_count'

/** The cost of idle rooms. */
export const rooms = defineScenario({
  name: 'rooms',
  meaning: 'What a room costs while its one member is connected, and after the connections broke.',
  options: {
    rooms: option.count('rooms, with one member each', 5000),
    seconds: option.seconds('how long each state is watched', 20),
  },
  service: 'local',
  local: { direct: true, env: { SESSION_RESUME_TTL: '3600' } },
  runs: 1,

  async run(ctx, { rooms: count, seconds }) {
    const { clients } = ctx
    const come = async (number: number, room: string, rooms: number): Promise<void> => {
      await clients.watch({ count: number, perSecond: 1000, room, rooms })
      await ctx.pass(CALM_SECONDS)
    }
    const watch = async (when: string): Promise<number> => {
      const { used } = await memoryOf(ctx)
      const usage = await usageDuring(ctx, () => ctx.pass(seconds))
      ctx.figure({ name: `${when}: Redis commands`, value: usage.commands, unit: '/s' })
      ctx.figure({ name: `${when}: CPU of a node`, value: 100 * usage.nodes, unit: '%' })
      ctx.figure({ name: `${when}: CPU of Redis`, value: 100 * usage.redis, unit: '%' })
      return used
    }
    const abandoned = async (): Promise<void> => {
      await clients.abandon()
      await ctx.pass(CALM_SECONDS)
    }
    // Code and caches for the first rooms are not part of their cost.
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
  meaning: 'What sessions cost the node they are at, idle and while they play.',
  options: {
    idle: option.count('sessions that only watch', 5000),
    playing: option.count('sessions that play', 400),
    members: option.count('members of a room', 10),
    rate: option.decimal('unreliable messages each sends per second', 5),
    seconds: option.seconds('how long each state is watched', 15),
  },
  service: 'local',
  local: { direct: true, env: { SESSION_RESUME_TTL: '1' } },
  runs: 1,

  async run(ctx, { idle, playing: count, members, rate, seconds }) {
    const { clients } = ctx
    const roomsOf = (sessions: number): number => Math.ceil(sessions / members)
    const come = async (number: number, room: string): Promise<void> => {
      await clients.watch({ count: number, perSecond: 1000, room, rooms: roomsOf(number) })
      await ctx.pass(CALM_SECONDS)
    }
    // Code and caches for the first sessions are not part of their cost.
    await ctx.phase('warm', 4, () => come(idle / 10, 'warm'))
    await clients.leave()
    await ctx.pass(CALM_SECONDS)
    const before = await memoryOf(ctx)
    const empty = await ctx.phase('empty', seconds, () => usageDuring(ctx, () => ctx.pass(seconds)))
    await ctx.phase('connect', idle / 500, () => come(idle, 'idle'))
    const after = await memoryOf(ctx)
    await ctx.phase('idle', seconds, async () => {
      const usage = await usageDuring(ctx, () => ctx.pass(seconds))
      const each = 10_000 / idle
      const of = (what: string): string => `10,000 idle sessions: ${what}`
      ctx.figure({ name: of('in use'), value: (each * (after.used - before.used)) / MIB, unit: 'MiB' })
      ctx.figure({ name: of('resident'), value: (each * (after.rss - before.rss)) / MIB, unit: 'MiB' })
      ctx.figure({ name: of('CPU'), value: 100 * each * (usage.nodes - empty.nodes), unit: '%' })
    })
    await clients.leave()
    await clients.connect({ count, perSecond: 200 })
    await clients.join({ rooms: roomsOf(count), perSecond: 200, room: 'play' })
    await clients.start({ rate, reliable: false })
    await ctx.pass(CALM_SECONDS)
    await ctx.phase('play', seconds, async () => {
      const usage = await usageDuring(ctx, () => ctx.pass(seconds))
      const of = (what: string): string => `${count} sessions that play: ${what}`
      ctx.figure({ name: of('CPU of the node'), value: 100 * usage.nodes, unit: '%' })
      ctx.figure({ name: of('CPU of Redis'), value: 100 * usage.redis, unit: '%' })
      ctx.figure({
        name: of('calls of Redis a room'),
        value: usage.evals / roomsOf(count),
        unit: '/s',
      })
      ctx.figure({ name: of('sessions a core carries'), value: (FULL * count) / usage.nodes, unit: '' })
    })
    await clients.stop()
  },
})
