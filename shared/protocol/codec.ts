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

/** Bytes of one websocket message, before websocket framing. They are not changed after they were passed on. */
export type Payload = Uint8Array

/**
 * Encodes the state stream of one room in one codec. Every member of the room gets the same patch bytes, so the encoder remembers for the
 * room what the codec has announced (MessagePack: interned state keys). Patches must be encoded in the order of their seq, each before any
 * snapshot or resync at its seq. A member gets every patch after its snapshot.
 */
export interface RoomEncoder {
  /** The next frame has this state. It may be the same object as before, with changes. */
  stateChanged(state: Json): void
  /** `state.snapshot` or `state.resync`. */
  whole(t: WholeName, at: StateAt, members: readonly MemberInfo[]): Payload
  /** `delta` undefined: there is no change (ops: []). */
  patch(at: PatchAt, delta: Delta | undefined): Payload
  /**
   * An independent patch: it neither needs nor announces anything, so it may be encoded at any time and out of order. For updates of
   * another owner, and for updates that were not encoded in this codec when they happened.
   */
  replay(at: PatchAt, delta: Delta | undefined): Payload
  /** An event, or a change of the members. The member gets it right after the patch of its update, or after the `replay` of that patch. */
  behindPatch(message: FlushMessage): Payload
}

/**
 * Encodes the stream of one hidden layer of a room in one codec. `patch` and `replay` make its `layer.patch`, with a separate key table.
 * States, deltas and checksums are those of the layer. A member gets every patch after its `layer.state`.
 */
export interface LayerEncoder extends Pick<RoomEncoder, 'stateChanged' | 'patch' | 'replay'> {
  /** `layer.state`. */
  state(at: StateAt): Payload
  /** `layer.state` without a state: the member no longer has the layer. */
  gone(at: Omit<PatchAt, 'checksum'>): Payload
}

/** Names of the frames with the complete visible state of a room. */
export type WholeName = 'state.snapshot' | 'state.resync'

/** Minimum size of a state whose bytes are kept. Smaller states are cheap to encode again. */
const KEPT_FROM_BYTES = 16 * 1024

/**
 * Cache for the bytes of a room's state. It holds while the state is the same object and `forget` was not called, so joins to an unchanged
 * room cost no encoding.
 */
export class EncodedState {
  #state: Json | undefined
  #bytes: Uint8Array | undefined

  /** Returns the cached bytes, or the result of `encode`. */
  of(state: Json, encode: (state: Json) => Uint8Array): Uint8Array {
    if (this.#bytes && this.#state === state) return this.#bytes
    const bytes = encode(state)
    this.forget()
    if (bytes.length < KEPT_FROM_BYTES) return bytes
    this.#state = state
    this.#bytes = bytes
    return bytes
  }

  /** Drops the bytes, because the state or its encoding has changed. */
  forget(): void {
    this.#state = undefined
    this.#bytes = undefined
  }
}

/** The server's half of a subprotocol. */
export interface Codec {
  readonly subprotocol: Subprotocol
  /** True: websocket messages are binary (opcode 2). False: text (opcode 1). */
  readonly binary: boolean
  /** Encodes any message except those of the state stream. */
  encode(message: PlainMessage): Payload
  /** Returns an encoded message `rooms` for another request. `encoded` has the request id 1. */
  listFor(requestId: number, encoded: Payload): Payload
  /** Returns true if the undecoded payload is a `message` without `ref`. False: it is not, or it cannot be determined without decoding. */
  isUnreliable(payload: Payload): boolean
  /** Decodes a message and checks every field. Throws ProtocolError or InvalidMessage. */
  decode(payload: Payload): ClientMessage
  /** Returns the frame that names the room of the next frames. Undefined: each frame names its room. */
  address(roomId: string): Payload | undefined
  /** Returns an encoder for a room. */
  roomEncoder(): RoomEncoder
  /** Returns an encoder for a hidden layer of a room. */
  layerEncoder(layer: string): LayerEncoder
}

/**
 * Keys that the frames of one state stream abbreviate by their index. The table belongs to the copy of the state that these frames have
 * changed.
 */
export type KeyTable = string[]

/**
 * Head of a frame of a state stream. `read` reads the rest with the key table of the copy, and updates that table. It is called only for a
 * frame that is applied. Throws DeltaMismatch for a change that cannot be read with this table.
 */
type StreamFrame<T extends keyof typeof STREAM_MESSAGES, Body> = Readonly<
  { t: T; read: (keys: KeyTable) => Body } & Omit<PatchAt, 'checksum'>
>
type WholeFrame<T extends WholeName> = StreamFrame<
  T,
  { readonly state: Json; readonly members: readonly MemberInfo[] }
> & { readonly checksum: number }
/** `read` returns undefined if there is no change. */
type PatchFrame<T extends 'state.patch' | 'layer.patch'> = StreamFrame<T, Delta | undefined> & {
  readonly checksum: number
}

/**
 * A decoded message: as `ServerMessage`, but with only the head of state stream frames. `room` is not a message: it names the room of the
 * frames after it. `unknown`: a message of a later version, to be ignored.
 */
export type DecodedMessage =
  | { t: 'room'; room_id: string }
  | { t: 'unknown' }
  | PlainMessage
  | WholeFrame<'state.snapshot'>
  | WholeFrame<'state.resync'>
  | PatchFrame<'state.patch'>
  | (PatchFrame<'layer.patch'> & { readonly layer: string })
  /** `read` returns undefined if the member no longer has the layer. */
  | (StreamFrame<'layer.state', Json | undefined> & {
      readonly layer: string
      readonly checksum?: number | undefined
    })

/** The client's half of a subprotocol. One per session: it remembers what frames omit, and that remains valid on a resumed connection. */
export interface ClientCodec {
  readonly subprotocol: Subprotocol
  /** Throws if the message contains anything but JSON. */
  encode(message: ClientMessage): Payload
  /** Decodes a frame. Every frame must be decoded, in the order of arrival. Throws ProtocolError for an invalid frame. */
  decode(payload: Payload): DecodedMessage
}

type Frame<T extends DecodedMessage['t']> = Extract<DecodedMessage, { t: T }>
type Head<T extends DecodedMessage['t']> = Omit<Frame<T>, 'read'>

/** A message with its complete content. `delta` undefined: there is no change, or earlier patches are missing. */
export type ReadMessage =
  | Exclude<DecodedMessage, { read: unknown }>
  | ((Head<'state.snapshot'> | Head<'state.resync'>) & { state: Json; members: readonly MemberInfo[] })
  | (Head<'state.patch'> & { delta: Delta | undefined })
  | (Head<'layer.patch'> & { delta: Delta | undefined })
  | (Head<'layer.state'> & { state?: Json })

/** Decodes complete frames, for observers and tests, with the key tables of a client that applies every frame when it arrives. */
export class ReadingCodec {
  readonly #codec: ClientCodec
  /** Key tables by room and layer. */
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
