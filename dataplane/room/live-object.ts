import { inspect } from 'node:util'
import type { Json } from '../../shared/json.ts'
import { checkKey, NotJson } from '../../shared/sync/check.ts'
import { hashContainer, hashEntry, hashKey, hashScalar } from '../../shared/sync/checksum.ts'
import {
  type Change,
  type Delta,
  isWhole,
  ObjectDelta,
  pointerPart,
  REMOVE,
  Replace,
} from '../../shared/sync/delta.ts'
import { RoomLogicError } from './failures.ts'
import { Entries } from './guarded.ts'

export type Scalar = null | boolean | number | string
/** Value of an entry of the live tree. */
export type Slot = Scalar | Live
/** Value of an entry before a write, or at the last flush. Undefined: there was no such entry. */
export type Before = Slot | undefined
export type MutableObject = { [key: string]: Json }

/** The flushed entries of an object, and the sum of their hashes. */
export interface Flushed {
  readonly flushed: MutableObject | undefined
  sum: number
}

/** A view returns its container for this key. Other values do not have the key. */
export const CONTAINER = Symbol('container')
/** Takes the place of a deleted entry until the turn ends, so that an undo keeps the order of keys. */
export const DELETED: unique symbol = Symbol('deleted')
/** Key of the root in its holder. */
export const ROOT = 'state'
/** Estimated bytes of an empty array or object. The real size is 1 to 5 bytes. */
const CONTAINER_BYTES = 3

/** One step of a turn, with the data for its undo. */
export interface Step {
  kind: 'written' | 'marked' | 'ordered' | 'linked' | 'spliced'
  container: Live
  key: string | number
  before: unknown
}

/** The tree of a container (`LiveTree`). */
export interface Tree {
  /** Keys of the object that was flushed last. */
  lastKeys: readonly string[]
  /** Throws a RoomLogicError unless a turn is open. */
  requireOpen(): void
  /** True if this turn has deleted entries. */
  readonly hasDeleted: boolean
  deleted(container: LiveObject, key: string): void
  /** Logs a step for its undo. */
  log(kind: Step['kind'], container: Live, key: string | number, before: unknown): void
  /** Returns true if a write behind the end of an array may leave this number of holes before it, and counts them. */
  mayLeave(holes: number): boolean
  /** An array will have a hole. `error`: for the end of the turn, if the array still has one then. */
  holed(array: Live, error: NotJson): void
  /** The entries in the flushed tree that may change. */
  readonly marks: Marks
  /**
   * Returns `value` as an entry of `parent`: a scalar, or a copy. The copy takes over parts of `place`, the entry that it replaces. Throws
   * NotJson.
   */
  copied(value: unknown, parent: Live, key: string | number, place?: Before): Slot
}

/** Common part of objects and arrays. A container is the handler of the Proxy that is its view. */
export abstract class Live {
  readonly tree: Tree
  /** Undefined: no longer in the tree. */
  parent: Live | undefined
  /** Key in the parent. For an element of an array: its index at the last flush, or when it was added. */
  key: string | number = ''
  /** Hash of the key in the parent object, once it was needed. */
  keyHash: number | undefined
  /** Sum of the entry hashes as of the last flush. */
  sum = 0
  /** Estimated bytes, with all contents. */
  bytes = CONTAINER_BYTES
  /** True if the parent object has marked this entry. */
  placeMarked = false
  #view: object | undefined

  constructor(tree: Tree) {
    this.tree = tree
  }

  abstract get isArray(): boolean
  abstract readonly target: object
  /** The JSON as of the last flush. Undefined: the container was created since then. */
  abstract flushed: Json | undefined

  get view(): object {
    this.#view ??= new Proxy(this.target, this as ProxyHandler<object>)
    return this.#view
  }

  /** Number of containers around this one. */
  get depth(): number {
    let depth = 0
    for (let { parent } = this; parent; parent = parent.parent) depth++
    return depth
  }

  /** The contents have grown by `bytes`. */
  protected grow(bytes: number): void {
    if (bytes === 0) return
    this.bytes += bytes
    for (let { parent } = this; parent; parent = parent.parent) parent.bytes += bytes
  }

  /**
   * The entry that holds `slot` will be written. Logs the parent of `slot` if it is another container, which has replaced this one and kept
   * the part. An undo of the write gives the part to this container.
   */
  protected willReplace(slot: Before): void {
    if (isContainer(slot) && slot.parent !== this) this.tree.log('linked', slot, slot.key, slot.parent)
  }

  /** Adds an entry to a container that is being built. */
  abstract add(slot: Slot, key: string | number): void

  abstract undo(kind: Step['kind'], key: string | number, before: unknown): void

  /** The contents of this entry will change. */
  abstract touch(entry: Live): void

  /** Returns the change since the last flush, and updates the flushed counterpart. */
  abstract flush(): Change | undefined

  /** As `flush`, for a container that has replaced `before`. That one is of the same kind, and no longer in the tree. */
  abstract supersede(before: Live): Change | undefined

  /** Builds the flushed counterpart of a new container. */
  abstract firstFlush(): Json

  /** Returns a copy of the live contents. */
  abstract plain(): Json

  /** Returns a copy of the flushed counterpart, right after a flush. */
  flushedCopy(): Json {
    return this.plain()
  }

  [inspect.custom](): Json {
    return this.plain()
  }

  getOwnPropertyDescriptor(target: object, key: string | symbol): PropertyDescriptor | undefined {
    this.tree.requireOpen()
    const found = Reflect.getOwnPropertyDescriptor(target, key)
    // Undefined: a hole.
    if (found?.value === undefined || found.value === DELETED) return undefined
    if (typeof found.value === 'object') found.value = viewOf(found.value)
    return found
  }

  defineProperty(): never {
    throw new RoomLogicError('state has plain properties only: assign to them, do not define them')
  }

  preventExtensions(): never {
    throw new RoomLogicError('state cannot be frozen, sealed or closed to new properties')
  }

  setPrototypeOf(): never {
    throw new RoomLogicError('state cannot get another prototype: it is plain JSON')
  }
}

/** An object of the live tree, and the view of it that room code gets. */
export class LiveObject extends Live {
  readonly target = new Entries() as Record<string, Slot>
  flushed: MutableObject | undefined
  first: Mark | undefined
  last: Mark | undefined
  #size = 0

  get isArray(): false {
    return false
  }

  /** Number of entries. */
  get size(): number {
    return this.#size
  }

  get(target: Record<string, Slot>, key: string | symbol): unknown {
    this.tree.requireOpen()
    const slot = target[key as string] as Slot | undefined | typeof DELETED
    if (typeof slot === 'object') return viewOf(slot)
    if (slot === undefined) return key === CONTAINER ? this : undefined
    return slot === DELETED ? Reflect.get(Entries.prototype, key) : slot
  }

  has(target: Record<string, Slot>, key: string | symbol): boolean {
    this.tree.requireOpen()
    return key in ((target[key as string] as unknown) === DELETED ? Entries.prototype : target)
  }

  set(_: Record<string, Slot>, key: string | symbol, value: unknown): true {
    this.tree.requireOpen()
    this.write(key as string, value)
    return true
  }

  deleteProperty(_: Record<string, Slot>, key: string | symbol): true {
    this.tree.requireOpen()
    const before = this.own(key as string)
    if (before === undefined) return true
    this.willReplace(before)
    this.tree.log('written', this, key as string, before)
    this.#mark(key as string, before)
    this.#exchange(key as string, before, DELETED)
    this.tree.deleted(this, key as string)
    return true
  }

  ownKeys(target: Record<string, Slot>): (string | symbol)[] {
    this.tree.requireOpen()
    const keys = Reflect.ownKeys(target)
    return this.tree.hasDeleted ? keys.filter((key) => (target[key as string] as unknown) !== DELETED) : keys
  }

  /** Returns the present entry. */
  own(key: string): Before {
    const slot = this.target[key] as Slot | undefined | typeof DELETED
    // Inherited properties of objects are functions.
    if (slot === DELETED || typeof slot === 'function') return undefined
    return slot
  }

  write(key: string, value: unknown): void {
    const before = this.own(key)
    // Most writes replace a number by a number. Comparing two of them needs no call of a built-in function.
    if (typeof value === 'number' && typeof before === 'number' && Number.isFinite(value)) {
      if (value === before) return
      this.tree.log('written', this, key, before)
      this.#mark(key, before)
      this.target[key] = value
      this.grow(bytesOf(value) - bytesOf(before))
      return
    }
    if (before === undefined) this.#checkKey(key)
    else if (value === before || isViewOf(value, before)) return
    const slot = this.tree.copied(value, this, key, before)
    if (before === undefined && (this.target[key] as unknown) === DELETED) {
      // As in any object, a new key comes last.
      this.tree.log('ordered', this, key, Object.keys(this.target))
      delete this.target[key]
    }
    this.willReplace(before)
    this.tree.log('written', this, key, before)
    this.#mark(key, before)
    this.#exchange(key, before, slot)
  }

  undo(kind: Step['kind'], key: string, before: unknown): void {
    if (kind === 'ordered') {
      for (const name of before as string[]) {
        const slot = name === key ? DELETED : this.target[name]!
        delete this.target[name]
        this.target[name] = slot as Slot
      }
    } else {
      this.#exchange(key, this.own(key), before as Before)
    }
  }

  add(slot: Slot, key: string): void {
    define(this.target, key, slot)
    this.#size++
    this.bytes += bytesOf(key) + bytesOf(slot)
  }

  touch(entry: Live): void {
    this.#mark(entry.key as string, entry)
  }

  flush(): Change | undefined {
    if (this.flushed === undefined || this.first === undefined) return undefined
    let marks = 0
    for (let mark: Mark | undefined = this.first; mark; mark = mark.next) marks++
    // The exact length: an array that grows starts with space for 17.
    const changes = new Array<Change | undefined>(marks)
    let changed = 0
    let whole = 0
    let at = 0
    for (let mark: Mark | undefined = this.first; mark; mark = mark.next) {
      const change = this.flushEntry(mark.key, mark.before)
      if (change) changed++
      if (isWhole(change)) whole++
      changes[at++] = change
    }
    if (changed === 0) return undefined
    const keys = this.#changedKeys(changes, changed)
    const all = (changed < marks ? changes.filter((change) => change) : changes) as Change[]
    return new ObjectDelta(keys, all, whole === changed && changed === this.#size)
  }

  /** Returns the keys of the marks that have changes. Objects mostly change like the one before, and then share its list. */
  #changedKeys(changes: readonly (Change | undefined)[], changed: number): readonly string[] {
    const { lastKeys } = this.tree
    let isSame = lastKeys.length === changed
    let at = 0
    let mark = this.first
    for (let i = 0; isSame && i < changes.length; i++, mark = mark!.next)
      if (changes[i]) isSame = lastKeys[at++] === mark!.key
    if (isSame) return lastKeys
    const keys = new Array<string>(changed)
    at = 0
    mark = this.first
    for (let i = 0; i < changes.length; i++, mark = mark!.next) if (changes[i]) keys[at++] = mark!.key
    this.tree.lastKeys = keys
    return keys
  }

  /** `last`: the keys that `before` had at the last flush. */
  supersede(before: LiveObject, last = Object.keys(before.flushed!)): Change | undefined {
    this.flushed = before.flushed
    this.sum = before.sum
    before.flushed = undefined
    const replaced = new Map<string, Live>()
    for (let mark = before.first; mark; mark = mark.next) if (mark.before) replaced.set(mark.key, mark.before)
    const keys: string[] = []
    const changes: Change[] = []
    for (const key of new Set([...last, ...Object.keys(this.target)])) {
      const held = replaced.get(key) ?? before.target[key]
      const change = this.flushEntry(key, isContainer(this.lastOf(key)) ? (held as Live) : undefined)
      if (!change) continue
      keys.push(key)
      changes.push(change)
    }
    if (changes.length === 0) return undefined
    return new ObjectDelta(keys, changes, keys.length === this.#size && changes.every(isWhole))
  }

  /** Returns the value of an entry as of the last flush. */
  protected lastOf(key: string, { flushed }: Flushed = this): Json | undefined {
    const value: unknown = flushed![key]
    // Inherited properties are functions, or `__proto__`, which is not allowed as a key.
    return typeof value === 'function' ? undefined : (value as Json)
  }

  /** `before`: the container that the entry held at the last flush. `at`: the object that has the flushed entry. */
  protected flushEntry(key: string, before: Live | undefined, at: Flushed = this): Change | undefined {
    const flushed = at.flushed!
    if (before?.parent === this) {
      const hash = hashOf(before)
      const change = before.flush()
      if (change) {
        before.keyHash ??= hashKey(key)
        at.sum = (at.sum + hashEntry(before.keyHash, hashOf(before)) - hashEntry(before.keyHash, hash)) | 0
      }
      return change
    }
    const now = this.own(key)
    const last = this.lastOf(key, at)
    // The value is back, or the entry has two marks.
    if (typeof now === 'number' && typeof last === 'number') {
      if (now === last) return undefined
    } else if (isContainer(now) ? now.flushed !== undefined && now.flushed === last : now === last)
      return undefined
    const name = hashKey(key)
    let { sum } = at
    if (last !== undefined) sum -= hashEntry(name, hashOf(before ?? (last as Scalar)))
    let change: Change | undefined = REMOVE
    if (now === undefined) delete flushed[key]
    else {
      change = changeOf(before ?? (last as Scalar | undefined), now, true)
      if (last === undefined) define(flushed, key, flushedOf(now))
      else flushed[key] = flushedOf(now)
      sum += hashEntry(name, hashOf(now))
    }
    at.sum = sum | 0
    return change
  }

  firstFlush(): MutableObject {
    const { target } = this
    const flushed: MutableObject = {}
    let sum = 0
    for (const key of Object.keys(target)) {
      const slot = target[key]!
      define(flushed, key, firstFlushOf(slot))
      sum = (sum + hashEntry(hashKey(key), hashOf(slot))) | 0
    }
    this.sum = sum
    this.flushed = flushed
    return flushed
  }

  plain(): Json {
    const copy: MutableObject = {}
    for (const key of Object.keys(this.target)) {
      const slot = this.own(key)
      if (slot !== undefined) copy[key] = plainOf(slot)
    }
    return copy
  }

  #checkKey(key: string | symbol): void {
    if (typeof key === 'symbol') throw notJson(this, undefined, 'has a symbol as a key; keys are strings')
    try {
      checkKey(key, [])
    } catch (error) {
      throw error instanceof NotJson ? notJson(this, undefined, error.found) : error
    }
  }

  /** The entry holds `before`, and will change. */
  #mark(key: string, before: Before): void {
    const { first } = this
    if (this.flushed === undefined) return
    // An entry that has changed since the last flush is marked already.
    if (!isContainer(before)) {
      if (before !== this.lastOf(key)) return
      this.tree.marks.add(this, key, undefined)
    } else {
      if (before.placeMarked || before.flushed === undefined) return
      before.placeMarked = true
      this.tree.marks.add(this, key, before)
    }
    if (first === undefined) this.parent?.touch(this)
  }

  /** Replaces an entry. `after` undefined: it did not exist before the turn. DELETED: it did. */
  #exchange(key: string, before: Before, after: Before | typeof DELETED): void {
    let bytes = 0
    if (before === undefined) {
      this.#size++
      bytes += bytesOf(key)
    } else {
      bytes -= bytesOf(before)
      if (typeof before === 'object' && before?.parent === this) before.parent = undefined
    }
    if (after === undefined) delete this.target[key]
    else if (before === undefined) define(this.target, key, after as Slot)
    else this.target[key] = after as Slot
    if (after === undefined || after === DELETED) {
      this.#size--
      bytes -= bytesOf(key)
    } else {
      bytes += bytesOf(after)
      if (typeof after === 'object' && after !== null) after.parent = this
    }
    this.grow(bytes)
  }
}

/**
 * Sets an entry that the object does not have. If V8 has only seen numbers in an entry of all objects of a shape, it keeps them in place,
 * and each read allocates. The null makes it keep references to numbers, which are read far more often than written.
 */
function define(object: { [key: string]: unknown }, key: string, value: unknown): void {
  if (typeof value === 'number') object[key] = null
  object[key] = value
}

/** An entry of an object that may have changed since the last flush. The marks of an object form a list. */
interface Mark {
  container: LiveObject
  key: string
  /** The container that the entry held at the last flush. Undefined: it held none. */
  before: Live | undefined
  previous: Mark | undefined
  next: Mark | undefined
}

/** If there are more marks than this, a flush drops them. Otherwise the next flush reuses them. */
const KEPT_MARKS = 1000

/**
 * The marks of one state since its last flush. Each object has a list of its marks, in the order of their creation. Mark objects are reused
 * from flush to flush, so that a write allocates nothing. An undo removes the latest marks first.
 */
export class Marks {
  #marks: Mark[] = []
  #count = 0

  get count(): number {
    return this.#count
  }

  /** The entry `key` of `container` may change. `before`: the container that it held, if any. */
  add(container: LiveObject, key: string, before: Live | undefined): void {
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

  /** Removes all marks except the first `count`. */
  undoTo(count: number): void {
    while (this.#count > count) {
      const { container, before, previous } = this.#marks[--this.#count]!
      container.last = previous
      if (previous) previous.next = undefined
      else container.first = undefined
      if (before) before.placeMarked = false
    }
  }

  /** Removes all marks, also those of objects that are no longer in the state. */
  clear(): void {
    for (let i = 0; i < this.#count; i++) {
      const { container, before } = this.#marks[i]!
      container.first = undefined
      container.last = undefined
      if (before) before.placeMarked = false
    }
    if (this.#marks.length > KEPT_MARKS) this.#marks = []
    this.#count = 0
  }
}

/** Returns the container of a view. */
export const containerOf = (value: unknown): Live | undefined =>
  typeof value === 'object' && value !== null
    ? (value as { readonly [CONTAINER]?: Live })[CONTAINER]
    : undefined

export const isContainer = <T>(value: T): value is Exclude<T, Scalar | undefined> =>
  typeof value === 'object' && value !== null

export const viewOf = (slot: Before): unknown => (isContainer(slot) ? slot.view : slot)

export const isViewOf = (value: unknown, slot: Before): boolean =>
  isContainer(slot) && containerOf(value) === slot

/** Returns the hash of an entry's value. For a container, it is that of the last flush. */
export const hashOf = (slot: Slot): number =>
  typeof slot === 'object' && slot !== null ? hashContainer(slot.isArray, slot.sum) : hashScalar(slot)

export const plainOf = (slot: Slot): Json => (typeof slot === 'object' && slot !== null ? slot.plain() : slot)

export const firstFlushOf = (slot: Slot): Json =>
  typeof slot === 'object' && slot !== null ? slot.firstFlush() : slot

export const flushedOf = (slot: Slot): Json =>
  typeof slot === 'object' && slot !== null ? slot.flushed! : slot

/**
 * Returns the change of an entry since the last flush. If the entry is a container, it gets its flushed counterpart. `free`: the previous
 * value is no longer in the tree, so a container of the same kind can continue from its flushed counterpart.
 */
export function changeOf(before: Before, now: Slot, free: boolean): Delta | undefined {
  if (typeof now !== 'object' || now === null)
    return now === before ? undefined : new Replace(now, before === undefined)
  if (now === before) return now.flush() as Delta | undefined
  if (now.flushed === undefined) {
    if (free && isContainer(before) && before.isArray === now.isArray && before.flushed)
      return now.supersede(before) as Delta | undefined
    now.firstFlush()
  }
  return new Replace(now.flushedCopy(), before === undefined)
}

export function notJson(parent: Live, key: string | number | undefined, found: string, below = ''): NotJson {
  const path = key === undefined ? [] : [key]
  for (let at: Live = parent; at.parent; at = at.parent) {
    // The holder of the root is not part of the path.
    if (!at.parent.parent && at.key === ROOT && !at.parent.isArray) break
    path.unshift(at.parent.isArray ? (at.parent.target as readonly Slot[]).indexOf(at as Slot) : at.key)
  }
  const own = parent.parent === undefined && key === ROOT ? [] : path
  return new NotJson(own.map(pointerPart).join('') + below, found)
}

/** Estimated bytes of an entry's value, or of a key. */
export function bytesOf(value: Before): number {
  if (typeof value === 'string') {
    const length = Buffer.byteLength(value)
    return length + (length < 32 ? 1 : length < 256 ? 2 : 5)
  }
  if (typeof value === 'number') return Number.isInteger(value) ? (value >= -32 && value < 128 ? 1 : 5) : 9
  return typeof value === 'object' && value !== null ? value.bytes : 1
}
