import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, joinFrames } from '../frame.ts'
import type { EdgeLayers, Frames } from '../traffic.ts'
import type { Position, Update } from './journal.ts'
import type { Grants } from './layer-grants.ts'
import { ownerOf } from './layer-rules.ts'
import { type Layers, layerDeltas } from './layers.ts'
import type { Memberships } from './memberships.ts'
import type { LayerFrames } from './room-frames.ts'

/** What of the layers goes out with a flush. */
interface FlushedLayers {
  /** By layer, what those get who had it before; for who misses it. */
  readonly encoded: ReadonlyMap<string, Frames>
  readonly byEdge: ReadonlyMap<string, EdgeLayers>
}

/** Takes hidden layers to the members that have them: each that has changed is encoded once, however many have it. */
export class LayerDelivery {
  readonly #layers: Layers
  readonly #grants: Grants
  readonly #memberships: Memberships
  readonly #frames: LayerFrames

  constructor(layers: Layers, grants: Grants, memberships: Memberships, frames: LayerFrames) {
    this.#layers = layers
    this.#grants = grants
    this.#memberships = memberships
    this.#frames = frames
  }

  /** A visible flush, which those who come with it get in another way. */
  flush(update: Update, newcomers: ReadonlySet<string>): FlushedLayers {
    const { grants, changed } = update.layers!
    const own = new OwnFrames(newcomers)
    const encoded = new Map<string, Frames>()
    const shown = new Map<string, string[]>()
    for (const { memberId, layer, shown: isShown } of grants) {
      if (!isShown) continue
      this.#frames.forget(layer)
      shown.set(layer, [...(shown.get(layer) ?? []), memberId])
    }
    const deltas = layerDeltas(update.layers!)
    for (const { layer, checksum, created } of changed) {
      const fresh = shown.get(layer)
      const holders = this.#holders(layer).filter((id) => !own.isNew(id) && !fresh?.includes(id))
      const now = this.#layers.of(layer)
      const delta = deltas.get(layer)!
      const at = { ...update, checksum }
      // A layer that was empty is told as a whole: members had nothing that could be patched. Where it is shown to someone, the patch
      // names no keys for later: it says which are no more, and what comes to who is shown the layer is not to have those.
      const frames =
        holders.length === 0
          ? undefined
          : this.#inEach((codec) => {
              if (created && now) return this.#frames.state(layer, update, now, codec)
              if (fresh) return this.#frames.replay(layer, at, delta, codec)
              return this.#frames.patch(layer, at, delta, now?.state ?? {}, codec)
            })
      if (!frames || !now) this.#frames.forget(layer)
      if (!frames) continue
      encoded.set(layer, frames)
      own.give(holders, frames)
    }
    for (const [layer, ids] of shown) {
      const now = this.#layers.of(layer)
      if (now)
        own.give(
          ids,
          this.#inEach((codec) => this.#frames.state(layer, update, now, codec)),
        )
    }
    for (const { memberId, layer, shown: isShown } of grants)
      if (!isShown)
        own.give(
          [memberId],
          this.#inEach((codec) => this.#frames.gone(layer, update, codec)),
        )
    return { encoded, byEdge: own.byEdge(this.#memberships) }
  }

  /** `layer.state` of each layer of a member in which there is something, after the last flush, which is `at`. */
  statesOf(memberId: string, at: Position, codec: Subprotocol): Frame | undefined {
    const full = this.#grants.of(memberId).filter((layer) => this.#layers.of(layer))
    return this.changed(at, full, [], codec)
  }

  /** What a member is told who has these layers, or has them no more, since it missed that. `at`: the last flush. */
  changed(
    at: Position,
    shown: readonly string[],
    hidden: readonly string[],
    codec: Subprotocol,
  ): Frame | undefined {
    const frames: Frame[] = []
    for (const layer of shown) {
      const now = this.#layers.of(layer)
      frames.push(now ? this.#frames.state(layer, at, now, codec) : this.#frames.gone(layer, at, codec))
    }
    for (const layer of hidden) frames.push(this.#frames.gone(layer, at, codec))
    return frames.length > 0 ? joinFrames(frames) : undefined
  }

  /** Members that leave with the flush have their layers up to it. */
  #holders(layer: string): string[] {
    const holders = [...this.#grants.holders(layer)]
    const owner = ownerOf(layer)
    if (owner !== undefined && this.#memberships.recipient(owner)?.announced) holders.push(owner)
    return holders
  }

  #inEach(make: (codec: Subprotocol) => Frame): Frames {
    const frames: { [codec in Subprotocol]?: Frame } = {}
    for (const codec of this.#memberships.codecs) frames[codec] = make(codec)
    return frames
  }
}

/** What members get of one flush for themselves. */
class OwnFrames {
  readonly #newcomers: ReadonlySet<string>
  readonly #byMember = new Map<string, Frames[]>()

  constructor(newcomers: ReadonlySet<string>) {
    this.#newcomers = newcomers
  }

  /** Whether a member comes with this flush. */
  isNew(memberId: string): boolean {
    return this.#newcomers.has(memberId)
  }

  give(memberIds: readonly string[], frames: Frames): void {
    for (const id of memberIds) {
      const own = this.#byMember.get(id)
      if (own) own.push(frames)
      else if (!this.isNew(id)) this.#byMember.set(id, [frames])
    }
  }

  byEdge(memberships: Memberships): Map<string, EdgeLayers> {
    type Members = EdgeLayers['members'][number][]
    /** Each frame with its index. */
    const edges = new Map<string, { readonly frames: Map<Frames, number>; readonly members: Members }>()
    for (const [memberId, own] of this.#byMember) {
      const membership = memberships.recipient(memberId)
      if (!membership?.attached) continue
      const edge = edges.get(membership.edge) ?? { frames: new Map<Frames, number>(), members: [] }
      edges.set(membership.edge, edge)
      for (const frames of own) if (!edge.frames.has(frames)) edge.frames.set(frames, edge.frames.size)
      edge.members.push({
        member_id: membership.subscriptionId,
        own: own.map((frames) => edge.frames.get(frames)!),
      })
    }
    return new Map(
      [...edges].map(([edge, { frames, members }]) => [edge, { frames: [...frames.keys()], members }]),
    )
  }
}
