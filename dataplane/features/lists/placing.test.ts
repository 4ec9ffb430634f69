import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { createLog } from '../../../shared/log.ts'
import { registerMetrics } from '../../../shared/metrics.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { StoreUnavailable } from '../../../shared/store/port.ts'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../../test/kit/seeded-random.ts'
import { answerOf } from '../../../test/support/gateway/test-gateway.ts'
import { TestRecords } from '../../../test/support/test-store.ts'
import type { RoomList } from './directory.ts'
import { LIST_METRICS } from './metrics.ts'
import { ClusterPlacing, type PlacedRoom, type PlaceRequest, Placer } from './placing.ts'
import { InvalidQuery, type QueryResult, type RoomQuery, rowMatcher, type StoredRow } from './rows.ts'

const SEATS = 4
/** Time from a change of a room until all nodes have it: a row is written once a second, and copies poll twice a second. */
const ROW_DELAY_MS = 1500
/** Time from the answer of the placer until the owner handles the join. */
const JOIN_DELAY_MS = 100

/** Rooms of one type, and the rows that the nodes have of them. */
class Rooms {
  readonly players = new Map<string, number>()
  readonly #changes: { readonly at: number; readonly key: string; readonly players: number }[] = []
  readonly #clock: FakeClock

  constructor(clock: FakeClock) {
    this.#clock = clock
  }

  /** Joins a room. Returns false if it is full. */
  join(key: string): boolean {
    const players = (this.players.get(key) ?? 0) + 1
    if (players > SEATS) return false
    this.players.set(key, players)
    this.#changes.push({ at: this.#clock.monotonic(), key, players })
    return true
  }

  /** `Directory.rooms` of any node. */
  async rooms(_: RoomList, query: RoomQuery, allows: (roomId: string) => boolean): Promise<QueryResult> {
    const seen = new Map<string, number>()
    const until = this.#clock.monotonic() - ROW_DELAY_MS
    for (const { at, key, players } of this.#changes) if (at <= until) seen.set(key, players)
    const rows = [...seen]
      .map(([key, players]) => ({
        room_id: `duel:${key}`,
        room_type: 'duel',
        key,
        players,
        max_players: SEATS,
        reserved: 0,
        created_at: '2026-01-01T00:00:00.000Z',
        data: {},
        node_id: 'node~1',
      }))
      .filter((row) => allows(row.room_id) && rowMatcher(query)(row))
      .sort((a, b) => b.players - a.players)
      .slice(0, query.limit)
    return answerOf(rows)
  }
}

/** Nodes `a`, `b` and `c` with one store. */
async function cluster() {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const records = new TestRecords(store.records, clock)
  const rooms = new Rooms(clock)
  const registry = new Registry()
  const metrics = registerMetrics(registry, LIST_METRICS)
  const copy = { ready: async (): Promise<void> => {} }
  const directory = {
    check: (roomType: string) => {
      if (roomType !== 'duel') throw new InvalidQuery('there is no such room type', 'unknown_room_type')
    },
    rooms: async (...query: Parameters<Rooms['rooms']>) => {
      directory.check(query[0].roomType)
      await copy.ready()
      return rooms.rooms(...query)
    },
  }
  const dead = new Set<string>()
  const draining = new Set<string>()
  const nodes = new Map<string, ClusterPlacing>()
  for (const [i, nodeId] of ['a', 'b', 'c'].entries()) {
    const environment = {
      nodeId,
      store: { records, bus: store.bus },
      clock,
      random: new SeededRandom(i + 1),
      log: createLog({ logLevel: 'fatal' }, {}),
      metrics,
      draining: () => draining.has(nodeId),
    }
    const placing = new ClusterPlacing(environment, directory)
    await placing.start()
    nodes.set(nodeId, placing)
  }
  const turns = async (): Promise<void> => {
    for (let i = 0; i < 5; i++) await new Promise(setImmediate)
  }
  /** Advances time until `work` is done, for at most a minute. */
  const done = async <T>(work: Promise<T>): Promise<T> => {
    let isDone = false
    const ended = work.finally(() => {
      isDone = true
    })
    ended.catch(() => undefined)
    const end = clock.monotonic() + 60_000
    for (await turns(); !isDone && clock.monotonic() < end; await turns()) clock.advance(20)
    if (!isDone) throw new Error('no end within a minute')
    return ended
  }
  let requests = 0
  const request = (more: Partial<PlaceRequest> = {}): PlaceRequest => ({
    projectId: 'prj',
    roomType: 'duel',
    query: {},
    optionsHash: '',
    sessionId: 'ses',
    requestId: requests++,
    not: [],
    maxPlayers: SEATS,
    isPromised: true,
    ...more,
  })
  const place = (nodeId: string, more?: Partial<PlaceRequest>): Promise<PlacedRoom> =>
    nodes.get(nodeId)!.place(request(more))
  let refusals = 0
  /** Places a client and joins, like an edge. If its node crashes, the client repeats the request at the next one. */
  const joinOrCreate = async (home: string): Promise<void> => {
    const asked = request()
    const not: string[] = []
    let nodeId = home
    for (;;) {
      const placed = await nodes
        .get(nodeId)!
        .place({ ...asked, not })
        .catch(() => undefined)
      await new Promise<void>((resolve) => void clock.schedule(JOIN_DELAY_MS, resolve))
      if (dead.has(nodeId)) nodeId = nodeId === 'a' ? 'b' : 'a'
      else if (placed && rooms.join(placed.key)) return
      else if (placed) {
        refusals++
        not.push(`duel:${placed.key}`)
      }
    }
  }
  return {
    clock,
    records,
    rooms,
    copy,
    draining,
    /** Placed clients at all nodes, by room. */
    placements: async () => {
      const { values } = await registry.getSingleMetric('service_placements_total')!.get()
      return Object.fromEntries(values.map(({ labels, value }) => [labels.result, value]))
    },
    turns,
    done,
    place,
    joinOrCreate,
    refusals: () => refusals,
    node: (nodeId: string) => nodes.get(nodeId)!,
    kill: (nodeId: string) => {
      dead.add(nodeId)
      void nodes.get(nodeId)!.stop()
    },
    clients: (count: number) => Array.from({ length: count }, (_, i) => joinOrCreate('abc'[i % 3]!)),
    /** Node id of the placer in the store. */
    placer: async () => {
      const [lease] = await store.records.read(['{list:prj/duel}:placer'])
      return lease && new TextDecoder().decode(lease.value)
    },
  }
}

describe('ClusterPlacing', () => {
  it('puts 200 clients that ask three nodes at the same time into 50 rooms of 4, without a refusal', async () => {
    const { done, clients, rooms, refusals, placements } = await cluster()
    await done(Promise.all(clients(200)))
    expect(await placements()).toEqual({ listed: 0, new: 200, failed: 0 })
    expect(rooms.players.size).toBe(50)
    expect(refusals()).toBe(0)
  })

  it('puts them into at most 60 rooms if the placer crashes after some of its answers', async () => {
    const { clock, done, turns, clients, rooms, placer, kill } = await cluster()
    const joining = clients(150)
    await turns()
    clock.advance(JOIN_DELAY_MS)
    joining.push(...clients(50))
    await turns()
    // Some of the later answers have arrived, and the rooms have no rows.
    kill((await placer())!)
    await done(Promise.all(joining))
    expect([...rooms.players.values()].reduce((sum, players) => sum + players, 0)).toBe(200)
    expect(rooms.players.size).toBeLessThanOrEqual(60)
  })

  it('has one placer, which another node replaces within one lease after its crash', async () => {
    const { clock, done, place, placer, kill } = await cluster()
    expect(await placer()).toBe(undefined)
    const { key } = await done(place('a'))
    expect(await placer()).toBe('a')
    expect((await done(place('b'))).key).toBe(key)
    expect((await done(place('c'))).key).toBe(key)
    kill('a')
    const before = clock.monotonic()
    await done(Promise.all([place('b'), place('c')]))
    expect(await placer()).toMatch(/^[bc]$/)
    expect(clock.monotonic() - before).toBeLessThanOrEqual(3500)
  })

  it('decides nothing after a pause in which its lease has expired, and asks the new placer', async () => {
    const { clock, done, place, placer } = await cluster()
    const old = await done(place('a'))
    clock.pause(3000)
    const { key } = await done(place('b'))
    expect([await placer(), key === old.key]).toEqual(['b', false])
    expect((await done(place('a'))).key).toBe(key)
    expect(await placer()).toBe('b')
  })

  it('drops a choice that was ready only after its lease had expired', async () => {
    const { clock, done, place, placer, copy } = await cluster()
    await done(place('a'))
    const { ready } = copy
    let arrive = (): void => {}
    const arrival = new Promise<void>((resolve) => {
      arrive = resolve
    })
    copy.ready = () => arrival
    const waiting = place('a')
    copy.ready = ready
    clock.pause(3000)
    const { key } = await done(place('b'))
    expect(await placer()).toBe('b')
    arrive()
    expect((await done(waiting)).key).toBe(key)
  })

  it('keeps its lease for a minute after the last request, and then stops all timers', async () => {
    const { clock, done, turns, place, placer } = await cluster()
    await done(place('a'))
    for (let seconds = 0; seconds < 59; seconds++) {
      clock.advance(1000)
      await turns()
    }
    expect(await placer()).toBe('a')
    for (let seconds = 0; seconds < 5; seconds++) {
      clock.advance(1000)
      await turns()
    }
    expect([await placer(), clock.pending]).toEqual([undefined, 0])
  })

  it('leaves the lease to another node while it drains, and answers until then', async () => {
    const { clock, done, turns, place, placer, draining } = await cluster()
    const { key } = await done(place('a'))
    draining.add('a')
    expect((await done(place('b'))).key).toBe(key)
    for (let i = 0; i < 30; i++) {
      clock.advance(100)
      await turns()
    }
    const before = clock.monotonic()
    await done(place('b'))
    expect(await placer()).toBe('b')
    expect(clock.monotonic() - before).toBeLessThan(500)
  })

  it('does not acquire the lease again while it drains, unless no other node does within a second', async () => {
    const { clock, done, turns, place, placer, draining } = await cluster()
    await done(place('a'))
    draining.add('a')
    clock.pause(3000)
    const before = clock.monotonic()
    await done(place('a'))
    expect(await placer()).toBe('a')
    expect(clock.monotonic() - before).toBeGreaterThanOrEqual(1000)
    expect(clock.monotonic() - before).toBeLessThan(1500)
    clock.pause(3000)
    const waiting = place('a')
    await turns()
    const { key } = await done(place('b'))
    expect([await placer(), (await done(waiting)).key === key]).toEqual(['b', true])
  })

  it('fails with room_unavailable within 10 s while no node can acquire the lease, and counts it', async () => {
    const { clock, done, place, placements, records } = await cluster()
    records.down = true
    const before = clock.monotonic()
    await expect(done(place('a'))).rejects.toMatchObject({ name: 'PlacingFailed', code: 'room_unavailable' })
    expect(clock.monotonic() - before).toBeLessThanOrEqual(10_000)
    records.down = false
    expect((await done(place('a'))).create).toBe(true)
    expect(await placements()).toEqual({ listed: 0, new: 1, failed: 1 })
  })

  it('fails when its node stops, without a wait for the placer', async () => {
    const { clock, done, place, node, kill } = await cluster()
    await done(place('a'))
    await done(place('b'))
    kill('a')
    const waiting = place('b')
    waiting.catch(() => undefined)
    const before = clock.monotonic()
    await node('b').stop()
    await expect(done(waiting)).rejects.toMatchObject({ code: 'room_unavailable' })
    expect(clock.monotonic() - before).toBeLessThanOrEqual(200)
  })

  it('rejects with the error of the placer, also if that is another node', async () => {
    const { done, place, copy } = await cluster()
    await done(place('a'))
    for (const nodeId of ['a', 'b'])
      await expect(done(place(nodeId, { allows: ['duel:x'] }))).rejects.toMatchObject({ code: 'forbidden' })
    const error = new InvalidQuery('room_type is duel: there is no such room type', 'unknown_room_type')
    copy.ready = () => Promise.reject(error)
    for (const nodeId of ['a', 'b']) {
      const { message, code } = error
      await expect(done(place(nodeId))).rejects.toMatchObject({ name: 'InvalidQuery', message, code })
    }
  })

  it('acquires no lease for a room type that does not exist', async () => {
    const { clock, done, place, records } = await cluster()
    const asked = done(place('a', { roomType: 'x1' }))
    await expect(asked).rejects.toMatchObject({ code: 'unknown_room_type' })
    expect(await records.read(['{list:prj/x1}:placer'])).toEqual([undefined])
    expect(clock.pending).toBe(0)
  })

  it('waits for a placer that cannot read the list at the moment', async () => {
    const { clock, done, turns, place, copy } = await cluster()
    const { ready } = copy
    copy.ready = () => Promise.reject(new StoreUnavailable('away'))
    const waiting = place('b')
    for (let i = 0; i < 20; i++) {
      await turns()
      clock.advance(100)
    }
    copy.ready = ready
    expect((await done(waiting)).create).toBe(true)
  })
})

const row = (key: string, players: number, more: Partial<StoredRow> = {}): StoredRow => ({
  room_id: `duel:${key}`,
  room_type: 'duel',
  key,
  players,
  max_players: 4,
  reserved: 0,
  created_at: '2026-01-01T00:00:00.000Z',
  data: {},
  node_id: 'node_a~1',
  ...more,
})

/** A placer of the list `prj/duel`, whose copy has `rows`. */
function bench(...rows: StoredRow[]) {
  const clock = new FakeClock()
  const copy = { rows, queries: 0, limit: 0, work: {} as Partial<QueryResult> }
  const order = { emptiest: 1, fullest: -1, newest: 0, oldest: 0 }
  const rooms = async (_: unknown, query: RoomQuery, allows: (roomId: string) => boolean) => {
    copy.queries++
    copy.limit = query.limit ?? 0
    const rows = copy.rows
      .filter((each) => allows(each.room_id) && rowMatcher(query)(each))
      .sort((a, b) => order[query.order ?? 'fullest'] * (a.players - b.players))
      .slice(0, query.limit)
    return { ...answerOf(rows), ...copy.work }
  }
  const list = { projectId: 'prj', roomType: 'duel' }
  const placer = new Placer(list, { rooms }, clock, new SeededRandom())
  let requests = 0
  const place = async (more: Partial<PlaceRequest> = {}) => {
    const { placed } = await placer.place({
      ...list,
      query: {},
      optionsHash: '',
      sessionId: 'ses',
      requestId: requests++,
      not: [],
      maxPlayers: 4,
      isPromised: true,
      ...more,
    })
    return placed
  }
  /** Places this many clients one after the other. Returns the number of clients by room. */
  const placeMany = async (count: number, more: Partial<PlaceRequest> = {}) => {
    const counts = new Map<string, number>()
    for (let i = 0; i < count; i++) {
      const { key } = (await place(more))!
      counts.set(key, (counts.get(key) ?? 0) + 1)
    }
    return counts
  }
  return { clock, copy, place, placeMany }
}

describe('Placer', () => {
  it('fills listed rooms first, in the order of the query, then new rooms, to the last seat', async () => {
    const { place, placeMany } = bench(row('half', 2), row('fuller', 3, { reserved: 0 }), row('full', 4))
    expect(await place()).toEqual({ key: 'fuller', create: false })
    expect(await placeMany(2)).toEqual(new Map([['half', 2]]))
    const made = await placeMany(9)
    expect([...made.values()]).toEqual([4, 4, 1])
    for (const key of made.keys()) expect(key).toMatch(/^[\w-]{22}$/)
    expect((await place())?.create).toBe(true)
  })

  it('puts 200 clients that ask at the same time into 50 rooms of 4', async () => {
    const { place } = bench()
    const placed = await Promise.all(Array.from({ length: 200 }, () => place()))
    expect(new Set(placed.map((room) => room?.key)).size).toBe(50)
  })

  it('spreads clients over listed rooms if they ask for the emptiest', async () => {
    const { placeMany } = bench(row('a', 0), row('b', 1), row('c', 3))
    expect(await placeMany(5, { query: { order: 'emptiest' } })).toEqual(
      new Map([
        ['a', 3],
        ['b', 2],
      ]),
    )
  })

  it('counts a promised seat once when its join is in the row', async () => {
    const { copy, placeMany, clock } = bench(row('a', 0))
    expect((await placeMany(2)).get('a')).toBe(2)
    clock.advance(1500)
    copy.rows = [row('a', 2)]
    const placed = await placeMany(3)
    expect(placed.get('a')).toBe(2)
    expect(placed.size).toBe(2)
  })

  it('releases a promised seat after 3 s if no player has taken it', async () => {
    const { placeMany, clock } = bench(row('a', 2))
    expect((await placeMany(1)).get('a')).toBe(1)
    clock.advance(2000)
    expect((await placeMany(2)).get('a')).toBe(1)
    clock.advance(999)
    expect((await placeMany(1)).get('a')).toBe(undefined)
    clock.advance(1)
    expect((await placeMany(2)).get('a')).toBe(1)
  })

  it('makes no room if the query stopped before it found one, since another room may fit', async () => {
    const { place, copy } = bench(row('a', 1))
    const { room_id, players, reserved, created_at } = copy.rows[0]!
    copy.work = { stoppedAt: { room_id, players, reserved, created_at }, looked: 10_000, comparisons: 20_000 }
    expect((await place())?.key).toBe('a')
    copy.rows = []
    await expect(place()).rejects.toMatchObject({
      name: 'InvalidQuery',
      message: expect.stringContaining('looked at 10000 rooms'),
      comparisons: 20_000,
    })
    copy.work = {}
    expect((await place())?.create).toBe(true)
  })

  it('fills a new room only until it has a row, and for 3 s', async () => {
    const { place, copy, clock } = bench()
    const { key } = (await place())!
    expect((await place())?.key).toBe(key)
    copy.rows = [row(key, 1)]
    expect(await place()).toEqual({ key, create: false })
    copy.rows = []
    expect((await place())?.key).not.toBe(key)
    const another = (await place({ optionsHash: 'x' }))!
    clock.advance(2999)
    expect(await place({ optionsHash: 'x' })).toEqual(another)
    clock.advance(1)
    expect((await place({ optionsHash: 'x' }))?.key).not.toBe(another.key)
  })

  it('promises no seat of a new room twice if its first row lacks some joins', async () => {
    const { copy, placeMany } = bench()
    const [key] = (await placeMany(4)).keys()
    copy.rows = [row(key!, 1)]
    expect((await placeMany(1)).get(key!)).toBe(undefined)
    copy.rows = [row(key!, 3)]
    expect((await placeMany(1)).get(key!)).toBe(undefined)
  })

  it('gives a promised seat back when its player asks again', async () => {
    const { place, placeMany } = bench(row('a', 3))
    for (let requestId = 100; requestId < 110; requestId++) {
      const instead = { sessionId: 'ses', requestId: requestId - 1 }
      expect((await place({ requestId, instead }))?.key).toBe('a')
    }
    expect((await placeMany(1)).get('a')).toBe(undefined)
    const instead = { sessionId: 'ses', requestId: 109 }
    expect((await place({ instead }))?.key).toBe('a')
  })

  it('chooses a room without a promise, which others may then have', async () => {
    const { placeMany } = bench(row('a', 3))
    const unpromised = { isPromised: false }
    expect((await placeMany(3, unpromised)).get('a')).toBe(3)
    expect((await placeMany(1)).get('a')).toBe(1)
    const [made] = (await placeMany(5, unpromised)).keys()
    expect(await placeMany(4)).toEqual(new Map([[made, 4]]))
  })

  it('shares a new room only between requests with the same conditions and join options', async () => {
    const { place } = bench()
    const where = { map: 'desert', level: { min: 1, max: 2 } }
    const first = await place({ query: { where } })
    const same = { level: { max: 2, min: 1 }, map: 'desert' }
    expect(await place({ query: { where: same, order: 'newest' } })).toEqual(first)
    expect(await place({ query: { where: { ...where, map: 'forest' } } })).not.toEqual(first)
    expect(await place({ query: { where }, optionsHash: 'other' })).not.toEqual(first)
    expect(await place()).not.toEqual(first)
  })

  it('forgets rooms with expired promises, and compares the emptiest room with no others', async () => {
    const { place, copy, clock } = bench(row('a', 0), row('b', 0))
    const query = { order: 'emptiest' } as const
    for (let i = 0; i < 3; i++) await place({ query })
    expect(copy.limit).toBe(3)
    clock.advance(3000)
    await place({ query })
    expect(copy.limit).toBe(1)
  })

  it('puts all clients of a room type without maxPlayers into one room', async () => {
    const { placeMany, copy } = bench()
    const [key] = (await placeMany(10, { maxPlayers: undefined })).keys()
    copy.rows = [row(key!, 10, { max_players: null })]
    expect(await placeMany(10, { maxPlayers: undefined })).toEqual(new Map([[key, 10]]))
  })

  it('returns the same room to a repeated request for a minute, and promises no second seat', async () => {
    const { place, copy, clock } = bench(row('a', 2))
    const repeated = { sessionId: 'ses_1', requestId: 7 }
    const first = await place(repeated)
    expect(await place(repeated)).toEqual(first)
    expect((await place())?.key).toBe('a')
    expect((await place())?.key).not.toBe('a')
    clock.advance(59_999)
    copy.rows = [row('a', 2), row('b', 3)]
    expect(await place(repeated)).toEqual(first)
    expect((await place({ ...repeated, sessionId: 'ses_2' }))?.key).toBe('b')
    clock.advance(3000)
    expect((await place(repeated))?.key).toBe('b')
  })

  it('returns one room to a request that arrives twice at the same time', async () => {
    const { place } = bench()
    const [one, two] = await Promise.all([place({ requestId: 7 }), place({ requestId: 7 })])
    expect(one).toEqual(two)
  })

  it('chooses another room after a refusal, and still counts the promised seat of the first for 3 s', async () => {
    const { place } = bench(row('a', 3), row('b', 2))
    const request = { sessionId: 'ses_1', requestId: 7 }
    expect((await place(request))?.key).toBe('a')
    expect((await place({ ...request, not: ['duel:a'] }))?.key).toBe('b')
    expect((await place({ ...request, not: ['duel:a'] }))?.key).toBe('b')
    expect((await place({ ...request, not: ['duel:a', 'duel:b'] }))?.create).toBe(true)
    expect((await place())?.key).toBe('b')
  })

  it('chooses only rooms that the token allows, and none if it allows no new room', async () => {
    const { place } = bench(row('a', 3), row('b', 2))
    expect((await place({ allows: ['duel:b', 'arena'] }))?.key).toBe('b')
    expect(await place({ allows: ['duel:c'] })).toBe(undefined)
    expect((await place({ allows: ['duel'] }))?.key).toBe('a')
  })

  it('gives 20 clients that ask at the same time the last seats of 20 rooms, with one query each', async () => {
    const { place, copy } = bench(...Array.from({ length: 20 }, (_, i) => row(`r${i}`, 3)))
    const placed = await Promise.all(Array.from({ length: 20 }, () => place()))
    expect(new Set(placed.map((room) => room?.key)).size).toBe(20)
    expect(placed.some((room) => room?.create)).toBe(false)
    expect(copy.queries).toBe(20)
  })
})
