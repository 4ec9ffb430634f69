import { inspect } from 'node:util'
import type { Json } from '../../shared/json.ts'
import { gaps } from '../../shared/sync/align.ts'
import { checkContainer, checkKey, checkScalar, NotJson } from '../../shared/sync/check.ts'
import { hashContainer, hashEntry, hashKey, hashScalar } from '../../shared/sync/checksum.ts'
import {
  ArrayDelta,
  type Change,
  type Delta,
  ObjectDelta,
  pointerPart,
  REMOVE,
  Replace,
  type Splice,
} from '../../shared/sync/delta.ts'
import { arrayMethods } from './array-methods.ts'
import { RoomLogicError } from './failures.ts'
import { arrayPrototype, Entries } from './guarded.ts'
import { type Mark, type Marked, Marks } from './live-tree-marks.ts'

type Scalar = null | boolean | number | string
type Container = LiveObject | LiveArray
/** What an entry of the live tree holds. */
export type Slot = Scalar | Container
/** What an entry held before a write, or at the last flush; undefined: there was no such entry. */
type Before = Slot | undefined
type MutableObject = { [key: string]: Json }

/** A view answers this key with its container; anything else has no such key. */
const CONTAINER = Symbol('container')
/** Stands in for an entry that was deleted, until its turn is over: an undone turn leaves the order of keys as it was. */
const DELETED: unique symbol = Symbol('deleted')
/** Under this key the root lies in its holder. */
const ROOT = 'state'
const NO_MARKS: ReadonlyMap<number, Slot> = new Map()
/** A longer log of a turn is dropped after it, and a shorter one is written over by the next. */
const KEPT_LOG = 1000
/** Of an array or object besides what is in it; in truth 1 to 5. */
const CONTAINER_BYTES = 3

/** How a step of a turn is undone. */
interface Step {
  kind: 'written' | 'marked' | 'ordered' | 'linked' | 'spliced'
  container: Container
  key: string | number
  before: unknown
}

/** What a splice did. */
interface Spliced {
  readonly removed: readonly Slot[]
  readonly inserted: number
  readonly known: number
}

/**
 * The state of a room as two trees. The *live* one is what turns read and write, through views: one Proxy for each container, made when it
 * is first asked for. The *flushed* one is plain JSON as of the last flush, and stands still between flushes.
 *
 * A write is logged, to be undone, and marks its entry as changed where it holds what it held at the last flush; the containers around it
 * are marked as well. A flush visits the marked entries only: it makes the delta, brings the flushed tree up to date, and keeps the
 * sum of each container's entry hashes (docs/protocol.md) by taking the old entry's out and the new one's in.
 *
 * What is put in is copied in, so nothing outside refers to either tree. Only an array or object put in the place of another takes over
 * those parts that were in that already: elements that a `filter` left stay what they are.
 */
export class LiveTree {
  /** A turn may have put another root in the place of the flushed one. */
  #checksum = 0
  readonly #holder: LiveObject
  #log: Step[] = []
  #steps = 0
  readonly #marks = new Marks<LiveObject, Container>()
  /** How many there were before the turn. */
  #marked = 0
  /** Pairs of container and key. */
  #deleted: [LiveObject, string][] = []
  #open = false

  /** Copies, checks, measures and hashes what it begins with, each once: what `create` returned, or a record holds. Throws NotJson. */
  constructor(state: unknown) {
    this.#holder = new LiveObject(this)
    this.#holder.target[ROOT] = this.copied(state, this.#holder, ROOT)
    this.#holder.settle()
    this.#checksum = hashOf(this.#root) >>> 0
  }

  /** Begins a turn: until it ends, views can be used. Returns the state for handlers: a view, or a scalar. */
  begin(): unknown {
    this.#open = true
    this.#marked = this.#marks.count
    return viewOf(this.#root)
  }

  /** Puts another state in the place of the present one. Throws NotJson. */
  replace(state: unknown): void {
    this.#holder.write(ROOT, state)
  }

  /** Ends the turn: what it did stands. Returns whether it wrote anything. */
  commit(): boolean {
    const wrote = this.#steps > 0
    for (const [container, key] of this.#deleted)
      if ((container.target[key] as unknown) === DELETED) delete container.target[key]
    this.#end()
    return wrote
  }

  /** Ends the turn: all is as before. */
  undo(): void {
    this.#undoTo(0)
    this.#marks.undoTo(this.#marked)
    this.#end()
  }

  /** Whether anything was written since the last flush. */
  get dirty(): boolean {
    return this.#holder.first !== undefined
  }

  /** About what the live state takes as MessagePack, a fifth more or less where values are small. */
  get bytes(): number {
    return bytesOf(this.#root)
  }

  /** As of the last flush. To be read at once: the next flush changes it. */
  get flushed(): Json {
    return this.#holder.flushed![ROOT]!
  }

  /** Of the state as of the last flush; 0 … 2^32 - 1. */
  get checksum(): number {
    return this.#checksum
  }

  /** The root, where that is an object. */
  get object(): LiveObject | undefined {
    const root = this.#root
    return root instanceof LiveObject ? root : undefined
  }

  /**
   * Calls `visit` for the entries that the present turn has written of objects which lie in at most `levels` others, and in no array:
   * with the path, and with what is there now. Those that were deleted, or are in something that was taken out, are left out.
   */
  written(levels: number, visit: (path: readonly string[], slot: Slot) => void): void {
    for (let i = 0; i < this.#steps; i++) {
      const { kind, container, key } = this.#log[i]!
      if (kind !== 'written' || container instanceof LiveArray || container.depth > levels) continue
      const slot = container.own(key as string)
      const path = slot !== undefined && this.#pathOf(container, key as string)
      if (path) visit(path, slot)
    }
  }

  /** The keys that lead to an entry of an object; undefined: it is in an array, or not in the tree. */
  #pathOf(container: LiveObject, key: string): string[] | undefined {
    if (container === this.#holder) return []
    const path = [key]
    for (let at: Container = container; at !== this.#root; at = at.parent) {
      if (!at.parent || at.parent instanceof LiveArray) return undefined
      path.unshift(at.key as string)
    }
    return path
  }

  /** A copy of the live state. */
  plain(): Json {
    return plainOf(this.#root)
  }

  /** What has changed since the last flush; the flushed state is brought up to date. */
  flush(): Delta | undefined {
    const change = this.#holder.flush()
    this.#marks.clear()
    this.#checksum = hashOf(this.#root) >>> 0
    return change && ((change as ObjectDelta).changes[0] as Delta)
  }

  get #root(): Slot {
    return this.#holder.target[ROOT]!
  }

  #end(): void {
    if (this.#log.length > KEPT_LOG) this.#log = []
    this.#steps = 0
    if (this.#deleted.length > 0) this.#deleted = []
    this.#open = false
  }

  // What follows is for containers.

  requireOpen(): void {
    if (!this.#open)
      throw new RoomLogicError(
        'state_outside_turn: the state of a room was used outside of a handler; read from it what is needed later, before the handler returns',
      )
  }

  /** Whether an entry may stand for one that was deleted. */
  get hasDeleted(): boolean {
    return this.#deleted.length > 0
  }

  deleted(container: LiveObject, key: string): void {
    this.#deleted.push([container, key])
  }

  /** Writes down what is needed to undo a step. */
  log(kind: Step['kind'], container: Container, key: string | number, before: unknown): void {
    const step = this.#log[this.#steps]
    if (step === undefined) this.#log.push({ kind, container, key, before })
    else {
      step.kind = kind
      step.container = container
      step.key = key
      step.before = before
    }
    this.#steps++
  }

  /** An entry of an object in the flushed tree may change. */
  mark(container: LiveObject, key: string, before: Container | undefined): void {
    this.#marks.add(container, key, before)
  }

  #undoTo(steps: number): void {
    while (this.#steps > steps) {
      const { kind, container, key, before } = this.#log[--this.#steps]!
      if (kind === 'linked') container.parent = before as Container
      else if (container instanceof LiveArray) container.undo(kind, key as number, before)
      else container.undo(kind, key as string, before)
    }
  }

  /**
   * What a value becomes as an entry of `parent`: itself, or a copy. What is in `place` now, which it is put in the place of, gives it its
   * parts. Throws NotJson.
   */
  copied(value: unknown, parent: Container, key: string | number, place?: Before): Slot {
    const steps = this.#steps
    try {
      if (typeof value !== 'object' || value === null) {
        checkScalar(value, [])
        return value as Scalar
      }
      const copy = this.#copy(value, place, parent.depth + 1, [])
      copy.parent = parent
      copy.key = key
      return copy
    } catch (error) {
      this.#undoTo(steps)
      throw error instanceof NotJson ? notJson(parent, key, error.found, error.path) : error
    }
  }

  #copy(value: object, place: Before, level: number, path: (string | number)[]): Container {
    const source = (value instanceof Live ? value : this.#ownOf(value))?.target ?? value
    checkContainer(source, level, path)
    if (Array.isArray(source)) {
      const copy = new LiveArray(this)
      const old = place instanceof LiveArray ? place : undefined
      for (let i = 0; i < source.length; i++)
        copy.add(this.#part(source[i], copy, i, old, undefined, level, path), i)
      return copy
    }
    const from = source as { readonly [key: string]: unknown }
    const copy = new LiveObject(this)
    const old = place instanceof LiveObject ? place : undefined
    for (const key of Object.keys(from)) {
      if (from[key] === DELETED) continue
      checkKey(key, path)
      copy.add(this.#part(from[key], copy, key, old, old?.own(key), level, path), key)
    }
    return copy
  }

  /** One entry of a copy which takes the place of `old`, where `place` is this entry. */
  #part(
    value: unknown,
    copy: Container,
    key: string | number,
    old: Container | undefined,
    place: Before,
    level: number,
    path: (string | number)[],
  ): Slot {
    path.push(key)
    let part: Slot
    if (typeof value !== 'object' || value === null) {
      checkScalar(value, path)
      part = value as Scalar
    } else {
      const own = old && (value instanceof Live ? (value as Container) : this.#ownOf(value))
      if (own !== undefined && own.parent === old && (place === own || typeof key === 'number')) {
        this.log('linked', own, key, old)
        own.parent = copy
        part = own
      } else {
        part = this.#copy(value, place, level + 1, path)
        part.parent = copy
        part.key = key
      }
    }
    path.pop()
    return part
  }

  /** The container of a view of this tree. */
  #ownOf(value: object): Container | undefined {
    const container = containerOf(value)
    return container?.tree === this ? container : undefined
  }
}

/** What objects and arrays have in common. A container is the handler of the Proxy that is its view. */
abstract class Live {
  readonly tree: LiveTree
  /** Undefined: taken out of the tree. */
  parent: Container | undefined
  /** Of an element of an array: where it was at the last flush, or when it came. */
  key: string | number = ''
  /** Of the key of an object's entry, once it was needed. */
  keyHash: number | undefined
  /** Of the entries as of the last flush. */
  sum = 0
  /** With all that is in it. */
  bytes = CONTAINER_BYTES
  /** Whether the object around it has its entry marked. */
  placeMarked = false
  #view: object | undefined

  constructor(tree: LiveTree) {
    this.tree = tree
  }

  abstract readonly target: object

  get view(): object {
    this.#view ??= new Proxy(this.target, this as ProxyHandler<object>)
    return this.#view
  }

  /** How many containers there are around it. */
  get depth(): number {
    let depth = 0
    for (let { parent } = this; parent; parent = parent.parent) depth++
    return depth
  }

  /** The size of something in it has changed. */
  protected grow(bytes: number): void {
    if (bytes === 0) return
    this.bytes += bytes
    for (let { parent } = this; parent; parent = parent.parent) parent.bytes += bytes
  }

  getOwnPropertyDescriptor(target: object, key: string | symbol): PropertyDescriptor | undefined {
    this.tree.requireOpen()
    const found = Reflect.getOwnPropertyDescriptor(target, key)
    if (found?.value === DELETED) return undefined
    if (typeof found?.value === 'object') found.value = viewOf(found.value)
    return found
  }

  defineProperty(): never {
    throw new RoomLogicError('state has plain properties only: assign to them, do not define them')
  }

  preventExtensions(): never {
    throw new RoomLogicError('state cannot be frozen, sealed or closed to new properties')
  }

  setPrototypeOf(): never {
    throw new RoomLogicError('state has no prototype of its own: it is plain JSON')
  }
}

export class LiveObject extends Live implements Marked<Container> {
  readonly target = new Entries() as Record<string, Slot>
  /** Undefined: it came since the last flush. */
  flushed: MutableObject | undefined
  first: Mark<Container> | undefined
  last: Mark<Container> | undefined

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

  /** The entry as it is. */
  own(key: string): Before {
    const slot = this.target[key] as Slot | undefined | typeof DELETED
    // What objects inherit are functions.
    if (slot === DELETED || typeof slot === 'function') return undefined
    return slot
  }

  write(key: string, value: unknown): void {
    const before = this.own(key)
    if (before === value ? before !== undefined : isViewOf(value, before)) return
    if (typeof value === 'number' && typeof before === 'number' && Number.isFinite(value)) {
      // Most writes are of this kind.
      this.tree.log('written', this, key, before)
      this.#mark(key, before)
      this.target[key] = value
      this.grow(bytesOf(value) - bytesOf(before))
      return
    }
    if (before === undefined) this.#checkKey(key)
    const slot = this.tree.copied(value, this, key, before)
    if (before === undefined && (this.target[key] as unknown) === DELETED) {
      // As in any object, it comes to the end.
      this.tree.log('ordered', this, key, Object.keys(this.target))
      delete this.target[key]
    }
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

  /** An entry of a container that is being made. */
  add(slot: Slot, key: string): void {
    this.target[key] = slot
    this.bytes += bytesOf(key) + bytesOf(slot)
  }

  touch(entry: Container): void {
    this.#mark(entry.key as string, entry)
  }

  flush(): Change | undefined {
    if (this.flushed === undefined || this.first === undefined) return undefined
    let marks = 0
    for (let mark: Mark<Container> | undefined = this.first; mark; mark = mark.next) marks++
    // No longer than they have to be: an array that grows begins with room for 17.
    const keys = new Array<string>(marks)
    const changes = new Array<Change>(marks)
    let changed = 0
    for (let mark: Mark<Container> | undefined = this.first; mark; mark = mark.next) {
      const change = this.#flushEntry(mark.key, mark.before)
      if (!change) continue
      keys[changed] = mark.key
      changes[changed++] = change
    }
    if (changed === 0) return undefined
    // To set a length costs as much as an entry.
    if (changed < marks) keys.length = changes.length = changed
    return new ObjectDelta(keys, changes)
  }

  /** What it has become that was in `before`, at the last flush and no longer. */
  supersede(before: LiveObject): Change | undefined {
    const flushed = before.flushed!
    this.flushed = flushed
    this.sum = before.sum
    before.flushed = undefined
    const replaced = new Map<string, Container>()
    for (let mark = before.first; mark; mark = mark.next) if (mark.before) replaced.set(mark.key, mark.before)
    const keys: string[] = []
    const changes: Change[] = []
    for (const key of new Set([...Object.keys(flushed), ...Object.keys(this.target)])) {
      const held = replaced.get(key) ?? before.target[key]
      const change = this.#flushEntry(key, isContainer(known(flushed, key)) ? (held as Container) : undefined)
      if (!change) continue
      keys.push(key)
      changes.push(change)
    }
    return changes.length > 0 ? new ObjectDelta(keys, changes) : undefined
  }

  /** `before`: the container that the entry held at the last flush. */
  #flushEntry(key: string, before: Container | undefined): Change | undefined {
    const flushed = this.flushed!
    if (before?.parent === this) {
      const hash = hashOf(before)
      const change = before.flush()
      if (change) {
        before.keyHash ??= hashKey(key)
        this.sum =
          (this.sum + hashEntry(before.keyHash, hashOf(before)) - hashEntry(before.keyHash, hash)) | 0
      }
      return change
    }
    const now = this.own(key)
    const last = known(flushed, key)
    // It came back, or has two marks.
    if (isContainer(now) ? now.flushed !== undefined && now.flushed === last : now === last) return undefined
    const name = hashKey(key)
    if (last !== undefined) this.sum -= hashEntry(name, hashOf(before ?? (last as Scalar)))
    let change: Change | undefined = REMOVE
    if (now === undefined) delete flushed[key]
    else {
      change = changeOf(before ?? (last as Scalar | undefined), now, true)
      flushed[key] = flushedOf(now)
      this.sum += hashEntry(name, hashOf(now))
    }
    this.sum |= 0
    return change
  }

  /** Makes its flushed counterpart: it is new. */
  settle(): MutableObject {
    const { target } = this
    const flushed: MutableObject = {}
    let sum = 0
    for (const key of Object.keys(target)) {
      const slot = target[key]!
      flushed[key] = settledOf(slot)
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

  [inspect.custom](): Json {
    return this.plain()
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
    const { first, flushed } = this
    if (flushed === undefined) return
    // What is not there since the last flush was marked when it came.
    if (!isContainer(before)) {
      if (before !== known(flushed, key)) return
      this.tree.mark(this, key, undefined)
    } else {
      if (before.placeMarked || before.flushed === undefined) return
      before.placeMarked = true
      this.tree.mark(this, key, before)
    }
    if (first === undefined) this.parent?.touch(this as never)
  }

  /** The entry becomes `after`; undefined: it was not there before the turn, and DELETED: it was. */
  #exchange(key: string, before: Before, after: Before | typeof DELETED): void {
    let bytes = 0
    if (before === undefined) bytes += bytesOf(key)
    else {
      bytes -= bytesOf(before)
      if (typeof before === 'object' && before?.parent === this) before.parent = undefined
    }
    if (after === undefined) delete this.target[key]
    else this.target[key] = after as Slot
    if (after === undefined || after === DELETED) bytes -= bytesOf(key)
    else {
      bytes += bytesOf(after)
      if (typeof after === 'object' && after !== null) after.parent = this
    }
    this.grow(bytes)
  }
}

export class LiveArray extends Live {
  readonly target: Slot[] = []
  /** Undefined: it came since the last flush. */
  flushed: Json[] | undefined
  /**
   * What it held at the last flush from the first place on at which elements have come, gone or moved since; in reverse order, so that it
   * grows at its end. Elements before that place are where they were.
   */
  #moved: Slot[] = []
  /** Elements before that place that may have changed since the last flush, with what they were then. */
  #marks: Map<number, Slot> | undefined

  get(target: Slot[], key: string | symbol): unknown {
    this.tree.requireOpen()
    const slot: unknown = target[key as never]
    if (typeof slot === 'object') return viewOf(slot as Slot)
    if (slot === undefined) return key === CONTAINER ? this : undefined
    return typeof slot === 'function' ? ARRAY_PROTOTYPE[key] : slot
  }

  has(target: Slot[], key: string | symbol): boolean {
    this.tree.requireOpen()
    return Object.hasOwn(target, key) || key in ARRAY_PROTOTYPE
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
      if (index > target.length)
        throw notJson(
          this,
          index,
          `would leave a hole behind the ${target.length} elements; JSON arrays have none`,
        )
      if (index === target.length) this.splice(index, 0, [this.tree.copied(value, this, index)])
      else this.#write(index, value)
    }
    return true
  }

  deleteProperty(_: Slot[], key: string | symbol): never {
    this.tree.requireOpen()
    throw notJson(this, undefined, `would have a hole at ${String(key)}; JSON arrays have none: use splice`)
  }

  ownKeys(target: Slot[]): (string | symbol)[] {
    this.tree.requireOpen()
    return Reflect.ownKeys(target)
  }

  /** Removes elements at `at` and puts others there, which are in the array already or new to the tree. Returns those that were removed. */
  splice(at: number, remove: number, inserted: readonly Slot[]): readonly Slot[] {
    if (remove === 0 && inserted.length === 0) return inserted
    const known = this.#moved.length
    this.#moveFrom(at)
    this.parent?.touch(this as never)
    const removed = this.#exchange(at, remove, inserted)
    this.tree.log('spliced', this, at, { removed, inserted: inserted.length, known } satisfies Spliced)
    return removed
  }

  /** As splice, from the first element on that does not stay where it is. */
  rearrange(elements: readonly Slot[]): void {
    const { target } = this
    let at = 0
    while (at < target.length && target[at] === elements[at]) at++
    this.splice(at, target.length - at, elements.slice(at))
  }

  undo(kind: Step['kind'], key: number, before: unknown): void {
    if (kind === 'marked') this.#marks?.delete(key)
    else if (kind === 'written') this.#put(key, before as Slot)
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

  touch(element: Container): void {
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

  /** Flushes what begins at index `still`, where elements have come, gone or moved: tells of changes of those that stayed. */
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
        if (typeof slot === 'object' && slot?.flushed === undefined) slot?.settle()
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
    // From the back to the front, so that every index is that of the old array.
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

  settle(): Json[] {
    let sum = 0
    const flushed: Json[] = []
    for (const [i, slot] of this.target.entries()) {
      flushed.push(settledOf(slot))
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

  [inspect.custom](): Json {
    return this.plain()
  }

  /** Elements before this index are where they were at the last flush. */
  get #still(): number {
    return this.flushed!.length - this.#moved.length
  }

  /** What was at `index`, below `#still`, at the last flush. */
  #known(index: number): Slot {
    return this.#marks?.has(index) ? this.#marks.get(index)! : this.target[index]!
  }

  /** From `at` on elements will not be where they were. */
  #moveFrom(at: number): void {
    if (this.flushed !== undefined)
      for (let i = this.#still - 1; i >= at; i--) this.#moved.push(this.#known(i))
  }

  /** What is put in as elements from index `at` on. */
  copies(values: readonly unknown[], at: number): Slot[] {
    return values.map((value, i) => this.tree.copied(value, this, at + i))
  }

  #write(index: number, value: unknown): void {
    const before = this.target[index]!
    if (before === value || isViewOf(value, before)) return
    const slot = this.tree.copied(value, this, index)
    this.tree.log('written', this, index, before)
    if (this.flushed !== undefined && index < this.#still) this.#mark(index, before)
    this.#put(index, slot)
  }

  #mark(index: number, before: Slot): void {
    if (this.#marks?.has(index)) return
    this.#marks ??= new Map()
    this.#marks.set(index, before)
    this.tree.log('marked', this, index, undefined)
    this.parent?.touch(this as never)
  }

  #put(index: number, slot: Slot): void {
    const before = this.target[index]!
    if (typeof before === 'object' && before?.parent === this) before.parent = undefined
    if (typeof slot === 'object' && slot !== null) slot.parent = this
    this.target[index] = slot
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
      // So many would not fit on the stack.
      const behind = target.splice(at)
      removed = behind.splice(0, remove)
      for (const slot of inserted) target.push(slot)
      for (const slot of behind) target.push(slot)
    }
    let bytes = 0
    for (const slot of removed) {
      bytes -= bytesOf(slot)
      if (typeof slot === 'object' && slot?.parent === this) slot.parent = undefined
    }
    for (const slot of inserted) {
      bytes += bytesOf(slot)
      if (typeof slot === 'object' && slot !== null) slot.parent = this
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

/** The container of a view. */
const containerOf = (value: unknown): Container | undefined =>
  typeof value === 'object' && value !== null
    ? (value as { readonly [CONTAINER]?: Container })[CONTAINER]
    : undefined

const isContainer = <T>(value: T): value is Exclude<T, Scalar | undefined> =>
  typeof value === 'object' && value !== null

const viewOf = (slot: Before): unknown => (isContainer(slot) ? slot.view : slot)

const ARRAY_PROTOTYPE = arrayPrototype(
  arrayMethods({
    arrayOf,
    viewOf,
    slotOf: (value) => (containerOf(value) ?? value) as Slot,
  }),
)

const isViewOf = (value: unknown, slot: Before): boolean => isContainer(slot) && containerOf(value) === slot

/** An entry of the flushed tree. What objects inherit are functions, and what is behind __proto__, which is refused. */
function known(flushed: MutableObject, key: string): Json | undefined {
  const value: unknown = flushed[key]
  return typeof value === 'function' ? undefined : (value as Json)
}

/** The hash of an entry's value: of a container, as of the last flush. */
export const hashOf = (slot: Slot): number =>
  typeof slot === 'object' && slot !== null
    ? hashContainer(slot instanceof LiveArray, slot.sum)
    : hashScalar(slot)

const plainOf = (slot: Slot): Json => (typeof slot === 'object' && slot !== null ? slot.plain() : slot)

const settledOf = (slot: Slot): Json => (typeof slot === 'object' && slot !== null ? slot.settle() : slot)

export const flushedOf = (slot: Slot): Json =>
  typeof slot === 'object' && slot !== null ? slot.flushed! : slot

/**
 * What has become of an entry; if that is a container, it has its flushed counterpart then. `free`: what was there before is nowhere in the
 * tree any more, so that a container of its kind can go on from what that was.
 */
function changeOf(before: Before, now: Slot, free: boolean): Delta | undefined {
  if (typeof now !== 'object' || now === null)
    return now === before ? undefined : new Replace(now, before === undefined)
  if (now === before) return now.flush() as Delta | undefined
  if (now.flushed === undefined) {
    if (free && before instanceof LiveObject && now instanceof LiveObject && before.flushed)
      return now.supersede(before) as Delta | undefined
    if (free && before instanceof LiveArray && now instanceof LiveArray && before.flushed)
      return now.supersede(before) as Delta | undefined
    now.settle()
  }
  return new Replace(now.plain(), before === undefined)
}

function notJson(parent: Container, key: string | number | undefined, found: string, below = ''): NotJson {
  const path = key === undefined ? [] : [key]
  for (let at = parent; at.parent; at = at.parent) {
    // The holder of the root has no place in the path.
    if (!at.parent.parent && at.key === ROOT && at.parent instanceof LiveObject) break
    path.unshift(at.parent instanceof LiveArray ? at.parent.target.indexOf(at) : at.key)
  }
  const own = parent.parent === undefined && key === ROOT ? [] : path
  return new NotJson(own.map(pointerPart).join('') + below, found)
}

/** The size of what an entry holds, or of a key. */
function bytesOf(value: Slot): number {
  if (typeof value === 'string') {
    const length = Buffer.byteLength(value)
    return length + (length < 32 ? 1 : length < 256 ? 2 : 5)
  }
  if (typeof value === 'number') return Number.isInteger(value) ? (value >= -32 && value < 128 ? 1 : 5) : 9
  return typeof value === 'object' && value !== null ? value.bytes : 1
}
