import { describe, expect, test } from 'vitest'
import type { Json } from '../../json.ts'
import { ArrayDelta, ObjectDelta, REMOVE, Replace } from '../delta.ts'
import { diff } from './diff.ts'

const object = (...changes: [string, unknown][]) =>
  new ObjectDelta(
    changes.map(([key]) => key),
    changes.map(([, change]) => change) as never,
  )
const array = (changes: [number, unknown][], ...splices: [number, number, Json[]][]) =>
  new ArrayDelta(
    changes.map(([index]) => index),
    changes.map(([, change]) => change) as never,
    splices.map(([at, remove, insert]) => ({ at, remove, insert })),
  )

describe('values', () => {
  test.each<[Json, Json]>([
    [1, 1],
    [0, -0],
    [{ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] }],
    [[], []],
    [null, null],
  ])('%j and %j are equal', (previous, next) => {
    expect(diff(previous, next)).toBeUndefined()
  })

  test.each<[Json, Json]>([
    [1, '1'],
    [null, {}],
    [{}, []],
    [[], {}],
    [{ a: 1 }, null],
    [false, 0],
  ])('%j becomes %j by replacement', (previous, next) => {
    expect(diff(previous, next)).toEqual(new Replace(next))
  })
})

describe('objects', () => {
  test('keys that came, changed, went and stayed', () => {
    expect(
      diff({ a: 1, b: 2, c: { d: 3, e: 4 }, f: 5 }, { a: 1, c: { d: 3, e: 5 }, f: '5', g: null }),
    ).toEqual(
      object(
        ['c', object(['e', new Replace(5)])],
        ['f', new Replace('5')],
        ['g', new Replace(null, true)],
        ['b', REMOVE],
      ),
    )
  })

  test('a key that objects inherit is absent until it is there', () => {
    expect(diff({}, { toString: 1 })).toEqual(object(['toString', new Replace(1, true)]))
    expect(diff({ constructor: 1 }, {})).toEqual(object(['constructor', REMOVE]))
  })

  test('subtrees that both states share are not looked at', () => {
    const shared = new Proxy({}, { ownKeys: () => expect.unreachable(), get: () => expect.unreachable() })
    expect(diff({ shared, n: 1 }, { shared, n: 2 })).toEqual(object(['n', new Replace(2)]))
  })
})

describe('arrays', () => {
  const named = (name: string): Json => ({ name })
  const [a, b, c, d, e] = [named('a'), named('b'), named('c'), named('d'), named('e')]
  const changed = { name: 'a2' }
  const renamed = object(['name', new Replace('a2')])

  test.each<[what: string, previous: Json[], next: Json[], ArrayDelta]>([
    ['push', [a, b], [a, b, c], array([], [2, 0, [c]])],
    ['pop', [a, b], [a], array([], [1, 1, []])],
    ['shift', [a, b, c], [b, c], array([], [0, 1, []])],
    ['unshift', [a, b], [c, a, b], array([], [0, 0, [c]])],
    ['insertion', [a, b], [a, c, b], array([], [1, 0, [c]])],
    ['clearing', [a, b], [], array([], [0, 2, []])],
    ['filling', [], [a], array([], [0, 0, [a]])],
    ['one element changed', [b, a, c], [b, changed, c], array([[1, renamed]])],
    ['a push and a change', [a, b], [changed, b, c], array([[0, renamed]], [2, 0, [c]])],
    ['a shift and a change', [b, c, a], [c, changed], array([[2, renamed]], [0, 1, []])],
    [
      'a push when every element changed',
      [1, 2],
      [3, 4, 5],
      array(
        [
          [0, new Replace(3)],
          [1, new Replace(4)],
        ],
        [2, 0, [5]],
      ),
    ],
    ['equal elements', [1, 1, 1], [1, 1], array([], [2, 1, []])],
    ['a capped list', [a, b, c, d], [b, c, d, e], array([], [4, 0, [e]], [0, 1, []])],
    ['two removals', [a, b, c, d, e], [a, c, e], array([], [3, 1, []], [1, 1, []])],
    ['a rotation', [a, b, c, d], [d, a, b, c], array([], [3, 1, []], [0, 0, [d]])],
    [
      'a grid with two cells changed',
      [0, 0, 0, 0, 0],
      [0, 1, 0, 2, 0],
      array([
        [1, new Replace(1)],
        [3, new Replace(2)],
      ]),
    ],
  ])('%s', (_what, previous, next, delta) => {
    expect(diff(previous, next)).toEqual(delta)
  })
})
