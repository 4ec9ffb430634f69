import type { Json } from '../../shared/json.ts'
import type { Codec, LayerEncoder, RoomEncoder, WholeName } from '../../shared/protocol/codec.ts'
import type {
  FlushMessage,
  MemberInfo,
  PatchAt,
  ServerMessage,
  StateAt,
  Subprotocol,
} from '../../shared/protocol/messages.ts'
import { apply, type Delta } from '../../shared/sync/delta.ts'
import { type Frame, frame, joinFrames } from '../frame.ts'
import type { Frames } from '../traffic.ts'
import type { Position, RoomEvent, Update } from './journal.ts'
import { type LayerState, layerDeltas } from './layers.ts'

/** The `event` messages of the protocol. */
export type EventMessage = Extract<ServerMessage, { t: 'event' }>

export type MutableFrames = { [codec in Subprotocol]?: Frame }

/** An update's frames for everyone, in each codec it was encoded for. */
export interface UpdateFrames {
  readonly patch: Frames
  /** Events, and changes of the members; undefined when there are none for everyone. */
  readonly rest: Frames | undefined
  /** By layer; undefined: the room type has none, or none that someone has has changed. */
  readonly layers?: ReadonlyMap<string, Frames> | undefined
}

/** What frames of one room are made with in one subprotocol. */
interface Encoding {
  readonly codec: Codec
  readonly encoder: RoomEncoder
}

/** Makes the websocket frames of one room: once for all its members. */
export class RoomFrames {
  readonly roomId: string
  readonly layers: LayerFrames
  readonly #codecs: ReadonlyMap<Subprotocol, Codec>
  /** True: members are not told of each other. */
  readonly hidesMembers: boolean
  readonly #encodings = new Map<Subprotocol, Encoding>()
  /** Undefined: it has not changed here. */
  #state: Json | undefined

  constructor(roomId: string, codecs: ReadonlyMap<Subprotocol, Codec>, hidesMembers = false) {
    this.roomId = roomId
    this.hidesMembers = hidesMembers
    this.layers = new LayerFrames(roomId, codecs)
    this.#codecs = codecs
  }

  /** The state is this from the next frame on, though it may be the same object as before. */
  stateChanged(state: Json): void {
    this.#state = state
    for (const { encoder } of this.#encodings.values()) encoder.stateChanged(state)
  }

  /** A visible update for everyone. To be called once for each, in the order of their seq. */
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

  /** The patch of an update that was not encoded for this codec when it happened. */
  replay(update: Update, subprotocol: Subprotocol): Frame {
    const { codec, encoder } = this.#encoding(subprotocol)
    return frame(encoder.replay(this.#at(update), update.delta), codec.binary)
  }

  /** Events for everyone, and changes of the members; undefined when there are none. */
  rest(update: Update, subprotocol: Subprotocol): Frame | undefined {
    const { epoch, seq, events, left, joined, presence } = update
    const at = { room_id: this.roomId, epoch, seq }
    const frames: Frame[] = []
    for (const event of events)
      if (!event.to) frames.push(this.message(this.event(update, event), subprotocol))
    if (this.hidesMembers) return frames.length > 0 ? joinFrames(frames) : undefined
    for (const { member, reason } of left) {
      const { id, sub } = member
      frames.push(
        this.message({ t: 'member', ...at, member_id: id, sub, status: 'left', reason }, subprotocol),
      )
    }
    for (const { member } of joined) {
      const { id, sub } = member
      frames.push(this.message({ t: 'member', ...at, member_id: id, sub, status: 'joined' }, subprotocol))
    }
    for (const { memberId, sub, connected } of presence) {
      const status = connected ? 'connected' : 'disconnected'
      frames.push(this.message({ t: 'member', ...at, member_id: memberId, sub, status }, subprotocol))
    }
    return frames.length > 0 ? joinFrames(frames) : undefined
  }

  event({ epoch, seq }: Position, { name, data }: RoomEvent): EventMessage {
    return { t: 'event', room_id: this.roomId, epoch, seq, name, data }
  }

  /** Something of an update, behind its patch. */
  message(message: FlushMessage, subprotocol: Subprotocol): Frame {
    const { codec, encoder } = this.#encoding(subprotocol)
    return frame(encoder.behindPatch(message), codec.binary)
  }

  /** The state, and the members. */
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
   * What was said of a layer is not to be known to who gets it from now on: encoders know the names of keys that it had before. To be
   * called also when it has changed, and no one is told.
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
    return frame(encoder.state({ ...this.#at(at, checksum), state }), codec.binary)
  }

  /** As `patch`, by itself: at any time and in any order. */
  replay(
    layer: string,
    at: LayerAt & { readonly checksum: number },
    delta: Delta,
    subprotocol: Subprotocol,
  ): Frame {
    const codec = codecOf(subprotocol, this.#codecs)
    return frame(codec.layerEncoder(layer).replay(this.#at(at, at.checksum), delta), codec.binary)
  }

  /** As `state`, by itself. */
  replayState(layer: string, at: LayerAt, { state, checksum }: LayerState, subprotocol: Subprotocol): Frame {
    const codec = codecOf(subprotocol, this.#codecs)
    return frame(codec.layerEncoder(layer).state({ ...this.#at(at, checksum), state }), codec.binary)
  }

  /** `layer.state` without a state. */
  gone(layer: string, { epoch, seq }: LayerAt, subprotocol: Subprotocol): Frame {
    const codec = codecOf(subprotocol, this.#codecs)
    return frame(codec.layerEncoder(layer).gone({ room_id: this.#roomId, epoch, seq }), codec.binary)
  }

  #at({ epoch, seq }: LayerAt, checksum: number): PatchAt {
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

function codecOf(subprotocol: Subprotocol, codecs: ReadonlyMap<Subprotocol, Codec>): Codec {
  const codec = codecs.get(subprotocol)
  if (codec) return codec
  throw new Error(`no codec for ${subprotocol}; there are ${[...codecs.keys()].join(', ')}`)
}
