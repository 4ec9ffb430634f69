import {
  type Announcement,
  type Json,
  type Limits,
  type Member,
  type Operation,
  ProtocolFault,
  type ServerName,
  type WireValue,
} from './messages.ts'
import { ERROR_CODES } from './tables.ts'

/** Reads one field: the value on the wire in, the value of the message out; throws ProtocolFault. */
type Reader = (value: unknown) => unknown

/** A reader for each subprotocol, where they differ. */
interface Field {
  readonly name: string
  readonly optional?: true
  readonly json: Reader
  readonly msgpack: Reader
}

function fault(expected: string, value: unknown): never {
  throw new ProtocolFault(`${expected} was expected, not ${String(JSON.stringify(value)).slice(0, 200)}`)
}

const text: Reader = (value) => (typeof value === 'string' && value !== '' ? value : fault('a text', value))
const flag: Reader = (value) => (typeof value === 'boolean' ? value : fault('true or false', value))
const number: Reader = (value) => (Number.isFinite(value) ? value : fault('a number', value))
const count: Reader = (value) =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? value : fault('an integer from 0', value)
const ref: Reader = (value) => (count(value) === 0 ? fault('an integer from 1', value) : value)
const uint32: Reader = (value) =>
  (count(value) as number) < 2 ** 32 ? value : fault('an integer below 2^32', value)
const sub: Reader = (value) => (value === null ? null : text(value))
const time: Reader = (value) =>
  typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(value)
    ? value
    : fault('RFC 3339 in UTC with milliseconds', value)
const errorCode: Reader = (value) =>
  typeof value === 'string' && Object.hasOwn(ERROR_CODES, value) ? value : fault('a code of §11', value)

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : fault('an array', value)
}

function record(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : fault('an object', value)
}

/** Names for the elements of a nested array. */
function named(value: unknown, names: readonly string[]): Record<string, unknown> {
  const elements = list(value)
  if (elements.length < names.length) fault(`[${names.join(', ')}]`, value)
  return Object.fromEntries(names.map((name, index) => [name, elements[index]]))
}

function member(value: unknown): Member {
  const { member_id: memberId, sub: id } = record(value)
  return { member_id: text(memberId) as string, sub: sub(id) as string | null }
}

function limits(value: unknown): Limits {
  const fields = record(value)
  const read = (name: keyof Limits) => ref(fields[name]) as number
  return {
    max_message_bytes: read('max_message_bytes'),
    messages_per_second: read('messages_per_second'),
    message_burst: read('message_burst'),
    max_rooms: read('max_rooms'),
  }
}

function resumedRoom(value: unknown): { room_id: string; resumed: boolean } {
  const { room_id: roomId, resumed } = record(value)
  return { room_id: text(roomId) as string, resumed: flag(resumed) as boolean }
}

function operation(value: unknown): Operation {
  const fields = record(value)
  if (typeof fields.path !== 'string') fault('an operation with a path', value)
  if (fields.op !== 'remove' && !Object.hasOwn(fields, 'value')) fault('an operation with a value', value)
  return fields as unknown as Operation
}

function announcement(value: unknown): Announcement {
  const [from, ...keys] = list(value)
  return { from: count(from) as number, keys: keys.map((key) => plainKey(key)) }
}

function plainKey(value: unknown): string {
  return typeof value === 'string' ? value : fault('a key as a string', value)
}

/** A MessagePack value whose maps may have string keys only. */
function plain(value: WireValue): Json {
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.map(plain)
  return Object.fromEntries(
    Object.entries(value).map(([tagged, entry]) =>
      tagged.startsWith('$') ? [tagged.slice(1), plain(entry)] : fault('a string as key', tagged),
    ),
  )
}

const REASONS = ['left', 'session_ended', 'kicked', 'closed']
const LIMITS = ['max_message_bytes', 'messages_per_second', 'message_burst', 'max_rooms']

function both(name: string, reader: Reader): Field {
  return { name, json: reader, msgpack: reader }
}
function optional(field: Field): Field {
  return { ...field, optional: true }
}

const members: Field = {
  name: 'members',
  json: (value) => list(value).map(member),
  msgpack: (value) => list(value).map((pair) => member(named(pair, ['member_id', 'sub']))),
}

const position = [both('room_id', text), both('epoch', count), both('seq', count)]
const stamp = [...position, both('checksum', uint32)]

/** Every message of the server: its opcode, and its fields in the order of docs/protocol.md §4. */
export const SHAPES: Readonly<Record<ServerName, { opcode: number; fields: readonly Field[] }>> = {
  welcome: {
    opcode: 16,
    fields: [
      both('session_id', text),
      both('resume_token', text),
      both('resumed', flag),
      both('resume_ttl_seconds', count),
      both('heartbeat_seconds', number),
      both('node_id', text),
      both('server_time', time),
      { name: 'limits', json: limits, msgpack: (value) => limits(named(value, LIMITS)) },
      optional({
        name: 'rooms',
        json: (value) => list(value).map(resumedRoom),
        msgpack: (value) => list(value).map((pair) => resumedRoom(named(pair, ['room_id', 'resumed']))),
      }),
    ],
  },
  joined: { opcode: 17, fields: [both('ref', ref), both('room_id', text), both('member_id', text), members] },
  left: { opcode: 18, fields: [both('ref', ref), both('room_id', text)] },
  'state.snapshot': { opcode: 19, fields: stamp },
  'state.resync': { opcode: 20, fields: [...stamp, members] },
  'state.patch': { opcode: 21, fields: stamp },
  event: {
    opcode: 22,
    fields: [
      ...position,
      both('name', text),
      {
        name: 'data',
        json: (value) => (value === undefined ? fault('data', value) : value),
        msgpack: (value) => plain(value as WireValue),
      },
    ],
  },
  'room.joined': { opcode: 23, fields: [...position, both('member_id', text), both('sub', sub)] },
  'room.left': {
    opcode: 24,
    fields: [
      ...position,
      both('member_id', text),
      both('sub', sub),
      {
        name: 'reason',
        json: (value) => (REASONS.includes(value as string) ? value : fault(REASONS.join(' | '), value)),
        msgpack: (value) => REASONS[value as number] ?? fault('a reason from 0 to 3', value),
      },
    ],
  },
  ack: { opcode: 25, fields: [both('room_id', text), both('ref', ref)] },
  error: {
    opcode: 26,
    fields: [
      optional(both('ref', ref)),
      optional(both('room_id', text)),
      both('code', errorCode),
      both('message', text),
      both('retryable', flag),
    ],
  },
  draining: { opcode: 27, fields: [both('reconnect_in_ms', count)] },
  pong: { opcode: 28, fields: [both('at', number), both('server_time', time)] },
}

/** Reads the fields of a message of `t`; `value` gives the field on the wire, undefined when it is absent. */
export function readFields(
  t: ServerName,
  codec: 'json' | 'msgpack',
  value: (field: string, index: number) => unknown,
): Record<string, unknown> {
  const message: Record<string, unknown> = { t }
  for (const [index, field] of SHAPES[t].fields.entries()) {
    const raw = value(field.name, index)
    if (field.optional && (raw === undefined || raw === null)) continue
    try {
      message[field.name] = field[codec](raw)
    } catch (problem) {
      throw new ProtocolFault(`${t}.${field.name}: ${(problem as Error).message}`)
    }
  }
  if (t === 'error' && message.retryable !== ERROR_CODES[message.code as string]) {
    throw new ProtocolFault(
      `error ${message.code} with retryable ${message.retryable}: §11 says the opposite`,
    )
  }
  return message
}

export { announcement, list, operation, record }
