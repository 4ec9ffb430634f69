import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { listAfter } from '../../../client/finding.ts'
import type { Json } from '../../../shared/json.ts'
import type { ListedRoom } from '../../../shared/protocol/messages.ts'
import { changesOf } from './lists.ts'
import {
  decodeRow,
  encodeRow,
  InvalidQuery,
  isBefore,
  type RoomQuery,
  type RoomRow,
  readQuery,
  rowMatcher,
  type StoredRow,
} from './rows.ts'

const row = (data: Json, more: Partial<StoredRow> = {}): StoredRow => ({
  room_id: 'duel:a',
  room_type: 'duel',
  key: 'a',
  players: 1,
  max_players: 4,
  reserved: 0,
  created_at: '2026-01-01T00:00:00.000Z',
  data,
  node_id: 'node_a~1',
  ...more,
})

describe('rowMatcher', () => {
  const data = { map: 'desert', level: 4, open: true, owner: null }
  it.each<[what: string, where: RoomQuery['where'], matches: boolean]>([
    ['a value', { map: 'desert' }, true],
    ['another value', { map: 'snow' }, false],
    ['a value of another type', { level: '4' }, false],
    ['false for true', { open: false }, false],
    ['null', { owner: null }, true],
    ['null for an absent field', { nobody: null }, false],
    ['one of a list of values', { map: ['snow', 'desert'] }, true],
    ['none of a list of values', { map: ['snow', 4] }, false],
    ['a number at both ends of a range', { level: { min: 4, max: 4 } }, true],
    ['a number below a range', { level: { min: 4.5 } }, false],
    ['a number above a range', { level: { max: 3 } }, false],
    ['a text for a range', { map: { min: 0 } }, false],
    ['two conditions that hold', { map: 'desert', level: { min: 1 } }, true],
    ['two conditions of which one does not hold', { map: 'desert', level: { min: 5 } }, false],
    ['an inherited name', { constructor: 'x', toString: [null] }, false],
  ])('compares %s', (_, where, matches) => {
    expect(rowMatcher({ where })(row(data))).toBe(matches)
  })

  it('matches no conditions in data that is not an object', () => {
    for (const plain of ['desert', ['desert'], null])
      expect([rowMatcher({ where: { 0: 'desert' } })(row(plain)), rowMatcher({})(row(plain))]).toEqual([
        false,
        true,
      ])
  })

  it('matches only rooms with a free seat, unless the query has full', () => {
    const rows = [
      row({}, { players: 3 }),
      row({}, { players: 4 }),
      row({}, { players: 3, reserved: 1 }),
      row({}, { players: 900, max_players: null }),
    ]
    expect(rows.map(rowMatcher({}))).toEqual([true, false, false, true])
    expect(rows.map(rowMatcher({ full: true }))).toEqual([true, true, true, true])
  })
})

describe('readQuery', () => {
  it('accepts every form of condition, and an empty query', () => {
    const query = {
      where: { map: ['a', 1, true, null], level: { min: 1 }, name: '' },
      order: 'newest',
      limit: 100,
      full: true,
    }
    expect(readQuery(query)).toEqual(query)
    expect(readQuery({})).toEqual({})
  })

  it.each<[input: Json, message: RegExp]>([
    ['duel', /^the query is "duel": it must be an object/],
    [[], /^the query is \[\]/],
    [null, /^the query is null/],
    [{ wher: {} }, /^wher is \{\}: it must be one of where, order, limit, full$/],
    [{ constructor: {} }, /^constructor is \{\}/],
    [{ where: ['map'] }, /^where is \["map"\]: it must be an object/],
    [{ where: { map: { desert: true } } }, /^where\.map is \{"desert":true\}: it must be a text, number/],
    [{ where: { map: [] } }, /^where\.map is \[\]/],
    [{ where: { map: [{ min: 1 }] } }, /^where\.map/],
    [{ where: { map: Array.from({ length: 33 }, (_, n) => n) } }, /^where\.map/],
    [{ where: { level: { min: '1' } } }, /^where\.level/],
    [{ where: Object.fromEntries(Array.from({ length: 33 }, (_, n) => [`f${n}`, n])) }, /at most 32 fields$/],
    [{ order: 'best' }, /^order is "best": it must be fullest, emptiest, newest or oldest$/],
    [{ limit: 0 }, /^limit is 0: it must be an integer from 1 to 100$/],
    [{ limit: 101 }, /^limit is 101/],
    [{ limit: 1.5 }, /^limit is 1.5/],
    [{ full: 1 }, /^full is 1: it must be true or false$/],
    [{ order: 'x'.repeat(1000) }, /^order is "x{59}…: it must be/],
  ])('refuses %j', (input, message) => {
    expect(() => readQuery(input)).toThrow(InvalidQuery)
    expect(() => readQuery(input)).toThrow(message)
  })
})

describe('encodeRow and decodeRow', () => {
  it('keep every field', () => {
    for (const each of [row({ map: 'ü😀' }), row(null, { node_id: null, code: 'K7QX2M', max_players: null })])
      expect(decodeRow(encodeRow(each))).toEqual(each)
  })

  it('read the row that a version before spectators has left for a sleeping room', () => {
    const { players: members, max_players, ...earlier } = row({ map: 'ice' }, { node_id: null })
    const bytes = new TextEncoder().encode(JSON.stringify({ ...earlier, members, max_members: max_players }))
    expect(decodeRow(bytes)).toEqual(row({ map: 'ice' }, { node_id: null }))
  })

  it('drop fields of later versions, and return undefined for bytes that are not a row', () => {
    const later = { ...row(1), mood: 'fine' }
    expect(decodeRow(encodeRow(later))).toEqual(row(1))
    const { players: _, ...incomplete } = row(1)
    const { data: __, ...dataless } = row(1)
    for (const wrong of [
      incomplete,
      dataless,
      { ...row(1), players: -1 },
      { ...row(1), node_id: 7 },
      [],
      'row',
    ])
      expect(decodeRow(new TextEncoder().encode(JSON.stringify(wrong)))).toBeUndefined()
    expect(decodeRow(new Uint8Array([0x7b, 0xff]))).toBeUndefined()
  })
})

describe('A watched list of a client', () => {
  const ROWS = fc.uniqueArray(
    fc.record({
      room_id: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'B', 'é').map((key) => `duel:${key}`),
      players: fc.integer({ min: 0, max: 2 }),
      reserved: fc.integer({ min: 0, max: 1 }),
      created_at: fc.constantFrom('2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.001Z'),
      data: fc.constant(null),
    }),
    { selector: ({ room_id }) => room_id },
  )

  it.each(['fullest', 'emptiest', 'newest', 'oldest'] as const)(
    'is that of the server after each change, and gets each row that stays once: %s',
    (order) => {
      const sorted = (rows: object[]) =>
        (rows as RoomRow[]).sort((one, other) => (isBefore(order, one, other) ? -1 : 1))
      fc.assert(
        fc.property(ROWS, ROWS, (one, other) => {
          const before = sorted(one)
          const rows = sorted(other)
          const changes = changesOf(before, rows)
          if (!changes) {
            expect(rows).toEqual(before)
            return
          }
          expect(
            listAfter(before as unknown as ListedRoom[], { t: 'rooms', request_id: 1, ...changes }),
          ).toEqual(rows)
          const same = rows.filter((row) =>
            before.some((known) => JSON.stringify(known) === JSON.stringify(row)),
          )
          if ('set' in changes) expect(changes.set.length + same.length).toBe(rows.length)
        }),
      )
    },
  )
})
