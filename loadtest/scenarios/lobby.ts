import { type Client, type Room, RoomfulError } from '../../client/index.ts'
import { sleep } from '../../shared/clock.ts'
import * as option from '../option-kinds.ts'
import { type Check, checkOf } from '../result.ts'
import type { LobbyRoom } from '../rooms/lobby.ts'
import { defineScenario, type RunContext } from '../scenario.ts'

type Rooms = { 'load-lobby': LobbyRoom }
type Row = Awaited<ReturnType<Client<Rooms>['rooms']>>[number]

const SEATS = 4
/** Maximum number of rooms for players who arrive together, as a multiple of those that hold them. */
const SPREAD = 1.2
/** Row changes per second while lists are watched. */
const CHANGES = 100
const QUERIES = 100
/** Lists per second. The service allows 10 for each player. */
const QUERIES_PER_CLIENT = 5
/** Rooms that are opened each second. */
const OPENED = 250
/** Number of rooms of one client, which is the limit of the service. */
const ROOMS_PER_CLIENT = 16
const ENDING = 50
const LEVELS = 100
/** Number of rows in a list. */
const SHOWN = 20
const GHOST_MS = 2000
const RETRY_MS = 1000
const QUERY_MS = 'service_directory_query_duration_seconds'

/** Lists and searches of a game's lobby. */
export const lobby = defineScenario({
  name: 'lobby',
  meaning:
    'Thousands of rooms are listed. Players list them, watch them while their rows change, and join in bursts with joinOrCreate.',
  options: {
    rooms: option.count('listed rooms', 10_000),
    maps: option.count('maps, by which they are searched', 50),
    watchers: option.count('who watch a list, each with another query', 500),
    burst: option.count('who want a place at one moment', 200),
    bursts: option.count('bursts', 3),
    seconds: option.seconds('how long each state is watched', 20),
    calm: option.seconds('time in which rows reach the lists, and empty rooms end', 5),
  },
  local: { direct: true, env: { MAX_ROOMS: '100000' } },

  async run(ctx, { rooms: count, maps, watchers, burst, bursts, seconds, calm }) {
    const { sdk, clock, local } = ctx
    const findings = new LobbyFindings()
    const connect = (count: number) => sdk.connect<Rooms>(Array.from({ length: count }))
    const listed = (rows: readonly Row[]): number => findings.list(rows, clock.monotonic())
    /** Returns a different query for each number. */
    const where = (number: number) => ({
      map: `m${number % maps}`,
      level: { max: LEVELS - (Math.floor(number / maps) % LEVELS) },
    })
    const cpuDuring = async (work: () => Promise<unknown>) =>
      (await ctx.local.usageDuring(work)).cpu(local.nodes)

    const rooms: Room<LobbyRoom>[] = []
    await ctx.phase('open', count / OPENED, async () => {
      const hosts = await connect(Math.ceil(count / ROOMS_PER_CLIENT))
      await sdk.repeat(count, OPENED, async (number) => {
        rooms.push(await create(ctx, hosts[number % hosts.length]!, `m${number % maps}`))
      })
    })
    await ctx.pass(calm)
    let changed = 0
    /** Changes rows of the rooms at the start of lists, the oldest of each map. */
    const changing = () =>
      sdk.repeat(CHANGES * seconds, CHANGES, async () => {
        const shown = Math.min(rooms.length, maps * SHOWN)
        changed += 1
        // A different level than in the previous round.
        await rooms[changed % shown]!.send('level', (changed + Math.floor(changed / shown)) % LEVELS)
      })
    const idle = await ctx.phase('idle', seconds, () => cpuDuring(() => ctx.pass(seconds)))
    await ctx.phase('queries', seconds, async () => {
      const before = await durations(ctx)
      const cpu = await cpuDuring(async () => {
        const clients = await connect(QUERIES / QUERIES_PER_CLIENT)
        await sdk.repeat(seconds * QUERIES, QUERIES, async (number) => {
          listed(await clients[number % clients.length]!.rooms('load-lobby', { where: where(number) }))
        })
      })
      const slowest = p99(before, await durations(ctx))
      ctx.figure({ name: 'time of a query in the list, p99', value: slowest, unit: 'ms', goal: { value: 1 } })
      const value = (1000 * (cpu - idle)) / QUERIES
      ctx.figure({ name: 'CPU of a query with its answer', value, unit: 'ms' })
    })
    const alone = await ctx.phase('rows change', seconds, () => cpuDuring(changing))
    await ctx.phase('watchers', watchers / 200, async () => {
      const clients = await connect(watchers)
      clients.forEach((client, i) => {
        client.watchRooms('load-lobby', { where: where(i) }, listed)
      })
    })
    await ctx.pass(calm)
    const { lists } = findings
    const watched = await ctx.phase('watched', seconds, () => cpuDuring(changing))
    const value = 100 * (watched - alone)
    ctx.figure({ name: 'CPU of the watchers, of one core', value, unit: '%', goal: { value: 10 } })
    const received = (findings.lists - lists) / seconds
    ctx.figure({ name: 'lists that the watchers received', value: received, unit: '/s' })

    await ctx.phase('rooms end', 2, () =>
      sdk.ramp(rooms.splice(0, ENDING), 50, async (room) => {
        const gone = new Promise<void>((resolve) => {
          room.onLeave(() => resolve())
        })
        await room.send('end', null)
        await sdk.unlessInterrupted(gone)
        findings.endedAt.set(room.id, clock.monotonic())
      }),
    )
    await ctx.pass(calm)
    const used: number[] = []
    for (let i = 1; i <= bursts; i++)
      await ctx.phase(`burst ${i}`, calm, async () => {
        const map = `burst-${i}`
        const clients = await connect(burst)
        const joining = clients.map((client) =>
          client.joinOrCreate('load-lobby', { map }, { where: { map } }),
        )
        const found = await sdk.unlessInterrupted(Promise.allSettled(joining))
        used.push(new Set(found.flatMap((each) => findings.roomOf(each) ?? [])).size)
        for (const client of clients) client.close()
        await ctx.pass(calm)
        const query = { where: { map }, full: true, limit: 100 }
        for (const client of await connect(1)) {
          ctx.check(empty(map, listed(await client.rooms('load-lobby', query))))
          client.close()
        }
      })
    const most = Math.max(0, ...used)
    ctx.figure({ name: 'rooms of a burst', value: most, unit: '', goal: { value: mostRooms(burst) } })
    for (const check of lobbyChecks(findings, used, burst)) ctx.check(check)
  },
})

/** Opens a room. A node that gets too many requests for rooms at one moment refuses some. */
async function create({ clock }: RunContext, host: Client<Rooms>, map: string): Promise<Room<LobbyRoom>> {
  for (;;) {
    try {
      return await host.create('load-lobby', { map })
    } catch (error) {
      if (!(error instanceof RoomfulError && error.retryable)) throw error
      await sleep(clock, RETRY_MS)
    }
  }
}

/** Observations of the players of the lobby. */
class LobbyFindings {
  /** End of each room by its id, on the monotonic clock. */
  readonly endedAt = new Map<string, number>()
  /** Number of lists that were received, from queries and watches. */
  lists = 0
  /** Rows of rooms that had ended more than 2 s before. */
  readonly ghosts: string[] = []
  /** Codes of failed calls. */
  readonly refused: string[] = []

  /** A list has arrived. Returns the number of its rows. */
  list(rows: readonly { readonly roomId: string }[], now: number): number {
    this.lists += 1
    for (const { roomId } of rows) {
      const endedAt = this.endedAt.get(roomId)
      if (endedAt !== undefined && now - endedAt > GHOST_MS)
        this.ghosts.push(`${roomId} was listed ${Math.round(now - endedAt)} ms after its end`)
    }
    return rows.length
  }

  /** Returns the room that a player has found. */
  roomOf(found: PromiseSettledResult<{ readonly id: string }>): string | undefined {
    if (found.status === 'fulfilled') return found.value.id
    if (!(found.reason instanceof RoomfulError)) throw found.reason
    this.refused.push(found.reason.code)
    return undefined
  }
}

/** Returns the number of queries of all nodes up to each upper bound in seconds. */
async function durations({ local }: RunContext): Promise<ReadonlyMap<number, number>> {
  const sum = new Map<number, number>()
  for (const node of local.nodes)
    for (const [bound, count] of await local.buckets(node, QUERY_MS))
      sum.set(bound, (sum.get(bound) ?? 0) + count)
  return sum
}

/** Returns the upper bound of the 99th percentile of the values between two readings, in milliseconds. */
export function p99(before: ReadonlyMap<number, number>, after: ReadonlyMap<number, number>): number {
  const bounds = [...after].sort(([one], [other]) => one - other)
  const since = bounds.map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)] as const)
  const all = since.at(-1)?.[1] ?? 0
  return 1000 * (since.find(([, count]) => count >= 0.99 * all)?.[0] ?? 0)
}

const mostRooms = (players: number): number => Math.floor(Math.ceil(players / SEATS) * SPREAD)

const empty = (map: string, rooms: number): Check =>
  checkOf(
    `rooms that are left of ${map}`,
    'A room whose players have left ends, and is in no list.',
    `${rooms} listed`,
    [],
    rooms,
  )

/** Checks of the promises for lists and `joinOrCreate`. */
export function lobbyChecks(
  { lists, ghosts, refused }: Pick<LobbyFindings, 'lists' | 'ghosts' | 'refused'>,
  used: readonly number[],
  burst: number,
): Check[] {
  const scattered = used.filter((rooms) => rooms > mostRooms(burst))
  return [
    checkOf(
      'ended rooms in lists',
      'A room that has ended leaves every list within two seconds.',
      `${lists} lists`,
      ghosts,
    ),
    checkOf(
      'refused players',
      'joinOrCreate finds a room for every player.',
      `${used.length * burst} calls`,
      refused,
    ),
    checkOf(
      'scattered players',
      'Players who come together share as few rooms as fit them, and at most a fifth more.',
      `${used.join(', ')} rooms for ${burst} players each`,
      scattered.map((rooms) => `${rooms} rooms`),
    ),
  ]
}
