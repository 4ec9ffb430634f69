import { expect, test } from 'vitest'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import type { Json } from '../json.ts'
import { apply } from './apply.ts'
import { Checksum } from './checksum.ts'
import { diff } from './testing/diff.ts'

const of = (state: Json) => new Checksum().of(state)

test('states that differ, however little, have different checksums', () => {
  const states: Json[] = [
    null,
    true,
    false,
    0,
    1,
    -1,
    0.5,
    2 ** 32,
    2 ** 53 - 1,
    1e300,
    5e-324,
    '',
    '0',
    '1',
    'null',
    'true',
    'a',
    'b',
    'ab',
    'ba',
    'é',
    'e\u0301',
    '\0',
    '\0\0',
    '🎲',
    [],
    {},
    [null],
    [[]],
    [{}],
    { a: null },
    { '': null },
    { a: [] },
    { a: {} },
    [0],
    [1],
    ['1'],
    [0, 1],
    [1, 0],
    [0, 0],
    [0, 0, 0],
    { 0: 0 },
    { 0: 0, 1: 0 },
    [[0], 1],
    [0, [1]],
    [[0, 1]],
    { a: 1, b: 2 },
    { a: 2, b: 1 },
    { b: 1 },
    { a: 1 },
    { a: 1, b: 1 },
    { a: { x: 1 }, b: { x: 2 } },
    { a: { x: 2 }, b: { x: 1 } },
    { a: { x: 1, y: 1 } },
    { a: { x: 1 }, y: 1 },
    [{ x: 1 }, { x: 2 }],
    [{ x: 2 }, { x: 1 }],
    ['ab', 'c'],
    ['a', 'bc'],
    { a: { b: {} } },
    { b: { a: {} } },
  ]
  expect(new Set(states.map(of)).size).toBe(states.length)
})

test('the order of keys and the sign of zero mean nothing', () => {
  expect(of({ a: 1, b: [0] })).toBe(of({ b: [-0], a: 1 }))
})

test('a checksum is an integer of 32 bits without sign', () => {
  for (let i = 0; i < 100; i++) {
    const sum = of({ i })
    expect(Number.isInteger(sum) && sum >= 0 && sum < 2 ** 32).toBe(true)
  }
})

test('a changed bit anywhere changes about half the bits', () => {
  const random = new SeededRandom(5)
  const bits = (n: number) => n.toString(2).replaceAll('0', '').length
  const number = () => Math.floor(random.float() * 2 ** 31)
  const state = (n: number) => ({ players: { anna: { x: n, y: 5, tags: ['red', 'blue'] } }, tick: 9 })
  let flipped = 0
  for (let i = 0; i < 2000; i++) {
    const n = number()
    flipped += bits((of(state(n)) ^ of(state(n ^ (1 << (i % 31))))) >>> 0)
  }
  expect(flipped / 2000).toBeGreaterThan(15.5)
  expect(flipped / 2000).toBeLessThan(16.5)
})

test('100,000 neighbouring states collide no more than chance has it', () => {
  const seen = new Set<number>()
  for (let i = 0; i < 100_000; i++) seen.add(of({ x: i % 317, y: Math.floor(i / 317) }))
  // Expected: n² / 2^33 ≈ 1.2 collisions.
  expect(seen.size).toBeGreaterThan(99_992)
})

test('the checksum after a change reads the changed parts only, however wide the state is', () => {
  let read = 0
  const counted = (object: Record<string, Json>) =>
    new Proxy(object, {
      get: (target, key) => {
        read++
        return target[key as string]
      },
    })
  const players = Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`p${i}`, { x: i, y: 0 }]))
  const previous = { players: counted(players), log: ['start'] }
  const next = { players: counted({ ...players, p7: { x: 7, y: 1 } }), log: ['start', 'moved'] }
  const sums = new Checksum()
  sums.of(previous)
  const delta = diff(previous, next)!
  read = 0
  expect(sums.after(previous, next, delta)).toBe(of(next))
  // `of` of the comparison above reads every player once; `after` a handful.
  expect(read - 10_000).toBeLessThan(10)
})

test('drift of one client value is seen', () => {
  const previous = { players: { anna: { hp: 10 }, bert: { hp: 10 } } }
  const next = { players: { anna: { hp: 9 }, bert: { hp: 10 } } }
  const drifted = { players: { anna: { hp: 10 }, bert: { hp: 11 } } }
  const delta = diff(previous, next)!
  const server = new Checksum()
  const client = new Checksum()
  expect(client.after(drifted, apply(drifted, delta), delta)).not.toBe(server.after(previous, next, delta))
})
