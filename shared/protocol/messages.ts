import type { Json, JsonObject } from '../json.ts'
import type { Operation } from '../sync/delta.ts'
import type { ErrorCode } from './error-codes.ts'
import {
  ADDRESS,
  COUNT,
  choice,
  either,
  FLAG,
  list,
  message,
  NUMBER,
  OPTIONS,
  optional,
  orNil,
  REF,
  record,
  type Table,
  text,
  typed,
  VALUE,
  type Values,
} from './fields.ts'

/** The subprotocols a socket can speak: same messages, same meaning. The first is what a client that names none gets. */
export const SUBPROTOCOLS = ['roomful.v1.json', 'roomful.v1.msgpack'] as const
export type Subprotocol = (typeof SUBPROTOCOLS)[number]

/** Lengths of strings in UTF-16 code units, as JavaScript counts them, and of lists. */
export const MAX = {
  id: 128,
  token: 8192,
  room_type: 64,
  key: 128,
  room_id: 64 + 1 + 128,
  type: 64,
  rooms: 1024,
  /** Messages in one frame. */
  batch: 32,
  feature: 32,
  features: 32,
  /** Messages of one member whose replies it may not know. */
  requests: 32,
  /** A code as a player types it. */
  code: 32,
  /** Rooms that a `find` leaves out. */
  not: 64,
}

/** Reasons of a client's `state.resync`. */
const RESYNC_REASONS = ['sequence', 'checksum'] as const
export type ResyncReason = (typeof RESYNC_REASONS)[number]

/** Changes of a membership. */
const MEMBER_STATUSES = ['joined', 'connected', 'disconnected', 'left'] as const
export type MemberStatus = (typeof MEMBER_STATUSES)[number]

/** Why a member left. */
const DEPARTURE_REASONS = ['left', 'session_ended', 'kicked', 'closed', 'replaced'] as const
export type DepartureReason = (typeof DEPARTURE_REASONS)[number]

const RESUME_POSITION = {
  room_id: text(MAX.room_id),
  member_id: text(MAX.id),
  epoch: COUNT,
  seq: COUNT,
  settled: COUNT,
}

/** One client in one room, as the others see it. `sub` is the player's id from the token, null when it carries none. */
const MEMBER = { member_id: text(), sub: typed<string | null>(text()) }
const MEMBER_INFO = { ...MEMBER, connected: FLAG }

/** What the server will accept; a client that stays below never meets `rate_limited` or 4008. */
const LIMIT_FIELDS = {
  max_message_bytes: COUNT,
  messages_per_second: NUMBER,
  message_burst: NUMBER,
  max_rooms: COUNT,
}

/** One room in a list, as players see it. */
const LISTED_ROOM = {
  room_id: text(),
  members: COUNT,
  /** Absent: no limit. */
  max_members: orNil(COUNT),
  /** Seats that are kept for players who have not joined yet. */
  reserved: COUNT,
  created_at: text(),
  data: VALUE,
}

/** Where a room is after one flush. */
const IN_ROOM = { room_id: ADDRESS, epoch: COUNT, seq: COUNT }
/** What every frame of the state stream begins with. In MessagePack the keys that it announces come behind (R41 of docs/protocol.md). */
export const STREAM_HEAD = { ...IN_ROOM, checksum: COUNT }
/** The same of a hidden layer's. */
export const LAYER_HEAD = { ...STREAM_HEAD, layer: text() }

/**
 * What a client sends. A field is one entry here: its place is its place in MessagePack, its type and its check follow from what it is.
 * Fields are added at the end of a message, as `optional`: neither side may count on the other's knowing them.
 */
export const CLIENT_MESSAGES = {
  hello: message(0, {
    project_id: text(MAX.id),
    credential: either(
      ['token', text(MAX.token)],
      [
        'resume',
        record({
          session_id: text(MAX.id),
          resume_token: text(MAX.token),
          rooms: list(record(RESUME_POSITION), MAX.rooms),
        }),
      ],
    ),
    /** What this connection's client understands beyond what every client does: `layers`, and it may name others, of other versions. */
    features: optional(list(text(MAX.feature), MAX.features)),
  }),
  join: message(1, {
    request_id: REF,
    room_type: text(MAX.room_type),
    options: OPTIONS,
    /** The client had a seat there, and joins again because its session is lost: no other session of the player loses a seat to it. */
    rejoin: optional(FLAG),
    /** False: the join makes no room. */
    create: optional(FLAG),
  }),
  leave: message(2, { request_id: REF, room_id: text(MAX.room_id) }),
  message: message(3, {
    room_id: text(MAX.room_id),
    type: text(MAX.type),
    data: VALUE,
    ref: optional(REF),
    /** The highest ref up to which the client knows every outcome in this room; required with `ref`. */
    settled: optional(COUNT),
  }),
  'state.resync': message(4, { room_id: text(MAX.room_id), reason: choice(RESYNC_REASONS) }),
  ping: message(5, { at: NUMBER }),
  token: message(6, { token: text(MAX.token) }),
  /** Ends the session. Its members leave. */
  goodbye: message(8, {}),
  /** Asks for the rooms of a list. `watch`: until `rooms.end`, they come again after each change. */
  rooms: message(9, {
    request_id: REF,
    room_type: text(MAX.room_type),
    query: optional(VALUE),
    watch: optional(FLAG),
  }),
  'rooms.end': message(10, { request_id: REF }),
  /** Asks which room to join: the one with a code, or one that matches a query or will be made. */
  find: message(11, {
    request_id: REF,
    by: either(
      ['code', text(MAX.code)],
      [
        'room',
        record({
          room_type: text(MAX.room_type),
          query: optional(VALUE),
          /** Options of the join that follows. Clients with the same query and options can share a new room. */
          options: optional(VALUE),
          /** Ids of rooms that the client does not want, or that have refused it. */
          not: optional(list(text(MAX.room_id), MAX.not)),
        }),
      ],
    ),
  }),
} satisfies Table

/** What the server sends, but for the state streams. */
export const SERVER_MESSAGES = {
  welcome: message(16, {
    session_id: text(),
    resume_token: text(),
    resumed: FLAG,
    resume_ttl_seconds: NUMBER,
    heartbeat_seconds: NUMBER,
    /** Whole seconds for which the session's token is still valid. */
    token_seconds: COUNT,
    node_id: text(),
    server_time: text(),
    limits: record(LIMIT_FIELDS),
  }),
  joined: message(17, { request_id: REF, room_id: text(), member_id: text(), code: optional(text()) }),
  /** A fresh token is accepted. */
  token: message(18, { token_seconds: COUNT }),
  event: message(22, { ...IN_ROOM, name: text(), data: VALUE }),
  /** A change of the members. `reason`, and in words for the player `message`: only of a member that left. */
  member: message(23, {
    ...IN_ROOM,
    ...MEMBER,
    status: choice(MEMBER_STATUSES),
    reason: optional(choice(DEPARTURE_REASONS)),
    message: optional(text()),
  }),
  reply: message(24, { room_id: ADDRESS, ref: REF, data: VALUE }),
  ack: message(25, { room_id: ADDRESS, ref: REF }),
  error: message(26, {
    code: typed<ErrorCode>(text()),
    message: text(),
    retryable: FLAG,
    request_id: optional(REF),
    room_id: optional(text()),
    ref: optional(REF),
  }),
  /** `url`: undefined for the address that the client was given. */
  move: message(27, { in_ms: NUMBER, url: optional(text()) }),
  pong: message(28, { at: NUMBER, server_time: text() }),
  rooms: message(32, { request_id: REF, rooms: list(record(LISTED_ROOM)) }),
  found: message(33, { request_id: REF, room_id: text() }),
} satisfies Table

/** All that a client may know of a room at one seq: the state, and everyone in the room. They replace what the client has. */
const WHOLE = { ...STREAM_HEAD, state: VALUE, members: list(record(MEMBER_INFO)) }

/** The state stream of a room and those of its hidden layers; `RoomEncoder` and `LayerEncoder` write them. */
export const STREAM_MESSAGES = {
  'state.snapshot': message(19, WHOLE),
  'state.resync': message(20, WHOLE),
  'state.patch': message(21, { ...STREAM_HEAD, ops: typed<Operation[]>(VALUE) }),
  /** `state`: an object with the layer's values at their paths from the root of the room's state. Without it and a checksum: the layer is gone. */
  'layer.state': message(30, { ...IN_ROOM, checksum: orNil(COUNT), layer: text(), state: optional(VALUE) }),
  'layer.patch': message(31, { ...LAYER_HEAD, ops: typed<Operation[]>(VALUE) }),
} satisfies Table

type MessageOf<T extends Table> = {
  [N in keyof T]: Values<T[N]['fields']> extends infer V ? (V extends unknown ? { t: N } & V : never) : never
}[keyof T]

/** In MessagePack, the frame `[7, message, …]`: messages of a client, which are handled as if each had come in a frame of its own. */
export const BATCH_OPCODE = 7

/**
 * In MessagePack, the frame `[29, room_id]`: which room the frames behind it are about, up to the next of its kind. So those can be the same
 * bytes for every member and have no room in them: a client is in one room, mostly, and gets one such frame.
 */
export const ROOM_OPCODE = 29
/**
 * In MessagePack, an epoch that the client knows is written as its remainder by this. Epochs are milliseconds since 1970: any other remainder
 * reads as an epoch that is long over.
 */
export const SHORT_EPOCHS = 128

/** A message that says in MessagePack what it is about by the room frame before it. */
export type AddressedMessage = Extract<PlainMessage, { t: 'event' | 'member' | 'ack' | 'reply' }>
/** A message of one flush. */
export type FlushMessage = Extract<AddressedMessage, { t: 'event' | 'member' }>

/** What a client sends. */
export type ClientMessage = MessageOf<typeof CLIENT_MESSAGES>
/** What the server sends, but for the state stream. */
export type PlainMessage = MessageOf<typeof SERVER_MESSAGES>
/** What the server sends. */
export type ServerMessage = PlainMessage | MessageOf<typeof STREAM_MESSAGES>

/** Where a resuming client stands in one room: the last flush it has applied, and the ref up to which it knows every outcome. */
export type ResumePosition = Values<typeof RESUME_POSITION>
/** Options of a join: `key` names the instance, the rest belongs to the room type. */
export type JoinOptions = JsonObject & { readonly key?: string }
export type MemberInfo = Values<typeof MEMBER_INFO>
export type ListedRoom = Values<typeof LISTED_ROOM>
export type Limits = Values<typeof LIMIT_FIELDS>
/** A whole state at one flush. */
export type StateAt = Values<typeof STREAM_HEAD> & { state: Json }
/** Where a patch stands in its room's history. */
export type PatchAt = Readonly<Values<typeof STREAM_HEAD>>

type Opcodes<T extends Table> = { readonly [N in keyof T]: number }
const opcodes = <T extends Table>(table: T): Opcodes<T> =>
  Object.fromEntries(Object.entries(table).map(([t, { opcode }]) => [t, opcode])) as Opcodes<T>

/** The first element of every MessagePack frame: below 16 in what clients send, from 16 in what the server sends. */
export const CLIENT_OPCODES = /* @__PURE__ */ opcodes(CLIENT_MESSAGES)
export const SERVER_OPCODES = /* @__PURE__ */ opcodes(
  // Bundlers keep a spread even if its result is unused.
  /* @__PURE__ */ Object.assign({}, SERVER_MESSAGES, STREAM_MESSAGES),
)

/** What clients and queues say to each other, besides what all rooms do. */

/** Code of a party: its size, and 128 random bits. */
export const PARTY_CODE = /^([1-9]\d?|100)-[0-9a-f]{32}$/

/** Text of the end of a matched ticket's seat, and of the refusal of a join that asks for one: behind it `{ room_id, options }` as JSON. */
export const MATCHED = 'matched '
