import type { Json, JsonObject } from '../../shared/json.ts'
import { hashContainer, hashEntry, hashKey } from '../../shared/sync/checksum.ts'
import { type Change, ObjectDelta, REMOVE, Replace } from '../../shared/sync/delta.ts'
import { NOBODY } from './layer-rules.ts'
import type { Flushed, MutableObject } from './live-object.ts'

/** The hidden parts of a state, as of the last flush. `layer-rules.ts` has their patterns and who sees them, `pattern-object.ts` the live part. */

/** A layer that a flush has changed. */
export interface ChangedLayer {
  readonly layer: string
  /** `Replace`: it was empty before. REMOVE: it is empty now. */
  readonly change: Change
  /** Checksum of its state after the flush. 0: it is empty. */
  readonly checksum: number
}

/** Changes of the hidden parts in a flush. */
export interface LayersChange {
  /** Checksum of all layers after the flush (`Layers.checksum`). Members do not get it. */
  readonly checksum: number
  readonly changed: readonly ChangedLayer[]
  /** Change of the values that are hidden from all members. */
  readonly unseen: Change | undefined
}

/** State of a layer: its hidden values at their paths, and nothing else. */
export interface LayerState {
  readonly state: Json
  /** From 0 to 2^32 - 1. */
  readonly checksum: number
}

const NONE: never[] = []

/** An object in the state of a layer. It has hidden values, and objects on the paths of further ones. */
export class LayerObject implements Flushed {
  readonly flushed: MutableObject = {}
  sum = 0
  readonly #parent: LayerObject | undefined
  readonly #key: string
  #below: Map<string, LayerObject> | undefined
  /** Hash as of the last flush. Undefined: the object is new. */
  #hash: number | undefined
  /** Keys that the present flush has changed, and their changes. An object stands for its changes. */
  #keys: string[] | undefined
  #changes: (Change | LayerObject)[] = NONE

  constructor(parent?: LayerObject, key = '') {
    this.#parent = parent
    this.#key = key
  }

  get checksum(): number {
    return hashContainer(false, this.sum) >>> 0
  }

  find(key: string): LayerObject | undefined {
    return this.#below?.get(key)
  }

  /** Returns the object at a key, or a new one. The present flush has to `note` a value in a new one. */
  at(key: string): LayerObject {
    this.#below ??= new Map()
    const below = this.#below.get(key) ?? new LayerObject(this, key)
    this.#below.set(key, below)
    return below
  }

  /** The present flush has changed an entry. */
  note(key: string, change: Change | LayerObject): void {
    if (this.#keys) {
      this.#keys.push(key)
      this.#changes.push(change)
    } else {
      this.#parent?.note(this.#key, this)
      // Most objects have one change, and an array that grows starts with space for 17.
      this.#keys = [key]
      this.#changes = [change]
    }
  }

  /** Ends a flush. Returns the noted changes. */
  flushEntries(): ObjectDelta {
    const keys = this.#keys ?? []
    const changes = this.#changes
    this.#keys = undefined
    this.#changes = NONE
    for (let i = 0; i < keys.length; i++) {
      const change = changes[i]
      if (change instanceof LayerObject) changes[i] = this.#flushBelow(keys[i]!, change)
    }
    return new ObjectDelta(keys, changes as Change[])
  }

  #flushBelow(key: string, below: LayerObject): Change {
    const name = hashKey(key)
    if (below.#hash !== undefined) this.sum -= hashEntry(name, below.#hash)
    const change = below.#flush()
    if (change === REMOVE) {
      this.#below!.delete(key)
      delete this.flushed[key]
    } else {
      this.flushed[key] = below.flushed
      this.sum += hashEntry(name, below.#hash!)
    }
    this.sum |= 0
    return change
  }

  #flush(): Change {
    const isNew = this.#hash === undefined
    const delta = this.flushEntries()
    if (delta.changes.includes(REMOVE) && Object.keys(this.flushed).length === 0) return REMOVE
    this.#hash = hashContainer(false, this.sum)
    if (!isNew) return delta
    // All values of a new object are new.
    const values = delta.keys.map((key, i) => [key, (delta.changes[i] as Replace).value])
    return new Replace(Object.fromEntries(values), true)
  }
}

/** The layers of a room: an object by name, whose entries are the states of the layers. */
export class Layers {
  readonly #all = new LayerObject()

  /** Checksum of the object of all layers, from 0 to 2^32 - 1. */
  get checksum(): number {
    return this.#all.checksum
  }

  /** The states of all layers by name. Use it immediately: the next flush changes it. */
  get states(): JsonObject {
    return this.#all.flushed
  }

  /** Returns the state of a layer. Undefined: it is empty. Use it immediately: the next flush changes it. */
  of(layer: string): LayerState | undefined {
    const found = this.#all.find(layer)
    return found && { state: found.flushed, checksum: found.checksum }
  }

  /** Returns the object at a path in a layer, for a new value in it. */
  at(layer: string, path: readonly string[]): LayerObject {
    let at = this.#all.at(layer)
    for (const key of path) at = at.at(key)
    return at
  }

  /** Ends a flush, and returns its changes. */
  flush(): LayersChange {
    const { keys, changes } = this.#all.flushEntries()
    const changed: ChangedLayer[] = []
    let unseen: Change | undefined
    for (const [i, layer] of keys.entries()) {
      const change = changes[i]!
      if (layer === NOBODY) unseen = change
      else changed.push({ layer, change, checksum: this.of(layer)?.checksum ?? 0 })
    }
    return { checksum: this.checksum, changed, unseen }
  }
}

/** Returns the whole state: the base with the values of all layers at their paths. Shares its parts with them. */
export function merged(base: Json, layers: Iterable<Json>): Json {
  const made = new Set<Json>()
  const join = (to: Json, from: JsonObject): Json => {
    const whole = (made.has(to) ? to : { ...(to as JsonObject) }) as MutableObject
    made.add(whole)
    for (const key of Object.keys(from))
      whole[key] = Object.hasOwn(whole, key) ? join(whole[key]!, from[key] as JsonObject) : from[key]!
    return whole
  }
  let whole = base
  for (const layer of layers) whole = join(whole, layer as JsonObject)
  return whole
}
