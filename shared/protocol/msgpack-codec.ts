import type { Json } from '../json.ts'
import { type Codec, InvalidMessage, type Payload, ProtocolError, type RoomEncoder } from './codec.ts'
import type { ClientMessage, ServerMessage } from './messages.ts'
import { MsgpackReader } from './msgpack-reader.ts'
import { MsgpackRoomEncoder } from './msgpack-room-encoder.ts'
import { MsgpackWriter } from './msgpack-writer.ts'
import { LEAVE_REASONS, LIMITS, OPCODES, RESYNC_REASONS } from './opcodes.ts'
import { parseClientMessage } from './schema.ts'

type StateFrame = { t: 'state.snapshot' | 'state.resync' | 'state.patch' }

/** `roomful.v1.msgpack`: one binary frame a message, a positional array that begins with an opcode. */
export class MsgpackCodec implements Codec {
  readonly subprotocol = 'roomful.v1.msgpack'
  readonly binary = true
  readonly #writer = new MsgpackWriter()

  encode(message: Exclude<ServerMessage, StateFrame>): Payload {
    this.#writer.begin().value([OPCODES[message.t], ...positions(message)])
    return this.#writer.take()
  }

  decode(payload: Payload): ClientMessage {
    const reader = new MsgpackReader(payload)
    const fields = reader.value()
    reader.end()
    if (!Array.isArray(fields))
      throw new ProtocolError('a frame is not a MessagePack array; send [opcode, field, …]')
    return parseClientMessage(named(fields))
  }

  roomEncoder(): RoomEncoder {
    return new MsgpackRoomEncoder(this.#writer)
  }
}

/** The fields of a message in their order on the wire, behind the opcode. */
function positions(message: Exclude<ServerMessage, StateFrame>): Json[] {
  switch (message.t) {
    case 'welcome':
      return [
        message.session_id,
        message.resume_token,
        message.resumed,
        message.resume_ttl_seconds,
        message.heartbeat_seconds,
        message.node_id,
        message.server_time,
        LIMITS.map((name) => message.limits[name]),
        message.rooms?.map(({ room_id, resumed }) => [room_id, resumed]) ?? null,
      ]
    case 'joined':
      return [
        message.ref,
        message.room_id,
        message.member_id,
        message.members.map(({ member_id, sub }) => [member_id, sub]),
      ]
    case 'left':
      return [message.ref, message.room_id]
    case 'event':
      return [message.room_id, message.epoch, message.seq, message.name, message.data]
    case 'room.joined':
      return [message.room_id, message.epoch, message.seq, message.member_id, message.sub]
    case 'room.left':
      return [
        message.room_id,
        message.epoch,
        message.seq,
        message.member_id,
        message.sub,
        LEAVE_REASONS.indexOf(message.reason),
      ]
    case 'ack':
      return [message.room_id, message.ref]
    case 'error':
      return [message.ref ?? null, message.room_id ?? null, message.code, message.message, message.retryable]
    case 'draining':
      return [message.reconnect_in_ms]
    case 'pong':
      return [message.at, message.server_time]
  }
}

/** A client's positional fields by name, not yet checked; what is not there is undefined. */
function named(fields: readonly Json[]): { t: string } & Record<string, unknown> {
  const [opcode, a, b, c, d, e] = fields
  switch (opcode) {
    case OPCODES.hello:
      return typeof b === 'string' || b === null || b === undefined
        ? { t: 'hello', project_id: a, token: b }
        : { t: 'hello', project_id: a, resume: resume(b) }
    case OPCODES.join:
      return { t: 'join', ref: a, room_type: b, options: c }
    case OPCODES.leave:
      return { t: 'leave', ref: a, room_id: b }
    case OPCODES.message:
      return { t: 'message', room_id: a, type: b, data: c, ref: d, settled: e }
    case OPCODES['state.resync.request']:
      return {
        t: 'state.resync',
        room_id: a,
        have_seq: b,
        reason: typeof c === 'number' ? (RESYNC_REASONS[c] ?? c) : c,
      }
    case OPCODES.ping:
      return { t: 'ping', at: a }
    case OPCODES.token:
      return { t: 'token', token: a }
    default:
      throw new InvalidMessage(
        `the opcode is ${typeof opcode === 'number' ? opcode : 'no number'}; a client may send ${OPCODES.hello} to ${OPCODES.token}`,
      )
  }
}

function resume(value: Json): unknown {
  if (!Array.isArray(value)) return value
  const [session_id, resume_token, rooms] = value
  return {
    session_id,
    resume_token,
    rooms: Array.isArray(rooms)
      ? rooms.map((room) =>
          Array.isArray(room) ? { room_id: room[0], epoch: room[1], seq: room[2], settled: room[3] } : room,
        )
      : rooms,
  }
}
