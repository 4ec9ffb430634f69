import type { Json } from '../json.ts'
import { type Change, type Delta, DeltaMismatch } from '../sync/delta.ts'
import type {
  ClientMessage,
  MemberInfo,
  PatchAt,
  PatchHead,
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
 * snapshot or resync at its seq. A member gets every patch after its snapshot. In a room with layers, `Codec.ending` completes each frame
 * for one member.
 */
export interface RoomEncoder {
  /** The next frame has this state. It may be the same object as before, with changes. */
  stateChanged(state: Json): void
  /** `state.snapshot` or `state.resync`. */
  whole(t: WholeName, at: StateAt, members: readonly MemberInfo[]): Payload
  /** `delta` undefined: there is no change (ops: []). */
  patch(at: PatchHead, delta: Delta | undefined): Payload
  /**
   * An independent patch: it neither needs nor announces anything, so it may be encoded at any time and out of order. For updates of
   * another owner, and for updates that were not encoded in this codec when they happened.
   */
  replay(at: PatchHead, delta: Delta | undefined): Payload
}

/** State of a layer, and its checksum. */
export interface LayerAt {
  readonly state: Json
  readonly checksum: number
}

/**
 * Encodes the changes of one hidden layer of a room in one codec, each once for all members that have the layer. It has a separate key
 * table. A member gets every `patch` after a `state`.
 */
export interface LayerEncoder {
  /** The next `patch` leads to this state. */
  stateChanged(state: Json): void
  /** The whole layer. */
  state(at: LayerAt): Payload
  patch(checksum: number, delta: Delta): Payload
  /** An independent patch, as in RoomEncoder. */
  replay(checksum: number, delta: Delta): Payload
}

/** A layer in a frame of one member. */
export interface LayerPart {
  readonly layer: string
  /** Its change, from a LayerEncoder of each codec. Null: the member no longer has the layer. */
  readonly change: { readonly [codec in Subprotocol]?: Payload } | null
}

/**
 * Numbers that stand for the names of a member's layers in MessagePack, on one connection. They begin anew with each whole state. They are
 * given per member, because numbers of the room would tell which layers other members have.
 */
export class LayerNumbers {
  readonly #numbers = new Map<string, number>()
  readonly #free: number[] = []

  /** The next frame is a whole state. */
  restart(): void {
    this.#numbers.clear()
    this.#free.length = 0
  }

  /** Returns the number of a layer. Undefined: no frame has named it. */
  of(layer: string): number | undefined {
    return this.#numbers.get(layer)
  }

  /** Gives a layer the number with which the next frame names it. */
  give(layer: string): number {
    const number = this.#free.pop() ?? this.#numbers.size
    this.#numbers.set(layer, number)
    return number
  }

  /** The member no longer has the layer `layer`, whose number is `number`. */
  free(layer: string, number: number): void {
    this.#numbers.delete(layer)
    this.#free.push(number)
  }
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
  /** Returns an encoder for a room. `hasLayers`: its frames end with `ending`. */
  roomEncoder(hasLayers?: boolean): RoomEncoder
  /** Returns an encoder for a hidden layer of a room. */
  layerEncoder(): LayerEncoder
  /** Returns the end of a frame in a room with layers: those of the member that have changed, or in a whole state all of them. */
  ending(layers: readonly LayerPart[], numbers: LayerNumbers): Payload
}

/** Keys that frames abbreviate by their index. The table belongs to the copy of the state that these frames have changed. */
export type KeyTable = string[]

/** What the frames of one seat abbreviate. A whole state begins with new tables. */
export interface StreamTables {
  /** Keys of the base. */
  readonly keys: KeyTable
  /** Names of layers, by number. */
  readonly names: string[]
  /** Keys of each layer, by name. */
  readonly layers: Map<string, KeyTable>
}

export const newTables = (): StreamTables => ({ keys: [], names: [], layers: new Map() })

/** Change of one layer. `REMOVE`: the member no longer has the layer. */
export interface LayerChange {
  readonly layer: string
  readonly checksum: number
  readonly change: Change
}

/** Content of a patch. */
export interface PatchBody {
  /** Undefined: the base has not changed. */
  readonly delta: Delta | undefined
  readonly layers: readonly LayerChange[]
}

/** Content of a whole state. */
export interface WholeBody {
  readonly state: Json
  readonly members: readonly MemberInfo[]
  readonly layers: readonly LayerChange[]
}

/**
 * Head of a frame of a state stream. `read` reads the rest with the tables of the copy, and updates them. It is called only for a frame
 * that is applied. Throws DeltaMismatch for a change that cannot be read with these tables.
 */
type StreamFrame<T extends keyof typeof STREAM_MESSAGES, Head, Body> = Readonly<
  { t: T; read: (tables: StreamTables) => Body } & Head
>

/**
 * A decoded message: as `ServerMessage`, but with only the head of state stream frames. `room` is not a message: it names the room of the
 * frames after it. `unknown`: a message of a later version, to be ignored.
 */
export type DecodedMessage =
  | { t: 'room'; room_id: string }
  | { t: 'unknown' }
  | PlainMessage
  | StreamFrame<WholeName, PatchAt, WholeBody>
  | StreamFrame<'state.patch', PatchHead, PatchBody>

/** The client's half of a subprotocol. One per session. */
export interface ClientCodec {
  readonly subprotocol: Subprotocol
  /** Throws if the message contains anything but JSON. */
  encode(message: ClientMessage): Payload
  /** Decodes a frame. Every frame must be decoded, in the order of arrival. Throws ProtocolError for an invalid frame. */
  decode(payload: Payload): DecodedMessage
}

type Frame<T extends DecodedMessage['t']> = Extract<DecodedMessage, { t: T }>
type Head<T extends DecodedMessage['t']> = Omit<Frame<T>, 'read'>

/** A message with its complete content. `unread`: earlier patches are missing. */
export type ReadMessage =
  | Exclude<DecodedMessage, { read: unknown }>
  | (Head<WholeName> & WholeBody)
  | (Head<'state.patch'> & PatchBody & { readonly unread?: true })

/** Decodes complete frames, for observers and tests, with the tables of a client that applies every frame when it arrives. */
export class ReadingCodec {
  readonly #codec: ClientCodec
  /** By room. */
  readonly #tables = new Map<string, StreamTables>()

  constructor(codec: ClientCodec) {
    this.#codec = codec
  }

  decode(payload: Payload): ReadMessage {
    return this.read(this.#codec.decode(payload))
  }

  read(message: DecodedMessage): ReadMessage {
    switch (message.t) {
      case 'state.patch': {
        const { read: _, ...head } = message
        return { ...head, ...this.#patch(message) }
      }
      case 'state.snapshot':
      case 'state.resync': {
        const { read, ...head } = message
        const tables = newTables()
        this.#tables.set(message.room_id, tables)
        return { ...head, ...read(tables) }
      }
      default:
        return message
    }
  }

  #patch(patch: Frame<'state.patch'>): PatchBody & { readonly unread?: true } {
    try {
      return patch.read(this.#tables.get(patch.room_id) ?? newTables())
    } catch (error) {
      if (error instanceof DeltaMismatch) return { delta: undefined, layers: [], unread: true }
      throw error
    }
  }
}
