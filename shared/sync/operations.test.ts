import { expect, test } from 'vitest'
import type { Json } from '../json.ts'
import { applyOperations } from '../protocol/testing/json-client-codec.ts'
import { DeltaMismatch, type Operation, toOperations } from './delta.ts'
import { diff } from './testing/diff.ts'

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
  // What is left alone is not said again, wherever it is by now.
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
