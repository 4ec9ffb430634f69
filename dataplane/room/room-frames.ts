import type { Json } from '../../shared/json.ts'
import type {
  Codec,
  LayerAt,
  LayerEncoder,
  LayerPart,
  Payload,
  RoomEncoder,
  WholeName,
} from '../../shared/protocol/codec.ts'
import {
  type DepartureReason,
  type MemberInfo,
  type PlainMessage,
  type ServerMessage,
  type StateAt,
  SUBPROTOCOLS,
  type Subprotocol,
} from '../../shared/protocol/messages.ts'
import { type Delta, REMOVE, Replace } from '../../shared/sync/delta.ts'
import { type Frame, frame, joinFrames } from '../frame.ts'
import type { EdgeLayers, Frames } from '../traffic.ts'
import type { Member } from './definition-types.ts'
import type { RoomEvent, Update } from './journal.ts'
import { type Grants, ownerOf } from './layer-rules.ts'
import type { Layers } from './layers.ts'
import type { Memberships } from './memberships.ts'

/** The `event` messages of the protocol. */
export type EventMessage = Extract<ServerMessage, { t: 'event' }>

/** A member that has joined, or that has left for a reason. */
export interface MemberMove {
  readonly memberId: string
  readonly sub: string | null
  readonly reason?: DepartureReason
}

export type MutableFrames = { [codec in Subprotocol]?: Frame }

/** Frames of an update for all members, in each codec that it was encoded for. */
export interface UpdateFrames {
  /** `state.patch`. In a room with layers: its payload up to the layers. */
  readonly patch: Frames
  /** Events and member changes for all members. Undefined: there are none. */
  readonly rest: Frames | undefined
  /** Changed layers that members have. Undefined: the room type has no layers. */
  readonly layers?: readonly LayerPart[] | undefined
}

/** Codec and encoder of one room for one subprotocol. */
interface Encoding {
  readonly codec: Codec
  readonly encoder: RoomEncoder
  /** Epoch of the last patch. Members who get the next patch know it, from that patch or from a later whole state. */
  epoch: number | undefined
}

/** Encodes the websocket frames of one room, once for all its members. */
export class RoomFrames {
  readonly roomId: string
  /** Undefined: the room type has no layers. */
  readonly layers: LayerFrames | undefined
  readonly #codecs: ReadonlyMap<Subprotocol, Codec>
  /** True: members do not see each other. */
  readonly hidesMembers: boolean
  /** True: members see spectators. */
  readonly showsSpectators: boolean
  readonly #encodings = new Map<Subprotocol, Encoding>()
  /** Undefined: the state has not changed here. */
  #state: Json | undefined

  constructor(
    roomId: string,
    codecs: ReadonlyMap<Subprotocol, Codec>,
    { hidesMembers = false, showsSpectators = false, hasLayers = false } = {},
  ) {
    this.roomId = roomId
    this.hidesMembers = hidesMembers
    this.showsSpectators = showsSpectators
    this.layers = hasLayers ? new LayerFrames(codecs) : undefined
    this.#codecs = codecs
  }

  /** The next frames encode this state. It may be the same object as before. */
  stateChanged(state: Json): void {
    this.#state = state
    for (const { encoder } of this.#encodings.values()) encoder.stateChanged(state)
  }

  /** Encodes a visible update for all members. Called once for each update, in the order of their seq. */
  update(update: Update, subprotocols: Iterable<Subprotocol>): UpdateFrames {
    const patch: MutableFrames = {}
    let rest: MutableFrames | undefined
    const { epoch, seq, checksum, delta } = update
    for (const subprotocol of subprotocols) {
      const encoding = this.#encoding(subprotocol)
      const at = { room_id: this.roomId, ...(epoch !== encoding.epoch && { epoch }), seq, checksum }
      patch[subprotocol] = this.#stateFrame(encoding, encoding.encoder.patch(at, delta))
      encoding.epoch = epoch
      const others = this.rest(update, subprotocol)
      if (!others) continue
      rest ??= {}
      rest[subprotocol] = others
    }
    return { patch, rest }
  }

  /** Encodes the patch of an earlier update, for a codec that no member used then. */
  replay(update: Update, subprotocol: Subprotocol): Frame {
    const encoding = this.#encoding(subprotocol)
    const at = { ...update, room_id: this.roomId }
    return this.#stateFrame(encoding, encoding.encoder.replay(at, update.delta))
  }

  /** Encodes events and member changes for all members. Undefined: there are none. */
  rest(update: Update, subprotocol: Subprotocol): Frame | undefined {
    const { events, left, joined, presence, roles } = update
    const frames: Frame[] = []
    for (const event of events) if (!event.to) frames.push(this.message(this.event(event), subprotocol))
    if (!this.hidesMembers && left.length + joined.length + presence.length + roles.length > 0)
      this.#addMembers(update, subprotocol, frames)
    return frames.length > 0 ? joinFrames(frames) : undefined
  }

  /** Encodes the changes of the list of members. */
  #addMembers({ left, joined, presence, roles }: Update, subprotocol: Subprotocol, frames: Frame[]): void {
    const add = (member_id: string, sub: string | null, entry: Partial<Member> = {}) => {
      const { connected, spectator } = entry
      const info = {
        member_id,
        sub,
        ...(connected !== undefined && { connected }),
        ...(spectator && { spectator }),
      }
      frames.push(this.message({ t: 'member', room_id: this.roomId, ...info }, subprotocol))
    }
    for (const { member } of left) if (this.#lists(member)) add(member.id, member.sub)
    for (const { member } of joined) if (this.#lists(member)) add(member.id, member.sub, member)
    // If the member is disconnected, its entry in `presence` follows.
    for (const role of roles)
      add(role.memberId, role.sub, this.#lists(role) ? { ...role, connected: true } : undefined)
    for (const entry of presence) if (this.#lists(entry)) add(entry.memberId, entry.sub, entry)
  }

  /** Returns the members that the others see leave, and then those that they see join. */
  movesIn({ left, joined }: Pick<Update, 'left' | 'joined'>): MemberMove[] {
    if (this.hidesMembers || left.length + joined.length === 0) return []
    return [...left, ...joined.map(({ member }) => ({ member }))].flatMap(({ member, ...why }) =>
      this.#lists(member) ? { memberId: member.id, sub: member.sub, ...why } : [],
    )
  }

  #lists({ spectator }: { readonly spectator: boolean }): boolean {
    return this.showsSpectators || !spectator
  }

  /** Encodes the number of spectators. */
  spectators(count: number, subprotocol: Subprotocol): Frame {
    return this.message({ t: 'spectators', room_id: this.roomId, count }, subprotocol)
  }

  event({ name, data }: RoomEvent): EventMessage {
    return { t: 'event', room_id: this.roomId, name, data }
  }

  /** Encodes a message that follows a frame of the state. */
  message(message: PlainMessage, subprotocol: Subprotocol): Frame {
    const codec = codecOf(subprotocol, this.#codecs)
    return frame(codec.encode(message), codec.binary)
  }

  /** Encodes the state and the members. */
  whole(t: WholeName, at: StateAt, members: readonly MemberInfo[], subprotocol: Subprotocol): Frame {
    const encoding = this.#encoding(subprotocol)
    return this.#stateFrame(encoding, encoding.encoder.whole(t, at, members))
  }

  /** In a room with layers, edges complete the payload for each member. */
  #stateFrame({ codec }: Encoding, payload: Payload): Frame {
    return this.layers ? payload : frame(payload, codec.binary)
  }

  #encoding(subprotocol: Subprotocol): Encoding {
    const known = this.#encodings.get(subprotocol)
    if (known) return known
    const codec = codecOf(subprotocol, this.#codecs)
    const encoding = { codec, encoder: codec.roomEncoder(this.layers !== undefined), epoch: undefined }
    if (this.#state !== undefined) encoding.encoder.stateChanged(this.#state)
    this.#encodings.set(subprotocol, encoding)
    return encoding
  }
}

/** Encodes the changes of one room's layers, each once for all members that have the layer. */
export class LayerFrames {
  readonly #codecs: ReadonlyMap<Subprotocol, Codec>
  readonly #encoders = new Map<string, { [codec in Subprotocol]?: LayerEncoder }>()

  constructor(codecs: ReadonlyMap<Subprotocol, Codec>) {
    this.#codecs = codecs
  }

  /**
   * Forgets the encoders of a layer. They know keys that the layer had before, which a member that gets the layer now must not learn. Also
   * called if the layer has changed, and no member gets the change.
   */
  forget(layer: string): void {
    this.#encoders.delete(layer)
  }

  /** Encodes a change. Called in the order of the seqs. `state`: the state after it. */
  patch(
    layer: string,
    checksum: number,
    delta: Delta,
    state: Json,
    subprotocols: Iterable<Subprotocol>,
  ): LayerPart {
    const encoders = this.#encoders.get(layer)
    // Also those of codecs that no member uses now, because the next session of a member may use one.
    for (const subprotocol of SUBPROTOCOLS) encoders?.[subprotocol]?.stateChanged(state)
    const change: MutableFrames = {}
    for (const subprotocol of subprotocols)
      change[subprotocol] = this.#encoder(layer, subprotocol).patch(checksum, delta)
    return { layer, change }
  }

  /** Encodes the whole layer. */
  state(layer: string, at: LayerAt, subprotocols: Iterable<Subprotocol>): LayerPart {
    const change: MutableFrames = {}
    for (const subprotocol of subprotocols) change[subprotocol] = this.#encoder(layer, subprotocol).state(at)
    return { layer, change }
  }

  /** As `patch`, but independent of other frames: at any time and in any order. */
  replay(layer: string, checksum: number, delta: Delta, subprotocols: Iterable<Subprotocol>): LayerPart {
    const change: MutableFrames = {}
    for (const subprotocol of subprotocols)
      change[subprotocol] = codecOf(subprotocol, this.#codecs).layerEncoder().replay(checksum, delta)
    return { layer, change }
  }

  /** Encodes the changes of these layers in an earlier update, for a codec that no member used then. */
  replayed(update: Update, held: ReadonlySet<string>, codec: Subprotocol): LayerPart[] {
    if (!update.layers) return []
    return update.layers.changed
      .filter(({ layer }) => held.has(layer))
      .map(({ layer, checksum, change }) => {
        if (change === REMOVE) return { layer, change: null }
        const encoder = codecOf(codec, this.#codecs).layerEncoder()
        const encoded =
          change instanceof Replace
            ? encoder.state({ state: change.value, checksum })
            : encoder.replay(checksum, change)
        return { layer, change: { [codec]: encoded } }
      })
  }

  #encoder(layer: string, subprotocol: Subprotocol): LayerEncoder {
    const encoders = this.#encoders.get(layer) ?? {}
    this.#encoders.set(layer, encoders)
    encoders[subprotocol] ??= codecOf(subprotocol, this.#codecs).layerEncoder()
    return encoders[subprotocol]
  }
}

function codecOf(subprotocol: Subprotocol, codecs: ReadonlyMap<Subprotocol, Codec>): Codec {
  const codec = codecs.get(subprotocol)
  if (codec) return codec
  throw new Error(`no codec for ${subprotocol}; there are ${[...codecs.keys()].join(', ')}`)
}

/** The layers in a flush. */
interface FlushedLayers {
  /** Changes for members that had the layer before. They are kept for members that miss them. */
  readonly encoded: readonly LayerPart[]
  readonly byEdge: ReadonlyMap<string, EdgeLayers>
}

/** Sends hidden layers to the members that have them. A changed layer is encoded once, however many members have it. */
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

  /** Encodes a visible flush. `newcomers`: members that join with it, which get their layers with the snapshot. */
  flush(update: Update, newcomers: ReadonlySet<string>): FlushedLayers {
    const { grants, changed } = update.layers!
    const codecs = [...this.#memberships.codecs.keys()]
    const own = new OwnParts(this.#memberships, newcomers)
    const encoded: LayerPart[] = []
    const shown = new Map<string, string[]>()
    for (const { memberId, layer, shown: isShown } of grants) {
      if (!isShown) continue
      this.#frames.forget(layer)
      shown.set(layer, [...(shown.get(layer) ?? []), memberId])
    }
    for (const { layer, checksum, change } of changed) {
      const fresh = shown.get(layer)
      const holders = this.#holders(layer, newcomers, fresh)
      const now = this.#layers.of(layer)
      if (holders.length === 0 || !now) this.#frames.forget(layer)
      if (holders.length === 0) continue
      // Members have nothing to patch in a layer that was empty. If the layer is shown to a new member, the others get a patch that defines
      // no key names for later patches. It can name removed keys, which the new member must not learn.
      const part =
        !now || change === REMOVE
          ? { layer, change: null }
          : change instanceof Replace
            ? this.#frames.state(layer, now, codecs)
            : fresh
              ? this.#frames.replay(layer, checksum, change, codecs)
              : this.#frames.patch(layer, checksum, change, now.state, codecs)
      encoded.push(part)
      for (const id of holders) own.give(id, part)
    }
    for (const [layer, ids] of shown) {
      const now = this.#layers.of(layer)
      if (!now) continue
      const part = this.#frames.state(layer, now, codecs)
      for (const id of ids) own.give(id, part)
    }
    for (const { memberId, layer, shown: isShown } of grants)
      if (!isShown) own.give(memberId, { layer, change: null })
    return { encoded, byEdge: own.byEdge }
  }

  /** Returns the layers of a member that are not empty, as of the last flush. */
  of(memberId: string, codec: Subprotocol): LayerPart[] {
    return this.changed(
      this.#grants.of(memberId).filter((layer) => this.#layers.of(layer)),
      [],
      codec,
    )
  }

  /** Returns what a member missed of how it got layers (`shown`) and lost layers (`hidden`), as of the last flush. */
  changed(shown: readonly string[], hidden: readonly string[], codec: Subprotocol): LayerPart[] {
    const parts = shown.map((layer): LayerPart => {
      const now = this.#layers.of(layer)
      return now ? this.#frames.state(layer, now, [codec]) : { layer, change: null }
    })
    return [...parts, ...hidden.map((layer) => ({ layer, change: null }))]
  }

  /**
   * Returns the members that get changes of a layer: those that had it before the flush. Members that leave with the flush still get them.
   */
  #holders(layer: string, newcomers: ReadonlySet<string>, fresh: readonly string[] | undefined): string[] {
    const holders: string[] = []
    for (const id of this.#grants.holders(layer))
      if (!newcomers.has(id) && !fresh?.includes(id)) holders.push(id)
    const owner = ownerOf(layer)
    if (owner !== undefined && !newcomers.has(owner) && this.#memberships.recipient(owner)?.announced)
      holders.push(owner)
    return holders
  }
}

/** Layers of one member in one flush. */
interface OwnLayers {
  readonly edge: { readonly parts: LayerPart[] }
  /** Indexes in the parts of its edge. */
  readonly own: number[]
}

/** Layers in one flush for single members. */
class OwnParts {
  readonly byEdge = new Map<
    string,
    { readonly parts: LayerPart[]; readonly members: EdgeLayers['members'][number][] }
  >()
  readonly #memberships: Memberships
  readonly #newcomers: ReadonlySet<string>
  readonly #byMember = new Map<string, OwnLayers>()

  constructor(memberships: Memberships, newcomers: ReadonlySet<string>) {
    this.#memberships = memberships
    this.#newcomers = newcomers
  }

  /** Parts must be given one after the other, each to all its members. */
  give(memberId: string, part: LayerPart): void {
    const known = this.#byMember.get(memberId) ?? this.#add(memberId)
    if (!known) return
    const { parts } = known.edge
    if (parts.at(-1) !== part) parts.push(part)
    known.own.push(parts.length - 1)
  }

  #add(memberId: string): OwnLayers | undefined {
    const membership = this.#memberships.recipient(memberId)
    if (!membership || membership.detached || this.#newcomers.has(memberId)) return undefined
    const edge = this.byEdge.get(membership.edge) ?? { parts: [], members: [] }
    this.byEdge.set(membership.edge, edge)
    const own: number[] = []
    edge.members.push({ member_id: membership.subscriptionId, own })
    const added = { edge, own }
    this.#byMember.set(memberId, added)
    return added
  }
}
