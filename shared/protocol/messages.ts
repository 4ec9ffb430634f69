import type { Json, JsonObject } from '../json.ts'
import type { Operation } from '../sync/operations.ts'
import type { ErrorCode } from './error-codes.ts'
import {
  COUNT,
  choice,
  either,
  FLAG,
  list,
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
}

/** Reasons of a client's `state.resync`. */
export const RESYNC_REASONS = ['sequence', 'checksum'] as const
export type ResyncReason = (typeof RESYNC_REASONS)[number]

/** Why a member left. */
export const LEAVE_REASONS = ['left', 'session_ended', 'kicked', 'closed'] as const
export type LeaveReason = (typeof LEAVE_REASONS)[number]

const RESUME_POSITION = {
  room_id: text(MAX.room_id),
  epoch: COUNT,
  seq: COUNT,
  settled: optional(COUNT),
}

/** One client in one room, as the others see it. `sub` is the player's id from the token, null when it carries none. */
const MEMBER = { member_id: text(), sub: typed<string | null>(text()) }

/** What the server will accept; a client that stays below never meets `rate_limited` or 4008. */
const LIMIT_FIELDS = {
  max_message_bytes: COUNT,
  messages_per_second: NUMBER,
  message_burst: NUMBER,
  max_rooms: COUNT,
}

/** Where a room is after one flush. */
const IN_ROOM = { room_id: text(), epoch: COUNT, seq: COUNT }
/** What every frame of the state stream begins with. In MessagePack the keys that it announces come behind (§4 of docs/protocol.md). */
export const STREAM_HEAD = { ...IN_ROOM, checksum: COUNT }

/**
 * What a client sends. A field is one entry here: its place is its place in MessagePack, its type and its check follow from what it is.
 * Fields are added at the end of a message, as `optional`: neither side may count on the other's knowing them.
 */
export const CLIENT_MESSAGES = {
  hello: {
    opcode: 0,
    fields: {
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
    },
  },
  join: { opcode: 1, fields: { ref: REF, room_type: text(MAX.room_type), options: OPTIONS } },
  leave: { opcode: 2, fields: { ref: REF, room_id: text(MAX.room_id) } },
  message: {
    opcode: 3,
    fields: {
      room_id: text(MAX.room_id),
      type: text(MAX.type),
      data: VALUE,
      ref: optional(REF),
      /** The highest ref up to which the client knows every outcome in this room. */
      settled: optional(COUNT),
    },
  },
  'state.resync': {
    opcode: 4,
    fields: { room_id: text(MAX.room_id), have_seq: COUNT, reason: choice(RESYNC_REASONS) },
  },
  ping: { opcode: 5, fields: { at: NUMBER } },
  token: { opcode: 6, fields: { token: text(MAX.token) } },
} satisfies Table

/** What the server sends, but for the state stream. */
export const SERVER_MESSAGES = {
  welcome: {
    opcode: 16,
    fields: {
      session_id: text(),
      resume_token: text(),
      resumed: FLAG,
      resume_ttl_seconds: NUMBER,
      heartbeat_seconds: NUMBER,
      node_id: text(),
      server_time: text(),
      limits: record(LIMIT_FIELDS),
      rooms: orNil(list(record({ room_id: text(), resumed: FLAG }))),
    },
  },
  joined: {
    opcode: 17,
    fields: { ref: REF, room_id: text(), member_id: text(), members: list(record(MEMBER)) },
  },
  left: { opcode: 18, fields: { ref: REF, room_id: text() } },
  event: { opcode: 22, fields: { ...IN_ROOM, name: text(), data: VALUE } },
  'room.joined': { opcode: 23, fields: { ...IN_ROOM, ...MEMBER } },
  'room.left': { opcode: 24, fields: { ...IN_ROOM, ...MEMBER, reason: choice(LEAVE_REASONS) } },
  ack: { opcode: 25, fields: { room_id: text(), ref: REF } },
  error: {
    opcode: 26,
    fields: {
      ref: orNil(REF),
      room_id: orNil(text()),
      code: typed<ErrorCode>(text()),
      message: text(),
      retryable: FLAG,
    },
  },
  draining: { opcode: 27, fields: { reconnect_in_ms: NUMBER } },
  pong: { opcode: 28, fields: { at: NUMBER, server_time: text() } },
} satisfies Table

/** The state stream of a room; `RoomEncoder` writes it. */
export const STREAM_MESSAGES = {
  'state.snapshot': { opcode: 19, fields: { ...STREAM_HEAD, state: VALUE } },
  /** `members`: everyone in the room at that seq; replaces the list the client holds, as `state` replaces the state. */
  'state.resync': { opcode: 20, fields: { ...STREAM_HEAD, state: VALUE, members: list(record(MEMBER)) } },
  'state.patch': { opcode: 21, fields: { ...STREAM_HEAD, ops: typed<Operation[]>(VALUE) } },
} satisfies Table

type MessageOf<T extends Table> = {
  [N in keyof T]: Values<T[N]['fields']> extends infer V ? (V extends unknown ? { t: N } & V : never) : never
}[keyof T]

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
export type MemberInfo = Values<typeof MEMBER>
export type Limits = Values<typeof LIMIT_FIELDS>
/** A whole state at one flush. */
export type StateAt = Values<typeof STREAM_HEAD> & { state: Json }
/** Where a patch stands in its room's history. */
export type PatchAt = Readonly<Values<typeof STREAM_HEAD>>

type Opcodes<T extends Table> = { readonly [N in keyof T]: number }
const opcodes = <T extends Table>(table: T): Opcodes<T> =>
  Object.fromEntries(Object.entries(table).map(([t, { opcode }]) => [t, opcode])) as Opcodes<T>

/** The first element of every MessagePack frame: below 16 in what clients send, from 16 in what the server sends. */
export const CLIENT_OPCODES = opcodes(CLIENT_MESSAGES)
export const SERVER_OPCODES = opcodes({ ...SERVER_MESSAGES, ...STREAM_MESSAGES })
