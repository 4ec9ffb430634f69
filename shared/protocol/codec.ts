import type { Json } from '../json.ts'
import { type Delta, DeltaMismatch } from '../sync/delta.ts'
import type {
  ClientMessage,
  FlushMessage,
  MemberInfo,
  PatchAt,
  PlainMessage,
  STREAM_MESSAGES,
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
  /** `state.snapshot` or `state.resync`. */
  whole(t: WholeName, at: StateAt, members: readonly MemberInfo[]): Payload
  /** `delta` undefined: nothing changed (ops: []). */
  patch(at: PatchAt, delta: Delta | undefined): Payload
  /**
   * A patch that stands by itself: it neither needs nor announces anything, so it may be encoded at any time and out of order. For
   * updates that another owner made, or that no one needed in this codec when they happened.
   */
  replay(at: PatchAt, delta: Delta | undefined): Payload
  /** An event, or a change of the members, of an update whose patch, or one of its `replay`, the member gets just before. */
  behindPatch(message: FlushMessage): Payload
}

/**
 * Encodes the stream of one hidden layer of a room in one codec: `patch` and `replay` are its `layer.patch`, with keys of its own. States and
 * deltas are the layer's, checksums too. A member gets every patch behind the `layer.state` it was given.
 */
export interface LayerEncoder extends Pick<RoomEncoder, 'stateChanged' | 'patch' | 'replay'> {
  /** `layer.state`. */
  state(at: StateAt): Payload
  /** `layer.state` without a state: the member has the layer no more. */
  gone(at: Omit<PatchAt, 'checksum'>): Payload
}

/** Names of the frames with all that a client may know of a room. */
export type WholeName = 'state.snapshot' | 'state.resync'

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

/** The keys that frames of one state stream stand for by their index. It belongs to the copy of the state that these frames changed. */
export type KeyTable = string[]

/**
 * A frame of a state stream: its head. `read` reads the rest with the key table of the copy, and makes that table the one behind this frame. Only
 * a frame that is applied is read. Throws DeltaMismatch for a change that cannot be read with this table.
 */
type StreamFrame<T extends keyof typeof STREAM_MESSAGES, Body> = Readonly<
  { t: T; read: (keys: KeyTable) => Body } & Omit<PatchAt, 'checksum'>
>
type WholeFrame<T extends WholeName> = StreamFrame<
  T,
  { readonly state: Json; readonly members: readonly MemberInfo[] }
> & { readonly checksum: number }
/** `read` returns undefined if nothing has changed. */
type PatchFrame<T extends 'state.patch' | 'layer.patch'> = StreamFrame<T, Delta | undefined> & {
  readonly checksum: number
}

/**
 * What a client decodes: as `ServerMessage`, but of frames of the state stream the head only. `room` is no message: it says what others are
 * about, which the codec has told them. `unknown`: a message of a later version, to be ignored.
 */
export type DecodedMessage =
  | { t: 'room'; room_id: string }
  | { t: 'unknown' }
  | PlainMessage
  | WholeFrame<'state.snapshot'>
  | WholeFrame<'state.resync'>
  | PatchFrame<'state.patch'>
  | (PatchFrame<'layer.patch'> & { readonly layer: string })
  /** `read` returns undefined if the layer is gone. */
  | (StreamFrame<'layer.state', Json | undefined> & {
      readonly layer: string
      readonly checksum?: number | undefined
    })

/** The client's half of a subprotocol. One per session: it remembers what frames leave out, which holds on a resumed connection too. */
export interface ClientCodec {
  readonly subprotocol: Subprotocol
  /** Throws when the message holds anything but JSON. */
  encode(message: ClientMessage): Payload
  /** Every frame must be decoded, in the order of arrival. Throws ProtocolError for anything that is no message of the protocol. */
  decode(payload: Payload): DecodedMessage
}

type Frame<T extends DecodedMessage['t']> = Extract<DecodedMessage, { t: T }>
type Head<T extends DecodedMessage['t']> = Omit<Frame<T>, 'read'>

/** A message with all that its frame says. `delta` undefined: nothing has changed, or patches before this one are missing. */
export type ReadMessage =
  | Exclude<DecodedMessage, { read: unknown }>
  | ((Head<'state.snapshot'> | Head<'state.resync'>) & { state: Json; members: readonly MemberInfo[] })
  | (Head<'state.patch'> & { delta: Delta | undefined })
  | (Head<'layer.patch'> & { delta: Delta | undefined })
  | (Head<'layer.state'> & { state?: Json })

/** Decodes whole frames, for what looks on and for tests: with the key tables of a client that applies every frame when it comes. */
export class ReadingCodec {
  readonly #codec: ClientCodec
  /** By room and layer. */
  readonly #tables = new Map<string, KeyTable>()

  constructor(codec: ClientCodec) {
    this.#codec = codec
  }

  decode(payload: Payload): ReadMessage {
    return this.read(this.#codec.decode(payload))
  }

  read(message: DecodedMessage): ReadMessage {
    switch (message.t) {
      case 'state.patch':
      case 'layer.patch': {
        const { read: _, ...head } = message
        return { ...head, delta: this.#delta(message) }
      }
      case 'state.snapshot':
      case 'state.resync': {
        const { read, ...head } = message
        return { ...head, ...read(this.#begin(message)) }
      }
      case 'layer.state': {
        const { read, ...head } = message
        const state = read(this.#begin(message))
        return { ...head, ...(state !== undefined && { state }) }
      }
      default:
        return message
    }
  }

  #begin(frame: Frame<'state.snapshot' | 'state.resync' | 'layer.state'>): KeyTable {
    const table: KeyTable = []
    this.#tables.set(streamOf(frame), table)
    return table
  }

  #delta(patch: Frame<'state.patch' | 'layer.patch'>): Delta | undefined {
    try {
      return patch.read(this.#tables.get(streamOf(patch)) ?? [])
    } catch (error) {
      if (error instanceof DeltaMismatch) return undefined
      throw error
    }
  }
}

const streamOf = (frame: { readonly room_id: string; readonly layer?: string }): string =>
  `${frame.room_id} ${frame.layer ?? ''}`
