import fc from 'fast-check'
import { applyPatch } from 'rfc6902'
import { expect, test } from 'vitest'
import { statePair } from '../../test/support/json-arbitrary.ts'
import { runLength } from '../../test/support/run-length.ts'
import type { Json } from '../json.ts'
import { applyOperations } from '../protocol/testing/json-client-codec.ts'
import { Checksum } from './checksum.ts'
import {
  ArrayDelta,
  apply,
  type Delta,
  DeltaMismatch,
  ObjectDelta,
  type Operation,
  REMOVE,
  Replace,
  toOperations,
} from './delta.ts'
import { diff } from './testing/diff.ts'

const object = (...changes: [string, unknown][]) =>
  new ObjectDelta(
    changes.map(([key]) => key),
    changes.map(([, change]) => change) as never,
  )

test('the result shares the parts that a delta does not touch, and the old state is unchanged', () => {
  const previous = { a: { deep: { x: 1 } }, b: [{ n: 1 }, { n: 2 }] }
  const before = structuredClone(previous)
  const next = apply(
    previous,
    diff(previous, { a: previous.a, b: [{ n: 1 }, { n: 3 }, { n: 4 }] })!,
  ) as typeof previous
  expect(next).toEqual({ a: { deep: { x: 1 } }, b: [{ n: 1 }, { n: 3 }, { n: 4 }] })
  expect(next.a).toBe(previous.a)
  expect(next.b[0]).toBe(previous.b[0])
  expect(previous).toEqual(before)
})

test.each<[what: string, state: Json, delta: Delta]>([
  ['an object delta on an array', [], object(['a', new Replace(1)])],
  ['an object delta on a scalar', 5, object(['a', new Replace(1)])],
  ['an array delta on an object', {}, new ArrayDelta([], [])],
  ['an array delta on null', null, new ArrayDelta([], [])],
  ['removing a key that is not there', {}, object(['a', REMOVE])],
  ['removing a key that objects inherit', {}, object(['toString', REMOVE])],
  ['changing below a key that is not there', {}, object(['constructor', object(['name', new Replace(1)])])],
  ['an element behind the end', [1], new ArrayDelta([1], [new Replace(1)])],
  ['an element that is no index', [1], new ArrayDelta(['length'] as never, [new Replace(0)])],
  ['half an element', [1], new ArrayDelta([0.5], [new Replace(1)])],
  ['a splice behind the end', [1], new ArrayDelta([], [], [{ at: 1, remove: 1, insert: [] }])],
  ['a splice before the start', [1], new ArrayDelta([], [], [{ at: -1, remove: 1, insert: [] }])],
  ['setting the prototype', {}, object(['__proto__', new Replace({ polluted: true })])],
  ['changing the prototype', {}, object(['__proto__', object(['polluted', new Replace(true)])])],
])('%s is refused', (_what, state, delta) => {
  const before = structuredClone(state)
  expect(() => apply(state, delta)).toThrow(DeltaMismatch)
  expect(state).toEqual(before)
  expect(({} as Record<string, unknown>).polluted).toBeUndefined()
})

test('a splice may insert more elements than a call has arguments', () => {
  const insert = Array.from({ length: 300_000 }, (_, i) => i)
  expect(apply([], new ArrayDelta([], [], [{ at: 0, remove: 0, insert }]))).toHaveLength(300_000)
})

test.each<[Json, Json, Operation[]]>([
  [
    { a: 1 },
    { a: 2, b: 3 },
    [
      { op: 'replace', path: '/a', value: 2 },
      { op: 'add', path: '/b', value: 3 },
    ],
  ],
  [{ a: 1 }, {}, [{ op: 'remove', path: '/a' }]],
  [
    { 'a/b': { 'm~n': 1, '': 2 } },
    { 'a/b': { 'm~n': 3, '': 4 } },
    [
      { op: 'replace', path: '/a~1b/m~0n', value: 3 },
      { op: 'replace', path: '/a~1b/', value: 4 },
    ],
  ],
  [1, [2], [{ op: 'replace', path: '', value: [2] }]],
  [{ l: [1, 2] }, { l: [1, 2, 3] }, [{ op: 'add', path: '/l/2', value: 3 }]],
  [
    [1, 2, 3],
    [3],
    [
      { op: 'remove', path: '/0' },
      { op: 'remove', path: '/0' },
    ],
  ],
  // Unchanged elements are not written again, wherever they moved.
  [
    [1, 2, 3, 4],
    [2, 3, 4, 5],
    [
      { op: 'add', path: '/4', value: 5 },
      { op: 'remove', path: '/0' },
    ],
  ],
  [
    [1, 2, 3, 4],
    [4, 1, 2, 3],
    [
      { op: 'remove', path: '/3' },
      { op: 'add', path: '/0', value: 4 },
    ],
  ],
  [
    [1, 2, 3, 4, 5],
    [1, 3, 5],
    [
      { op: 'remove', path: '/3' },
      { op: 'remove', path: '/1' },
    ],
  ],
  [[1, 1, 1], [1, 1], [{ op: 'remove', path: '/2' }]],
  [
    ['a', { n: 1 }, 'c'],
    ['a', { n: 2 }, 'c', 'd'],
    [
      { op: 'replace', path: '/1/n', value: 2 },
      { op: 'add', path: '/3', value: 'd' },
    ],
  ],
])('from %j to %j', (previous, next, operations) => {
  expect(toOperations(diff(previous, next)!)).toEqual(operations)
  expect(applyOperations(previous, operations)).toEqual(next)
})

test.each<[Json, Operation]>([
  [{}, { op: 'remove', path: '/a' }],
  [{}, { op: 'replace', path: '/toString', value: 1 }],
  [{}, { op: 'add', path: '/a/b', value: 1 }],
  [{}, { op: 'add', path: '/__proto__', value: {} }],
  [{}, { op: 'add', path: 'a', value: 1 }],
  [[1], { op: 'add', path: '/2', value: 1 }],
  [[1], { op: 'replace', path: '/1', value: 1 }],
  [[1], { op: 'replace', path: '/00', value: 1 }],
  [5, { op: 'add', path: '/a', value: 1 }],
])('%j has no place for %j', (state, operation) => {
  expect(() => applyOperations(state, [operation])).toThrow(DeltaMismatch)
})

test('for random pairs of states, the difference leads from one to the other in every encoding', () => {
  fc.assert(
    fc.property(statePair(), ([previous, next]) => {
      const delta = diff(previous, next)
      if (!delta) {
        expect(previous).toEqual(next)
        return
      }
      const applied = apply(previous, delta)
      expect(applied).toEqual(next)
      expectShared(previous, applied, delta)

      const checksum = new Checksum().of(next)
      for (const state of [next, applied]) {
        const sums = new Checksum()
        sums.of(previous)
        expect(sums.after(previous, state, delta)).toBe(checksum)
        expect(sums.of(state)).toBe(checksum)
      }

      const operations = toOperations(delta)
      expect(applyOperations(previous, operations)).toEqual(next)
      // That library cannot replace the whole document, so the state is a part of one.
      const document = structuredClone({ root: previous })
      const below = operations.map((operation) => ({
        ...structuredClone(operation),
        path: `/root${operation.path}`,
      }))
      expect(applyPatch(document, below)).toEqual(below.map(() => null))
      expect(document.root).toEqual(next)
    }),
    { numRuns: runLength(500, 3_000) },
  )
})

test('checksums stay correct along a chain of states', () => {
  fc.assert(
    fc.property(fc.array(statePair(), { minLength: 2, maxLength: 5 }), (pairs) => {
      const [first, ...states] = pairs.flat()
      const sums = new Checksum()
      let state: Json = first ?? null
      sums.of(state)
      for (const next of states) {
        const delta = diff(state, next)
        if (!delta) continue
        const applied = apply(state, delta)
        expect(sums.after(state, applied, delta)).toBe(new Checksum().of(next))
        state = applied
      }
    }),
    { numRuns: 500 },
  )
})

/** Expects that parts without a change are the same objects before and after. */
function expectShared(previous: Json, next: Json, delta: Delta): void {
  if (delta instanceof ObjectDelta) {
    const [before, after] = [previous, next] as Record<string, Json>[]
    for (const key of Object.keys(after!)) {
      const change = delta.changes[delta.keys.indexOf(key)]
      if (!change) expect(after![key]).toBe(before![key])
      else if (typeof change !== 'symbol') expectShared(before![key]!, after![key]!, change)
    }
  } else if (delta instanceof ArrayDelta) {
    const kept = (previous as Json[]).filter(
      (element, i) => typeof element === 'object' && !delta.keys.includes(i),
    )
    const removed = delta.splices.reduce((sum, { remove }) => sum + remove, 0)
    expect(kept.filter((element) => (next as Json[]).includes(element)).length).toBeGreaterThanOrEqual(
      kept.length - removed,
    )
  }
}
