import type { Json } from '../../shared/json.ts'
import { hashEntry, hashKey } from '../../shared/sync/checksum.ts'
import { type Change, REMOVE, Replace } from '../../shared/sync/delta.ts'
import { RoomLogicError } from './failures.ts'
import { layerOf, matching, NO_PATTERNS, NOBODY, type Pattern } from './layer-rules.ts'
import type { LayerObject, Layers } from './layers.ts'
import {
  firstFlushOf,
  hashOf,
  isContainer,
  type Live,
  LiveObject,
  type MutableObject,
  plainOf,
  type Scalar,
  type Slot,
  type Tree,
} from './live-object.ts'

/**
 * An object of the live tree through which patterns of layers run. If a pattern ends at an entry, the entry is a *mount*: a layer has its
 * flushed value and its share of the checksum, in an object at the same path. This object has the other entries, which are the base. Room
 * code sees no difference.
 *
 * Only flushes change mounts, so the undo of a turn restores none.
 */
export class PatternObject extends LiveObject {
  readonly #layers: Layers
  /** Patterns that run through the object. */
  readonly #patterns: readonly Pattern[]
  /** Keys from the root. */
  readonly #path: readonly string[]
  /** By key, the object of a layer that has the entry. */
  #mounts = new Map<string, LayerObject>()

  constructor(tree: Tree, layers: Layers, patterns: readonly Pattern[], path: readonly string[] = []) {
    super(tree)
    this.#layers = layers
    this.#patterns = patterns
    this.#path = path
  }

  /** Returns a new object for an entry. */
  objectAt(key: string): LiveObject {
    const patterns = this.#patternsAt(key)
    return patterns === NO_PATTERNS || this.#endIn(patterns)
      ? new LiveObject(this.tree)
      : new PatternObject(this.tree, this.#layers, patterns, [...this.#path, key])
  }

  /** Checks an entry. Throws a RoomLogicError if a pattern cannot run through it, or if a function returns an invalid name. */
  check(key: string): void {
    const slot = this.own(key)
    const patterns = this.#patternsAt(key)
    if (slot === undefined || patterns === NO_PATTERNS) return
    const path = [...this.#path, key]
    const end = this.#endIn(patterns)
    if (end) layerOf(end, path)
    else requirePatternObject(slot, patterns, path).checkAll()
  }

  checkAll(): void {
    for (const key of Object.keys(this.target)) this.check(key)
  }

  override supersede(before: PatternObject): Change | undefined {
    this.#mounts = before.#mounts
    before.#mounts = new Map()
    return super.supersede(before, [...Object.keys(before.flushed!), ...this.#mounts.keys()])
  }

  override firstFlush(): MutableObject {
    this.flushed = {}
    for (const key of Object.keys(this.target)) {
      const slot = this.target[key]!
      const mount = this.#mountFor(key, slot)
      const at = mount ?? this
      at.flushed![key] = firstFlushOf(slot)
      at.sum = (at.sum + hashEntry(hashKey(key), hashOf(slot))) | 0
      if (mount) this.#mounts.set(key, mount)
      mount?.note(key, new Replace(plainOf(slot), true))
    }
    return this.flushed
  }

  override flushedCopy(): Json {
    return structuredClone(this.flushed!)
  }

  protected override lastOf(key: string, at = this.#mounts.get(key)): Json | undefined {
    return super.lastOf(key, at)
  }

  protected override flushEntry(key: string, before: Live | undefined): Change | undefined {
    const now = this.own(key)
    const last = this.#mounts.get(key)
    const mount = now === undefined ? last : this.#mountFor(key, now, before)
    // A hidden value that did not fit the patterns fits them now, or the other way round.
    const moved = mount !== last && this.lastOf(key) !== undefined
    if (moved) this.#remove(key, before, last)
    if (mount && !last) this.#mounts.set(key, mount)
    const change = super.flushEntry(key, moved ? undefined : before, mount)
    // The layers lose the values of an object that is gone.
    if (before instanceof PatternObject && !(now instanceof PatternObject))
      new PatternObject(this.tree, this.#layers, NO_PATTERNS).supersede(before)
    if (!mount) return change
    if (now === undefined) this.#mounts.delete(key)
    if (change) mount.note(key, change)
    return moved ? REMOVE : undefined
  }

  /** Returns the object of a layer to which an entry belongs. Undefined: it belongs to the base. `before`: the flushed container. */
  #mountFor(key: string, now: Slot, before?: Live): LayerObject | undefined {
    if (now instanceof PatternObject) return undefined
    const last = this.#mounts.get(key)
    if (last) return last
    // An entry of the base at which no pattern matches.
    if (this.lastOf(key) !== undefined && !(before instanceof PatternObject)) return undefined
    const patterns = this.#patternsAt(key)
    return patterns === NO_PATTERNS ? undefined : this.#layers.at(this.#layerOf(key, patterns), this.#path)
  }

  /** Returns the layer of a new value. A value that does not fit the patterns is hidden from all members. */
  #layerOf(key: string, patterns: readonly Pattern[]): string {
    const end = this.#endIn(patterns)
    if (!end) return NOBODY
    try {
      return layerOf(end, [...this.#path, key])
    } catch {
      return NOBODY
    }
  }

  #remove(key: string, before: Live | undefined, mount: LayerObject | undefined): void {
    const at = mount ?? this
    const hash = hashOf(before ?? (this.lastOf(key) as Scalar))
    at.sum = (at.sum - hashEntry(hashKey(key), hash)) | 0
    delete at.flushed![key]
    mount?.note(key, REMOVE)
    this.#mounts.delete(key)
  }

  #patternsAt(key: string): readonly Pattern[] {
    return matching(this.#patterns, this.#path.length, key)
  }

  /** Returns the pattern that ends at an entry. */
  #endIn(patterns: readonly Pattern[]): Pattern | undefined {
    return patterns.find(({ keys }) => keys.length === this.#path.length + 1)
  }
}

/** Throws a RoomLogicError if the value at a path is not an object, and patterns run through it. */
export function requirePatternObject(
  slot: Slot,
  patterns: readonly Pattern[],
  path: readonly string[] = [],
): PatternObject {
  if (slot instanceof PatternObject) return slot
  const where = path.length > 0 ? path.join('.') : 'the state'
  const what = isContainer(slot) ? 'an array' : slot === null ? 'null' : `a ${typeof slot}`
  throw new RoomLogicError(
    `${where} is ${what}, and the pattern ${patterns[0]!.text} of layers runs through it: patterns run through objects only`,
  )
}
