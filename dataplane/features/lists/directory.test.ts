import { setImmediate as nextTurn } from 'node:timers/promises'
import { Registry } from 'prom-client'
import * as v from 'valibot'
import { describe, expect, it, onTestFinished } from 'vitest'
import * as z from 'zod-of-rooms'
import { createLog } from '../../../shared/log.ts'
import { registerMetrics } from '../../../shared/metrics.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { type Listings, StoreUnavailable } from '../../../shared/store/port.ts'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../../test/kit/seeded-random.ts'
import { Directory, KEPT_MS, POLL_MS, type Watcher } from './directory.ts'
import { LIST_METRICS } from './metrics.ts'
import { encodeRow, type InvalidQuery, type RoomQuery, type StoredRow } from './rows.ts'

const DUELS = { projectId: 'prj_1', roomType: 'duel' }
const NODE = 'node_a~1'
const all = () => true
const MAX_ROWS = 3000

/** A watch that can always pay. */
const receiver = (changed: Watcher['changed'], more: Partial<Watcher> = {}): Watcher => ({
  canPay: () => true,
  pay: () => undefined,
  changed,
  failed: (error) => {
    throw error
  },
  ...more,
})

const keysOf = (rows: readonly StoredRow[]): string[] => rows.map(({ key }) => key)

interface Written extends Partial<StoredRow> {
  readonly key: string
  readonly epoch?: number
  readonly ttlMs?: number
}

/** A directory over a store, and the events of both. */
function opened() {
  const clock = new FakeClock()
  const gone = new Set<string>()
  const registry = new Registry()
  let listings = memoryStore({ clock }).listings
  let isAway = false
  let onReturn: () => void = () => undefined
  const cursors: string[] = []
  let version = 0
  const store = {
    listings: {
      write: (...write) => listings.write(...write),
      changes: async (...read) => {
        cursors.push(read[1])
        if (isAway) throw new StoreUnavailable('the test store is away')
        return listings.changes(...read)
      },
    } satisfies Listings,
    onReturn: (callback: () => void) => {
      onReturn = callback
      return () => {
        onReturn = () => undefined
      }
    },
  }
  const directory = new Directory({
    store,
    clock,
    log: createLog({ logLevel: 'fatal' }, {}),
    metrics: registerMetrics(registry, LIST_METRICS),
    maxRowsPerQuery: MAX_ROWS,
    isGone: (nodeId) => gone.has(nodeId),
    listingOf: (roomType) =>
      ({
        duel: {
          data: v.object({
            map: v.string(),
            level: v.pipe(
              v.number(),
              v.integer(),
              v.check((level) => level > 0),
            ),
            mode: v.optional(v.nullable(v.picklist(['solo', 'team']))),
            tags: v.array(v.string()),
            opened: v.pipe(v.number(), v.transform(String)),
          }),
        },
        zod: {
          data: z.object({ level: z.int(), mode: z.enum(['solo']).nullable(), tags: z.array(z.string()) }),
        },
        free: { data: v.record(v.string(), v.number()) },
        hidden: null,
      })[roomType],
  })
  onTestFinished(() => directory.stop())
  return {
    clock,
    directory,
    gone,
    registry,
    /** The cursor of each read of the store. */
    cursors,
    /** The store stops to answer. False: it answers again, and calls its listeners. */
    away(is: boolean): void {
      isAway = is
      if (!is) onReturn()
    },
    loseData(): void {
      listings = memoryStore({ clock }).listings
    },
    async write(...rows: readonly Written[]): Promise<void> {
      for (const { key, epoch = 1, ttlMs = 10 * KEPT_MS, ...row } of rows)
        await listings.write(
          'prj_1/duel',
          {
            roomId: `duel:${key}`,
            epoch,
            version: ++version,
            value: encodeRow({
              room_id: `duel:${key}`,
              room_type: 'duel',
              key,
              players: 1,
              max_players: 4,
              reserved: 0,
              created_at: '2026-01-01T00:00:00.000Z',
              data: { map: 'desert', level: 1 },
              node_id: NODE,
              ...row,
            }),
          },
          ttlMs,
        )
    },
    remove: (key: string) =>
      listings.write(
        'prj_1/duel',
        { roomId: `duel:${key}`, epoch: 1, version: ++version, value: undefined },
        1,
      ),
    async keys(query: RoomQuery = {}): Promise<string[]> {
      return keysOf((await directory.rooms(DUELS, query, all)).rows)
    },
    /** Lets one poll take place, with all its effects. */
    async poll(times = 1): Promise<void> {
      for (let n = 0; n < times; n++) {
        clock.advance(POLL_MS)
        await nextTurn() // The poll.
        await nextTurn() // The evaluation of the watched queries.
        await nextTurn() // The calls of the watches.
      }
    },
  }
}

describe('Directory', () => {
  it('lists rooms in every order, and returns the next page behind any row', async () => {
    const { write, keys, directory } = opened()
    const rows = [
      { key: 'a', players: 1, created_at: '2026-01-01T00:00:00.000Z' },
      { key: 'b', players: 2, reserved: 1, created_at: '2026-01-02T00:00:00.000Z' },
      { key: 'c', players: 3, created_at: '2026-01-01T12:00:00.000Z' },
      { key: 'd', players: 0, created_at: '2026-01-04T00:00:00.000Z' },
      { key: 'e', players: 1, created_at: '2026-01-01T00:00:00.000Z' },
    ]
    await write(...rows)
    const orders = {
      // The oldest of equally full rooms comes first, then the order of ids.
      fullest: ['c', 'b', 'a', 'e', 'd'],
      emptiest: ['d', 'e', 'a', 'b', 'c'],
      newest: ['d', 'b', 'c', 'e', 'a'],
      oldest: ['a', 'e', 'c', 'b', 'd'],
    } as const
    expect(await keys()).toEqual(orders.fullest)
    for (const [order, expected] of Object.entries(orders)) {
      const query = { order: order as keyof typeof orders, limit: 2 }
      const listed: StoredRow[] = []
      for (let n = 0; n < 4; n++)
        listed.push(...(await directory.rooms(DUELS, query, all, listed.at(-1))).rows)
      expect(keysOf(listed)).toEqual(expected)
    }
    // Behind a row that has been removed.
    const behind = { ...rows[0]!, room_id: 'duel:bb', players: 3, reserved: 0 } as StoredRow
    expect(keysOf((await directory.rooms(DUELS, { order: 'oldest', limit: 9 }, all, behind)).rows)).toEqual([
      'e',
      'c',
      'b',
      'd',
    ])
  })

  it('keeps every order while rows change, appear and disappear', async () => {
    const { write, remove, keys, poll } = opened()
    const random = new SeededRandom(3)
    const expected = new Map<string, { players: number; created_at: string }>()
    for (let round = 0; round < 40; round++) {
      for (let n = 0; n < 10; n++) {
        const key = String(Math.floor(random.float() * 30))
        if (random.float() < 0.3) {
          expected.delete(key)
          await remove(key)
          continue
        }
        const row = {
          players: Math.floor(random.float() * 4),
          created_at: `2026-01-0${1 + Math.floor(random.float() * 9)}T00:00:00.000Z`,
        }
        expected.set(key, row)
        await write({ key, ...row })
      }
      await keys()
      await poll()
      const text = ([key, { created_at: at }]: [string, { created_at: string }]) => `${at} duel:${key}`
      const oldest = [...expected].sort((one, other) => (text(one) < text(other) ? -1 : 1))
      expect(await keys({ order: 'oldest', limit: 100 })).toEqual(oldest.map(([key]) => key))
      const fullest = [...oldest].sort(([, one], [, other]) => other.players - one.players)
      expect(await keys({ limit: 100 })).toEqual(fullest.map(([key]) => key))
    }
  })

  it('lists the matching rooms of a project and type that have a free seat and that the token allows', async () => {
    const { write, keys, directory } = opened()
    await write(
      { key: 'a' },
      { key: 'b', data: { map: 'snow', level: 4 } },
      { key: 'c', players: 4 },
      { key: 'd', players: 3, reserved: 1 },
    )
    expect((await keys()).sort()).toEqual(['a', 'b'])
    expect((await keys({ full: true })).sort()).toEqual(['a', 'b', 'c', 'd'])
    expect(await keys({ where: { level: { min: 2 } } })).toEqual(['b'])
    const allowed = await directory.rooms(DUELS, {}, (roomId) => roomId === 'duel:a')
    expect(keysOf(allowed.rows)).toEqual(['a'])
    expect(await directory.rooms({ ...DUELS, projectId: 'prj_2' }, {}, all)).toMatchObject({ rows: [] })
    expect(await directory.rooms({ ...DUELS, roomType: 'free' }, { where: { x: 1 } }, all)).toMatchObject({
      rows: [],
    })
  })

  it('lists no room of a node that has ended, but sleeping rooms', async () => {
    const { write, keys, gone } = opened()
    await write({ key: 'a' }, { key: 'b', node_id: null }, { key: 'c', node_id: 'node_b~1' })
    gone.add(NODE)
    expect((await keys()).sort()).toEqual(['b', 'c'])
  })

  it.each<[roomType: string, query: RoomQuery, code: string, message: string]>([
    ['chess', {}, 'unknown_room_type', 'room_type is chess: there is no such room type'],
    ['hidden', {}, 'invalid_options', 'room_type is hidden: it has no list'],
    [
      'duel',
      { where: { map: 'x', mpa: 'desert' } },
      'invalid_options',
      'where.mpa is no field of the list: the fields are map, level, mode, tags, opened',
    ],
  ])('refuses a query of %s with %j', async (roomType, query, code, message) => {
    const { directory } = opened()
    const list = { projectId: 'prj_1', roomType }
    const error = await directory.rooms(list, query, all).catch((reason: unknown) => reason)
    expect(error).toMatchObject({ name: 'InvalidQuery', code, message: expect.stringContaining(message) })
    expect(() =>
      directory.watch(
        list,
        query,
        undefined,
        receiver(() => undefined),
      ),
    ).toThrow(message)
  })

  it.each<[roomType: string, where: RoomQuery['where'], message: string]>([
    ['duel', { level: '4' }, 'where.level is "4": it must be a number'],
    ['duel', { level: [4, '5'] }, 'where.level is [4,"5"]: it must be a number'],
    ['duel', { level: null }, 'where.level is null: it must be a number'],
    ['duel', { map: { min: 1 } }, 'where.map is {"min":1}: it must be a text'],
    ['duel', { mode: 1 }, 'where.mode is 1: it must be a text or null'],
    ['duel', { tags: 'new' }, 'where.tags is "new": it must be left out: the field has lists or objects'],
    ['zod', { level: '4' }, 'where.level is "4": it must be a number'],
    ['zod', { mode: true }, 'where.mode is true: it must be a text or null'],
  ])('refuses to compare fields of %s with %j, which no row can have', async (roomType, where, message) => {
    const { directory } = opened()
    const error = { name: 'InvalidQuery', code: 'invalid_options', message }
    await expect(directory.rooms({ projectId: 'prj_1', roomType }, { where }, all)).rejects.toMatchObject(
      error,
    )
  })

  it.each<[roomType: string, where: RoomQuery['where']]>([
    ['duel', { level: [1, 2.5], map: '4', mode: ['chess', null] }],
    // The schema does not tell what a transformation returns.
    ['duel', { opened: '1' }],
    ['zod', { level: { max: 3 }, mode: null }],
  ])('accepts a query of %s with %j', async (roomType, where) => {
    const { directory } = opened()
    const list = { projectId: 'prj_1', roomType }
    expect(await directory.rooms(list, { where }, all)).toMatchObject({ rows: [] })
  })

  it('stops after maxRowsPerQuery rows, and continues behind the last one', async () => {
    const { write, directory, registry } = opened()
    const snow = { map: 'snow', level: 1 }
    await write(
      ...Array.from({ length: MAX_ROWS + 100 }, (_, n) => ({
        key: String(n).padStart(4, '0'),
        ...((n === 5 || n === MAX_ROWS + 50) && { data: snow }),
      })),
    )
    const query: RoomQuery = { where: { map: 'snow', level: { min: 1 } }, order: 'oldest' }
    const first = await directory.rooms(DUELS, query, all)
    expect(keysOf(first.rows)).toEqual(['0005'])
    expect(first).toMatchObject({ looked: MAX_ROWS, comparisons: 3 * MAX_ROWS })
    expect(first.stoppedAt?.room_id).toBe(`duel:${MAX_ROWS - 1}`)
    expect(await registry.metrics()).toContain('service_directory_queries_stopped_total 1')
    const second = await directory.rooms(DUELS, query, all, first.stoppedAt)
    expect(keysOf(second.rows)).toEqual([`${MAX_ROWS + 50}`])
    expect(second).toMatchObject({ looked: 100, stoppedAt: undefined })
    // A complete answer looks at no more rows than it needs.
    expect(await directory.rooms(DUELS, { ...query, limit: 1 }, all)).toMatchObject({
      looked: 6,
      stoppedAt: undefined,
    })
  })

  it('lets other work run between slices of 1,000 rows, and returns no room twice', async () => {
    const { write, directory } = opened()
    await write(...Array.from({ length: 2500 }, (_, n) => ({ key: String(n).padStart(4, '0') })))
    await directory.rooms(DUELS, {}, all)
    const looked: string[] = []
    const slices: number[] = []
    const answer = directory.rooms(DUELS, { order: 'oldest', limit: 100 }, (roomId) => {
      looked.push(roomId)
      return roomId.endsWith('99')
    })
    let isOver = false
    void answer.finally(() => {
      isOver = true
    })
    for (; !isOver; await nextTurn()) slices.push(looked.length)
    expect(slices.slice(0, 2)).toEqual([0, 1000])
    expect(looked).toHaveLength(2500)
    expect((await answer).rows).toHaveLength(25)
  })

  it('answers from its copy, which it polls for a minute after the last query and then drops', async () => {
    const { write, remove, keys, poll, clock, cursors } = opened()
    await write({ key: 'a' }, { key: 'b' })
    await Promise.all([keys(), keys()])
    expect(cursors.length).toBe(1)
    await write({ key: 'c' })
    await remove('a')
    expect(await keys()).toEqual(['a', 'b'])
    await poll()
    expect((await keys()).sort()).toEqual(['b', 'c'])
    expect(cursors.length).toBe(2)
    await poll(KEPT_MS / POLL_MS)
    const reads = cursors.length
    expect(reads).toBeGreaterThan(100)
    expect(clock.pending).toBe(0)
    await poll(10)
    expect(cursors.length).toBe(reads)
    expect((await keys()).sort()).toEqual(['b', 'c'])
  })

  it('answers from its copy while the store is unavailable, and rejects if it has no copy', async () => {
    const { write, keys, poll, away, registry } = opened()
    away(true)
    await expect(keys()).rejects.toBeInstanceOf(StoreUnavailable)
    away(false)
    await write({ key: 'a' })
    expect(await keys()).toEqual(['a'])
    away(true)
    await write({ key: 'b' })
    await poll(3)
    expect(await keys()).toEqual(['a'])
    expect(await registry.metrics()).toContain('service_directory_failed_polls_total 4')
    away(false)
    await poll()
    expect(await keys()).toEqual(['a', 'b'])
  })

  it('follows a store that has lost its data, and keeps the old copy until it has read the new one', async () => {
    const { write, keys, poll, loseData, clock } = opened()
    await write({ key: 'a' }, { key: 'b' })
    await keys()
    clock.advance(1)
    loseData()
    await write({ key: 'b' })
    expect(await keys()).toEqual(['a', 'b'])
    await poll()
    expect(await keys()).toEqual(['b'])
    loseData()
    await poll()
    expect(await keys()).toEqual([])
  })

  it('reads a list with more rows than one answer of the store', async () => {
    const { write, keys, registry } = opened()
    await write(...Array.from({ length: 1203 }, (_, n) => ({ key: `${n}`, players: n === 1202 ? 3 : 1 })))
    expect(await keys({ limit: 1 })).toEqual(['1202'])
    expect(await registry.metrics()).toContain('service_directory_rows 1203')
  })

  it('reads everything again when the store comes back, because a promoted replica may lack changes', async () => {
    const { write, keys, poll, away, clock, cursors } = opened()
    await write({ key: 'a' })
    await keys()
    await poll()
    expect(cursors.map((cursor) => cursor === '')).toEqual([true, false])
    away(false)
    await poll(2)
    expect(cursors.slice(2).map((cursor) => cursor === '')).toEqual([true, false])
    // Also while a read is pending that started before.
    clock.advance(POLL_MS)
    away(false)
    await nextTurn()
    await poll()
    expect(cursors.slice(4).map((cursor) => cursor === '')).toEqual([false, true])
    expect(await keys()).toEqual(['a'])
  })

  it('ignores a row that it cannot decode', async () => {
    const { write, keys, poll } = opened()
    await write({ key: 'a' }, { key: 'b' })
    await keys()
    await write({ key: 'b', players: -1 })
    await poll()
    expect(await keys()).toEqual(['a'])
  })
})

describe('Directory.watch', () => {
  function watched(test: ReturnType<typeof opened>, query: RoomQuery = {}) {
    const results: string[][] = []
    const end = test.directory.watch(
      DUELS,
      query,
      undefined,
      receiver((rows) => results.push(keysOf(rows))),
    )
    return { results, end }
  }

  it('calls back with the rows immediately, and once after changes of the result', async () => {
    const test = opened()
    const { write, remove, poll } = test
    await write({ key: 'a' })
    const { results, end } = watched(test)
    await nextTurn()
    expect(results).toEqual([['a']])
    await poll(4)
    expect(results).toHaveLength(1)
    await write({ key: 'b', players: 0 })
    await poll()
    expect(results.slice(1)).toEqual([['a', 'b']])
    await write({ key: 'c', players: 3 })
    await poll(2)
    expect(results.slice(2)).toEqual([['c', 'a', 'b']])
    await remove('b')
    await poll(2)
    expect(results.slice(3)).toEqual([['c', 'a']])
    end()
    await remove('c')
    await poll(4)
    expect(results).toHaveLength(4)
  })

  it('calls back at most once a second, with the latest change', async () => {
    const test = opened()
    const { write, poll, clock } = test
    const calls: [at: number, players: number][] = []
    test.directory.watch(
      DUELS,
      {},
      undefined,
      receiver((rows) => calls.push([clock.monotonic(), rows[0]?.players ?? -1])),
    )
    for (let players = 0; players < 4; players++) {
      await write({ key: 'a', players })
      await poll()
    }
    await poll(3)
    expect(calls.at(-1)?.[1]).toBe(3)
    for (const [index, [at]] of calls.entries())
      if (index > 0) expect(at - calls[index - 1]![0]).toBeGreaterThanOrEqual(1000)
  })

  it('does not call back for rows that do not match, for rows behind its end, and for unchanged rows', async () => {
    const test = opened()
    const { write, remove, poll } = test
    await write({ key: 'a', players: 3 }, { key: 'b', players: 2 }, { key: 'z' })
    const { results } = watched(test, { where: { map: 'desert' }, limit: 2 })
    await nextTurn()
    await write({ key: 'c', players: 3, data: { map: 'snow', level: 1 } }, { key: 'd', players: 1 })
    await write({ key: 'a', players: 3 })
    await remove('z')
    await poll(4)
    expect(results).toEqual([['a', 'b']])
    // This row takes the place of one that no longer matches.
    const snow = { map: 'snow', level: 1 }
    await write({ key: 'b', players: 2, data: snow }, { key: 'x', data: snow })
    await poll(2)
    expect(results.slice(1)).toEqual([['a', 'd']])
    await write({ key: 'e', players: 2 })
    await poll(2)
    expect(results.slice(2)).toEqual([['a', 'e']])
  })

  it('evaluates equal queries once, and gives their watches the same rows', async () => {
    const test = opened()
    const { write, poll, directory, registry } = test
    await write({ key: 'a' }, { key: 'b' })
    const queries: [RoomQuery, claim?: string[]][] = [
      [{ where: { map: 'desert', level: 1 } }],
      [{ where: { level: 1, map: 'desert' }, order: 'fullest', limit: 20, full: false }, ['duel']],
      [{ where: { level: 1, map: 'desert' } }, ['duel:a']],
    ]
    const latest: (readonly StoredRow[])[] = []
    for (const [at, [query, claim]] of queries.entries())
      directory.watch(
        DUELS,
        query,
        claim,
        receiver((rows) => {
          latest[at] = rows
        }),
      )
    await poll(2)
    expect(latest.map(keysOf)).toEqual([['a', 'b'], ['a', 'b'], ['a']])
    expect(latest[0]).toBe(latest[1])
    expect(await registry.metrics()).toContain('service_directory_watchers 3')
    expect(await registry.metrics()).toContain('service_directory_watched_queries 2')
    await write({ key: 'c' })
    await poll(2)
    expect(latest[0]).toBe(latest[1])
    expect(latest.map(keysOf)).toEqual([['a', 'b', 'c'], ['a', 'b', 'c'], ['a']])
  })

  it('lets the watches of a query pay for its evaluations in turn', async () => {
    const test = opened()
    const { write, poll, directory } = test
    await write({ key: 'a' }, { key: 'b', data: { map: 'snow', level: 1 } })
    const paid: [who: string, comparisons: number][] = []
    for (const who of ['one', 'two'])
      directory.watch(
        DUELS,
        { where: { map: 'desert' } },
        undefined,
        receiver(() => undefined, { pay: (comparisons) => paid.push([who, comparisons]) }),
      )
    await nextTurn()
    for (const key of ['c', 'd']) {
      await write({ key })
      await poll(2)
    }
    expect(paid).toEqual([
      ['one', 4],
      ['two', 6],
      ['one', 8],
    ])
  })

  it('evaluates a query only if one of its watches can pay, and later has the newest rows', async () => {
    const test = opened()
    const { write, poll, directory } = test
    let canPay = false
    const results: string[][] = []
    await write({ key: 'a' })
    directory.watch(
      DUELS,
      {},
      undefined,
      receiver((rows) => results.push(keysOf(rows)), { canPay: () => canPay }),
    )
    await poll(2)
    await write({ key: 'b' })
    await poll(2)
    expect(results).toEqual([])
    canPay = true
    await poll()
    expect(results).toEqual([['a', 'b']])
  })

  it('reports a query that looks at too many rows', async () => {
    const test = opened()
    const { write, poll, directory } = test
    const errors: InvalidQuery[] = []
    await write(...Array.from({ length: MAX_ROWS + 1 }, (_, n) => ({ key: `${n}` })))
    const end = directory.watch(
      DUELS,
      { where: { map: 'snow' } },
      undefined,
      receiver(() => undefined, {
        failed: (error) => {
          errors.push(error)
          end()
        },
      }),
    )
    await poll(2)
    expect(errors).toMatchObject([
      {
        code: 'invalid_options',
        message: expect.stringMatching(
          /^the query stopped after it had looked at 3000 rooms and found 0: use /,
        ),
      },
    ])
  })

  it('calls a watch of a query that is watched already at most once a second, too', async () => {
    const test = opened()
    const { write, poll, clock } = test
    await write({ key: 'a' })
    watched(test)
    await poll()
    const calls: number[] = []
    test.directory.watch(
      DUELS,
      {},
      undefined,
      receiver(() => calls.push(clock.monotonic())),
    )
    await nextTurn()
    await write({ key: 'b' })
    await poll(3)
    expect(calls).toHaveLength(2)
    expect(calls[1]! - calls[0]!).toBeGreaterThanOrEqual(1000)
  })

  it('calls back when a node has ended, and when another node owns its rooms', async () => {
    const test = opened()
    const { write, poll, gone } = test
    await write({ key: 'a' }, { key: 'b', node_id: 'node_b~1' })
    const { results } = watched(test)
    await poll()
    gone.add(NODE)
    await poll(2)
    await write({ key: 'a', epoch: 2, node_id: 'node_b~1' })
    await poll(2)
    expect(results).toEqual([['a', 'b'], ['b'], ['a', 'b']])
  })

  it('lets other work run between slow watches when a node has ended', async () => {
    const test = opened()
    const { clock, directory, write, poll, gone } = test
    await write({ key: 'a' }, { key: 'b', node_id: 'node_b~1' })
    let [turn, callMs] = [0, 0]
    const turns: number[] = []
    for (let n = 0; n < 4; n++)
      directory.watch(
        DUELS,
        {},
        undefined,
        receiver(() => {
          clock.pause(callMs)
          turns.push(turn)
        }),
      )
    await poll()
    gone.add(NODE)
    await poll()
    callMs = 10
    clock.advance(POLL_MS)
    for (turn = 1; turn <= 10; turn++) await nextTurn()
    expect(turns.slice(0, 4)).toEqual([0, 0, 0, 0])
    expect(new Set(turns.slice(4)).size).toBe(4)
  })

  it('keeps its list as long as it runs, and starts when the store can be reached', async () => {
    const test = opened()
    const { write, poll, away, clock, registry } = test
    away(true)
    await write({ key: 'a' })
    const { results, end } = watched(test)
    await poll(3)
    expect(results).toEqual([])
    away(false)
    await poll()
    expect(results).toEqual([['a']])
    await poll((2 * KEPT_MS) / POLL_MS)
    await write({ key: 'a', players: 2, data: { map: 'snow', level: 2 } })
    await poll(2)
    expect(results).toHaveLength(2)
    expect(await registry.metrics()).toContain('service_directory_watchers 1')
    end()
    expect(await registry.metrics()).toContain('service_directory_watchers 0')
    await poll(KEPT_MS / POLL_MS + 1)
    expect(clock.pending).toBe(0)
  })

  it('calls back after a restart of the list only if the rows differ', async () => {
    const test = opened()
    const { write, poll, loseData, clock } = test
    await write({ key: 'a' })
    const { results } = watched(test)
    await poll(2)
    clock.advance(1)
    loseData()
    await write({ key: 'a' })
    await poll(4)
    expect(results).toEqual([['a']])
    loseData()
    await poll(2)
    expect(results).toEqual([['a'], []])
  })
})
