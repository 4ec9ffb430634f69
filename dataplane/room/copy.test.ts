import { isDeepStrictEqual } from 'node:util'
import { expect, test } from 'vitest'
import { deepCopy } from './copy.ts'

test('a copy equals its value, and shares no object or array with it', () => {
  const value = { list: [{ n: 1 }, [2]], constructor: 1, nothing: null, text: 'a' }
  const copy = deepCopy(value)
  expect(isDeepStrictEqual(copy, value)).toBe(true)
  expect([copy.list === value.list, copy.list[0] === value.list[0], copy.list[1] === value.list[1]]).toEqual([
    false,
    false,
    false,
  ])
  expect([deepCopy(null), deepCopy('text'), deepCopy(3)]).toEqual([null, 'text', 3])
})

test('a copy has ordinary prototypes, also of objects without one, and keeps objects of other classes', () => {
  const at = new Date()
  const copy = deepCopy({ at, bare: Object.assign(Object.create(null), { x: 1 }) })
  expect(copy.at).toBe(at)
  expect(isDeepStrictEqual(copy.bare, { x: 1 })).toBe(true)
})

test('a key __proto__ of a value stays a key, and becomes no prototype', () => {
  const copy = deepCopy(JSON.parse('{"a":{"__proto__":{"admin":true}}}'))
  expect([Object.keys(copy.a), copy.a.admin]).toEqual([['__proto__'], undefined])
})

test('a value that contains itself has a copy that contains itself', () => {
  const loop: { self?: unknown; list: unknown[] } = { list: [] }
  loop.self = loop
  loop.list.push(loop)
  const copy = deepCopy(loop)
  expect([copy.self === copy, copy.list[0] === copy, copy === loop]).toEqual([true, true, false])
})
