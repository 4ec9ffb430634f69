import type { Json } from '../json.ts'
import type { Delta } from '../sync/delta.ts'
import type {
  ClientMessage,
  FlushMessage,
  MemberInfo,
  PatchAt,
  PlainMessage,
  ServerMessage,
  StateAt,
  Subprotocol,
} from './messages.ts'

/** The bytes of one websocket message, before websocket framing. Never written to again once handed out. */
export type Payload = Uint8Array

/**
 * Encodes the state stream of one room in one codec. Every member of the room gets the same patch bytes, so what a codec has
 * announced once (MessagePack: interned state keys) is remembered here, per room. Patches must be encoded in the order of their seq,
 * each before any snapshot or resync at its seq; a member gets every patch after its snapshot.
 */
export interface RoomEncoder {
  /** The state is this from the next frame on, though it may be the same object as before. */
  stateChanged(state: Json): void
  snapshot(at: StateAt): Payload
  resync(at: StateAt, members: readonly MemberInfo[]): Payload
  /** `delta` undefined: nothing changed (ops: []). */
  patch(at: PatchAt, delta: Delta | undefined): Payload
  /**
   * A patch that stands by itself: it neither needs nor announces anything, so it may be encoded at any time and out of order. For
   * updates that another owner made, or that no one needed in this codec when they happened.
   */
  replay(at: PatchAt, delta: Delta | undefined): Payload
  /** An event, or presence, of an update whose patch, or one of its `replay`, the member gets just before. */
  behindPatch(message: FlushMessage): Payload
}

/**
 * Encodes the stream of one hidden layer of a room in one codec: `snapshot` is its `layer.state`, `patch` and `replay` are its `layer.patch`,
 * with keys of its own. States and deltas are the layer's, checksums too. A member gets every patch behind the `layer.state` it was given.
 */
export type LayerEncoder = Pick<RoomEncoder, 'stateChanged' | 'snapshot' | 'patch' | 'replay'>

/** From this size on the bytes of a state are kept; smaller ones are soon encoded again. */
const KEPT_FROM_BYTES = 16 * 1024

/**
 * The bytes of a room's state, encoded once for as long as the state is that very object, and is not said to have changed: who joins a
 * room in which nothing changes costs no encoding.
 */
export class EncodedState {
  #state: Json | undefined
  #bytes: Uint8Array | undefined

  /** `encode` is called unless the bytes are there. */
  of(state: Json, encode: (state: Json) => Uint8Array): Uint8Array {
    if (this.#bytes && this.#state === state) return this.#bytes
    const bytes = encode(state)
    this.forget()
    if (bytes.length < KEPT_FROM_BYTES) return bytes
    this.#state = state
    this.#bytes = bytes
    return bytes
  }

  /** The state has changed, or is encoded in another way from now on. */
  forget(): void {
    this.#state = undefined
    this.#bytes = undefined
  }
}

/** The bytes of the list of members that was encoded last: all who come with one update are told of the very same list. */
export class EncodedMembers {
  #members: readonly MemberInfo[] | undefined
  #bytes: Uint8Array = NO_BYTES

  /** `encode` is called unless the bytes are there. The list is not to be changed. */
  of(members: readonly MemberInfo[], encode: (members: readonly MemberInfo[]) => Uint8Array): Uint8Array {
    if (this.#members !== members) this.#bytes = encode(members)
    this.#members = members
    return this.#bytes
  }
}

const NO_BYTES = new Uint8Array(0)

/** The server's half of a subprotocol. */
export interface Codec {
  readonly subprotocol: Subprotocol
  /** Whether its websocket messages are binary (opcode 2) or text (opcode 1). */
  readonly binary: boolean
  /** Anything but the state stream. */
  encode(message: PlainMessage): Payload
  /** The messages of a frame, each as a payload for `decode`; undefined: the frame is one message. Throws ProtocolError. */
  unbatch(payload: Payload): readonly Payload[] | undefined
  /** Whether a payload is a `message` without `ref`, as far as that shows without decoding it: false where it does not. */
  isUnreliable(payload: Payload): boolean
  /** Throws ProtocolError or InvalidMessage. Checks every field: what it returns is safe to use. */
  decode(payload: Payload): ClientMessage
  /** What tells a client which room the next frames of rooms are about; undefined: each of them says so itself. */
  address(roomId: string): Payload | undefined
  /** A new room's encoder. */
  roomEncoder(): RoomEncoder
  /** The encoder of a hidden layer of a room. */
  layerEncoder(layer: string): LayerEncoder
}

/**
 * What a client decodes: as `ServerMessage`, but patches carry the delta to apply instead of their operations. `room` is no message: it says
 * what others are about, which the codec has told them. `unknown`: a message of a later version, to be ignored.
 */
export type DecodedMessage =
  | { t: 'room'; room_id: string }
  | { t: 'unknown' }
  | Exclude<ServerMessage, { t: 'state.patch' | 'layer.patch' }>
  | ({ t: 'state.patch'; delta: Delta | undefined } & PatchAt)
  | ({ t: 'layer.patch'; delta: Delta | undefined; layer: string } & PatchAt)

/**
 * The client's half of a subprotocol. One per session: it remembers each room's announced keys, which a resumed connection goes on
 * using. Every frame must be decoded, in the order of arrival, even when the client then ignores it.
 */
export interface ClientCodec {
  readonly subprotocol: Subprotocol
  /** Throws when the message holds anything but JSON. */
  encode(message: ClientMessage): Payload
  /**
   * Throws ProtocolError for anything that is no message of the protocol. A patch that cannot be understood because patches before it
   * are missing has `delta` undefined: its seq or its checksum tells.
   */
  decode(payload: Payload): DecodedMessage
}
