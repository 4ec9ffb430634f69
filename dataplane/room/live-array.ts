import type { Json } from '../../shared/json.ts'
import { gaps } from '../../shared/sync/align.ts'
import { hashEntry } from '../../shared/sync/checksum.ts'
import { ArrayDelta, type Change, type Delta, type Splice } from '../../shared/sync/delta.ts'
import { RoomLogicError } from './failures.ts'
import { arrayPrototype } from './guarded.ts'
import {
  type Before,
  bytesOf,
  CONTAINER,
  changeOf,
  containerOf,
  firstFlushOf,
  flushedOf,
  hashOf,
  isViewOf,
  Live,
  notJson,
  plainOf,
  type Slot,
  type Step,
  viewOf,
} from './live-object.ts'

const NO_MARKS: ReadonlyMap<number, Slot> = new Map()

/** Data for the undo of a splice. */
interface Spliced {
  readonly removed: readonly Slot[]
  readonly inserted: number
  readonly known: number
}

/**
 * An array of the live tree, and the view of it that room code gets. During a turn, it can have holes: `Array.prototype.splice` and others
 * leave some until they end. The turn fails if one is left at its end (`LiveTree.requireDense`).
 */
export class LiveArray extends Live {
  /** A hole is `undefined`. */
  readonly target: Slot[] = []
  /** Number of holes. */
  holes = 0
  flushed: Json[] | undefined
  /**
   * Elements of the last flush, from the first index on at which elements were added, removed or moved since. In reverse order, so that the
   * array grows at its end. Elements before that index have not moved.
   */
  #moved: Slot[] = []
  /** Elements before that index that may have changed since the last flush, with their values at that flush. */
  #marks: Map<number, Slot> | undefined

  get isArray(): true {
    return true
  }

  get(target: Slot[], key: string | symbol): unknown {
    this.tree.requireOpen()
    const slot: unknown = target[key as never]
    if (typeof slot === 'object') return viewOf(slot as Slot)
    if (slot === undefined) return key === CONTAINER ? this : undefined
    return typeof slot === 'function' ? ARRAY_PROTOTYPE[key] : slot
  }

  has(target: Slot[], key: string | symbol): boolean {
    this.tree.requireOpen()
    return (Object.hasOwn(target, key) && target[key as never] !== undefined) || key in ARRAY_PROTOTYPE
  }

  getPrototypeOf(): object {
    return ARRAY_PROTOTYPE
  }

  set(target: Slot[], key: string | symbol, value: unknown): true {
    this.tree.requireOpen()
    if (key === 'length') this.#resize(value)
    else {
      const index = Number(key as string)
      if (typeof key === 'symbol' || String(index) !== key || !(index >= 0 && Number.isInteger(index)))
        throw notJson(this, undefined, `has the key ${String(key)}; arrays have elements only`)
      if (index < target.length) this.#write(index, value)
      else this.#append(index, value)
    }
    return true
  }

  deleteProperty(target: Slot[], key: string | symbol): true {
    this.tree.requireOpen()
    if (typeof key === 'symbol') return true
    const index = Number(key)
    const before = target[index]
    if (before === undefined || String(index) !== key) return true
    this.#willHaveHole(undefined, `would have a hole at ${index}; JSON arrays have none: use splice`)
    this.#change(index, before, undefined)
    return true
  }

  ownKeys(target: Slot[]): (string | symbol)[] {
    this.tree.requireOpen()
    const keys = Reflect.ownKeys(target)
    return this.holes === 0 ? keys : keys.filter((key) => target[key as never] !== undefined)
  }

  /** Removes elements at `at` and inserts others, which are in the array already or new to the tree. Returns the removed elements. */
  splice(at: number, remove: number, inserted: readonly Slot[]): readonly Slot[] {
    if (remove === 0 && inserted.length === 0) return inserted
    const known = this.#moved.length
    this.#moveFrom(at)
    this.parent?.touch(this)
    for (let i = at; i < at + remove; i++) this.willReplace(this.target[i])
    const removed = this.#exchange(at, remove, inserted)
    this.tree.log('spliced', this, at, { removed, inserted: inserted.length, known } satisfies Spliced)
    return removed
  }

  /** Puts all elements into another order, by a splice from the first moved element on. */
  rearrange(elements: readonly Slot[]): void {
    const { target } = this
    let at = 0
    while (at < target.length && target[at] === elements[at]) at++
    this.splice(at, target.length - at, elements.slice(at))
  }

  undo(kind: Step['kind'], key: number, before: unknown): void {
    if (kind === 'marked') this.#marks?.delete(key)
    else if (kind === 'written') this.#put(key, before as Before)
    else {
      const { removed, inserted, known } = before as Spliced
      this.#exchange(key, inserted, removed)
      this.#moved.length = known
    }
  }

  add(slot: Slot, _: number): void {
    this.target.push(slot)
    this.bytes += bytesOf(slot)
  }

  touch(element: Live): void {
    const index = element.key as number
    if (this.flushed !== undefined && index < this.#still) this.#mark(index, element)
  }

  flush(): Change | undefined {
    const { flushed, target } = this
    if (flushed === undefined) return undefined
    const still = this.#still
    const indexes: number[] = []
    const changes: Delta[] = []
    const change = (index: number, delta: Change | undefined) => {
      if (!delta) return
      indexes.push(index)
      changes.push(delta as Delta)
    }
    for (const [index, before] of this.#marks ?? NO_MARKS) {
      if (index >= still) continue
      const now = target[index]!
      if (now === before && typeof now !== 'object') continue
      this.sum -= hashEntry(index, hashOf(before))
      change(index, changeOf(before, now, true))
      flushed[index] = flushedOf(now)
      this.sum = (this.sum + hashEntry(index, hashOf(now))) | 0
    }
    this.#marks = undefined
    const splices = still < flushed.length || still < target.length ? this.#flushFrom(still, change) : []
    return changes.length > 0 || splices.length > 0 ? new ArrayDelta(indexes, changes, splices) : undefined
  }

  /**
   * Flushes the elements from `still` on, some of which were added, removed or moved. Calls `changed` for those that stayed and have
   * changed.
   */
  #flushFrom(still: number, changed: (index: number, delta: Change | undefined) => void): Splice[] {
    const flushed = this.flushed!
    const previous = this.#moved.reverse()
    const next = this.target.slice(still)
    this.#moved = []
    for (let i = 0; i < previous.length; i++) this.sum -= hashEntry(still + i, hashOf(previous[i]!))
    const stayed = new Map<Slot, Change>()
    for (const slot of next) {
      const change = typeof slot === 'object' ? slot?.flush() : undefined
      if (change) stayed.set(slot, change)
    }
    const splices: Splice[] = []
    let old = 0
    let young = 0
    const keep = (end: number) => {
      for (; young < end; old++, young++) {
        changed(still + old, stayed.get(next[young]!))
      }
    }
    for (const gap of gaps(previous, next)) {
      keep(gap.next)
      for (; old < gap.previousEnd && young < gap.nextEnd; old++, young++) {
        const [before, now] = [previous[old]!, next[young]!]
        const free = typeof before !== 'object' || before?.parent !== this
        changed(still + old, before === now ? stayed.get(now) : changeOf(before, now, free))
      }
      const at = still + old
      const insert: Json[] = []
      for (; young < gap.nextEnd; young++) {
        const slot = next[young]!
        if (typeof slot === 'object' && slot?.flushed === undefined) slot?.firstFlush()
        insert.push(plainOf(slot))
      }
      if (old < gap.previousEnd || insert.length > 0)
        splices.push({ at, remove: gap.previousEnd - old, insert })
      old = gap.previousEnd
    }
    keep(next.length)
    flushed.length = still
    for (const [i, slot] of next.entries()) {
      flushed.push(flushedOf(slot))
      if (typeof slot === 'object' && slot !== null) slot.key = still + i
      this.sum += hashEntry(still + i, hashOf(slot))
    }
    this.sum |= 0
    // From back to front, so that every index is one of the old array.
    return splices.reverse()
  }

  supersede(before: LiveArray): Change | undefined {
    this.flushed = before.flushed!
    this.sum = before.sum
    const still = before.#still
    this.#moved = before.#moved
    for (let i = still - 1; i >= 0; i--) this.#moved.push(before.#known(i))
    before.flushed = undefined
    before.#moved = []
    return this.flush()
  }

  firstFlush(): Json[] {
    let sum = 0
    const flushed: Json[] = []
    for (const [i, slot] of this.target.entries()) {
      flushed.push(firstFlushOf(slot))
      if (typeof slot === 'object' && slot !== null) slot.key = i
      sum = (sum + hashEntry(i, hashOf(slot))) | 0
    }
    this.sum = sum
    this.flushed = flushed
    return flushed
  }

  plain(): Json {
    return this.target.map(plainOf)
  }

  /** Elements before this index have not moved since the last flush. */
  get #still(): number {
    return this.flushed!.length - this.#moved.length
  }

  /** Returns the element at `index` (below `#still`) as of the last flush. */
  #known(index: number): Slot {
    return this.#marks?.has(index) ? this.#marks.get(index)! : this.target[index]!
  }

  /** Elements from `at` on will move. */
  #moveFrom(at: number): void {
    if (this.flushed !== undefined)
      for (let i = this.#still - 1; i >= at; i--) this.#moved.push(this.#known(i))
  }

  /** Returns values as elements from `at` on. */
  copies(values: readonly unknown[], at: number): Slot[] {
    return values.map((value, i) => this.tree.copied(value, this, at + i))
  }

  #write(index: number, value: unknown): void {
    const before: Before = this.target[index]
    if (before === value ? before !== undefined : isViewOf(value, before)) return
    this.#change(index, before, this.tree.copied(value, this, index))
  }

  /** Writes an element at or behind the end. Elements between are holes. */
  #append(index: number, value: unknown): void {
    const { length } = this.target
    const gap = index - length
    const found = `would leave a hole behind the ${length} elements; JSON arrays have none`
    if (gap > 0) {
      if (!this.tree.mayLeave(gap)) throw notJson(this, index, found)
      this.#willHaveHole(index, found)
    }
    const slot = this.tree.copied(value, this, index)
    this.splice(length, 0, gap === 0 ? [slot] : [...Array(gap), slot])
  }

  /** Keeps the error for the end of the turn, so that its stack shows the write. */
  #willHaveHole(index: number | undefined, found: string): void {
    if (this.holes === 0) this.tree.holed(this, notJson(this, index, found))
  }

  /** Replaces an element. Undefined: a hole. */
  #change(index: number, before: Before, after: Before): void {
    this.willReplace(before)
    this.tree.log('written', this, index, before)
    // A hole has a mark already.
    if (before !== undefined && this.flushed !== undefined && index < this.#still) this.#mark(index, before)
    this.#put(index, after)
  }

  #mark(index: number, before: Slot): void {
    if (this.#marks?.has(index)) return
    this.#marks ??= new Map()
    this.#marks.set(index, before)
    this.tree.log('marked', this, index, undefined)
    this.parent?.touch(this)
  }

  #put(index: number, slot: Before): void {
    const before: Before = this.target[index]
    if (before === undefined) this.holes--
    else if (typeof before === 'object' && before?.parent === this) before.parent = undefined
    if (slot === undefined) this.holes++
    else if (typeof slot === 'object' && slot !== null) slot.parent = this
    this.target[index] = slot as Slot
    this.grow(bytesOf(slot) - bytesOf(before))
  }

  #resize(length: unknown): void {
    const { target } = this
    if (!(typeof length === 'number' && Number.isInteger(length) && length >= 0 && length <= target.length))
      throw notJson(
        this,
        undefined,
        `cannot have the length ${String(length)}: it has ${target.length} elements, and JSON arrays have no holes`,
      )
    this.splice(length, target.length - length, [])
  }

  #exchange(at: number, remove: number, inserted: readonly Slot[]): Slot[] {
    const { target } = this
    let removed: Slot[]
    if (inserted.length < 1000) removed = target.splice(at, remove, ...inserted)
    else {
      // More arguments would not fit on the stack.
      const behind = target.splice(at)
      removed = behind.splice(0, remove)
      for (const slot of inserted) target.push(slot)
      for (const slot of behind) target.push(slot)
    }
    let bytes = 0
    for (const slot of removed) {
      bytes -= bytesOf(slot)
      if (slot === undefined) this.holes--
      else if (typeof slot === 'object' && slot?.parent === this) slot.parent = undefined
    }
    for (const slot of inserted) {
      bytes += bytesOf(slot)
      if (slot === undefined) this.holes++
      // A part of the array that has replaced this one stays there.
      else if (typeof slot === 'object' && slot !== null) slot.parent ??= this
    }
    this.grow(bytes)
    return removed
  }
}

function arrayOf(view: unknown): LiveArray {
  const container = containerOf(view)
  if (container instanceof LiveArray) return container
  throw new TypeError('a method of an array of the state was called on something else')
}

/** The array methods that move elements. Moved elements keep their identity and their views. */
const METHODS = {
  push(...values: unknown[]): number {
    const array = arrayOf(this)
    array.splice(array.target.length, 0, array.copies(values, array.target.length))
    return array.target.length
  },
  pop(): unknown {
    const array = arrayOf(this)
    return viewOf(array.splice(array.target.length - 1, Math.min(1, array.target.length), [])[0])
  },
  shift(): unknown {
    const array = arrayOf(this)
    return viewOf(array.splice(0, Math.min(1, array.target.length), [])[0])
  },
  unshift(...values: unknown[]): number {
    const array = arrayOf(this)
    array.splice(0, 0, array.copies(values, 0))
    return array.target.length
  },
  splice(...given: unknown[]): unknown[] {
    const array = arrayOf(this)
    const [start, count, ...values] = given
    const { length } = array.target
    const at = indexIn(length, start)
    const most = length - at
    const remove =
      given.length === 0 ? 0 : given.length === 1 ? most : Math.min(Math.max(toInteger(count), 0), most)
    return array.splice(at, remove, array.copies(values, at)).map(viewOf)
  },
  reverse(): unknown {
    const array = arrayOf(this)
    array.rearrange(array.target.toReversed())
    return this
  },
  sort(compare?: (a: unknown, b: unknown) => number): unknown {
    const array = arrayOf(this)
    const before = array.target.slice()
    const sorted = before.map(viewOf).sort(compare)
    if (before.some((slot, i) => slot !== array.target[i]) || before.length !== array.target.length)
      throw new RoomLogicError('an array of the state was changed while it was sorted')
    array.rearrange(sorted.map((value) => (containerOf(value) ?? value) as Slot))
    return this
  },
  copyWithin(...where: [number, number, number?]): unknown {
    const array = arrayOf(this)
    const { target } = array
    const next = target.slice().copyWithin(...where)
    const placed = new Set(next.filter((slot, i) => slot === target[i]))
    // An element that would be at two places is copied.
    array.rearrange(
      next.map((slot, i) => {
        if (typeof slot !== 'object' || slot === null || slot === target[i]) return slot
        if (placed.has(slot)) return array.copies([viewOf(slot)], i)[0]!
        placed.add(slot)
        return slot
      }),
    )
    return this
  },
  fill(value: unknown, ...[start, end]: [number?, number?]): unknown {
    const array = arrayOf(this)
    const { length } = array.target
    const from = indexIn(length, start)
    const to = Math.max(from, end === undefined ? length : indexIn(length, end))
    array.splice(from, to - from, array.copies(Array(to - from).fill(value), from))
    return this
  },
} as const satisfies { readonly [name: string]: (this: unknown, ...given: never[]) => unknown }

const toInteger = (value: unknown): number => Math.trunc(Number(value)) || 0

/** Converts an index as array methods do: a negative one counts from the end. */
function indexIn(length: number, value: unknown): number {
  const index = toInteger(value)
  return index < 0 ? Math.max(0, length + index) : Math.min(index, length)
}

const ARRAY_PROTOTYPE = arrayPrototype(METHODS)
