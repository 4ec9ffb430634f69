import { isWellFormed, type Json } from '../json.ts'
import { pointerPart } from './delta.ts'

/** Maximum depth of arrays and objects in one value. A scalar has 0 levels. */
export const MAX_DEPTH = 64

/** Error of a value that is not plain JSON. `path` is the RFC 6901 pointer of the place, `''` for the root. */
export class NotJson extends Error {
  override readonly name = 'NotJson'
  readonly path: string
  /** The problem, as the end of a sentence. */
  readonly found: string
  constructor(path: string, found: string) {
    super(`${path === '' ? 'the value' : `the value at ${path}`} ${found}`)
    this.path = path
    this.found = found
  }
}

/**
 * Throws NotJson unless `value` is plain JSON: null, booleans, finite numbers, well-formed strings, dense arrays and plain objects, with at
 * most MAX_DEPTH levels.
 */
export function checkJson(value: unknown): asserts value is Json {
  check(value, 1, [])
}

/** Called for each key and scalar of a value that is cloned, and with null for each array and object. An error that it throws ends the clone. */
export type Weigh = (part: string | number | boolean | null) => void

/**
 * Returns a deep copy of a value, which may be a view of a room's state, with the checks of checkJson. It omits properties that are
 * `undefined`, as JSON.stringify does.
 */
export function cloneJson(value: unknown, weigh?: Weigh): Json {
  return clone(value, 1, [], weigh)
}

type Path = (string | number)[]

function check(value: unknown, level: number, path: Path): void {
  if (typeof value !== 'object' || value === null) {
    checkScalar(value, path)
    return
  }
  checkContainer(value, level, path)
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      path.push(i)
      check(value[i], level + 1, path)
      path.pop()
    }
    return
  }
  for (const key of Object.keys(value)) {
    checkKey(key, path)
    path.push(key)
    check((value as Record<string, unknown>)[key], level + 1, path)
    path.pop()
  }
}

function clone(value: unknown, level: number, path: Path, weigh: Weigh | undefined): Json {
  if (typeof value !== 'object' || value === null) {
    checkScalar(value, path)
    weigh?.(value)
    return value
  }
  checkContainer(value, level, path)
  weigh?.(null)
  if (Array.isArray(value)) {
    const copy: Json[] = []
    for (let i = 0; i < value.length; i++) {
      path.push(i)
      copy.push(clone(value[i], level + 1, path, weigh))
      path.pop()
    }
    return copy
  }
  const copy: Record<string, Json> = {}
  for (const key of Object.keys(value)) {
    const element = (value as Record<string, unknown>)[key]
    if (element === undefined) continue
    checkKey(key, path)
    weigh?.(key)
    path.push(key)
    copy[key] = clone(element, level + 1, path, weigh)
    path.pop()
  }
  return copy
}

const fail = (path: Path, found: string): never => {
  throw new NotJson(path.map(pointerPart).join(''), found)
}

/** Throws NotJson unless a value that is not an object is JSON. */
export function checkScalar(value: unknown, path: Path): asserts value is string | number | boolean | null {
  if (value === null || typeof value === 'boolean') return
  if (typeof value === 'string') {
    if (!isWellFormed(value)) fail(path, 'is a string with half a surrogate pair')
    return
  }
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) fail(path, `is ${value}; numbers are finite`)
    return
  }
  fail(path, `is ${value === undefined ? value : `a ${typeof value}`}; use JSON`)
}

/** Throws NotJson unless an object or array at this level may be JSON, whatever its content. */
export function checkContainer(value: object, level: number, path: Path): void {
  if (level > MAX_DEPTH) fail(path, `lies deeper than ${MAX_DEPTH} levels, or contains itself`)
  if (Array.isArray(value)) return
  const prototype = Object.getPrototypeOf(value)
  // The prototype of a plain object is null, or inherits nothing: `Object.prototype`, also of another realm or of room code's.
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null)
    fail(path, `is a ${value.constructor?.name || 'class instance'}; only plain objects and arrays are JSON`)
  if (Object.getOwnPropertySymbols(value).length > 0) fail(path, 'has a symbol as a key; keys are strings')
}

/** Throws NotJson unless `key` may be a key of an object. */
export function checkKey(key: string, path: Path): void {
  if (key === '__proto__') fail(path, 'has the key __proto__')
  if (!isWellFormed(key)) fail(path, 'has a key with half a surrogate pair')
}
