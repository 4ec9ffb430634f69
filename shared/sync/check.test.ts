import { expect, test } from 'vitest'
import { checkJson, cloneJson, MAX_DEPTH, NotJson } from './check.ts'

class Vector {
  x = 1
}
const cyclic: Record<string, unknown> = {}
cyclic.self = cyclic
const nested = (levels: number): unknown => (levels === 0 ? 1 : [nested(levels - 1)])

test.each<[what: string, value: unknown, path: string, found: RegExp]>([
  ['undefined itself', undefined, '', /undefined/],
  ['NaN', { a: [1, Number.NaN] }, '/a/1', /NaN/],
  ['Infinity', [-Infinity], '/0', /-Infinity/],
  ['a function', { f: () => 1 }, '/f', /function/],
  ['a symbol', [Symbol('s')], '/0', /symbol/],
  ['a bigint', { n: 1n }, '/n', /bigint/],
  ['a Date', { at: new Date(0) }, '/at', /is a Date/],
  ['a Map', { m: new Map() }, '/m', /is a Map/],
  ['a class instance', [{ v: new Vector() }], '/0/v', /is a Vector/],
  ['a typed array', [new Uint8Array(2)], '/0', /Uint8Array/],
  ['a cycle', cyclic, '/self'.repeat(MAX_DEPTH), /contains itself/],
  ['what is too deep', nested(MAX_DEPTH + 1), '/0'.repeat(MAX_DEPTH), /deeper than 64/],
  // biome-ignore lint/suspicious/noSparseArray: the value that must be refused
  ['a hole in an array', { a: [1, , 3] }, '/a/1', /undefined/],
  ['half a surrogate pair', ['\ud83c'], '/0', /surrogate/],
  ['half a surrogate pair in a key', { a: { '\udfb2': 1 } }, '/a', /surrogate/],
  ['the key __proto__', { a: JSON.parse('{"__proto__":1}') }, '/a', /__proto__/],
  ['a symbol as a key', { a: { [Symbol('s')]: 1 } }, '/a', /symbol/],
  ['a path that needs escaping', { 'a/b': { 'm~n': 1n } }, '/a~1b/m~0n', /bigint/],
])('%s is not JSON', (_what, value, path, found) => {
  for (const run of [() => checkJson(value), () => cloneJson(value)]) {
    expect(run).toThrow(NotJson)
    expect(run).toThrow(expect.objectContaining({ path, message: expect.stringMatching(found) }))
  }
})

const plain = { a: [null, true, 1.5, -0, 'naïve 🎲', { '': {}, toString: [] }], b: Object.create(null) }

test('plain JSON passes, also with 64 levels', () => {
  expect(() => checkJson(plain)).not.toThrow()
  expect(() => checkJson(nested(MAX_DEPTH))).not.toThrow()
})

test('an undefined property is not JSON, and a clone omits it', () => {
  const value = { a: { b: undefined, c: 1 } }
  expect(() => checkJson(value)).toThrow('the value at /a/b is undefined')
  expect(Object.keys((cloneJson(value) as unknown as typeof value).a)).toEqual(['c'])
})

test('a clone is equal, and shares no object', () => {
  const copy = cloneJson(plain) as typeof plain
  expect(copy).toEqual({ ...plain, b: {} })
  expect(copy.a[5]).not.toBe(plain.a[5])
})
