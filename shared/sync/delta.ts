import type { Json, JsonArray, JsonObject } from '../json.ts'

/** A delta was made for another state than the one it was applied to; the state is unchanged. */
export class DeltaMismatch extends Error {
  override readonly name = 'DeltaMismatch'
}

/**
 * The state after `delta`. `state` stays as it is; whatever the delta does not touch is shared with it. Throws DeltaMismatch when the
 * delta does not fit.
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
    // As a plain assignment this key would set the prototype.
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

/** What happens to one value: it goes, it is replaced, or something below it changes. */
export type Change = typeof REMOVE | Replace | ObjectDelta | ArrayDelta

/** The value becomes `value`. */
export class Replace {
  readonly value: Json
  /** The key was absent before. Only RFC 6902 tells `add` from `replace`: deltas read from MessagePack leave it false. */
  readonly added: boolean
  constructor(value: Json, added = false) {
    this.value = value
    this.added = added
  }
}

/** Changes of some keys of an object: of `keys[i]`, `changes[i]`; keys not named stay. Two lists take half of what a map does, and most are short. */
export class ObjectDelta {
  readonly keys: readonly string[]
  readonly changes: readonly Change[]
  /** No key may be there twice. */
  constructor(keys: readonly string[], changes: readonly Change[]) {
    this.keys = keys
    this.changes = changes
  }
}

/** At index `at`, `remove` elements go and `insert` come. */
export interface Splice {
  readonly at: number
  readonly remove: number
  readonly insert: readonly Json[]
}

/**
 * First changes of elements in place, whose indexes are `keys`, then the splices, one after the other, each on the array that the one
 * before left.
 */
export class ArrayDelta {
  readonly keys: readonly number[]
  readonly changes: readonly Delta[]
  readonly splices: readonly Splice[]
  /** No index may be there twice. */
  constructor(keys: readonly number[], changes: readonly Delta[], splices: readonly Splice[] = []) {
    this.keys = keys
    this.changes = changes
    this.splices = splices
  }
}

/** The difference between two states: what happens to the root. */
export type Delta = Exclude<Change, typeof REMOVE>

/** One RFC 6902 (JSON Patch) operation; `path` is an RFC 6901 pointer. roomful uses these three only. */
export type Operation =
  | { op: 'add'; path: string; value: Json }
  | { op: 'replace'; path: string; value: Json }
  | { op: 'remove'; path: string }

/** A key or index as the next part of an RFC 6901 pointer. */
export const pointerPart = (key: string | number): string =>
  typeof key === 'number' ? `/${key}` : `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`

/** The delta as a JSON Patch: operations to be applied in order. */
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
  for (const [i, change] of delta.changes.entries()) {
    const below = path + pointerPart(delta.keys[i]!)
    if (change === REMOVE) to.push({ op: 'remove', path: below })
    else write(change, below, to)
  }
  if (delta instanceof ArrayDelta) writeSplices(delta, path, to)
}

function writeSplices(delta: ArrayDelta, path: string, to: Operation[]): void {
  for (const { at, remove, insert } of delta.splices) {
    const replaced = Math.min(remove, insert.length)
    for (const [i, value] of insert.entries())
      to.push({ op: i < replaced ? 'replace' : 'add', path: `${path}/${at + i}`, value })
    for (let i = replaced; i < remove; i++) to.push({ op: 'remove', path: `${path}/${at + replaced}` })
  }
}
