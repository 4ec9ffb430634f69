import type { Json } from '../../shared/json.ts'
import type { Codec, LayerEncoder, RoomEncoder, WholeName } from '../../shared/protocol/codec.ts'
import type {
  DepartureReason,
  FlushMessage,
  MemberInfo,
  MemberStatus,
  PatchAt,
  ServerMessage,
  StateAt,
  Subprotocol,
} from '../../shared/protocol/messages.ts'
import { apply, type Delta } from '../../shared/sync/delta.ts'
import { type Frame, frame, joinFrames } from '../frame.ts'
import type { EdgeLayers, Frames } from '../traffic.ts'
import type { Member } from './definition-types.ts'
import type { Position, RoomEvent, Update } from './journal.ts'
import { type Grants, ownerOf } from './layer-rules.ts'
import { type LayerState, type Layers, layerDeltas } from './layers.ts'
import type { Memberships } from './memberships.ts'

/** The `event` messages of the protocol. */
export type EventMessage = Extract<ServerMessage, { t: 'event' }>

/** A change of a member, for the other members. */
interface ChangedMember {
  readonly member_id: string
  readonly sub: string | null
  readonly spectator: boolean
  readonly status: MemberStatus
  readonly reason?: DepartureReason
}

const idsOf = ({ id, sub, spectator }: Member) => ({ member_id: id, sub, spectator })

export type MutableFrames = { [codec in Subprotocol]?: Frame }

/** Frames of an update for all members, in each codec that it was encoded for. */
export interface UpdateFrames {
  readonly patch: Frames
  /** Events and member changes for all members. Undefined: there are none. */
  readonly rest: Frames | undefined
  /** By layer. Undefined: the room type has no layers, or no member has a layer that has changed. */
  readonly layers?: ReadonlyMap<string, Frames> | undefined
}

/** Codec and encoder of one room for one subprotocol. */
interface Encoding {
  readonly codec: Codec
  readonly encoder: RoomEncoder
}

/** Encodes the websocket frames of one room, once for all its members. */
export class RoomFrames {
  readonly roomId: string
  readonly layers: LayerFrames
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
    { hidesMembers = false, showsSpectators = false } = {},
  ) {
    this.roomId = roomId
    this.hidesMembers = hidesMembers
    this.showsSpectators = showsSpectators
    this.layers = new LayerFrames(roomId, codecs)
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
    for (const subprotocol of subprotocols) {
      const { codec, encoder } = this.#encoding(subprotocol)
      patch[subprotocol] = frame(encoder.patch(this.#at(update), update.delta), codec.binary)
      const others = this.rest(update, subprotocol)
      if (!others) continue
      rest ??= {}
      rest[subprotocol] = others
    }
    return { patch, rest }
  }

  /** Encodes the patch of an earlier update, for a codec that no member used then. */
  replay(update: Update, subprotocol: Subprotocol): Frame {
    const { codec, encoder } = this.#encoding(subprotocol)
    return frame(encoder.replay(this.#at(update), update.delta), codec.binary)
  }

  /** Encodes events and member changes for all members. Undefined: there are none. */
  rest(update: Update, subprotocol: Subprotocol): Frame | undefined {
    const { epoch, seq, events, left, joined, presence, roles } = update
    const at = { room_id: this.roomId, epoch, seq }
    const frames: Frame[] = []
    for (const event of events)
      if (!event.to) frames.push(this.message(this.event(update, event), subprotocol))
    if (this.hidesMembers) return frames.length > 0 ? joinFrames(frames) : undefined
    const shows = this.showsSpectators
    const add = (change: ChangedMember) => {
      const { spectator, ...message } = change
      const role = shows && spectator ? { spectator } : {}
      frames.push(this.message({ t: 'member', ...at, ...message, ...role }, subprotocol))
    }
    for (const { member, reason } of left)
      if (shows || !member.spectator) add({ ...idsOf(member), status: 'left', reason })
    for (const { member } of joined)
      if (shows || !member.spectator) add({ ...idsOf(member), status: 'joined' })
    for (const { memberId: member_id, sub, spectator } of roles)
      add({ member_id, sub, spectator, status: spectator ? 'unseated' : 'seated' })
    for (const { memberId: member_id, sub, connected, spectator } of presence)
      if (shows || !spectator)
        add({ member_id, sub, spectator, status: connected ? 'connected' : 'disconnected' })
    return frames.length > 0 ? joinFrames(frames) : undefined
  }

  /** Encodes the number of spectators. */
  spectators(count: number, subprotocol: Subprotocol): Frame {
    const codec = codecOf(subprotocol, this.#codecs)
    return frame(codec.encode({ t: 'spectators', room_id: this.roomId, count }), codec.binary)
  }

  event({ epoch, seq }: Position, { name, data }: RoomEvent): EventMessage {
    return { t: 'event', room_id: this.roomId, epoch, seq, name, data }
  }

  /** Encodes a part of an update that follows its patch. */
  message(message: FlushMessage, subprotocol: Subprotocol): Frame {
    const { codec, encoder } = this.#encoding(subprotocol)
    return frame(encoder.behindPatch(message), codec.binary)
  }

  /** Encodes the state and the members. */
  whole(t: WholeName, at: StateAt, members: readonly MemberInfo[], subprotocol: Subprotocol): Frame {
    const { codec, encoder } = this.#encoding(subprotocol)
    return frame(encoder.whole(t, at, members), codec.binary)
  }

  #at({ epoch, seq, checksum }: Update) {
    return { room_id: this.roomId, epoch, seq, checksum }
  }

  #encoding(subprotocol: Subprotocol): Encoding {
    const known = this.#encodings.get(subprotocol)
    if (known) return known
    const codec = codecOf(subprotocol, this.#codecs)
    const encoding = { codec, encoder: codec.roomEncoder() }
    if (this.#state !== undefined) encoding.encoder.stateChanged(this.#state)
    this.#encodings.set(subprotocol, encoding)
    return encoding
  }
}

/** Encodes the frames of one room's layers, each once for all members that have the layer. */
export class LayerFrames {
  readonly #roomId: string
  readonly #codecs: ReadonlyMap<Subprotocol, Codec>
  readonly #encoders = new Map<string, Map<Subprotocol, LayerEncoder>>()

  constructor(roomId: string, codecs: ReadonlyMap<Subprotocol, Codec>) {
    this.#roomId = roomId
    this.#codecs = codecs
  }

  /**
   * Forgets the encoders of a layer. They know keys that the layer had before, which a member that gets the layer now must not learn. Also
   * called if the layer has changed, and no member gets the change.
   */
  forget(layer: string): void {
    this.#encoders.delete(layer)
  }

  /** Encodes `layer.patch` of an update. Called in the order of the seqs. `state`: the state after the update. */
  patch(
    layer: string,
    at: Position & { readonly checksum: number },
    delta: Delta,
    state: Json,
    subprotocol: Subprotocol,
  ): Frame {
    const { codec, encoder } = this.#encoding(layer, subprotocol)
    encoder.stateChanged(state)
    return frame(encoder.patch(this.#at(at, at.checksum), delta), codec.binary)
  }

  /** Encodes `layer.state`. If the layer has a patch with the same seq, the state follows it. */
  state(layer: string, at: Position, { state, checksum }: LayerState, subprotocol: Subprotocol): Frame {
    const { codec, encoder } = this.#encoding(layer, subprotocol)
    return frame(encoder.state({ ...this.#at(at, checksum), state }), codec.binary)
  }

  /** As `patch`, but independent of other frames: at any time and in any order. */
  replay(
    layer: string,
    at: Position & { readonly checksum: number },
    delta: Delta,
    subprotocol: Subprotocol,
  ): Frame {
    const codec = codecOf(subprotocol, this.#codecs)
    return frame(codec.layerEncoder(layer).replay(this.#at(at, at.checksum), delta), codec.binary)
  }

  /** As `state`, but independent of other frames. */
  replayState(layer: string, at: Position, { state, checksum }: LayerState, subprotocol: Subprotocol): Frame {
    const codec = codecOf(subprotocol, this.#codecs)
    return frame(codec.layerEncoder(layer).state({ ...this.#at(at, checksum), state }), codec.binary)
  }

  /** Encodes `layer.state` without a state. */
  gone(layer: string, { epoch, seq }: Position, subprotocol: Subprotocol): Frame {
    const codec = codecOf(subprotocol, this.#codecs)
    return frame(codec.layerEncoder(layer).gone({ room_id: this.#roomId, epoch, seq }), codec.binary)
  }

  #at({ epoch, seq }: Position, checksum: number): PatchAt {
    return { room_id: this.#roomId, epoch, seq, checksum }
  }

  #encoding(layer: string, subprotocol: Subprotocol): { codec: Codec; encoder: LayerEncoder } {
    const codec = codecOf(subprotocol, this.#codecs)
    const encoders = this.#encoders.get(layer) ?? new Map<Subprotocol, LayerEncoder>()
    this.#encoders.set(layer, encoders)
    const encoder = encoders.get(subprotocol) ?? codec.layerEncoder(layer)
    encoders.set(subprotocol, encoder)
    return { codec, encoder }
  }
}

/** Encodes the changes of these layers in an earlier update, for a codec that no member used then. */
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

function codecOf(subprotocol: Subprotocol, codecs: ReadonlyMap<Subprotocol, Codec>): Codec {
  const codec = codecs.get(subprotocol)
  if (codec) return codec
  throw new Error(`no codec for ${subprotocol}; there are ${[...codecs.keys()].join(', ')}`)
}

/** The layers in a flush. */
interface FlushedLayers {
  /** By layer, the frames for members that had it before. They are kept for members that miss them. */
  readonly encoded: ReadonlyMap<string, Frames>
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
      // A layer that was empty is sent whole, because members have nothing to patch. If the layer is shown to a new member, the others get
      // a patch that defines no key names for later patches. It can name removed keys, which the new member must not learn.
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

  /** Returns the frames for a member that missed how it got layers (`shown`) and lost layers (`hidden`). `at`: the last flush. */
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
    for (const codec of this.#memberships.codecs.keys()) frames[codec] = make(codec)
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
