import type { Json, JsonObject } from '../../shared/json.ts'
import { hashContainer, hashEntry, hashKey } from '../../shared/sync/checksum.ts'
import { type Change, type Delta, ObjectDelta, REMOVE, Replace } from '../../shared/sync/delta.ts'
import { RoomLogicError } from './failures.ts'
import {
  type Grant,
  isLayerName,
  keysOf,
  type LayerRules,
  matching,
  NO_PATTERNS,
  type Pattern,
  patternsOf,
  RIGHT_NAME,
} from './layer-rules.ts'
import { flushedOf, hashOf, LiveObject, type Slot } from './live-object.ts'
import type { LiveTree } from './live-tree.ts'

/** Hidden parts of the state. `layer-rules.ts` has their patterns and who sees them. `room-frames.ts` encodes and delivers them. */

type MutableObject = { [key: string]: Json }

/** Change of a value at a path. */
interface PathChange {
  /** Path from the root of the state. */
  readonly path: readonly string[]
  /** Change of the value. */
  readonly change: Change
  /**
   * Index of the key of `path` at which the state of the layer changes. It is the last key, or an earlier one if the objects below were
   * created or removed with this value.
   */
  readonly at: number
}

/** Change of one hidden value in a flush. */
export interface HiddenChange extends PathChange {
  /** Null: hidden from all members. */
  readonly layer: string | null
}

/** A layer that a flush has changed. */
export interface ChangedLayer {
  readonly layer: string
  /** Checksum of its state after the flush. */
  readonly checksum: number
  /** True if the layer was empty before. */
  readonly created: boolean
}

/** Hidden values and layers that a flush has changed. */
interface LayersChange {
  readonly hidden: readonly HiddenChange[]
  readonly changed: readonly ChangedLayer[]
}

/** Changes of a flush in a room with layers, except those of the base. */
export interface UpdateLayers extends LayersChange {
  /** Checksum of the whole state after the flush. Members do not get it. */
  readonly checksum: number
  /** Sum over names and contents of all layers after the flush. */
  readonly sum: number
  readonly grants: readonly Grant[]
}

/** A flush, split into changes of the base and changes of hidden values. */
interface Split extends LayersChange {
  /** Change of the base. */
  readonly base: Delta | undefined
}

/** State of a layer: its hidden values at their paths, and nothing else. */
export interface LayerState {
  readonly state: Json
  /** From 0 to 2^32 - 1. */
  readonly checksum: number
}

/** A hidden value, as of the last flush. */
interface HiddenValue {
  readonly layer: string | null
  readonly hash: number
}

/** An object of the state through which patterns run, as of the last flush. */
class Way {
  readonly path: readonly string[]
  /** Patterns that run through the object. */
  readonly patterns: readonly Pattern[]
  /** The part of the object that is not hidden. */
  readonly base: MutableObject = {}
  readonly values = new Map<string, HiddenValue>()
  readonly ways = new Map<string, Way>()
  /** Sum of the object's entry hashes, minus that of `base`. */
  excess = 0
  /** Hash of the whole object, and of `base`. */
  hash = 0
  baseHash = 0

  constructor(path: readonly string[], patterns: readonly Pattern[]) {
    this.path = path
    this.patterns = patterns
  }

  /** Updates both hashes from the present object `live` and from `excess`. */
  measure(live: LiveObject): void {
    this.hash = hashOf(live)
    this.baseHash = hashContainer(false, live.sum - this.excess)
  }

  /** Adds an entry to the excess (1), or subtracts it (-1). */
  count(key: string, { hash }: HiddenValue, times: 1 | -1): void {
    this.excess = (this.excess + times * hashEntry(hashKey(key), hash)) | 0
  }

  countWay(key: string, { hash, baseHash }: Way, times: 1 | -1): void {
    const name = hashKey(key)
    this.excess = (this.excess + times * (hashEntry(name, hash) - hashEntry(name, baseHash))) | 0
  }
}

/** An object in the state of a layer. */
class LayerObject {
  readonly state: MutableObject = {}
  readonly #hashes = new Map<string, number>()
  readonly #below = new Map<string, LayerObject>()
  #sum = 0

  get hash(): number {
    return hashContainer(false, this.#sum)
  }

  get empty(): boolean {
    return this.#hashes.size === 0 && this.#below.size === 0
  }

  /** Sets the value at a path, whose hash is `hash`. Undefined: removes it. Returns `at` of this change. */
  set(path: readonly string[], value: Json | undefined, hash: number, level = 0): number {
    const key = path[level]!
    const name = hashKey(key)
    if (level === path.length - 1) {
      const before = this.#hashes.get(key)
      if (before !== undefined) this.#add(-hashEntry(name, before))
      if (value === undefined) {
        this.#hashes.delete(key)
        delete this.state[key]
      } else {
        this.#hashes.set(key, hash)
        this.#add(hashEntry(name, hash))
        this.state[key] = value
      }
      return level
    }
    const known = this.#below.get(key)
    const below = known ?? new LayerObject()
    if (known) this.#add(-hashEntry(name, known.hash))
    const at = below.set(path, value, hash, level + 1)
    if (below.empty) {
      this.#below.delete(key)
      delete this.state[key]
      return level
    }
    this.#below.set(key, below)
    this.#add(hashEntry(name, below.hash))
    this.state[key] = below.state
    return known ? at : level
  }

  #add(hash: number): void {
    this.#sum = (this.#sum + hash) | 0
  }
}

/**
 * The hidden parts of a room's state, and their layers, as of the last flush. Splits the delta of each flush into changes of the base and
 * changes of hidden values. Base and layers keep their states and the sums behind their checksums, and update them only from the changes.
 * Hash and JSON of a hidden value are those of the live tree.
 */
export class Layers {
  readonly #tree: LiveTree
  readonly #patterns: readonly Pattern[]
  /** Number of keys of the longest pattern. */
  readonly #levels: number
  readonly #layers = new Map<string, LayerObject>()
  #root: Way
  #sum = 0
  /** Hidden changes of the flush that is being split. */
  #hidden: HiddenChange[] = []
  /** Layers that the flush has changed, and whether they existed before. */
  readonly #touched = new Map<string, boolean>()

  /** `tree`: the first state. A value that does not fit the patterns is hidden from all members. */
  constructor(rules: LayerRules, tree: LiveTree) {
    this.#tree = tree
    this.#patterns = patternsOf(rules)
    this.#levels = Math.max(...this.#patterns.map(({ keys }) => keys.length))
    this.#root = this.#build([], this.#patterns, this.#rootObject())
    this.#changed()
    this.#hidden = []
  }

  /**
   * Checks what the present turn has written. Throws a RoomLogicError if a pattern runs through a value that is not an object, or if a
   * function returns an invalid name.
   */
  check(): void {
    this.#tree.written(this.#levels, (path, slot) => this.#checkPath(path, slot))
  }

  /** As `check`, for the whole state. */
  checkAll(): void {
    this.#checkEntry(NO_PATH, this.#patterns, this.#tree.object ?? null)
  }

  /** The base as of the last flush. Use it immediately: the next flush changes it. */
  get base(): Json {
    return this.#root.base
  }

  /** Checksum of the base, from 0 to 2^32 - 1. */
  get checksum(): number {
    return this.#root.baseHash >>> 0
  }

  /** Sum over names and contents of all layers, from 0 to 2^32 - 1. */
  get sum(): number {
    return this.#sum >>> 0
  }

  /** Returns the state of a layer as of the last flush. Undefined: it is empty. Use it immediately: the next flush changes it. */
  of(layer: string): LayerState | undefined {
    const found = this.#layers.get(layer)
    return found && { state: found.state, checksum: found.hash >>> 0 }
  }

  /** Splits the delta of the tree's flush. */
  flush(delta: Delta | undefined): Split {
    let base: Delta | undefined
    if (delta instanceof ObjectDelta) {
      const live = this.#rootObject()
      base = this.#changeOf(this.#root, delta, live)
      this.#root.measure(live)
    } else if (delta) {
      const gone = this.#valuesIn(this.#root)
      this.#root = this.#build(
        [],
        this.#patterns,
        this.#rootObject(),
        gone,
        (delta as Replace).value as JsonObject,
      )
      this.#drop(gone)
      base = new Replace(copyOf(this.#root))
    }
    const changed = this.#changed()
    const hidden = this.#hidden
    this.#hidden = []
    return { base, hidden, changed }
  }

  #rootObject(): LiveObject {
    const { object } = this.#tree
    if (!object)
      throw new RoomLogicError(
        `the state has to be an object, since the pattern ${this.#patterns[0]!.text} of layers runs through it`,
      )
    return object
  }

  /** Returns the part of an object's change that belongs to the base. */
  #changeOf(way: Way, delta: ObjectDelta, live: LiveObject): ObjectDelta | undefined {
    const keys: string[] = []
    const changes: Change[] = []
    for (const [i, key] of delta.keys.entries()) {
      const change = this.#entry(way, key, delta.changes[i]!, live)
      if (!change) continue
      keys.push(key)
      changes.push(change)
    }
    return keys.length > 0 ? new ObjectDelta(keys, changes) : undefined
  }

  #entry(way: Way, key: string, change: Change, live: LiveObject): Change | undefined {
    const slot = live.own(key)
    const patterns = matching(way.patterns, way.path.length, key)
    if (patterns === NO_PATTERNS) {
      if (slot === undefined) delete way.base[key]
      else way.base[key] = flushedOf(slot)
      return change
    }
    const path = [...way.path, key]
    const value = change instanceof Replace ? change.value : undefined
    if (endsAt(patterns, path) || !isWay(slot, way.ways.has(key))) {
      this.#value(way, path, change, slot, patterns)
      return undefined
    }
    const before = way.ways.get(key)
    if (before) way.countWay(key, before, -1)
    if (before && slot instanceof LiveObject && change instanceof ObjectDelta) {
      const below = this.#changeOf(before, change, slot)
      before.measure(slot)
      way.countWay(key, before, 1)
      return below
    }
    // A value that did not fit the patterns was hidden. It may fit now.
    if (way.values.has(key)) this.#value(way, path, REMOVE, undefined, patterns)
    const gone = before ? this.#valuesIn(before) : new Map<string, HiddenAt>()
    way.ways.delete(key)
    delete way.base[key]
    let made: Way | undefined
    if (slot instanceof LiveObject) {
      made = this.#build(path, patterns, slot, gone, value as JsonObject)
      way.ways.set(key, made)
      way.base[key] = made.base
      way.countWay(key, made, 1)
    }
    this.#drop(gone)
    return made ? new Replace(copyOf(made), before === undefined) : before && REMOVE
  }

  /** Records the change of a hidden value. */
  #value(
    way: Way,
    path: readonly string[],
    change: Change,
    slot: Slot | undefined,
    patterns: readonly Pattern[],
  ): void {
    const key = path.at(-1)!
    const before = way.values.get(key)
    if (before) way.count(key, before, -1)
    if (slot === undefined) {
      way.values.delete(key)
      if (before) this.#put(before.layer, path, REMOVE, undefined)
      return
    }
    const layer = before ? before.layer : this.#layerOf(patterns, path)
    const now = { layer, hash: hashOf(slot) }
    way.values.set(key, now)
    way.count(key, now, 1)
    this.#put(layer, path, change instanceof Replace ? new Replace(change.value, !before) : change, slot)
  }

  /**
   * Builds the node of an object that is new here. Values in `gone` keep their layer, and are removed from `gone`. `value`: the object as
   * plain JSON, in a flush.
   */
  #build(
    path: readonly string[],
    patterns: readonly Pattern[],
    live: LiveObject,
    gone?: Map<string, HiddenAt>,
    value?: JsonObject,
  ): Way {
    const way = new Way(path, patterns)
    for (const key of Object.keys(live.target)) {
      const slot = live.own(key)
      if (slot === undefined) continue
      const below = matching(patterns, path.length, key)
      if (below === NO_PATTERNS) {
        way.base[key] = flushedOf(slot)
        continue
      }
      const at = [...path, key]
      if (slot instanceof LiveObject && !endsAt(below, at)) {
        const inner = this.#build(at, below, slot, gone, value?.[key] as JsonObject | undefined)
        way.ways.set(key, inner)
        way.base[key] = inner.base
        way.countWay(key, inner, 1)
        continue
      }
      const name = JSON.stringify(at)
      const before = gone?.get(name)
      gone?.delete(name)
      const layer = before ? before.layer : this.#layerOf(below, at)
      const now = { layer, hash: hashOf(slot) }
      way.values.set(key, now)
      way.count(key, now, 1)
      this.#put(layer, at, new Replace(value?.[key] ?? null, !before), slot)
    }
    way.measure(live)
    return way
  }

  /** Returns the hidden values in an object, by path. */
  #valuesIn(way: Way, found = new Map<string, HiddenAt>()): Map<string, HiddenAt> {
    for (const [key, { layer }] of way.values) {
      const path = [...way.path, key]
      found.set(JSON.stringify(path), { layer, path })
    }
    for (const below of way.ways.values()) this.#valuesIn(below, found)
    return found
  }

  #drop(gone: ReadonlyMap<string, HiddenAt>): void {
    for (const { layer, path } of gone.values()) this.#put(layer, path, REMOVE, undefined)
  }

  /** Sets a hidden value of `layer` to `slot`, and records the change. */
  #put(layer: string | null, path: readonly string[], change: Change, slot: Slot | undefined): void {
    let at = path.length - 1
    if (layer !== null) {
      const known = this.#layers.get(layer)
      const object = known ?? new LayerObject()
      if (!this.#touched.has(layer)) {
        this.#touched.set(layer, known !== undefined)
        if (known) this.#sum = (this.#sum - hashEntry(hashKey(layer), known.hash)) | 0
      }
      this.#layers.set(layer, object)
      at = object.set(
        path,
        slot === undefined ? undefined : flushedOf(slot),
        slot === undefined ? 0 : hashOf(slot),
      )
    }
    this.#hidden.push({ layer, path, at, change })
  }

  /** Returns the layers that have changed since the last call. Deletes empty layers. */
  #changed(): ChangedLayer[] {
    const changed: ChangedLayer[] = []
    for (const [layer, existed] of this.#touched) {
      const object = this.#layers.get(layer)!
      if (object.empty) this.#layers.delete(layer)
      else this.#sum = (this.#sum + hashEntry(hashKey(layer), object.hash)) | 0
      changed.push({ layer, checksum: object.hash >>> 0, created: !existed })
    }
    this.#touched.clear()
    return changed
  }

  /**
   * Returns the layer of a new value. If its function fails now, although it passed the turn's check, the value is hidden from all members.
   */
  #layerOf(patterns: readonly Pattern[], path: readonly string[]): string | null {
    const pattern = patterns.find(({ keys }) => keys.length === path.length)
    if (!pattern) return null
    try {
      return nameOf(pattern, path)
    } catch {
      return null
    }
  }

  #checkPath(path: readonly string[], slot: Slot): void {
    let patterns = this.#patterns
    for (const [level, key] of path.entries()) {
      patterns = matching(patterns, level, key)
      // The entry lies in a hidden value, or no pattern matches it.
      if (
        patterns === NO_PATTERNS ||
        (level < path.length - 1 && patterns.some(({ keys }) => keys.length === level + 1))
      )
        return
    }
    this.#checkEntry(path, patterns, slot)
  }

  #checkEntry(path: readonly string[], patterns: readonly Pattern[], slot: Slot): void {
    const end = patterns.find(({ keys }) => keys.length === path.length)
    if (end) {
      nameOf(end, path)
      return
    }
    if (!(slot instanceof LiveObject)) {
      const where = path.length > 0 ? path.join('.') : 'the state'
      const what =
        slot !== null && typeof slot === 'object' ? 'an array' : slot === null ? 'null' : `a ${typeof slot}`
      throw new RoomLogicError(
        `${where} is ${what}, and the pattern ${patterns[0]!.text} of layers runs through it: patterns run through objects only`,
      )
    }
    for (const key of Object.keys(slot.target)) {
      const below = matching(patterns, path.length, key)
      const entry = slot.own(key)
      if (below !== NO_PATTERNS && entry !== undefined) this.#checkEntry([...path, key], below, entry)
    }
  }
}

/** A hidden value, and its layer until then. */
interface HiddenAt {
  readonly layer: string | null
  readonly path: readonly string[]
}

const NO_PATH: readonly string[] = []

/** True if a pattern ends at `path`, so that the value there is hidden. */
const endsAt = (patterns: readonly Pattern[], path: readonly string[]): boolean =>
  patterns.some(({ keys }) => keys.length === path.length)

/** True if patterns run through the value, or ran through one that is gone. */
const isWay = (slot: Slot | undefined, was: boolean): boolean =>
  slot instanceof LiveObject || (slot === undefined && was)

/** Returns the layer of a path at which the pattern ends. Throws a RoomLogicError. */
function nameOf(pattern: Pattern, path: readonly string[]): string | null {
  const { rule, text } = pattern
  if (typeof rule !== 'function') return rule
  const keys = keysOf(pattern, path)
  let name: unknown
  try {
    name = rule(...keys)
  } catch (error) {
    throw new RoomLogicError(
      `layers[${JSON.stringify(text)}] threw for the keys ${JSON.stringify(keys)}: ${error instanceof Error ? error.message : String(error)}`,
    )
  }
  if (isLayerName(name)) return name
  throw new RoomLogicError(
    `layers[${JSON.stringify(text)}] returned ${JSON.stringify(name) ?? String(name)} for the keys ${JSON.stringify(keys)}; ${RIGHT_NAME}`,
  )
}

/** Returns a copy of an object's base, which later flushes do not change. */
const copyOf = (way: Way): MutableObject => structuredClone(way.base)

/** Changes that are being combined, by key: a new object, or changes by key below. */
type Draft = Map<string, Change | Draft | Made>

/** An object that was created with the first value in it. */
class Made {
  readonly value: MutableObject = {}

  put([key, ...below]: readonly string[], value: Json): void {
    let object = this.value
    let last = key!
    for (const next of below) {
      object[last] ??= {}
      object = object[last] as MutableObject
      last = next
    }
    object[last] = value
  }
}

/** Combines successive changes of hidden values into a delta of the object that contains them. */
function deltaOf(changes: Iterable<PathChange>): ObjectDelta | undefined {
  const whole: Draft = new Map()
  for (const { path, at, change } of changes) {
    let draft = whole
    for (let level = 0; ; level++) {
      const key = path[level]!
      const there = draft.get(key)
      if (there instanceof Made && level < path.length - 1) {
        // A new object is sent whole, so only the values in it count.
        if (change instanceof Replace) there.put(path.slice(level + 1), change.value)
        break
      }
      if (level < at) {
        const below = there instanceof Map ? there : new Map()
        draft.set(key, below)
        draft = below
        continue
      }
      if (change === REMOVE || level === path.length - 1) draft.set(key, change)
      else {
        const made = new Made()
        made.put(path.slice(level + 1), (change as Replace).value)
        draft.set(key, made)
      }
      break
    }
  }
  return whole.size > 0 ? finished(whole) : undefined
}

function finished(draft: Draft): ObjectDelta {
  const changes = [...draft.values()].map((change) =>
    change instanceof Map
      ? finished(change)
      : change instanceof Made
        ? new Replace(change.value, true)
        : change,
  )
  return new ObjectDelta([...draft.keys()], changes)
}

/** Returns the delta of each layer in a flush. */
export function layerDeltas({ hidden }: LayersChange): Map<string, Delta> {
  const byLayer = new Map<string, HiddenChange[]>()
  for (const change of hidden) {
    if (change.layer === null) continue
    const changes = byLayer.get(change.layer)
    if (changes) changes.push(change)
    else byLayer.set(change.layer, [change])
  }
  return new Map([...byLayer].map(([layer, changes]) => [layer, deltaOf(changes)!]))
}

/** Returns the delta of the hidden part of the whole state. `state`: the state with the changes of the base. */
export function hiddenDelta(state: Json, { hidden }: UpdateLayers): Delta | undefined {
  const fitting = hidden.filter(({ path, change }) => {
    // A removed value may have gone with the object that contained it.
    return change !== REMOVE || isAt(state, path)
  })
  return deltaOf(fitting.map(({ path, change }) => ({ path, at: path.length - 1, change })))
}

function isAt(state: Json, path: readonly string[]): boolean {
  let at: Json | undefined = state
  for (const key of path) {
    if (typeof at !== 'object' || at === null || Array.isArray(at) || !Object.hasOwn(at, key)) return false
    at = (at as JsonObject)[key]
  }
  return true
}
