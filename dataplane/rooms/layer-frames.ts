import type { Json } from '../../shared/json.ts'
import type { Codec, LayerEncoder } from '../../shared/protocol/codec.ts'
import type { PatchAt, Subprotocol } from '../../shared/protocol/messages.ts'
import { apply } from '../../shared/sync/apply.ts'
import type { Delta } from '../../shared/sync/delta.ts'
import { type Frame, frame } from '../frame.ts'
import type { Update } from './journal.ts'
import { type LayerState, layerDeltas } from './layers.ts'

/** Where a layer stands in its room's history. */
type LayerAt = Pick<PatchAt, 'epoch' | 'seq'>

/** Makes the frames of one room's hidden layers: each once for all members that have the layer. */
export class LayerFrames {
  readonly #roomId: string
  readonly #codecs: ReadonlyMap<Subprotocol, Codec>
  readonly #encoders = new Map<string, Map<Subprotocol, LayerEncoder>>()

  constructor(roomId: string, codecs: ReadonlyMap<Subprotocol, Codec>) {
    this.#roomId = roomId
    this.#codecs = codecs
  }

  /**
   * What was said of a layer is not to be known to who gets it from now on: encoders know the names of keys that it had before. To be called also when it has
   * changed, and no one is told.
   */
  forget(layer: string): void {
    this.#encoders.delete(layer)
  }

  /** `layer.patch` of an update, in the order of their seq. `state`: after it. */
  patch(
    layer: string,
    at: LayerAt & { readonly checksum: number },
    delta: Delta,
    state: Json,
    subprotocol: Subprotocol,
  ): Frame {
    const { codec, encoder } = this.#encoding(layer, subprotocol)
    encoder.stateChanged(state)
    return frame(encoder.patch(this.#at(at, at.checksum), delta), codec.binary)
  }

  /** `layer.state`, behind the patch of its seq where there is one. */
  state(layer: string, at: LayerAt, { state, checksum }: LayerState, subprotocol: Subprotocol): Frame {
    const { codec, encoder } = this.#encoding(layer, subprotocol)
    return frame(encoder.snapshot({ ...this.#at(at, checksum), state }), codec.binary)
  }

  /** As `patch`, by itself: at any time and in any order. */
  replay(
    layer: string,
    at: LayerAt & { readonly checksum: number },
    delta: Delta,
    subprotocol: Subprotocol,
  ): Frame {
    const codec = this.#codec(subprotocol)
    return frame(codec.layerEncoder(layer).replay(this.#at(at, at.checksum), delta), codec.binary)
  }

  /** As `state`, by itself. */
  replayState(layer: string, at: LayerAt, { state, checksum }: LayerState, subprotocol: Subprotocol): Frame {
    const codec = this.#codec(subprotocol)
    return frame(codec.layerEncoder(layer).snapshot({ ...this.#at(at, checksum), state }), codec.binary)
  }

  /** `layer.gone`. */
  gone(layer: string, { epoch, seq }: LayerAt, subprotocol: Subprotocol): Frame {
    const codec = this.#codec(subprotocol)
    return frame(codec.encode({ t: 'layer.gone', room_id: this.#roomId, epoch, seq, layer }), codec.binary)
  }

  #at({ epoch, seq }: LayerAt, checksum: number): PatchAt {
    return { room_id: this.#roomId, epoch, seq, checksum }
  }

  #encoding(layer: string, subprotocol: Subprotocol): { codec: Codec; encoder: LayerEncoder } {
    const codec = this.#codec(subprotocol)
    const encoders = this.#encoders.get(layer) ?? new Map<Subprotocol, LayerEncoder>()
    this.#encoders.set(layer, encoders)
    const encoder = encoders.get(subprotocol) ?? codec.layerEncoder(layer)
    encoders.set(subprotocol, encoder)
    return { codec, encoder }
  }

  #codec(subprotocol: Subprotocol): Codec {
    const codec = this.#codecs.get(subprotocol)
    if (codec) return codec
    throw new Error(`no codec for ${subprotocol}; there are ${[...this.#codecs.keys()].join(', ')}`)
  }
}

/** What an update said of these layers, where it was not encoded when it happened. */
export function replayedLayers(
  update: Update,
  held: ReadonlySet<string>,
  frames: LayerFrames,
  codec: Subprotocol,
): Frame[] {
  if (!update.layers) return []
  const deltas = layerDeltas(update.layers)
  const own: Frame[] = []
  for (const { layer, checksum, created } of update.layers.changed) {
    if (!held.has(layer)) continue
    const delta = deltas.get(layer)!
    const at = { epoch: update.epoch, seq: update.seq, checksum }
    own.push(
      created
        ? frames.replayState(layer, at, { state: apply({}, delta), checksum }, codec)
        : frames.replay(layer, at, delta, codec),
    )
  }
  return own
}
