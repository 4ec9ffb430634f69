import type { Delta } from '../sync/delta.ts'
import type { ClientMessage, MemberInfo, ServerMessage, StateAt, Subprotocol } from './messages.ts'

/** The bytes of one websocket message, before websocket framing. Never written to again once handed out. */
export type Payload = Uint8Array

/** A frame that is not a message of the protocol; the text says what was wrong and what would be right. Closes with 4000. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError'
}

/** A well-formed message whose fields are wrong; answered with `error` `invalid_message`, which echoes `ref` where one could be read. */
export class InvalidMessage extends Error {
  override readonly name = 'InvalidMessage'
  readonly ref: number | undefined
  constructor(message: string, ref?: number) {
    super(message)
    this.ref = ref
  }
}

/** Where a patch stands in its room's history. */
export interface PatchAt {
  readonly room_id: string
  readonly epoch: number
  readonly seq: number
  readonly checksum: number
}

/**
 * Encodes the state stream of one room in one codec. Every member of the room gets the same patch bytes, so what a codec has
 * announced once (MessagePack: interned state keys) is remembered here, per room. Patches must be encoded in the order of their seq.
 */
export interface RoomEncoder {
  snapshot(at: StateAt): Payload
  resync(at: StateAt, members: readonly MemberInfo[]): Payload
  /** `delta` undefined: nothing changed (ops: []). */
  patch(at: PatchAt, delta: Delta | undefined): Payload
}

/** The server's half of a subprotocol. */
export interface Codec {
  readonly subprotocol: Subprotocol
  /** Whether its websocket messages are binary (opcode 2) or text (opcode 1). */
  readonly binary: boolean
  /** Anything but the state stream. */
  encode(message: Exclude<ServerMessage, { t: 'state.snapshot' | 'state.resync' | 'state.patch' }>): Payload
  /** Throws ProtocolError or InvalidMessage. Checks every field: what it returns is safe to use. */
  decode(payload: Payload): ClientMessage
  /** A new room's encoder. */
  roomEncoder(): RoomEncoder
}

/** What a client decodes: as `ServerMessage`, but a patch carries the delta to apply instead of its operations. */
export type DecodedMessage =
  | Exclude<ServerMessage, { t: 'state.patch' }>
  | {
      t: 'state.patch'
      room_id: string
      epoch: number
      seq: number
      checksum: number
      delta: Delta | undefined
    }

/** The client's half of a subprotocol; one per connection, because it remembers each room's announced keys. */
export interface ClientCodec {
  readonly subprotocol: Subprotocol
  encode(message: ClientMessage): Payload
  decode(payload: Payload): DecodedMessage
}
