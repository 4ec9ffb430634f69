import type { Json } from '../json.ts'

/** Removes the key. */
export const REMOVE: unique symbol = Symbol('remove')

/** What happens to one value: it goes, it is replaced, or something below it changes. */
export type Change = typeof REMOVE | Replace | ObjectDelta | ArrayDelta

/** The value becomes `value`. */
export class Replace {
  readonly value: Json
  constructor(value: Json) {
    this.value = value
  }
}

/** Changes of some keys of an object; keys not named stay. */
export class ObjectDelta {
  readonly changes: ReadonlyMap<string, Change>
  constructor(changes: ReadonlyMap<string, Change>) {
    this.changes = changes
  }
}

/** First changes of elements in place, then at index `at` `remove` elements go and `insert` come. */
export class ArrayDelta {
  readonly changes: ReadonlyMap<number, Exclude<Change, typeof REMOVE>>
  readonly at: number
  readonly remove: number
  readonly insert: readonly Json[]
  constructor(
    changes: ReadonlyMap<number, Exclude<Change, typeof REMOVE>>,
    at: number,
    remove: number,
    insert: readonly Json[],
  ) {
    this.changes = changes
    this.at = at
    this.remove = remove
    this.insert = insert
  }
}

/** The difference between two states: what happens to the root. */
export type Delta = Exclude<Change, typeof REMOVE>
