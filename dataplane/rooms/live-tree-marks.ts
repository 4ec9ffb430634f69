/** An object of the state some of whose entries are marked. */
export interface Marked<C> {
  first: Mark<C> | undefined
  last: Mark<C> | undefined
}

/** An entry of an object that may have changed since the last flush, in a list with the others of its object. */
export interface Mark<C> {
  container: Marked<C>
  key: string
  /** The container that it held at the last flush; undefined: it held none. */
  before: C | undefined
  previous: Mark<C> | undefined
  next: Mark<C> | undefined
}

/** More marks than these are dropped with their flush; others are used again by the next. */
const KEPT = 1000

/**
 * The marks of one state since its last flush. Each object has its own as a list, in the order in which they came; all are used again
 * from flush to flush, so that a write allocates nothing. They are undone from the last on.
 */
export class Marks<O extends Marked<C>, C extends { placeMarked: boolean }> {
  #marks: Mark<C>[] = []
  #count = 0

  get count(): number {
    return this.#count
  }

  /** The entry `key` of `container` may change, which held the container `before`, or none. */
  add(container: O, key: string, before: C | undefined): void {
    const previous = container.last
    let mark = this.#marks[this.#count]
    if (mark === undefined) {
      mark = { container, key, before, previous, next: undefined }
      this.#marks.push(mark)
    } else {
      mark.container = container
      mark.key = key
      mark.before = before
      mark.previous = previous
      mark.next = undefined
    }
    this.#count++
    if (previous) previous.next = mark
    else container.first = mark
    container.last = mark
  }

  /** Only the first `count` stay. */
  undoTo(count: number): void {
    while (this.#count > count) {
      const { container, before, previous } = this.#marks[--this.#count]!
      container.last = previous
      if (previous) previous.next = undefined
      else container.first = undefined
      if (before) before.placeMarked = false
    }
  }

  /** None is left, neither of objects that are out of the state. */
  clear(): void {
    for (let i = 0; i < this.#count; i++) {
      const { container, before } = this.#marks[i]!
      container.first = undefined
      container.last = undefined
      if (before) before.placeMarked = false
    }
    if (this.#marks.length > KEPT) this.#marks = []
    this.#count = 0
  }
}
