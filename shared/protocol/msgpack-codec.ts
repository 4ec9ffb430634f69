import type { Codec, Payload, RoomEncoder } from './codec.ts'
import { ProtocolError } from './errors.ts'
import { messageWriters } from './fields.ts'
import { type ClientMessage, type PlainMessage, SERVER_MESSAGES } from './messages.ts'
import { MsgpackReader } from './msgpack-reader.ts'
import { MsgpackRoomEncoder } from './msgpack-room-encoder.ts'
import { MsgpackWriter } from './msgpack-writer.ts'
import { parsePositional } from './schema.ts'

const WRITERS = messageWriters(SERVER_MESSAGES)

/** `roomful.v1.msgpack`: one binary frame a message, a positional array that begins with an opcode. */
export class MsgpackCodec implements Codec {
  readonly subprotocol = 'roomful.v1.msgpack'
  readonly binary = true
  readonly #writer = new MsgpackWriter()

  encode(message: PlainMessage): Payload {
    WRITERS[message.t](this.#writer.begin(), message)
    return this.#writer.take()
  }

  decode(payload: Payload): ClientMessage {
    const reader = new MsgpackReader(payload)
    const elements = reader.value()
    reader.end()
    if (!Array.isArray(elements))
      throw new ProtocolError('a frame is not a MessagePack array; send [opcode, field, …]')
    return parsePositional(elements)
  }

  roomEncoder(): RoomEncoder {
    return new MsgpackRoomEncoder(this.#writer)
  }
}
