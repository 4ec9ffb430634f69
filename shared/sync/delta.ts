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

/** First changes of elements in place, whose indexes are `keys`, then the splices, one after the other, each on the array that the one before left. */
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
