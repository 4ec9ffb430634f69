import type { Json, JsonArray, JsonObject } from '../json.ts'

/** Differences of two states. `protocol/msgpack-codec.ts` writes them, and `protocol/msgpack-client-codec.ts` reads them. */

/** Error of a delta for another state. The state is unchanged. */
export class DeltaMismatch extends Error {
  override readonly name = 'DeltaMismatch'
}

/**
 * Returns the state after `delta`. `state` is not changed, and the result shares all parts that the delta does not touch. Throws
 * DeltaMismatch if the delta does not fit.
 */
export function apply(state: Json, delta: Delta): Json {
  if (delta instanceof Replace) return delta.value
  if (typeof state !== 'object' || state === null || Array.isArray(state) !== delta instanceof ArrayDelta)
    throw new DeltaMismatch(`no ${delta instanceof ArrayDelta ? 'array' : 'object'} to change`)
  return delta instanceof ObjectDelta
    ? applyToObject(state as JsonObject, delta)
    : applyToArray(state as JsonArray, delta)
}

function applyToObject(state: JsonObject, delta: ObjectDelta): JsonObject {
  const next: Record<string, Json> = { ...state }
  for (const [i, key] of delta.keys.entries()) {
    const change = delta.changes[i]!
    // An ordinary assignment of this key would set the prototype.
    if (key === '__proto__' || (!(change instanceof Replace) && !Object.hasOwn(next, key)))
      throw new DeltaMismatch(`no key ${key} to change`)
    if (change === REMOVE) delete next[key]
    else next[key] = apply(next[key]!, change)
  }
  return next
}

function applyToArray(state: JsonArray, delta: ArrayDelta): JsonArray {
  let next = state.slice()
  for (const [i, index] of delta.keys.entries()) {
    if (!(index >= 0 && Object.hasOwn(next, index)))
      throw new DeltaMismatch(`no element ${index} of ${next.length} to change`)
    next[index] = apply(next[index]!, delta.changes[i]!)
  }
  for (const { at, remove, insert } of delta.splices) {
    if (!(at >= 0 && remove >= 0 && at + remove <= next.length))
      throw new DeltaMismatch(`no ${remove} elements at ${at} of ${next.length} to remove`)
    next = next.slice(0, at).concat(insert, next.slice(at + remove))
  }
  return next
}

/** Removes the key. */
export const REMOVE: unique symbol = Symbol('remove')

/** Change of one value: it is removed, replaced, or changed in its inside. */
export type Change = typeof REMOVE | Replace | ObjectDelta | ArrayDelta

/** The value becomes `value`. */
export class Replace {
  readonly value: Json
  /** True if the key was absent before. Only RFC 6902 distinguishes `add` from `replace`. For deltas from MessagePack it is false. */
  readonly added: boolean
  constructor(value: Json, added = false) {
    this.value = value
    this.added = added
  }
}

/**
 * Changes of some keys of an object: `changes[i]` belongs to `keys[i]`, and other keys are unchanged. Two lists use half the memory of a
 * map, and most are short.
 */
export class ObjectDelta {
  readonly keys: readonly string[]
  readonly changes: readonly Change[]
  /** True if it is known that the object has only these keys, each with a new value or with a change that is whole. */
  readonly whole: boolean
  /** Each key occurs at most once. */
  constructor(keys: readonly string[], changes: readonly Change[], whole = false) {
    this.keys = keys
    this.changes = changes
    this.whole = whole
  }
}

/** Returns true if a change of an entry has all of its new value. */
export const isWhole = (change: Change | undefined): boolean =>
  change instanceof Replace || (change instanceof ObjectDelta && change.whole)

/** Removes `remove` elements at index `at`, and inserts `insert` there. */
export interface Splice {
  readonly at: number
  readonly remove: number
  readonly insert: readonly Json[]
}

/** First changes elements in place, at the indexes `keys`. Then applies the splices in order, each to the result of the previous one. */
export class ArrayDelta {
  readonly keys: readonly number[]
  readonly changes: readonly Delta[]
  readonly splices: readonly Splice[]
  /** Each index occurs at most once. */
  constructor(keys: readonly number[], changes: readonly Delta[], splices: readonly Splice[] = []) {
    this.keys = keys
    this.changes = changes
    this.splices = splices
  }
}

/** Difference between two states: the change of the root. */
export type Delta = Exclude<Change, typeof REMOVE>

/** One RFC 6902 (JSON Patch) operation. `path` is an RFC 6901 pointer. roomful uses only these three. */
export type Operation =
  | { op: 'add'; path: string; value: Json }
  | { op: 'replace'; path: string; value: Json }
  | { op: 'remove'; path: string }

/** Returns a key or index as the next part of an RFC 6901 pointer. */
export const pointerPart = (key: string | number): string =>
  typeof key === 'number' ? `/${key}` : `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`

/**
 * Returns the delta as a JSON Patch, whose operations are applied in order. An object of which everything has changed is replaced, because an
 * operation for each entry would repeat its path.
 */
export function toOperations(delta: Delta): Operation[] {
  const operations: Operation[] = []
  write(delta, '', operations)
  return operations
}

function write(delta: Delta, path: string, to: Operation[]): void {
  if (delta instanceof Replace) {
    to.push({ op: delta.added ? 'add' : 'replace', path, value: delta.value })
    return
  }
  if (delta instanceof ObjectDelta && delta.whole && delta.keys.length > 1) {
    to.push({ op: 'replace', path, value: wholeValue(delta) })
    return
  }
  for (const [i, change] of delta.changes.entries()) {
    const below = path + pointerPart(delta.keys[i]!)
    if (change === REMOVE) to.push({ op: 'remove', path: below })
    else write(change, below, to)
  }
  if (delta instanceof ArrayDelta) writeSplices(delta, path, to)
}

/** Returns the new value of an object whose change is whole. */
const wholeValue = ({ keys, changes }: ObjectDelta): Json =>
  Object.fromEntries(
    (changes as readonly (Replace | ObjectDelta)[]).map((change, i) => [
      keys[i]!,
      change instanceof Replace ? change.value : wholeValue(change),
    ]),
  )

function writeSplices(delta: ArrayDelta, path: string, to: Operation[]): void {
  for (const { at, remove, insert } of delta.splices) {
    const replaced = Math.min(remove, insert.length)
    for (const [i, value] of insert.entries())
      to.push({ op: i < replaced ? 'replace' : 'add', path: `${path}/${at + i}`, value })
    for (let i = replaced; i < remove; i++) to.push({ op: 'remove', path: `${path}/${at + replaced}` })
  }
}
