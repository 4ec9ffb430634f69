import type { Json, JsonObject } from '../shared/json.ts'
import {
  type LayerChange,
  newTables,
  type PatchBody,
  type StreamTables,
  type WholeBody,
} from '../shared/protocol/codec.ts'
import { ProtocolError } from '../shared/protocol/error-codes.ts'
import { Checksum } from '../shared/sync/checksum.ts'
import { apply, DeltaMismatch, REMOVE } from '../shared/sync/delta.ts'

/**
 * The state of a room that this client may see: the base and the client's layers. Each has a checksum. A frame changes them together.
 */
export class LayeredState {
  readonly #checksum = new Checksum()
  #base: Json = null
  #layers: ReadonlyMap<string, Json> = new Map()
  #tables = newTables()
  #merged = merge(null, [])

  /** Merged base and layers. Unchanged parts stay the same objects. */
  get merged(): Json {
    return this.#merged.state
  }

  /** Replaces base and layers. `tables`: those of the whole state. Returns false and changes nothing if a checksum differs. */
  replace(checksum: number, { state, layers }: WholeBody, tables: StreamTables): boolean {
    const states = new Map<string, Json>()
    if (!this.#change(states, layers) || this.#checksum.of(state) !== checksum) return false
    this.#tables = tables
    this.#set(state, states)
    return true
  }

  /** Applies a patch. Returns false and changes neither base nor layers if one does not fit. */
  patch({
    checksum,
    read,
  }: {
    readonly checksum: number
    readonly read: (tables: StreamTables) => PatchBody
  }): boolean {
    const base = this.#base
    const changed = readable(() => {
      const { delta, layers } = read(this.#tables)
      const next = delta ? apply(base, delta) : base
      const found = delta ? this.#checksum.after(base, next, delta) : this.#checksum.of(base)
      const states = layers.length > 0 ? new Map(this.#layers) : undefined
      return found === checksum && (!states || this.#change(states, layers)) && { next, states }
    })
    if (changed) this.#set(changed.next, changed.states)
    return Boolean(changed)
  }

  #set(base: Json, layers = this.#layers): void {
    this.#base = base
    this.#layers = layers
    this.#merged = merge(base, [...layers.values()], this.#merged)
  }

  /** Changes `layers`. Returns false if a checksum differs. */
  #change(layers: Map<string, Json>, changes: readonly LayerChange[]): boolean {
    let right = true
    for (const { layer, checksum, change } of changes) {
      if (change === REMOVE) layers.delete(layer)
      else {
        const before = layers.get(layer) ?? null
        const state = apply(before, change)
        layers.set(layer, state)
        right = this.#checksum.after(before, state, change) === checksum && right
      }
    }
    return right
  }
}

/** Returns what `read` returns, or undefined for a frame that does not fit its key table or its state. */
export function readable<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if (error instanceof DeltaMismatch || error instanceof ProtocolError) return undefined
    throw error
  }
}

/** A merged object with its sources. */
interface Merged {
  readonly base: Json
  readonly layers: readonly JsonObject[]
  /** Child objects that exist in both base and layers, by key. */
  readonly inside: ReadonlyMap<string, Merged>
  readonly state: Json
}

const NOTHING_INSIDE: ReadonlyMap<string, Merged> = new Map()

/**
 * Merges a base and layers. Keys missing in the base come from the layers. Objects in both are merged recursively. For other values the base
 * wins. The cost is the number of objects on the paths to hidden values that differ from `before`. Neither the base nor the hidden content
 * is traversed.
 */
export function merge(base: Json, layers: readonly Json[], before?: Merged): Merged {
  const over = isObject(base) ? layers.filter(isFilled) : []
  if (before?.base === base && isSame(before.layers, over)) return before
  if (!isObject(base) || over.length === 0) return { base, layers: over, inside: NOTHING_INSIDE, state: base }
  const state: { [key: string]: Json } = { ...base }
  const shared = new Map<string, Json[]>()
  for (const layer of over)
    for (const key of Object.keys(layer)) {
      const value = layer[key]!
      if (!Object.hasOwn(base, key)) state[key] = value
      else if (shared.has(key)) shared.get(key)!.push(value)
      else shared.set(key, [value])
    }
  const inside = new Map<string, Merged>()
  for (const [key, values] of shared) {
    const merged = merge(base[key]!, values, before?.inside.get(key))
    inside.set(key, merged)
    state[key] = merged.state
  }
  return { base, layers: over, inside, state }
}

const isObject = (value: Json): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Returns true for a non-empty object. */
const isFilled = (value: Json): value is JsonObject => {
  if (isObject(value)) for (const _ in value) return true
  return false
}

const isSame = (a: readonly JsonObject[], b: readonly JsonObject[]): boolean =>
  a.length === b.length && a.every((one, i) => one === b[i])
