import { isWellFormed, type Json } from '../json.ts'
import { pointerPart } from './operations.ts'

/** How many arrays and objects may lie within each other in one value; a scalar has 0 levels. */
export const MAX_DEPTH = 64

/** A value is not plain JSON. `path` is the RFC 6901 pointer of the place, `''` for the root. */
export class NotJson extends Error {
  override readonly name = 'NotJson'
  readonly path: string
  /** What is wrong there, as the end of a sentence. */
  readonly found: string
  constructor(path: string, found: string) {
    super(`${path === '' ? 'the value' : `the value at ${path}`} ${found}`)
    this.path = path
    this.found = found
  }
}

/**
 * Throws NotJson unless `next` is plain JSON: null, booleans, finite numbers, well-formed strings, dense arrays and plain objects, at
 * most MAX_DEPTH levels deep. Parts that `next` shares with `previous` in the same place are taken as checked already.
 */
export function checkJson(previous: unknown, next: unknown): asserts next is Json {
  check(previous, next, 1, [])
}

/**
 * As checkJson, for what has become of a value that was checked: returns how many bytes it may have grown by as MessagePack. Never less than it
 * has, and more where scalars were replaced, or elements moved about; known from what there was to check, so that it costs nothing more.
 */
export function checkChange(previous: Json, next: unknown): number {
  return check(previous, next, 1, [])
}

/** A deep copy of a value, which may be a mutative draft, with the checks of checkJson. */
export function cloneJson(value: unknown): Json {
  return clone(value, 1, [])
}

type Path = (string | number)[]

/** At most, of any array or object besides what is in it, and of any number. */
const CONTAINER_BYTES = 5
const NUMBER_BYTES = 9
/** At most, of a string in UTF-8. */
const stringBytes = (text: string): number => 5 + 3 * text.length

/** Returns the most bytes that `next` has more than `previous`: of each part of `previous` only one of `next` may take it for its own. */
function check(previous: unknown, next: unknown, level: number, path: Path): number {
  if (next === previous && next !== undefined) return 0
  if (typeof next !== 'object' || next === null) {
    checkScalar(next, path)
    return typeof next === 'string' ? stringBytes(next) : NUMBER_BYTES
  }
  checkContainer(next, level, path)
  let bytes = CONTAINER_BYTES
  if (Array.isArray(next)) {
    const before: unknown[] = Array.isArray(previous) ? previous : []
    const moved = before.length - next.length
    for (let i = 0; i < next.length; i++) {
      const element = next[i]
      if (element === before[i] && element !== undefined) continue
      // An element that one splice moved is as checked as one that stayed, unless that one is here as well.
      const from = i + moved
      if (element === before[from] && element !== undefined && next[from] !== before[from]) continue
      const gone = i < before.length && next[i - moved] !== before[i]
      path.push(i)
      bytes += check(gone ? before[i] : undefined, element, level + 1, path)
      path.pop()
    }
    return bytes
  }
  const before =
    typeof previous === 'object' && previous !== null ? (previous as Record<string, unknown>) : {}
  for (const key of Object.keys(next)) {
    const value = (next as Record<string, unknown>)[key]
    // Inherited properties are functions, or hide behind __proto__: neither is taken for a value that was checked before.
    if (before[key] === value && value !== undefined && typeof value !== 'function' && key !== '__proto__')
      continue
    const known = Object.hasOwn(before, key)
    if (!known) {
      checkKey(key, path)
      bytes += stringBytes(key)
    }
    path.push(key)
    bytes += check(known ? before[key] : undefined, value, level + 1, path)
    path.pop()
  }
  return bytes
}

function clone(value: unknown, level: number, path: Path): Json {
  if (typeof value !== 'object' || value === null) {
    checkScalar(value, path)
    return value as Json
  }
  checkContainer(value, level, path)
  const below = (key: string | number, element: unknown) => {
    path.push(key)
    const copy = clone(element, level + 1, path)
    path.pop()
    return copy
  }
  if (Array.isArray(value)) {
    const copy: Json[] = []
    for (let i = 0; i < value.length; i++) copy.push(below(i, value[i]))
    return copy
  }
  const copy: Record<string, Json> = {}
  for (const key of Object.keys(value)) {
    checkKey(key, path)
    copy[key] = below(key, (value as Record<string, unknown>)[key])
  }
  return copy
}

const fail = (path: Path, found: string): never => {
  throw new NotJson(path.map(pointerPart).join(''), found)
}

export function checkScalar(value: unknown, path: Path): void {
  if (value === null || typeof value === 'boolean') return
  if (typeof value === 'string') {
    if (!isWellFormed(value)) fail(path, 'is a string with half a surrogate pair, which no UTF-8 can carry')
    return
  }
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) fail(path, `is ${value}; JSON numbers are finite`)
    return
  }
  fail(path, `is ${typeof value === 'undefined' ? 'undefined' : `a ${typeof value}`}; JSON has no such value`)
}

export function checkContainer(value: object, level: number, path: Path): void {
  if (level > MAX_DEPTH) fail(path, `lies deeper than ${MAX_DEPTH} levels, or contains itself`)
  if (Array.isArray(value)) return
  const prototype = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null)
    fail(path, `is a ${value.constructor?.name || 'class instance'}; only plain objects and arrays are JSON`)
  if (Object.getOwnPropertySymbols(value).length > 0) fail(path, 'has a symbol as a key; keys are strings')
}

export function checkKey(key: string, path: Path): void {
  if (key === '__proto__') fail(path, 'has the key __proto__, which is not allowed')
  if (!isWellFormed(key)) fail(path, 'has a key with half a surrogate pair, which no UTF-8 can carry')
}
