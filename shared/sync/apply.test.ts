import { expect, test } from 'vitest'
import type { Json } from '../json.ts'
import { ArrayDelta, apply, type Delta, DeltaMismatch, ObjectDelta, REMOVE, Replace } from './delta.ts'
import { diff } from './testing/diff.ts'

const object = (...changes: [string, unknown][]) =>
  new ObjectDelta(
    changes.map(([key]) => key),
    changes.map(([, change]) => change) as never,
  )

test('what a delta does not touch is shared, and the old state stays', () => {
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
