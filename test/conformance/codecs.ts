import { readFileSync } from 'node:fs'
import { decode, ExtensionCodec, encode } from '@msgpack/msgpack'
import {
  type Announcement,
  type ClientMessage,
  type Json,
  type Limits,
  type ListedRoom,
  type MemberInfo,
  type Operation,
  ProtocolFault,
  type ServerMessage,
  type ServerName,
  type WireLayer,
  type WireValue,
} from './messages.ts'

/** Error codes of the tables of the pages, as `code true` or `code false`: whether it is retryable. */
const ERRORS: ReadonlySet<string> = new Set(
  ['client', 'matchmaking'].flatMap((page) => {
    const text = readFileSync(new URL(`../../docs/${page}.md`, import.meta.url), 'utf8')
    const cells = text.matchAll(/^\| (`\w+`(?: ↻)?(?:, `\w+`(?: ↻)?)*) \|/gm)
    return [...cells].flatMap(([, cell = '']) =>
      [...cell.matchAll(/`(\w+)`( ↻)?/g)].map(([, code, mark]) => `${code} ${mark !== undefined}`),
    )
  }),
)

/** Returns the field of a message for the value on the wire. Throws ProtocolFault. */
type Reader = (value: unknown) => unknown

/** A field with its reader in each subprotocol. */
interface Field {
  readonly name: string
  readonly optional?: true
  readonly addressed?: true
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
  ERRORS.has(`${value} true`) || ERRORS.has(`${value} false`)
    ? value
    : fault('an error code of the pages', value)

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : fault('an array', value)
}

function record(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : fault('an object', value)
}

/** Returns the elements of a nested array by these names. `last`: an element that may be absent. */
function named(value: unknown, names: readonly string[], last?: string): Record<string, unknown> {
  const elements = list(value)
  if (elements.length < names.length) fault(`[${names.join(', ')}]`, value)
  const all = last === undefined ? names : [...names, last]
  return Object.fromEntries(all.map((name, index) => [name, elements[index]]))
}

function member(value: unknown): MemberInfo {
  const { member_id: memberId, sub: id, connected, spectator = null } = record(value)
  return {
    member_id: text(memberId) as string,
    sub: sub(id) as string | null,
    connected: flag(connected) as boolean,
    ...(spectator !== null && { spectator: flag(spectator) as boolean }),
  }
}

const data: Field = {
  name: 'data',
  json: (value) => (value === undefined ? fault('data', value) : value),
  msgpack: (value) => plain(value as WireValue),
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

function operation(value: unknown): Operation {
  const fields = record(value)
  if (typeof fields.path !== 'string') fault('an operation with a path', value)
  if (fields.op !== 'remove' && !Object.hasOwn(fields, 'value')) fault('an operation with a value', value)
  return fields as Operation
}

function announcement(value: unknown): Announcement {
  const [from, ...keys] = list(value)
  return { from: count(from) as number, keys: keys.map((key) => plainKey(key)) }
}

function plainKey(value: unknown): string {
  return typeof value === 'string' ? value : fault('a key as a string', value)
}

/** Converts a MessagePack value whose maps have only string keys. */
function plain(value: WireValue): Json {
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.map(plain)
  return Object.fromEntries(
    Object.entries(value).map(([tagged, entry]) =>
      tagged.startsWith('$') ? [tagged.slice(1), plain(entry)] : fault('a string as key', tagged),
    ),
  )
}

const REASONS = ['left', 'session_ended', 'kicked', 'closed', 'replaced']
const LIMITS = ['max_message_bytes', 'messages_per_second', 'message_burst', 'max_rooms']

function both(name: string, reader: Reader): Field {
  return { name, json: reader, msgpack: reader }
}
function optional(field: Field): Field {
  return { ...field, optional: true }
}

function choice(name: string, names: readonly string[]): Field {
  return {
    name,
    json: (value) => (names.includes(value as string) ? value : fault(names.join(' | '), value)),
    msgpack: (value) => names[value as number] ?? fault(`an integer below ${names.length}`, value),
  }
}

const members: Field = {
  name: 'members',
  json: (value) => list(value).map(member),
  msgpack: (value) =>
    list(value).map((pair) => member(named(pair, ['member_id', 'sub', 'connected'], 'spectator'))),
}

const match: Field = {
  name: 'match',
  json: (value) => ({ room_id: text(record(value).room_id), options: record(record(value).options) }),
  msgpack(value) {
    const { room_id: roomId, options } = named(value, ['room_id', 'options'])
    return { room_id: text(roomId), options: record(plain(options as WireValue)) }
  },
}

const LISTED = ['room_id', 'players', 'max_players', 'reserved', 'created_at', 'data']

function listedRoom(value: Record<string, unknown>): ListedRoom {
  const max = value.max_players ?? undefined
  const spectators = value.spectators ?? undefined
  return {
    room_id: text(value.room_id) as string,
    players: count(value.players) as number,
    ...(max !== undefined && { max_players: count(max) as number }),
    reserved: count(value.reserved) as number,
    created_at: time(value.created_at) as string,
    data: value.data as Json,
    ...(spectators !== undefined && { spectators: count(spectators) as number }),
  }
}

const listedRooms = (name: string): Field => ({
  name,
  optional: true,
  json: (value) => list(value).map((room) => listedRoom(record(room))),
  msgpack: (value) =>
    list(value).map((row) => {
      const room = named(row, LISTED, 'spectators')
      return listedRoom({ ...room, data: plain(room.data as WireValue) })
    }),
})

/** In MessagePack, a message has no element for its room: `RoomContext` knows the room. */
const about: Field = { name: 'room_id', json: text, msgpack: text, addressed: true }
const stamp = [about, both('epoch', count), both('seq', count), both('checksum', uint32)]
const [, epoch, ...behind] = stamp

/** Opcode and fields of each message of the server, in the order of docs/protocol.md. */
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
    ],
  },
  joined: {
    opcode: 17,
    fields: [
      both('request_id', ref),
      both('room_id', text),
      both('member_id', text),
      optional(both('code', text)),
    ],
  },
  'state.snapshot': { opcode: 19, fields: [...stamp, members] },
  token: { opcode: 18, fields: [both('within_seconds', count)] },
  'state.resync': { opcode: 20, fields: [...stamp, members] },
  'state.patch': { opcode: 21, fields: [about, optional(epoch!), ...behind] },
  event: {
    opcode: 22,
    fields: [about, both('name', text), data],
  },
  member: {
    opcode: 23,
    fields: [
      about,
      both('member_id', text),
      both('sub', sub),
      optional(both('connected', flag)),
      optional(both('spectator', flag)),
    ],
  },
  spectators: { opcode: 34, fields: [about, both('count', count)] },
  left: {
    opcode: 35,
    fields: [
      both('room_id', text),
      choice('reason', REASONS),
      optional(both('code', errorCode)),
      optional(both('message', text)),
      optional(match),
    ],
  },
  ack: { opcode: 25, fields: [about, both('ref', ref)] },
  reply: { opcode: 24, fields: [about, both('ref', ref), data] },
  error: {
    opcode: 26,
    fields: [
      both('code', errorCode),
      both('message', text),
      both('retryable', flag),
      optional(both('request_id', ref)),
      optional(both('room_id', text)),
      optional(both('ref', ref)),
      optional(match),
    ],
  },
  move: { opcode: 27, fields: [both('in_ms', count), optional(both('url', text))] },
  pong: { opcode: 28, fields: [both('at', number), both('server_time', time)] },
  moved: { opcode: 30, fields: [] },
  rooms: {
    opcode: 32,
    fields: [
      both('request_id', ref),
      listedRooms('rooms'),
      listedRooms('set'),
      optional(both('gone', (value) => list(value).map(count))),
      optional(both('at', (value) => list(value).map(count))),
    ],
  },
  found: {
    opcode: 33,
    fields: [
      both('request_id', ref),
      both('room_type', text),
      both('key', text),
      optional(both('create', flag)),
    ],
  },
}

/** Reads the fields of a message `t`. `value` returns a field on the wire, or undefined if the field is absent. */
function readFields(
  t: ServerName,
  codec: 'json' | 'msgpack',
  value: (field: string, index: number) => unknown,
): Record<string, unknown> {
  const message: Record<string, unknown> = { t }
  const fields = SHAPES[t].fields.filter(({ addressed }) => codec === 'json' || !addressed)
  for (const [index, field] of fields.entries()) {
    const raw = value(field.name, index)
    if (field.optional && (raw === undefined || raw === null)) continue
    try {
      message[field.name] = field[codec](raw)
    } catch (problem) {
      throw new ProtocolFault(`${t}.${field.name}: ${(problem as Error).message}`)
    }
  }
  if (t === 'error' && !ERRORS.has(`${message.code} ${message.retryable}`)) {
    throw new ProtocolFault(`error ${message.code} with retryable ${message.retryable}: no page has it`)
  }
  const { rooms, ...changes } = message
  const parts = ['set', 'gone', 'at'].filter((name) => name in changes)
  if (t === 'rooms' && parts.length !== (rooms === undefined ? 3 : 0))
    throw new ProtocolFault('rooms has either rooms, or set, gone and at')
  return message
}

export { announcement, list, operation, record }

/** Encodes a message in JSON (R1 of docs/protocol.md). */
export function encodeJson(message: ClientMessage): string {
  return JSON.stringify(message)
}

/** Decodes a text frame of the server. Undefined: an unknown message. */
export function decodeJson(frame: string): ServerMessage | undefined {
  const raw = record(JSON.parse(frame))
  if (typeof raw.t !== 'string') throw new ProtocolFault('a message is an object with t')
  if (!Object.hasOwn(SHAPES, raw.t)) return undefined
  const t = raw.t as ServerName
  const message = readFields(t, 'json', (field) => raw[field])
  if (t === 'state.patch') message.body = { codec: 'json', ops: list(raw.ops).map(operation) }
  else if (isState(t)) {
    if (raw.state === undefined) throw new ProtocolFault(`${t} without a state`)
    message.body = { codec: 'json', state: raw.state as Json }
  }
  if (isState(t)) message.layers = Object.entries(record(raw.layers ?? {})).map(layerInJson)
  return message as ServerMessage
}

const isState = (t: ServerName) => t === 'state.patch' || t === 'state.snapshot' || t === 'state.resync'

function layerInJson([name, value]: [string, unknown]): WireLayer {
  if (value === null) return { name }
  const fields = record(value)
  const checksum = uint32(fields.checksum) as number
  if ((fields.state === undefined) === (fields.ops === undefined)) fault('either a state or ops', value)
  const body =
    fields.ops === undefined
      ? { codec: 'json' as const, state: fields.state as Json }
      : { codec: 'json' as const, ops: list(fields.ops).map(operation) }
  return { name, change: { checksum, body } }
}

/** Reads `[number, name?]`, or `[number, name?, checksum, keys, change]`. */
function layerInMsgpack(value: WireValue): WireLayer {
  const [number, ...rest] = list(value) as WireValue[]
  const layer: WireLayer = { number: count(number) as number }
  if (typeof rest[0] === 'string') layer.name = text(rest.shift()) as string
  if (rest.length === 0) return layer
  const [checksum, keys, change] = rest
  if (change == null) fault('a change of a layer', value)
  const announced = keys == null ? null : announcement(keys)
  layer.change = { checksum: uint32(checksum) as number, body: { codec: 'msgpack', announced, change } }
  return layer
}

const layersInMsgpack = (value: WireValue | undefined) =>
  value == null ? [] : (list(value) as WireValue[]).map(layerInMsgpack)

const NAMES = new Map(Object.entries(SHAPES).map(([t, { opcode }]) => [opcode, t as ServerName]))

function elements(message: ClientMessage): unknown[] {
  switch (message.t) {
    case 'hello': {
      const features = message.features ? [message.features] : []
      if ('token' in message) return [0, message.project_id, message.token, ...features]
      const { session_id: sessionId, resume_token: resumeToken, rooms } = message.resume
      const positions = rooms.map(({ room_id: roomId, member_id: memberId, epoch, seq, settled }) => [
        roomId,
        memberId,
        epoch,
        seq,
        settled,
      ])
      return [0, message.project_id, [sessionId, resumeToken, positions], ...features]
    }
    case 'join': {
      const { request_id: id, room_type: type, options, create, watch } = message
      if (watch !== undefined) return [1, id, type, options ?? null, null, create ?? null, watch]
      if (create !== undefined) return [1, id, type, options ?? null, null, create]
      return [1, id, type, ...(options ? [options] : [])]
    }
    case 'leave':
      return [2, message.request_id, message.room_id]
    case 'message': {
      const { room_id: roomId, type, data, ref, settled } = message
      const head = [3, roomId, type, data]
      if (settled !== undefined) return [...head, ref ?? null, settled]
      return ref === undefined ? head : [...head, ref]
    }
    case 'state.resync':
      return [4, message.room_id, message.reason === 'sequence' ? 0 : 1]
    case 'ping':
      return [5, message.at]
    case 'token':
      return [6, message.token]
    case 'move':
      return [7]
    case 'goodbye':
      return [8]
    case 'rooms': {
      const { request_id: id, room_type: type, query, watch } = message
      if (watch !== undefined) return [9, id, type, query ?? null, watch]
      return [9, id, type, ...(query === undefined ? [] : [query])]
    }
    case 'rooms.end':
      return [10, message.request_id]
    case 'find': {
      if ('code' in message) return [11, message.request_id, message.code]
      const { room_type: type, query = null, options = null, not } = message.room
      return [11, message.request_id, [type, query, options, ...(not ? [not] : [])]]
    }
  }
}

/** Encodes a message in MessagePack (R28 of docs/protocol.md). */
export function encodeMsgpack(message: ClientMessage): Uint8Array {
  return encode(elements(message))
}

function tagged(key: unknown): string {
  if (typeof key === 'string') return `$${key}`
  if (Number.isSafeInteger(key) && (key as number) >= 0) return `#${key}`
  throw new ProtocolFault(`a key is a string or an index, not ${String(key)}`)
}

/** Decodes a MessagePack value. The keys of its maps are tagged. */
function decodeValue(bytes: Uint8Array): WireValue {
  checkShortest(bytes)
  return decode(bytes, {
    mapKeyConverter: tagged,
    keyDecoder: null,
    extensionCodec: DECIMALS,
  }) as WireValue
}

/** Returns the value of an extension of `type` (R30 of docs/protocol.md). Only the division rounds. */
function decimal(data: Uint8Array, type: number): number {
  const high = type % 16 < 8 ? type % 16 : (type % 16) - 16
  const mantissa = data.reduce((sum, byte) => sum * 256 + byte, high)
  return mantissa / 10 ** (1 + Math.floor(type / 16))
}

export const DECIMALS = new ExtensionCodec()
for (let type = 0; type < 64; type += 1) DECIMALS.register({ type, encode: () => null, decode: decimal })

/** Room that the frames of one connection leave out (R29 of docs/protocol.md). */
export class RoomContext {
  private room: string | undefined

  enter(room: unknown): void {
    this.room = text(room) as string
  }

  /** Adds the room that a frame leaves out. */
  complete(message: ServerMessage): ServerMessage {
    if (!SHAPES[message.t].fields.some(({ addressed }) => addressed)) return message
    if (this.room === undefined) throw new ProtocolFault(`${message.t} before a frame that names a room`)
    return { ...message, room_id: this.room } as ServerMessage
  }
}

/** Decodes a binary frame of the server. Undefined: an unknown message, or the frame that names the room of the following frames. */
export function decodeMsgpack(frame: Uint8Array, context: RoomContext): ServerMessage | undefined {
  const [opcode, ...fields] = list(decodeValue(frame)) as WireValue[]
  if (opcode === 29) {
    context.enter(fields[0])
    return undefined
  }
  const message = readMsgpack(opcode, fields)
  return message && context.complete(message)
}

function readMsgpack(opcode: WireValue | undefined, fields: WireValue[]): ServerMessage | undefined {
  const t = NAMES.get(opcode as number)
  if (t === undefined) {
    if (typeof opcode !== 'number') throw new ProtocolFault(`an opcode is an integer, not ${String(opcode)}`)
    return undefined
  }
  // `epoch`, `seq` and `checksum`.
  const [head, rest] = [fields.slice(0, 3), fields.slice(3)]
  if (t === 'state.patch') {
    const [keys, change, layers] = rest
    const announced = keys == null ? null : announcement(keys)
    const body = { codec: 'msgpack', announced, change: change ?? undefined }
    const message = readFields(t, 'msgpack', (_, index) => fields[index])
    return { ...message, body, layers: layersInMsgpack(layers) } as ServerMessage
  }
  if (isState(t)) {
    const [keys, state, members, layers] = rest
    const message = readFields(t, 'msgpack', (_, index) => [...head, members][index])
    if (state === undefined) throw new ProtocolFault(`${t} without a state`)
    const body = { codec: 'msgpack', announced: announcement(keys), state }
    return { ...message, body, layers: layersInMsgpack(layers) } as ServerMessage
  }
  return readFields(t, 'msgpack', (_, index) => fields[index]) as ServerMessage
}

/**
 * Throws ProtocolFault unless a MessagePack value is encoded as level 4 of docs/protocol.md requires of the server: integers from −2^31 to
 * 2^32 − 1 as integers, and other numbers in the shortest exact form.
 * Formats: https://github.com/msgpack/msgpack/blob/master/spec.md
 */
function checkShortest(bytes: Uint8Array): void {
  const walk = new Walk(bytes)
  walk.value(0)
  if (walk.at !== bytes.length) throw new ProtocolFault(`${bytes.length - walk.at} bytes after the value`)
}

class Walk {
  at = 0
  private readonly view: DataView

  constructor(bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  value(depth: number): void {
    if (depth > 100) throw new ProtocolFault('more than 100 levels')
    const head = this.view.getUint8(this.at++)
    if (head <= 0x7f || head >= 0xe0 || head === 0xc0 || head === 0xc2 || head === 0xc3) return
    if (head <= 0x8f) this.values((head & 0x0f) * 2, depth)
    else if (head <= 0x9f) this.values(head & 0x0f, depth)
    else if (head <= 0xbf) this.skip(head & 0x1f)
    else this.long(head, depth)
  }

  /** Reads a value whose first byte is the format. */
  private long(head: number, depth: number): void {
    switch (head) {
      case 0xca:
        this.shortest(head, this.read('getFloat32'), 5)
        break
      case 0xcb:
        this.shortest(head, this.read('getFloat64'), 9)
        break
      case 0xd4:
      case 0xd5:
      case 0xd6: {
        const size = 2 ** (head - 0xd4)
        const type = this.read('getUint8')
        if (type > 63) throw new ProtocolFault(`an extension of type ${type}`)
        const data = new Uint8Array(this.view.buffer, this.view.byteOffset + this.at, size)
        this.at += size
        this.shortest(head, decimal(data, type), 2 + size, 1 + (type >> 4))
        break
      }
      case 0xcc:
        this.least(head, this.read('getUint8'), 0x80)
        break
      case 0xcd:
        this.least(head, this.read('getUint16'), 0x100)
        break
      case 0xce:
        this.least(head, this.read('getUint32'), 0x10000)
        break
      case 0xd0:
        this.least(head, -this.read('getInt8'), 0x21)
        break
      case 0xd1:
        this.least(head, -this.read('getInt16'), 0x81)
        break
      case 0xd2:
        this.least(head, -this.read('getInt32'), 0x8001)
        break
      case 0xd9:
        this.text(head, this.read('getUint8'), 0x20)
        break
      case 0xda:
        this.text(head, this.read('getUint16'), 0x100)
        break
      case 0xdb:
        this.text(head, this.read('getUint32'), 0x10000)
        break
      case 0xdc:
        this.many(head, this.read('getUint16'), 0x10, 1, depth)
        break
      case 0xdd:
        this.many(head, this.read('getUint32'), 0x10000, 1, depth)
        break
      case 0xde:
        this.many(head, this.read('getUint16'), 0x10, 2, depth)
        break
      case 0xdf:
        this.many(head, this.read('getUint32'), 0x10000, 2, depth)
        break
      default:
        throw new ProtocolFault(
          `0x${head.toString(16)}: bin, other extensions and 64-bit integers are not written`,
        )
    }
  }

  private read(
    getter: `get${'Uint8' | 'Uint16' | 'Uint32' | 'Int8' | 'Int16' | 'Int32' | 'Float32' | 'Float64'}`,
  ): number {
    const value = this.view[getter](this.at)
    this.at += Number(getter.replace(/\D/g, '')) / 8
    return value
  }

  /** Checks a number that is not an integer on the wire. `size`: its bytes. `places`: decimal places of an extension. */
  private shortest(head: number, value: number, size: number, places?: number): void {
    if (!Number.isFinite(value)) throw new ProtocolFault(`${value} is no JSON value`)
    const form = `0x${head.toString(16)} for ${value}`
    if (Number.isInteger(value) && value >= -(2 ** 31) && value < 2 ** 32 && !Object.is(value, -0)) {
      throw new ProtocolFault(`${form}: integers from −2^31 to 2^32 − 1 are integers`)
    }
    const digits = /^(-?\d+)(?:\.(\d{1,4}))?$/.exec(String(value))
    const mantissa = digits ? Number(digits[1] + (digits[2] ?? '0')) : Number.POSITIVE_INFINITY
    const fits = (bits: number) => mantissa >= -(2 ** (bits - 1)) && mantissa < 2 ** (bits - 1)
    const decimals = fits(12) ? 3 : fits(20) ? 4 : fits(36) ? 6 : 9
    const least = Math.min(decimals, Math.fround(value) === value ? 5 : 9)
    if (size !== least) throw new ProtocolFault(`${form}: ${size} bytes, although ${least} are enough`)
    if (places !== undefined && places !== (digits?.[2]?.length ?? 1)) {
      throw new ProtocolFault(`${form}: a decimal of ${places} places, more than it has`)
    }
  }

  private least(head: number, value: number, least: number): void {
    if (value < least) throw new ProtocolFault(`0x${head.toString(16)} for ${value}: not the shortest form`)
  }

  private text(head: number, length: number, least: number): void {
    this.least(head, length, least)
    this.skip(length)
  }

  private many(head: number, size: number, least: number, values: number, depth: number): void {
    this.least(head, size, least)
    this.values(size * values, depth)
  }

  private values(count: number, depth: number): void {
    for (let index = 0; index < count; index += 1) this.value(depth + 1)
  }

  private skip(length: number): void {
    this.at += length
    if (this.at > this.view.byteLength) throw new ProtocolFault('a text longer than the frame')
  }
}
