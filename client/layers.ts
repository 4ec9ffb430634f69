import type { Json, JsonObject } from '../shared/json.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import type { PatchAt, StateAt } from '../shared/protocol/messages.ts'
import { apply, DeltaMismatch } from '../shared/sync/apply.ts'
import { Checksum } from '../shared/sync/checksum.ts'
import type { Delta } from '../shared/sync/delta.ts'

/** Where a frame stands in its room's history. */
export interface Position {
  readonly epoch: number
  readonly seq: number
}

/** The frames of hidden layers. */
export type LayerFrame = Extract<DecodedMessage, { t: 'layer.state' | 'layer.patch' | 'layer.gone' }>
type Patch = PatchAt & { readonly delta: Delta | undefined }

/** What is hidden in one layer, with paths from the root of the room's state. */
interface Layer {
  readonly state: Json
  /** The `layer.state` that it began with. */
  readonly stated: Position
}

/**
 * The state of a room as this client may see it: the base, and the hidden layers that it was given. Each has its own checksum; they change
 * together, by what the frames of one flush say.
 */
export class LayeredState {
  readonly #checksum = new Checksum()
  #base: Json = null
  #layers: ReadonlyMap<string, Layer> = new Map()
  /** Layers that come before the state of their flush. */
  #held: LayerFrame[] = []
  #merged = merge(null, [])

  /** Base and layers as one. What no frame has changed stays the same object. */
  get merged(): Json {
    return this.#merged.state
  }

  /** Takes a whole base, with those layers only that were stated at its place. False: a checksum is another, but this is the best there is. */
  replace(whole: StateAt): boolean {
    const layers = new Map([...this.#layers].filter(([, { stated }]) => isAt(stated, whole)))
    const right = this.#change(
      layers,
      this.#release(whole).filter(({ t }) => t !== 'layer.patch'),
    )
    this.#set(whole.state, layers)
    return this.#checksum.of(whole.state) === whole.checksum && right
  }

  /** Takes a patch of the base, with those of layers that are held for it. False: one does not fit; all is as before. */
  patch(patch: Patch & Position): boolean {
    const held = this.#release(patch)
    const base = this.#patched(this.#base, patch)
    const layers = held.length > 0 ? new Map(this.#layers) : undefined
    if (base === undefined || (layers && !this.#change(layers, held))) return false
    this.#set(base, layers)
    return true
  }

  /** Takes what is of a layer, if it is of the flush `seq`, which is here; any other is held. False: the checksum is another; all is as before. */
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

  /** The states that layers are held for come no more, or come again with their layers. */
  forgetHeld(): void {
    this.#held = []
  }

  #set(base: Json, layers = this.#layers): void {
    this.#base = base
    this.#layers = layers
    const states = [...layers.values()].map(({ state }) => state)
    this.#merged = merge(base, states, this.#merged)
  }

  /** What was held for this place. */
  #release(at: Position): LayerFrame[] {
    const held = this.#held.filter((frame) => isAt(frame, at))
    this.#held = []
    return held
  }

  /** Changes `layers` as frames say. False: a patch does not fit, or a checksum is another. */
  #change(layers: Map<string, Layer>, frames: readonly LayerFrame[]): boolean {
    let right = true
    for (const frame of frames) {
      const { layer, epoch, seq } = frame
      if (frame.t === 'layer.gone') layers.delete(layer)
      else if (frame.t === 'layer.state') {
        layers.set(layer, { state: frame.state, stated: { epoch, seq } })
        right = this.#checksum.of(frame.state) === frame.checksum && right
      } else {
        const known = layers.get(layer)
        const state = known && this.#patched(known.state, frame)
        if (state === undefined) return false
        layers.set(layer, { ...known!, state })
      }
    }
    return right
  }

  /** A state after a patch; undefined when it is not the one the server has. */
  #patched(state: Json, { delta, checksum }: Patch): Json | undefined {
    if (!delta) return this.#checksum.of(state) === checksum ? state : undefined
    try {
      const next = apply(state, delta)
      return this.#checksum.after(state, next, delta) === checksum ? next : undefined
    } catch (error) {
      if (error instanceof DeltaMismatch) return undefined
      throw error
    }
  }
}

const isAt = (frame: Position, { epoch, seq }: Position): boolean =>
  frame.seq === seq && frame.epoch === epoch

/** An object of the base with what layers have in it, and what it was made of. */
interface Merged {
  readonly base: Json
  readonly layers: readonly JsonObject[]
  /** The objects in it that base and layers both have, by key. */
  readonly inside: ReadonlyMap<string, Merged>
  readonly state: Json
}

const NOTHING_INSIDE: ReadonlyMap<string, Merged> = new Map()

/**
 * The state that a base and layers make. Keys that the base has not come from the layers, objects that both have are merged in the same way, and
 * of anything else the base's is what counts. Costs the objects on the way to hidden values, of these those that are not what
 * they were `before`: neither the base nor what is hidden is looked through.
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

/** Whether it is an object that has something in it. */
const isFilled = (value: Json): value is JsonObject => {
  if (isObject(value)) for (const _ in value) return true
  return false
}

const isSame = (a: readonly JsonObject[], b: readonly JsonObject[]): boolean =>
  a.length === b.length && a.every((one, i) => one === b[i])
