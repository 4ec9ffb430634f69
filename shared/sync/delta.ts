import type { Json } from '../json.ts'

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
