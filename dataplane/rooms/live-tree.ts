import type { Json } from '../../shared/json.ts'
import { checkContainer, checkKey, checkScalar, NotJson } from '../../shared/sync/check.ts'
import type { Delta, ObjectDelta } from '../../shared/sync/delta.ts'
import { RoomLogicError } from './failures.ts'
import { LiveArray } from './live-array.ts'
import {
  type Before,
  bytesOf,
  containerOf,
  DELETED,
  hashOf,
  Live,
  LiveObject,
  Marks,
  notJson,
  plainOf,
  ROOT,
  type Scalar,
  type Slot,
  viewOf,
} from './live-object.ts'

/** A longer log of a turn is dropped after it, and a shorter one is written over by the next. */
const KEPT_LOG = 1000

/** How a step of a turn is undone. */
export interface Step {
  kind: 'written' | 'marked' | 'ordered' | 'linked' | 'spliced'
  container: Live
  key: string | number
  before: unknown
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
  readonly #marks = new Marks()
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
      if (kind !== 'written' || !(container instanceof LiveObject) || container.depth > levels) continue
      const slot = container.own(key as string)
      const path = slot !== undefined && this.#pathOf(container, key as string)
      if (path) visit(path, slot)
    }
  }

  /** The keys that lead to an entry of an object; undefined: it is in an array, or not in the tree. */
  #pathOf(container: LiveObject, key: string): string[] | undefined {
    if (container === this.#holder) return []
    const path = [key]
    for (let at: Live = container; at !== this.#root; at = at.parent) {
      if (!at.parent || at.parent.isArray) return undefined
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

  /** An entry of an object in the flushed tree may change. */
  mark(container: LiveObject, key: string, before: Live | undefined): void {
    this.#marks.add(container, key, before)
  }

  #undoTo(steps: number): void {
    while (this.#steps > steps) {
      const { kind, container, key, before } = this.#log[--this.#steps]!
      if (kind === 'linked') container.parent = before as Live
      else container.undo(kind, key, before)
    }
  }

  /**
   * What a value becomes as an entry of `parent`: itself, or a copy. What is in `place` now, which it is put in the place of, gives it its
   * parts. Throws NotJson.
   */
  copied(value: unknown, parent: Live, key: string | number, place?: Before): Slot {
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

  #copy(value: object, place: Before, level: number, path: (string | number)[]): Live {
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
        part = this.#copy(value, place, level + 1, path)
        part.parent = copy
        part.key = key
      }
    }
    path.pop()
    return part
  }

  /** The container of a view of this tree. */
  #ownOf(value: object): Live | undefined {
    const container = containerOf(value)
    return container?.tree === this ? container : undefined
  }
}
