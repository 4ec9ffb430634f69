import type { Codec, RoomEncoder } from '../../shared/protocol/codec.ts'
import type { MemberInfo, ServerMessage, StateAt, Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, frame, joinFrames } from '../frame.ts'
import type { Frames } from '../traffic.ts'
import type { Position } from './ring.ts'
import type { RoomEvent, Update } from './update.ts'

/** Every codec a node speaks. */
export type Codecs = ReadonlyMap<Subprotocol, Codec>

/** The `event` messages of the protocol. */
export type EventMessage = Extract<ServerMessage, { t: 'event' }>

/** An update's frames for everybody, in each codec it was encoded for. */
export interface UpdateFrames {
  readonly patch: Frames
  /** Events and presence; undefined when there are none for everybody. */
  readonly rest: Frames | undefined
}

/** One message as a client gets it. */
type Encodable = Parameters<Codec['encode']>[0]

/** Makes the websocket frames of one room: once for all its members. */
export class RoomFrames {
  readonly #room_id: string
  readonly #codecs: Codecs
  readonly #encoders = new Map<Subprotocol, RoomEncoder>()

  constructor(room_id: string, codecs: Codecs) {
    this.#room_id = room_id
    this.#codecs = codecs
  }

  /** A visible update for everybody. To be called once for each, in the order of their seq. */
  update(update: Update, subprotocols: Iterable<Subprotocol>): UpdateFrames {
    const patch: { [codec in Subprotocol]?: Frame } = {}
    let rest: { [codec in Subprotocol]?: Frame } | undefined
    for (const subprotocol of subprotocols) {
      const payload = this.#encoder(subprotocol).patch(this.#at(update), update.delta)
      patch[subprotocol] = frame(payload, this.#codec(subprotocol).binary)
      const others = this.rest(update, subprotocol)
      if (!others) continue
      rest ??= {}
      rest[subprotocol] = others
    }
    return { patch, rest }
  }

  /** The patch of an update that was not encoded for this codec when it happened. */
  replay(update: Update, subprotocol: Subprotocol): Frame {
    const payload = this.#encoder(subprotocol).replay(this.#at(update), update.delta)
    return frame(payload, this.#codec(subprotocol).binary)
  }

  /** Events and presence for everybody; undefined when there are none. */
  rest(update: Update, subprotocol: Subprotocol): Frame | undefined {
    const { epoch, seq, events, left, joined } = update
    const at = { room_id: this.#room_id, epoch, seq }
    const frames: Frame[] = []
    for (const event of events)
      if (!event.to) frames.push(this.message(this.event(update, event), subprotocol))
    for (const { member, reason } of left)
      frames.push(this.message({ t: 'room.left', ...at, ...member, reason }, subprotocol))
    for (const { member } of joined)
      frames.push(this.message({ t: 'room.joined', ...at, ...member }, subprotocol))
    return frames.length > 0 ? joinFrames(frames) : undefined
  }

  event({ epoch, seq }: Position, { name, data }: RoomEvent): EventMessage {
    return { t: 'event', room_id: this.#room_id, epoch, seq, name, data }
  }

  /** One message of its own. */
  message(message: Encodable, subprotocol: Subprotocol): Frame {
    const codec = this.#codec(subprotocol)
    return frame(codec.encode(message), codec.binary)
  }

  snapshot(at: StateAt, subprotocol: Subprotocol): Frame {
    return frame(this.#encoder(subprotocol).snapshot(at), this.#codec(subprotocol).binary)
  }

  resync(at: StateAt, members: readonly MemberInfo[], subprotocol: Subprotocol): Frame {
    return frame(this.#encoder(subprotocol).resync(at, members), this.#codec(subprotocol).binary)
  }

  #at({ epoch, seq, checksum }: Update) {
    return { room_id: this.#room_id, epoch, seq, checksum }
  }

  #codec(subprotocol: Subprotocol): Codec {
    const codec = this.#codecs.get(subprotocol)
    if (!codec)
      throw new Error(`no codec for ${subprotocol}; there are ${[...this.#codecs.keys()].join(', ')}`)
    return codec
  }

  #encoder(subprotocol: Subprotocol): RoomEncoder {
    let encoder = this.#encoders.get(subprotocol)
    if (!encoder) {
      encoder = this.#codec(subprotocol).roomEncoder()
      this.#encoders.set(subprotocol, encoder)
    }
    return encoder
  }
}
