import type { Json, JsonObject } from '../../shared/json.ts'
import { hashContainer, hashEntry, hashKey } from '../../shared/sync/checksum.ts'
import { type Change, type Delta, ObjectDelta, REMOVE, Replace } from '../../shared/sync/delta.ts'
import { RoomLogicError } from './failures.ts'
import type { Grant } from './layer-grants.ts'
import {
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
import type { LiveTree } from './state.ts'

type MutableObject = { [key: string]: Json }

/** What one flush did to a hidden value. */
export interface HiddenChange {
  /** Null: no one's. */
  readonly layer: string | null
  /** From the root. */
  readonly path: readonly string[]
  /** Of the value. */
  readonly change: Change
  /**
   * The index of the key of `path` at which its layer's state changes: the last, or an earlier one where the objects below have come with this value,
   * or gone.
   */
  readonly at: number
}

/** A layer that one flush has changed. */
export interface ChangedLayer {
  readonly layer: string
  /** Of its state after it. */
  readonly checksum: number
  /** There was nothing in it before. */
  readonly created: boolean
}

/** What one flush did besides to the base, in a room with layers. */
export interface UpdateLayers {
  /** Of the whole state after it: not for members. */
  readonly checksum: number
  /** Of all layers, by name, after it. */
  readonly sum: number
  readonly hidden: readonly HiddenChange[]
  readonly changed: readonly ChangedLayer[]
  readonly grants: readonly Grant[]
}

/** What of a flush is for whom. */
interface Split extends Pick<UpdateLayers, 'hidden' | 'changed'> {
  /** What has changed of the base. */
  readonly base: Delta | undefined
}

/** The state of a layer: the hidden values at their paths, and nothing else. */
export interface LayerState {
  readonly state: Json
  /** 0 … 2^32 - 1. */
  readonly checksum: number
}

/** A hidden value, as of the last flush. */
interface HiddenValue {
  readonly layer: string | null
  readonly hash: number
}

/** An object of the state that patterns run through, as of the last flush. */
class Way {
  readonly path: readonly string[]
  /** Those that run through it. */
  readonly patterns: readonly Pattern[]
  /** What of it is not hidden. */
  readonly base: MutableObject = {}
  readonly values = new Map<string, HiddenValue>()
  readonly ways = new Map<string, Way>()
  /** By how much the sum of its entry hashes is larger than that of `base`. */
  excess = 0
  /** Of all that is in it, and of `base`. */
  hash = 0
  baseHash = 0

  constructor(path: readonly string[], patterns: readonly Pattern[]) {
    this.path = path
    this.patterns = patterns
  }

  /** The object is `live` now, and `excess` is right. */
  measure(live: LiveObject): void {
    this.hash = hashOf(live)
    this.baseHash = hashContainer(false, live.sum - this.excess)
  }

  /** An entry enters the excess (1), or leaves it (-1). */
  count(key: string, { hash }: HiddenValue, times: 1 | -1): void {
    this.excess = (this.excess + times * hashEntry(hashKey(key), hash)) | 0
  }

  countWay(key: string, { hash, baseHash }: Way, times: 1 | -1): void {
    const name = hashKey(key)
    this.excess = (this.excess + times * (hashEntry(name, hash) - hashEntry(name, baseHash))) | 0
  }
}

/** An object of a layer's state. */
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

  /** The value at a path becomes `value`, which has `hash`; undefined: it goes. Returns the `at` of this change. */
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
 * What of a room's state is hidden, and in which layer, as of the last flush. Each flush's delta is split into that of the base and
 * changes of hidden values; base and layers each have their state and the sums that make their checksums, brought up to date from what
 * has changed alone. A hidden value's hash is the live tree's, and so is its JSON.
 */
export class Layers {
  readonly #tree: LiveTree
  readonly #patterns: readonly Pattern[]
  /** How deep the deepest hidden value lies. */
  readonly #levels: number
  readonly #layers = new Map<string, LayerObject>()
  #root: Way
  #sum = 0
  /** Of the flush that is being split. */
  #hidden: HiddenChange[] = []
  /** With what there was before: undefined for nothing. */
  readonly #touched = new Map<string, boolean>()

  /** Of what a room begins with. What does not fit the patterns is no one's. */
  constructor(rules: LayerRules, tree: LiveTree) {
    this.#tree = tree
    this.#patterns = patternsOf(rules)
    this.#levels = Math.max(...this.#patterns.map(({ keys }) => keys.length))
    this.#root = this.#build([], this.#patterns, this.#rootObject())
    this.#changed()
    this.#hidden = []
  }

  /** Throws a RoomLogicError unless every pattern runs through objects only in what the present turn has written, and every function makes names. */
  check(): void {
    this.#tree.written(this.#levels, (path, slot) => this.#checkPath(path, slot))
  }

  /** As `check`, of the whole state. */
  checkAll(): void {
    this.#checkEntry(NO_PATH, this.#patterns, this.#tree.object ?? null)
  }

  /** As of the last flush, without what is hidden. To be read at once: the next flush changes it. */
  get base(): Json {
    return this.#root.base
  }

  /** Of the base; 0 … 2^32 - 1. */
  get checksum(): number {
    return this.#root.baseHash >>> 0
  }

  /** Of the names of all layers and what is in them; 0 … 2^32 - 1. */
  get sum(): number {
    return this.#sum >>> 0
  }

  /** As of the last flush; undefined: there is nothing in it. To be read at once: the next flush changes it. */
  of(layer: string): LayerState | undefined {
    const found = this.#layers.get(layer)
    return found && { state: found.state, checksum: found.hash >>> 0 }
  }

  /** The tree was flushed, and `delta` came of it. */
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

  /** What of a change of an object is the base's. */
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
    // What does not fit the patterns, and was hidden, may become what does.
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

  /** A hidden value has changed. */
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

  /** An object that patterns run through is new here; of `gone` it takes what is in it again. `value`: the same as plain JSON, at a flush. */
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

  /** By its path, each hidden value in an object. */
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

  /** A hidden value of `layer` becomes `slot`. */
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

  /** The layers that were touched since this was asked last; what is empty is there no more. */
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

  /** The layer of a value that is new; what cannot be said, though it could be when its turn was checked, is no one's. */
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
      // It lies in something hidden, or in what is not.
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

/** A hidden value, and whose it was. */
interface HiddenAt {
  readonly layer: string | null
  readonly path: readonly string[]
}

const NO_PATH: readonly string[] = []

/** Whether what lies at `path` is hidden. */
const endsAt = (patterns: readonly Pattern[], path: readonly string[]): boolean =>
  patterns.some(({ keys }) => keys.length === path.length)

/** Whether patterns run through what lies somewhere, or through what did and is gone. */
const isWay = (slot: Slot | undefined, was: boolean): boolean =>
  slot instanceof LiveObject || (slot === undefined && was)

/** The layer at a path where a pattern ends. Throws a RoomLogicError. */
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

/** A copy of the base of an object that patterns run through, of which nothing changes later. */
function copyOf(way: Way): MutableObject {
  const copy: MutableObject = structuredClone(way.base)
  return copy
}

/** What is being made of changes by path: an object that came, or changes by key. */
type Draft = Map<string, Change | Draft | Made>

/** An object that has come with the first value in it. */
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

/** What changes of hidden values, one after the other, make of the object they lie in. */
function deltaOf(changes: Iterable<Pick<HiddenChange, 'path' | 'at' | 'change'>>): ObjectDelta | undefined {
  const whole: Draft = new Map()
  for (const { path, at, change } of changes) {
    let draft = whole
    for (let level = 0; ; level++) {
      const key = path[level]!
      const there = draft.get(key)
      if (there instanceof Made && level < path.length - 1) {
        // What has come is as it is now.
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

/** By layer, what one flush did to its state. */
export function layerDeltas({ hidden }: Pick<UpdateLayers, 'hidden'>): Map<string, Delta> {
  const byLayer = new Map<string, HiddenChange[]>()
  for (const change of hidden) {
    if (change.layer === null) continue
    const changes = byLayer.get(change.layer)
    if (changes) changes.push(change)
    else byLayer.set(change.layer, [change])
  }
  return new Map([...byLayer].map(([layer, changes]) => [layer, deltaOf(changes)!]))
}

/** What one flush did to the hidden part of the whole state, given that state with what it did to the base. */
export function hiddenDelta(state: Json, { hidden }: UpdateLayers): Delta | undefined {
  const fitting = hidden.filter(({ path, change }) => {
    // With the object that it lay in.
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
