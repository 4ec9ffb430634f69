import type { Json } from '../json.ts'
import {
  ArrayDelta,
  type Change,
  type Delta,
  ObjectDelta,
  REMOVE,
  Replace,
  type Splice,
} from '../sync/delta.ts'
import { type ClientCodec, type DecodedMessage, type PatchAt, type Payload, ProtocolError } from './codec.ts'
import type { ErrorCode } from './error-codes.ts'
import type { ClientMessage, MemberInfo } from './messages.ts'
import { isArray, isMap, MsgpackReader, NIL, UnknownKey } from './msgpack-reader.ts'
import { MsgpackWriter } from './msgpack-writer.ts'
import { LEAVE_REASONS, LIMITS, OPCODES, RESYNC_REASONS } from './opcodes.ts'

/** The keys a room's frames may refer to, as of one frame of its state stream. */
interface KeyTable {
  readonly epoch: number
  readonly seq: number
  readonly keys: readonly string[]
}

/** `[from, …keys]`: from the index `from` on a room's table holds these. */
type Announced = [from: number, ...keys: string[]]

/** `roomful.v1.msgpack`, the client's half. */
export class MsgpackClientCodec implements ClientCodec {
  readonly subprotocol = 'roomful.v1.msgpack'
  readonly #writer = new MsgpackWriter()
  readonly #tables = new Map<string, KeyTable>()

  encode(message: ClientMessage): Payload {
    this.#writer.begin().value(positions(message))
    return this.#writer.take()
  }

  decode(payload: Payload): DecodedMessage {
    try {
      return this.#decode(payload)
    } catch (error) {
      if (error instanceof ProtocolError) throw error
      throw new ProtocolError(`a frame of ${payload.length} bytes lacks what its opcode calls for`)
    }
  }

  #decode(payload: Payload): DecodedMessage {
    const reader = new MsgpackReader(payload)
    const length = reader.array()
    const opcode = reader.value()
    if (
      opcode === OPCODES['state.patch'] ||
      opcode === OPCODES['state.snapshot'] ||
      opcode === OPCODES['state.resync']
    )
      return this.#stateFrame(opcode, length, reader)
    const fields: Json[] = []
    for (let i = 1; i < length; i++) fields.push(reader.value())
    const message = named(opcode, fields)
    // A snapshot follows, with the table of this seat.
    if (message.t === 'joined' || message.t === 'left') this.#tables.delete(message.room_id)
    return message
  }

  #stateFrame(opcode: number, length: number, reader: MsgpackReader): DecodedMessage {
    const at = {
      room_id: reader.value() as string,
      epoch: reader.value() as number,
      seq: reader.value() as number,
      checksum: reader.value() as number,
    }
    const announced = reader.value() as Announced | null
    const table = this.#tables.get(at.room_id)
    if (opcode === OPCODES['state.patch'])
      return { t: 'state.patch', ...at, delta: this.#patch(at, announced, length, reader) }
    const keys = (announced ?? []).slice(1) as string[]
    if (!table || table.epoch <= at.epoch)
      this.#tables.set(at.room_id, { epoch: at.epoch, seq: at.seq, keys })
    const body = reader.withKeys(keys)
    const state = body.value()
    return opcode === OPCODES['state.snapshot']
      ? { t: 'state.snapshot', ...at, state }
      : { t: 'state.resync', ...at, state, members: memberList(body.value()) }
  }

  /** The delta of a patch; undefined when nothing changed, and when patches before this one are missing. */
  #patch(
    { room_id, epoch, seq }: PatchAt,
    announced: Announced | null,
    length: number,
    reader: MsgpackReader,
  ): Delta | undefined {
    const table = this.#tables.get(room_id)
    if (!table || epoch < table.epoch) return undefined
    const [from, ...fresh] = announced ?? [table.keys.length]
    if (from > table.keys.length) return undefined
    const keys = fresh.length > 0 ? [...table.keys.slice(0, from), ...fresh] : table.keys
    try {
      const delta = length > 6 ? readDelta(reader.withKeys(keys)) : undefined
      // A patch that comes late, or again after a resume, announces what is known already.
      if (epoch > table.epoch || seq > table.seq) this.#tables.set(room_id, { epoch, seq, keys })
      return delta
    } catch (error) {
      if (error instanceof UnknownKey) return undefined
      throw error
    }
  }
}

function readDelta(reader: MsgpackReader): Delta {
  const change = readChange(reader)
  if (change === REMOVE) throw new ProtocolError('a patch removes the state itself')
  return change
}

function readChange(reader: MsgpackReader): Change {
  const code = reader.peek()
  if (isMap(code)) return reader.nested(() => readObjectDelta(reader))
  if (isArray(code)) return reader.nested(() => readArrayOrValue(reader))
  const value = reader.value()
  return code === NIL ? REMOVE : new Replace(value)
}

function readObjectDelta(reader: MsgpackReader): ObjectDelta {
  const changes = new Map<string, Change>()
  for (let size = reader.map(); size > 0; size--) changes.set(reader.key(), readChange(reader))
  return new ObjectDelta(changes)
}

/** `[value]` replaces; `[changes, splices]` changes an array. */
function readArrayOrValue(reader: MsgpackReader): Replace | ArrayDelta {
  if (reader.array() === 1) return new Replace(reader.value())
  const changes = new Map<number, Delta>()
  for (let size = reader.map(); size > 0; size--) changes.set(reader.value() as number, readDelta(reader))
  const splices: Splice[] = []
  for (let rest = reader.array(); rest >= 3; rest -= 3)
    splices.push({
      at: reader.value() as number,
      remove: reader.value() as number,
      insert: reader.value() as Json[],
    })
  return new ArrayDelta(changes, splices)
}

const memberList = (value: Json): MemberInfo[] =>
  (value as [string, string | null][]).map(([member_id, sub]) => ({ member_id, sub }))

/** A message of the client as positional fields; what is not there is left out or nil. */
function positions(message: ClientMessage): Json[] {
  const opcode = OPCODES[message.t === 'state.resync' ? 'state.resync.request' : message.t]
  switch (message.t) {
    case 'hello':
      return [
        opcode,
        message.project_id,
        'token' in message
          ? message.token
          : [
              message.resume.session_id,
              message.resume.resume_token,
              message.resume.rooms.map(({ room_id, epoch, seq, settled }) =>
                trimmed([room_id, epoch, seq, settled]),
              ),
            ],
      ]
    case 'join':
      return [opcode, message.ref, message.room_type, message.options]
    case 'leave':
      return [opcode, message.ref, message.room_id]
    case 'message':
      return trimmed([opcode, message.room_id, message.type, message.data, message.ref, message.settled])
    case 'state.resync':
      return [opcode, message.room_id, message.have_seq, RESYNC_REASONS.indexOf(message.reason)]
    case 'ping':
      return [opcode, message.at]
    case 'token':
      return [opcode, message.token]
  }
}

/** Without what is absent at the end; elsewhere nil stands for it. */
function trimmed(fields: readonly (Json | undefined)[]): Json[] {
  const length = fields.findLastIndex((field) => field !== undefined) + 1
  return fields.slice(0, length).map((field) => field ?? null)
}

/** A message of the server by its fields' names. The server is trusted to send what it must. */
function named(opcode: Json, fields: Json[]): DecodedMessage {
  const [a, b, c, d, e, f, g, h, i] = fields as never[]
  switch (opcode) {
    case OPCODES.welcome:
      return {
        t: 'welcome',
        session_id: a!,
        resume_token: b!,
        resumed: c!,
        resume_ttl_seconds: d!,
        heartbeat_seconds: e!,
        node_id: f!,
        server_time: g!,
        limits: Object.fromEntries(LIMITS.map((name, n) => [name, (h! as number[])[n]])) as never,
        ...(i
          ? { rooms: (i as [string, boolean][]).map(([room_id, resumed]) => ({ room_id, resumed })) }
          : {}),
      }
    case OPCODES.joined:
      return { t: 'joined', ref: a!, room_id: b!, member_id: c!, members: memberList(d!) }
    case OPCODES.left:
      return { t: 'left', ref: a!, room_id: b! }
    case OPCODES.event:
      return { t: 'event', room_id: a!, epoch: b!, seq: c!, name: d!, data: e! }
    case OPCODES['room.joined']:
      return { t: 'room.joined', room_id: a!, epoch: b!, seq: c!, member_id: d!, sub: e! }
    case OPCODES['room.left']:
      return {
        t: 'room.left',
        room_id: a!,
        epoch: b!,
        seq: c!,
        member_id: d!,
        sub: e!,
        reason: LEAVE_REASONS[f!]!,
      }
    case OPCODES.ack:
      return { t: 'ack', room_id: a!, ref: b! }
    case OPCODES.error:
      return {
        t: 'error',
        ...(a === null ? {} : { ref: a! }),
        ...(b === null ? {} : { room_id: b! }),
        code: c! as ErrorCode,
        message: d!,
        retryable: e!,
      }
    case OPCODES.draining:
      return { t: 'draining', reconnect_in_ms: a! }
    case OPCODES.pong:
      return { t: 'pong', at: a!, server_time: b! }
  }
  throw new ProtocolError(`the server sent a message with the unknown opcode ${String(opcode)}`)
}
