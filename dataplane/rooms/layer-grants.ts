import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, joinFrames } from '../frame.ts'
import type { EdgeLayers, Frames } from '../traffic.ts'
import type { Position, Update } from './journal.ts'
import { ownerOf, ownLayer } from './layer-rules.ts'
import { type Layers, layerDeltas } from './layers.ts'
import type { Memberships } from './memberships.ts'
import type { LayerFrames } from './room-frames.ts'

/** A member gets a layer, or loses it. */
export interface Grant {
  readonly memberId: string
  readonly layer: string
  readonly shown: boolean
}

/** Layers that were shown to a member. */
export interface MemberGrants {
  readonly memberId: string
  readonly layers: readonly string[]
}

const NONE: ReadonlySet<string> = new Set()

/**
 * The layers of each member: its own, and those that were shown to it. Turns change the *present* grants.
 * Members and the room's record have the *flushed* grants.
 */
export class Grants {
  /** By member, the layers that were shown to it. */
  readonly #present = new Map<string, Set<string>>()
  readonly #flushed = new Map<string, ReadonlySet<string>>()
  /** By layer, the members that it was shown to, as of the last flush. */
  readonly #holders = new Map<string, Set<string>>()
  /** Members whose grants may have changed since the last flush. */
  readonly #changed = new Set<string>()

  constructor(recorded: readonly MemberGrants[]) {
    for (const { memberId, layers } of recorded) {
      this.#present.set(memberId, new Set(layers))
      this.#changed.add(memberId)
    }
    this.flush()
  }

  /** True if turns have changed grants since the last flush. */
  get dirty(): boolean {
    return this.#changed.size > 0
  }

  /** Number of layers that were shown to a member. */
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

  /** Removes the grants of a member that has left. */
  forget(memberId: string): void {
    if (this.#present.delete(memberId)) this.#changed.add(memberId)
  }

  /** True if a member has a layer at present. */
  has(memberId: string, layer: string): boolean {
    return layer === ownLayer(memberId) || this.#present.get(memberId)?.has(layer) === true
  }

  /** Flushes all changes. Returns those of members that are still in the room. */
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

  /** Returns the layers of a member as of the last flush, including its own. */
  of(memberId: string): string[] {
    return [ownLayer(memberId), ...(this.#flushed.get(memberId) ?? NONE)]
  }

  /** Returns the members that a layer was shown to, as of the last flush. */
  holders(layer: string): Iterable<string> {
    return this.#holders.get(layer) ?? NONE
  }

  /** Returns all grants as of the last flush. */
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

/** The layers in a flush. */
interface FlushedLayers {
  /** By layer, the frames for members that had it before. They are kept for members that miss them. */
  readonly encoded: ReadonlyMap<string, Frames>
  readonly byEdge: ReadonlyMap<string, EdgeLayers>
}

/**
 * Sends hidden layers to the members that have them. A changed layer is encoded once, however many members
 * have it.
 */
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

  /**
   * Encodes a visible flush. `newcomers`: members that join with it, which get their layers with the
   * snapshot.
   */
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
      // A layer that was empty is sent whole, because members have nothing to patch. If the layer is shown to
      // a new member, the others get a patch that defines no key names for later patches. It can name removed
      // keys, which the new member must not learn.
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

  /** Returns `layer.state` frames of a member's layers that are not empty. `at`: the last flush. */
  statesOf(memberId: string, at: Position, codec: Subprotocol): Frame | undefined {
    const full = this.#grants.of(memberId).filter((layer) => this.#layers.of(layer))
    return this.changed(at, full, [], codec)
  }

  /**
   * Returns the frames for a member that missed how it got layers (`shown`) and lost layers (`hidden`). `at`:
   * the last flush.
   */
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

  /** Returns the members that get changes of a layer. Members that leave with the flush still get them. */
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

/** Frames of one flush for single members. */
class OwnFrames {
  readonly #newcomers: ReadonlySet<string>
  readonly #byMember = new Map<string, Frames[]>()

  constructor(newcomers: ReadonlySet<string>) {
    this.#newcomers = newcomers
  }

  /** True if a member joins with this flush. */
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
