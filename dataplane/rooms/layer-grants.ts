import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, joinFrames } from '../frame.ts'
import type { EdgeLayers, Frames } from '../traffic.ts'
import type { Position, Update } from './journal.ts'
import { ownerOf, ownLayer } from './layer-rules.ts'
import { type Layers, layerDeltas } from './layers.ts'
import type { Memberships } from './memberships.ts'
import type { LayerFrames } from './room-frames.ts'

/** A member has a layer from here on, or has it no more. */
export interface Grant {
  readonly memberId: string
  readonly layer: string
  readonly shown: boolean
}

/** The layers that a member was shown. */
export interface MemberGrants {
  readonly memberId: string
  readonly layers: readonly string[]
}

const NONE: ReadonlySet<string> = new Set()

/**
 * Which members have which layers: each its own, and what it was shown. Turns change what is *present*; members, and the room's record, know what was
 * *flushed*.
 */
export class Grants {
  /** By member, what it was shown. */
  readonly #present = new Map<string, Set<string>>()
  readonly #flushed = new Map<string, ReadonlySet<string>>()
  /** By layer, who was shown it as of the last flush. */
  readonly #holders = new Map<string, Set<string>>()
  /** Members of whom something may have changed since. */
  readonly #changed = new Set<string>()

  constructor(recorded: readonly MemberGrants[]) {
    for (const { memberId, layers } of recorded) {
      this.#present.set(memberId, new Set(layers))
      this.#changed.add(memberId)
    }
    this.flush()
  }

  /** Whether turns have changed anything since the last flush. */
  get dirty(): boolean {
    return this.#changed.size > 0
  }

  /** How many layers a member was shown. */
  count(memberId: string): number {
    return this.#present.get(memberId)?.size ?? 0
  }

  change({ memberId, layer, shown }: Grant): void {
    if (layer === ownLayer(memberId)) return
    const layers = this.#present.get(memberId) ?? new Set()
    if (layers.has(layer) === shown) return
    if (shown) layers.add(layer)
    else layers.delete(layer)
    this.#present.set(memberId, layers)
    this.#changed.add(memberId)
  }

  /** The member has left. */
  forget(memberId: string): void {
    if (this.#present.delete(memberId)) this.#changed.add(memberId)
  }

  /** Whether a member has a layer at present. */
  has(memberId: string, layer: string): boolean {
    return layer === ownLayer(memberId) || this.#present.get(memberId)?.has(layer) === true
  }

  /** Everything since the last flush is of this one. Returns what has changed of members who are still there. */
  flush(): readonly Grant[] {
    const grants: Grant[] = []
    for (const memberId of this.#changed) {
      const before = this.#flushed.get(memberId) ?? NONE
      const now = this.#present.get(memberId)
      for (const layer of before) {
        if (now?.has(layer)) continue
        this.#unlist(layer, memberId)
        if (now) grants.push({ memberId, layer, shown: false })
      }
      for (const layer of now ?? NONE) {
        if (before.has(layer)) continue
        this.#list(layer, memberId)
        grants.push({ memberId, layer, shown: true })
      }
      if (now?.size) this.#flushed.set(memberId, new Set(now))
      else {
        this.#flushed.delete(memberId)
        this.#present.delete(memberId)
      }
    }
    this.#changed.clear()
    return grants
  }

  /** The layers of a member as of the last flush, its own included. */
  of(memberId: string): string[] {
    return [ownLayer(memberId), ...(this.#flushed.get(memberId) ?? NONE)]
  }

  /** Who was shown a layer as of the last flush. */
  holders(layer: string): Iterable<string> {
    return this.#holders.get(layer) ?? NONE
  }

  /** As of the last flush. */
  record(): MemberGrants[] {
    return [...this.#flushed].map(([memberId, layers]) => ({ memberId, layers: [...layers] }))
  }

  #list(layer: string, memberId: string): void {
    const holders = this.#holders.get(layer)
    if (holders) holders.add(memberId)
    else this.#holders.set(layer, new Set([memberId]))
  }

  #unlist(layer: string, memberId: string): void {
    const holders = this.#holders.get(layer)
    holders?.delete(memberId)
    if (holders?.size === 0) this.#holders.delete(layer)
  }
}

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
