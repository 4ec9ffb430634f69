import { describe, expect, it } from 'vitest'
import { closeBuiltins, iteratorHelpers, Overwrites } from './builtins.ts'

type Anything = Record<string, Record<string, Record<string, Record<string, unknown>>>>

// In this process, as in a node: closed classes cannot be opened again.
closeBuiltins()

const bytes = new Uint8Array([1, 2, 3])

/** One value of each kind that room code can hold, with the properties that lead to a method of its class. */
const PATHS: [path: string, value: unknown, name: string][] = [
  ['__proto__.toString', {}, 'Object.prototype.toString'],
  ['constructor.assign', {}, 'Object.assign'],
  ['constructor.prototype.hasOwnProperty', {}, 'Object.prototype.hasOwnProperty'],
  ['__proto__.push', [], 'Array.prototype.push'],
  ['__proto__.constructor', [], 'Array.prototype.constructor'],
  ['constructor.from', [], 'Array.from'],
  ['push.call', [], 'Function.prototype.call'],
  ['__proto__.bind', () => 0, 'Function.prototype.bind'],
  ['__proto__.trim', '', 'String.prototype.trim'],
  ['constructor.fromCharCode', '', 'String.fromCharCode'],
  ['__proto__.toFixed', 1, 'Number.prototype.toFixed'],
  ['__proto__.valueOf', true, 'Boolean.prototype.valueOf'],
  ['__proto__.get', new Map(), 'Map.prototype.get'],
  ['__proto__.has', new Set(), 'Set.prototype.has'],
  ['constructor.now', new Date(0), 'Date.now'],
  ['__proto__.then', Promise.resolve(), 'Promise.prototype.then'],
  ['constructor.all', Promise.resolve(), 'Promise.all'],
  ['__proto__.message', new TypeError('x'), 'Error.prototype.message'],
  ['__proto__.__proto__.name', new TypeError('x'), 'Error.prototype.name'],
  ['constructor.captureStackTrace', new Error('x'), 'Error.captureStackTrace'],
  ['__proto__.__proto__.slice', bytes, 'TypedArray.prototype.slice'],
  ['__proto__.next', [].values(), 'Array Iterator.prototype.next'],
  ['__proto__.__proto__.next', (function* () {})(), 'Generator.prototype.next'],
  ...iteratorHelpers().map((value): [string, unknown, string] => [
    '__proto__.next',
    value,
    `${Reflect.get(value, Symbol.toStringTag)}.prototype.next`,
  ]),
]

/** Walks to the object that has the last property, and returns it with the name of that property. */
function walk(value: unknown, path: string): [holder: Record<string, unknown>, name: string] {
  const names = path.split('.')
  const last = names.pop()!
  const holder = names.reduce((at, name) => (at as Anything)[name], value)
  return [holder as Record<string, unknown>, last]
}

const thrownBy = (code: () => void): unknown => {
  try {
    code()
  } catch (error) {
    return error
  }
  return undefined
}

describe('Builtins', () => {
  const overwrites = new Overwrites()

  it.each(PATHS.filter(([path]) => path !== 'push.call'))(
    'keep %s, and the error names it',
    (path, value, name) => {
      const [holder, key] = walk(value, path)
      const before = holder[key]
      for (const change of [() => (holder[key] = 5), () => delete holder[key]]) {
        expect(overwrites.explain(thrownBy(change))).toMatch(`${name}, which all rooms`)
      }
      expect(holder[key]).toBe(before)
    },
  )

  it.each(PATHS)('take no new property beside %s, and no other prototype', (path, value) => {
    const [holder] = walk(value, path)
    if (holder !== (Error as unknown)) {
      expect(() => (holder.count = 1)).toThrow('object is not extensible')
      expect(() => Object.setPrototypeOf(holder, {})).toThrow(/not extensible|Immutable prototype/)
    }
  })

  it('let objects that inherit from them have properties of the same names', () => {
    const votes: Record<string, unknown> = {}
    for (const word of Object.getOwnPropertyNames(Object.prototype)) if (word !== '__proto__') votes[word] = 1
    expect(Object.keys(votes)).toContain('constructor')
    const error = Object.assign(new Error('a'), { name: 'Lost', message: 'b', toString: () => 'c' })
    expect([`${error.name} ${error.message}`, String(error)]).toEqual(['Lost b', 'c'])
    const call = Object.assign(() => 0, { toString: () => 'call', bind: 1 })
    expect(String(call)).toBe('call')
    class Bag extends Map {
      override get = () => 'mine'
    }
    expect(new Bag().get()).toBe('mine')
    function Old() {}
    Old.prototype = Object.create(Error.prototype)
    Old.prototype.constructor = Old
    expect(Old.prototype.constructor).toBe(Old)
  })

  it('let libraries change how stacks are captured', () => {
    const { stackTraceLimit, prepareStackTrace } = Error
    Error.stackTraceLimit = 0
    Error.prepareStackTrace = () => 'short'
    expect(new Error('x').stack).toBe('short')
    Error.stackTraceLimit = stackTraceLimit
    Error.prepareStackTrace = prepareStackTrace
  })

  it('do not explain other errors', () => {
    const frozen = thrownBy(() => Object.assign(Object.freeze({ push: 1 }), { push: 2 }))
    for (const thrown of [frozen, new Error('Cannot assign to it'), 'text', undefined])
      expect(overwrites.explain(thrown)).toBeUndefined()
  })
})
