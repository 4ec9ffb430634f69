import { checkContainer, checkKey, checkScalar, NotJson } from '../../shared/sync/check.ts'
import { RoomLogicError } from './failures.ts'
import { type LayerRules, type Pattern, patternsOf } from './layer-rules.ts'
import { Layers } from './layers.ts'
import { LiveArray } from './live-array.ts'
import {
  type Before,
  containerOf,
  DELETED,
  Live,
  LiveObject,
  Marks,
  notJson,
  ROOT,
  type Scalar,
  type Slot,
  type Step,
  type Tree,
} from './live-object.ts'
import { PatternObject, requirePatternObject } from './pattern-object.ts'

/** If the log of a turn is longer, it is dropped after the turn. Otherwise the next turn reuses it. */
const KEPT_LOG = 1000

/**
 * Maximum number of holes that the writes of one turn may leave behind the ends of arrays. A client could choose the indexes. A message of
 * 16 KiB with some thousand of them, each 10,000 further, would block the node for seconds.
 */
const MAX_LEFT_HOLES = 10_000

/** The hidden parts of a state. */
interface Hidden {
  readonly patterns: readonly Pattern[]
  readonly layers: Layers
}

/**
 * The two trees of a state. Turns read and write the *live* tree through views: one Proxy for each container, created at its first use. The
 * *flushed* tree is plain JSON as of the last flush, and does not change between flushes. With layers, it is that of the base, and each layer
 * has another one.
 *
 * A write is logged for its undo. It also marks its entry, and the containers around it, as changed. A flush visits only marked entries: it
 * builds the delta, updates the flushed tree, and keeps the sum of each container's entry hashes (docs/protocol.md) by subtracting the old
 * entry's hash and adding the new one's.
 *
 * New values are copied, so nothing outside refers to either tree. An array or object that replaces another one takes over the parts that
 * it has in common with the other: elements that a `filter` kept stay the same objects.
 */
export class LiveTree implements Tree {
  /** Its entry `ROOT` is the state. */
  readonly holder: LiveObject
  /** Undefined: nothing is hidden. */
  readonly hidden: Hidden | undefined
  readonly marks = new Marks()
  lastKeys: readonly string[] = []
  #log: Step[] = []
  #steps = 0
  /** Number of marks before the turn. */
  #marked = 0
  /** Entries that this turn has deleted: container and key. */
  #deleted: [LiveObject, string][] = []
  /** By array that has had a hole in this turn, the error for the write that made it. */
  readonly #holes = new Map<Live, NotJson>()
  /** Arrays and objects that this turn has put into the tree, with their last copies. */
  readonly #given = new Map<object, Live>()
  /** Keys that this turn has written, by container. Undefined: no check has needed them yet. */
  #written: Map<Live, Set<string | number>> | undefined
  /** Number of holes that this turn has left behind the ends of arrays. */
  #leftHoles = 0
  #open = false

  /**
   * Copies, checks, measures and hashes the first state, from `create` or a record, each once. `rules`: hides parts of it in layers, and
   * hides values that do not fit the patterns from all members. Throws NotJson, or a RoomLogicError if patterns run through a state that is
   * not an object.
   */
  constructor(state: unknown, rules?: LayerRules) {
    this.hidden = rules && { patterns: patternsOf(rules), layers: new Layers() }
    this.holder = new LiveObject(this)
    const root = this.copied(state, this.holder, ROOT)
    this.holder.target[ROOT] = root
    if (this.hidden) requirePatternObject(root, this.hidden.patterns)
    this.holder.firstFlush()
    this.hidden?.layers.flush()
  }

  /** Begins a turn, in which views can be used. */
  begin(): void {
    this.#open = true
    this.#marked = this.marks.count
  }

  /**
   * Ends the turn, and keeps its changes. Returns true if it wrote anything. Throws NotJson if an array has a hole, or a RoomLogicError if a
   * pattern runs through a value that is not an object, if a function returns an invalid name, or if a value was changed after it was put into
   * the tree: the copy would not have the change. Only what the turn has written is checked.
   */
  commit(): boolean {
    for (const [array, error] of this.#holes)
      if (array instanceof LiveArray && array.holes > 0 && this.#has(array)) throw error
    const wrote = this.#steps > 0
    if (this.#given.size > 0) this.#requireUnchanged()
    if (this.hidden && wrote) this.#requireFitting()
    for (const [container, key] of this.#deleted)
      if ((container.target[key] as unknown) === DELETED) delete container.target[key]
    this.#end()
    return wrote
  }

  /** Ends the turn, and undoes its changes. */
  undo(): void {
    this.#undoTo(0)
    this.marks.undoTo(this.#marked)
    this.#end()
  }

  #requireUnchanged(): void {
    for (const [given, copy] of this.#given) {
      if (!this.#has(copy) || !this.#hasChanged(given, copy)) continue
      const { path } = notJson(copy, undefined, '')
      throw new RoomLogicError(
        `the ${copy.isArray ? 'array' : 'object'} at ${path} was changed after it was put into the state, which has a copy: change the copy. In place of \`(state.list ??= []).push(x)\`, write \`state.list ??= []\` and then \`state.list.push(x)\``,
      )
    }
  }

  /** True if a value has changed since `copy` was made of it. What the turn has written to the copy does not count. */
  #hasChanged(given: object, copy: Live): boolean {
    if (copy instanceof LiveArray) {
      const { target } = copy
      const list = given as readonly unknown[]
      const isSame = list.length === target.length && target.every((slot, i) => this.#isSame(list[i], slot))
      return !isSame && !this.#writes.has(copy)
    }
    const object = copy as LiveObject
    const from = given as { readonly [key: string]: unknown }
    const keys = Object.keys(from)
    const differs = (key: string): boolean => !this.#isSame(from[key], object.own(key))
    if (keys.length === object.size && !keys.some(differs)) return false
    return [...keys, ...Object.keys(object.target)].some(
      (key) => differs(key) && !this.#writes.get(object)?.has(key),
    )
  }

  #isSame(part: unknown, slot: Before): boolean {
    if (typeof part !== 'object' || part === null) return part === slot
    // A view changes with the state.
    return containerOf(part) !== undefined || (slot instanceof Live && !this.#hasChanged(part, slot))
  }

  get #writes(): ReadonlyMap<Live, ReadonlySet<string | number>> {
    if (this.#written) return this.#written
    this.#written = new Map()
    for (const { kind, container, key } of this.#log.slice(0, this.#steps)) {
      if (kind !== 'written' && kind !== 'spliced') continue
      const keys = this.#written.get(container)
      if (keys) keys.add(key)
      else this.#written.set(container, new Set([key]))
    }
    return this.#written
  }

  #requireFitting(): void {
    for (let i = 0; i < this.#steps; i++) {
      const { kind, container, key } = this.#log[i]!
      if (kind !== 'written') continue
      if (container === this.holder) this.requireAllFitting()
      else if (container instanceof PatternObject && this.#has(container)) container.check(key as string)
    }
  }

  /** Throws a RoomLogicError as `commit` does, for the whole state. */
  requireAllFitting(): void {
    if (this.hidden) requirePatternObject(this.holder.target[ROOT]!, this.hidden.patterns).checkAll()
  }

  #has(container: Live): boolean {
    let top = container
    while (top.parent) top = top.parent
    return top === this.holder
  }

  #end(): void {
    if (this.#log.length > KEPT_LOG) this.#log = []
    this.#steps = 0
    if (this.#deleted.length > 0) this.#deleted = []
    if (this.#holes.size > 0) this.#holes.clear()
    if (this.#given.size > 0) this.#given.clear()
    this.#written = undefined
    this.#leftHoles = 0
    this.#open = false
  }

  // The methods below are for containers, see `Tree`.

  requireOpen(): void {
    if (!this.#open)
      throw new RoomLogicError(
        'state_outside_turn: the state of a room was used outside of a handler; read from it what is needed later, before the handler returns',
      )
  }

  get hasDeleted(): boolean {
    return this.#deleted.length > 0
  }

  deleted(container: LiveObject, key: string): void {
    this.#deleted.push([container, key])
  }

  mayLeave(holes: number): boolean {
    if (this.#leftHoles + holes > MAX_LEFT_HOLES) return false
    this.#leftHoles += holes
    return true
  }

  holed(array: Live, error: NotJson): void {
    this.#holes.set(array, error)
  }

  log(kind: Step['kind'], container: Live, key: string | number, before: unknown): void {
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

  #undoTo(steps: number): void {
    while (this.#steps > steps) {
      const { kind, container, key, before } = this.#log[--this.#steps]!
      if (kind === 'linked') container.parent = before as Live
      else container.undo(kind, key, before)
    }
  }

  /** Returns a new object for an entry. */
  #objectAt(parent: Live, key: string | number): LiveObject {
    if (!this.hidden) return new LiveObject(this)
    const { patterns, layers } = this.hidden
    if (parent === this.holder) return new PatternObject(this, layers, patterns)
    return parent instanceof PatternObject ? parent.objectAt(key as string) : new LiveObject(this)
  }

  copied(value: unknown, parent: Live, key: string | number, place?: Before): Slot {
    const steps = this.#steps
    try {
      if (typeof value !== 'object' || value === null) {
        checkScalar(value, [])
        return value as Scalar
      }
      const copy = this.#copy(value, place, parent, key, parent.depth + 1, [])
      copy.parent = parent
      copy.key = key
      // The whole state comes from a handler that has ended.
      if (parent !== this.holder && containerOf(value) === undefined) this.#given.set(value, copy)
      return copy
    } catch (error) {
      this.#undoTo(steps)
      throw error instanceof NotJson ? notJson(parent, key, error.found, error.path) : error
    }
  }

  #copy(
    value: object,
    place: Before,
    parent: Live,
    key: string | number,
    level: number,
    path: (string | number)[],
  ): Live {
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
    const copy = this.#objectAt(parent, key)
    const old = place instanceof LiveObject ? place : undefined
    for (const key of Object.keys(from)) {
      if (from[key] === DELETED) continue
      checkKey(key, path)
      copy.add(this.#part(from[key], copy, key, old, old?.own(key), level, path), key)
    }
    return copy
  }

  /** Returns one entry of a copy that replaces `old`. `place`: the entry of `old` at this key. */
  #part(
    value: unknown,
    copy: Live,
    key: string | number,
    old: Live | undefined,
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
      const own = old && (value instanceof Live ? value : this.#ownOf(value))
      if (own !== undefined && own.parent === old && (place === own || typeof key === 'number')) {
        this.log('linked', own, key, old)
        own.parent = copy
        part = own
      } else {
        part = this.#copy(value, place, copy, key, level + 1, path)
        part.parent = copy
        part.key = key
      }
    }
    path.pop()
    return part
  }

  /** Returns the container of a view of this tree. */
  #ownOf(value: object): Live | undefined {
    const container = containerOf(value)
    return container?.tree === this ? container : undefined
  }
}
