import type { Json, JsonObject } from '../shared/json.ts'
import type { DecodedMessage, KeyTable } from '../shared/protocol/codec.ts'
import { ProtocolError } from '../shared/protocol/error-codes.ts'
import { Checksum } from '../shared/sync/checksum.ts'
import { apply, DeltaMismatch } from '../shared/sync/delta.ts'

/** Position of a frame in its room's history. */
export interface Position {
  readonly epoch: number
  readonly seq: number
}

/** Frames of hidden layers. */
export type LayerFrame = Extract<DecodedMessage, { t: 'layer.state' | 'layer.patch' }>
type PatchFrame = Extract<DecodedMessage, { t: 'state.patch' | 'layer.patch' }>

/** Content of one layer, with paths from the root of the room's state. */
interface Layer {
  readonly state: Json
  /** The `layer.state` that started it. */
  readonly stated: Position
  readonly keys: KeyTable
}

/**
 * The state of a room that this client may see: the base and the client's layers. Each has a checksum. The frames of one flush change them
 * together.
 */
export class LayeredState {
  readonly #checksum = new Checksum()
  #base: Json = null
  #keys: KeyTable = []
  #layers: ReadonlyMap<string, Layer> = new Map()
  /** Layer frames that arrived before the state of their flush. */
  #held: LayerFrame[] = []
  #merged = merge(null, [])

  /** Merged base and layers. Unchanged parts stay the same objects. */
  get merged(): Json {
    return this.#merged.state
  }

  /** Applies a snapshot of the base, with the layers stated at its position only. Returns false and changes nothing if one does not fit. */
  replace(whole: Position & { readonly checksum: number }, state: Json, keys: KeyTable): boolean {
    const layers = new Map([...this.#layers].filter(([, { stated }]) => isAt(stated, whole)))
    const right = this.#change(
      layers,
      this.#release(whole).filter(({ t }) => t !== 'layer.patch'),
    )
    if (!right || this.#checksum.of(state) !== whole.checksum) return false
    this.#keys = keys
    this.#set(state, layers)
    return true
  }

  /** Applies a patch of the base with its held layer frames. Returns false and changes nothing if one does not fit. */
  patch(patch: PatchFrame): boolean {
    const held = this.#release(patch)
    const base = this.#patched(this.#base, patch, this.#keys)
    const layers = held.length > 0 ? new Map(this.#layers) : undefined
    if (base === undefined || (layers && !this.#change(layers, held))) return false
    this.#set(base, layers)
    return true
  }

  /** Applies a layer frame of the current flush `seq`, or holds it for its flush. Returns false and changes nothing if the checksum differs. */
  layer(frame: LayerFrame, seq: number | undefined): boolean {
    if (frame.t === 'layer.patch' || frame.seq !== seq) {
      this.#held.push(frame)
      return true
    }
    const layers = new Map(this.#layers)
    if (!this.#change(layers, [frame])) return false
    this.#set(this.#base, layers)
    return true
  }

  /** Drops held layer frames: their states will not arrive, or will arrive again with their layers. */
  forgetHeld(): void {
    this.#held = []
  }

  #set(base: Json, layers = this.#layers): void {
    this.#base = base
    this.#layers = layers
    const states = [...layers.values()].map(({ state }) => state)
    this.#merged = merge(base, states, this.#merged)
  }

  /** Returns the frames held for this position. */
  #release(at: Position): LayerFrame[] {
    const held = this.#held.filter((frame) => isAt(frame, at))
    this.#held = []
    return held
  }

  /** Applies frames to `layers`. Returns false if a patch does not fit or a checksum differs. */
  #change(layers: Map<string, Layer>, frames: readonly LayerFrame[]): boolean {
    let right = true
    for (const frame of frames) {
      const { layer, epoch, seq } = frame
      if (frame.t === 'layer.state') {
        const keys: KeyTable = []
        const read = readable(() => ({ state: frame.read(keys) }))
        if (!read) return false
        const { state } = read
        if (state === undefined) layers.delete(layer)
        else {
          layers.set(layer, { state, stated: { epoch, seq }, keys })
          right = this.#checksum.of(state) === frame.checksum && right
        }
      } else {
        const known = layers.get(layer)
        const state = known && this.#patched(known.state, frame, known.keys)
        if (state === undefined) return false
        layers.set(layer, { ...known!, state })
      }
    }
    return right
  }

  /** Returns a state after a patch, or undefined if its checksum differs from the server's. */
  #patched(state: Json, { read, checksum }: PatchFrame, keys: KeyTable): Json | undefined {
    return readable(() => {
      const delta = read(keys)
      if (!delta) return this.#checksum.of(state) === checksum ? state : undefined
      const next = apply(state, delta)
      return this.#checksum.after(state, next, delta) === checksum ? next : undefined
    })
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

const isAt = (frame: Position, { epoch, seq }: Position): boolean =>
  frame.seq === seq && frame.epoch === epoch

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
