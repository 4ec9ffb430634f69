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

/** Changes of some keys of an object; keys not named stay. */
export class ObjectDelta {
  readonly changes: ReadonlyMap<string, Change>
  constructor(changes: ReadonlyMap<string, Change>) {
    this.changes = changes
  }
}

/** At index `at`, `remove` elements go and `insert` come. */
export interface Splice {
  readonly at: number
  readonly remove: number
  readonly insert: readonly Json[]
}

/** First changes of elements in place, then the splices, one after the other, each on the array that the one before left. */
export class ArrayDelta {
  readonly changes: ReadonlyMap<number, Exclude<Change, typeof REMOVE>>
  readonly splices: readonly Splice[]
  constructor(changes: ReadonlyMap<number, Exclude<Change, typeof REMOVE>>, splices: readonly Splice[] = []) {
    this.changes = changes
    this.splices = splices
  }
}

/** The difference between two states: what happens to the root. */
export type Delta = Exclude<Change, typeof REMOVE>
