import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { Placer } from './placer.ts'
import type { PlaceRequest } from './placing.ts'
import { type RoomQuery, rowMatcher } from './query.ts'
import type { StoredRow } from './row.ts'

const row = (key: string, members: number, more: Partial<StoredRow> = {}): StoredRow => ({
  room_id: `duel:${key}`,
  room_type: 'duel',
  key,
  members,
  max_members: 4,
  reserved: 0,
  created_at: '2026-01-01T00:00:00.000Z',
  data: {},
  node_id: 'node_a~1',
  ...more,
})

/** A placer of the list `prj/duel`, whose copy has `rows`. */
function bench(...rows: StoredRow[]) {
  const clock = new FakeClock()
  const copy = { rows, queries: 0 }
  const order = { emptiest: 1, fullest: -1, newest: 0, oldest: 0 }
  const rooms = async (_: unknown, query: RoomQuery, allows: (roomId: string) => boolean) => {
    copy.queries++
    return copy.rows
      .filter((each) => allows(each.room_id) && rowMatcher(query)(each))
      .sort((a, b) => order[query.order ?? 'fullest'] * (a.members - b.members))
      .slice(0, query.limit)
  }
  const list = { projectId: 'prj', roomType: 'duel' }
  const placer = new Placer({ list, directory: { rooms }, clock, random: new SeededRandom() })
  let requests = 0
  const place = (more: Partial<PlaceRequest> = {}) =>
    placer.place({
      ...list,
      query: {},
      optionsHash: '',
      sessionId: 'ses',
      requestId: requests++,
      not: [],
      maxMembers: 4,
      ...more,
    })
  /** Places so many clients one after the other; their rooms, each once with how many clients it got. */
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

  it('gives 200 clients that ask at one moment 50 rooms of 4', async () => {
    const { place } = bench()
    const placed = await Promise.all(Array.from({ length: 200 }, () => place()))
    expect(new Set(placed.map((room) => room?.key)).size).toBe(50)
  })

  it('spreads clients over listed rooms that they ask for as emptiest', async () => {
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

  it('gives a promised seat away 3 s later if no player has taken it', async () => {
    const { placeMany, clock } = bench(row('a', 2))
    expect((await placeMany(1)).get('a')).toBe(1)
    clock.advance(2000)
    expect((await placeMany(2)).get('a')).toBe(1)
    clock.advance(999)
    expect((await placeMany(1)).get('a')).toBe(undefined)
    clock.advance(1)
    expect((await placeMany(2)).get('a')).toBe(1)
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

  it('promises no seat of a new room twice when its first row does not show all joins', async () => {
    const { copy, placeMany } = bench()
    const [key] = (await placeMany(4)).keys()
    copy.rows = [row(key!, 1)]
    expect((await placeMany(1)).get(key!)).toBe(undefined)
    copy.rows = [row(key!, 3)]
    expect((await placeMany(1)).get(key!)).toBe(undefined)
  })

  it('shares a new room between requests with the same conditions and join options only', async () => {
    const { place } = bench()
    const where = { map: 'desert', level: { min: 1, max: 2 } }
    const first = await place({ query: { where } })
    const same = { level: { max: 2, min: 1 }, map: 'desert' }
    expect(await place({ query: { where: same, order: 'newest' } })).toEqual(first)
    expect(await place({ query: { where: { ...where, map: 'forest' } } })).not.toEqual(first)
    expect(await place({ query: { where }, optionsHash: 'other' })).not.toEqual(first)
    expect(await place()).not.toEqual(first)
  })

  it('puts all clients of a room type without maxMembers into one room', async () => {
    const { placeMany, copy } = bench()
    const [key] = (await placeMany(10, { maxMembers: undefined })).keys()
    copy.rows = [row(key!, 10, { max_members: null })]
    expect(await placeMany(10, { maxMembers: undefined })).toEqual(new Map([[key, 10]]))
  })

  it('gives a repeated request the same room for a minute, and promises no second seat', async () => {
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

  it('gives one request that arrives twice at one moment one room', async () => {
    const { place } = bench()
    const [one, two] = await Promise.all([place({ requestId: 7 }), place({ requestId: 7 })])
    expect(one).toEqual(two)
  })

  it('chooses another room when the first has refused the client, and trusts its row less for 3 s', async () => {
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

  it('gives 20 clients that ask at one moment the last seats of 20 rooms, with one query each', async () => {
    const { place, copy } = bench(...Array.from({ length: 20 }, (_, i) => row(`r${i}`, 3)))
    const placed = await Promise.all(Array.from({ length: 20 }, () => place()))
    expect(new Set(placed.map((room) => room?.key)).size).toBe(20)
    expect(placed.some((room) => room?.create)).toBe(false)
    expect(copy.queries).toBe(20)
  })
})
