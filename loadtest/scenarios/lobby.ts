import type { LobbyFindings } from '../clients/lobby.ts'
import * as option from '../option-kinds.ts'
import type { Check } from '../result.ts'
import { defineScenario, type RunContext } from '../scenario.ts'
import { cpuDuring } from './cpu.ts'

const SEATS = 4
/** Rooms that players who come together may take, as a multiple of those that fit them. */
const SPREAD = 1.2
/** Row changes per second while lists are watched. */
const CHANGES = 100
const QUERIES = 100
/** Rooms that are opened each second. */
const OPENED = 250
const ENDING = 50
const QUERY_MS = 'service_directory_query_duration_seconds'
const MAX_EXAMPLES = 5

/** The front door of a game. */
export const lobby = defineScenario({
  name: 'lobby',
  meaning:
    'Thousands of rooms are listed. Players list them, watch them while their rows change, and come in bursts for a place.',
  options: {
    rooms: option.count('listed rooms', 10_000),
    maps: option.count('maps, by which they are searched', 50),
    watchers: option.count('who watch a list, each with another query', 500),
    burst: option.count('who want a place at one moment', 200),
    bursts: option.count('bursts', 3),
    seconds: option.seconds('how long each state is watched', 20),
    calm: option.seconds('time in which rows reach the lists, and empty rooms end', 5),
  },
  service: 'local',
  local: { direct: true, env: { MAX_ROOMS: '100000' } },

  async run(ctx, { rooms, maps, watchers, burst, bursts, seconds, calm }) {
    const players = ctx.lobby
    await ctx.phase('open', rooms / OPENED, () => players.open({ rooms, maps, perSecond: OPENED }))
    await ctx.pass(calm)
    const changing = () => players.change({ perSecond: CHANGES, seconds, maps })
    const idle = await ctx.phase('idle', seconds, () => cpuDuring(ctx, () => ctx.pass(seconds)))
    await ctx.phase('queries', seconds, async () => {
      const before = await durations(ctx)
      const cpu = await cpuDuring(ctx, () => players.query({ seconds, perSecond: QUERIES, maps }))
      const slowest = p99(before, await durations(ctx))
      ctx.figure({ name: 'time of a query in the list, p99', value: slowest, unit: 'ms', goal: { value: 1 } })
      ctx.figure({
        name: 'CPU of a query with its answer',
        value: (1000 * (cpu - idle)) / QUERIES,
        unit: 'ms',
      })
    })
    const alone = await ctx.phase('rows change', seconds, () => cpuDuring(ctx, changing))
    await ctx.phase('watchers', watchers / 200, () => players.watch({ count: watchers, maps }))
    await ctx.pass(calm)
    const { lists } = players.findings
    const watched = await ctx.phase('watched', seconds, () => cpuDuring(ctx, changing))
    const value = 100 * (watched - alone)
    ctx.figure({ name: 'CPU of the watchers, of one core', value, unit: '%', goal: { value: 10 } })
    const told = (players.findings.lists - lists) / seconds
    ctx.figure({ name: 'lists that the watchers received', value: told, unit: '/s' })
    await ctx.phase('rooms end', 2, () => players.end({ count: Math.min(ENDING, rooms), perSecond: 50 }))
    await ctx.pass(calm)
    const used: number[] = []
    for (let i = 1; i <= bursts; i++)
      await ctx.phase(`burst ${i}`, calm, async () => {
        const map = `burst-${i}`
        used.push(await players.burst({ count: burst, map }))
        await ctx.pass(calm)
        ctx.check(empty(map, await players.count({ map })))
      })
    const most = Math.max(0, ...used)
    ctx.figure({ name: 'rooms of a burst', value: most, unit: '', goal: { value: mostRooms(burst) } })
    for (const check of lobbyChecks(players.findings, used, burst)) ctx.check(check)
    players.close()
  },
})

/** By upper bound in seconds, the number of queries of all nodes that took at most so long. */
async function durations({ local }: RunContext): Promise<ReadonlyMap<number, number>> {
  const sum = new Map<number, number>()
  for (const node of local.nodes)
    for (const [bound, count] of await local.buckets(node, QUERY_MS))
      sum.set(bound, (sum.get(bound) ?? 0) + count)
  return sum
}

/** Upper bound of the 99th percentile of what came between two readings, in milliseconds. */
export function p99(before: ReadonlyMap<number, number>, after: ReadonlyMap<number, number>): number {
  const bounds = [...after].sort(([one], [other]) => one - other)
  const since = bounds.map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)] as const)
  const all = since.at(-1)?.[1] ?? 0
  return 1000 * (since.find(([, count]) => count >= 0.99 * all)?.[0] ?? 0)
}

const mostRooms = (players: number): number => Math.floor(Math.ceil(players / SEATS) * SPREAD)

const empty = (map: string, rooms: number): Check => ({
  name: `rooms that are left of ${map}`,
  meaning: 'A room whose players have left ends, and is in no list.',
  violations: rooms,
  note: `${rooms} listed`,
  examples: [],
})

/** The promises that hold for lists and for `joinOrCreate`. */
export function lobbyChecks(
  { lists, ghosts, refused }: LobbyFindings,
  used: readonly number[],
  burst: number,
): Check[] {
  const scattered = used.filter((rooms) => rooms > mostRooms(burst))
  return [
    {
      name: 'ended rooms in lists',
      meaning: 'A room that has ended leaves every list within two seconds.',
      violations: ghosts.length,
      note: `${lists} lists`,
      examples: ghosts.slice(0, MAX_EXAMPLES),
    },
    {
      name: 'refused players',
      meaning: 'joinOrCreate finds a room for every player.',
      violations: refused.length,
      note: `${used.length * burst} calls`,
      examples: refused.slice(0, MAX_EXAMPLES),
    },
    {
      name: 'scattered players',
      meaning: 'Players who come together share as few rooms as fit them, and at most a fifth more.',
      violations: scattered.length,
      note: `${used.join(', ')} rooms for ${burst} players each`,
      examples: scattered.slice(0, MAX_EXAMPLES).map((rooms) => `${rooms} rooms`),
    },
  ]
}
