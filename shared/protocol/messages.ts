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

/** Subprotocols of a socket. All have the same messages with the same meaning. A client that names none gets the first. */
export const SUBPROTOCOLS = ['roomful.v1.json', 'roomful.v1.msgpack'] as const
export type Subprotocol = (typeof SUBPROTOCOLS)[number]

/** Maximum lengths of strings in UTF-16 code units, as JavaScript counts them, and of lists. */
export const MAX = {
  id: 128,
  token: 8192,
  room_type: 64,
  key: 128,
  room_id: 64 + 1 + 128,
  type: 64,
  rooms: 1024,
  feature: 32,
  features: 32,
  /** Maximum number of pending requests of one member. */
  requests: 32,
  /** Maximum length of a code as a player types it. */
  code: 32,
}

/** Reasons of a client's `state.resync`. */
const RESYNC_REASONS = ['sequence', 'checksum'] as const
export type ResyncReason = (typeof RESYNC_REASONS)[number]

/** Reasons of the end of a seat. */
const DEPARTURE_REASONS = ['left', 'session_ended', 'kicked', 'closed', 'replaced'] as const
export type DepartureReason = (typeof DEPARTURE_REASONS)[number]

/** Codes with which a queue ends a ticket. */
export type SeatCode = Extract<
  ErrorCode,
  'ticket_refused' | 'join_refused' | 'party_refused' | 'party_timeout' | 'match_failed' | 'gave_up'
>

const RESUME_POSITION = {
  room_id: text(MAX.room_id),
  member_id: text(MAX.id),
  epoch: COUNT,
  seq: COUNT,
  settled: COUNT,
}

/** One client in one room, for the other members. `sub` is the player's id from the token. Null: the token has none. */
const MEMBER = { member_id: text(), sub: typed<string | null>(text()) }
/** `spectator`: true or absent. Only room types whose spectators are visible have spectators in their lists. */
const SPECTATOR = optional(FLAG)
const MEMBER_INFO = { ...MEMBER, connected: FLAG, spectator: SPECTATOR }

/** Room of the match of a ticket, and the options of the join there. */
const MATCH = { room_id: text(), options: typed<JsonObject>(VALUE) }

/** Limits of the server. A client within these limits never gets `rate_limited` or close code 4008. */
const LIMIT_FIELDS = {
  max_message_bytes: COUNT,
  messages_per_second: NUMBER,
  message_burst: NUMBER,
  max_rooms: COUNT,
}

/** One room in a list, for players. */
const LISTED_ROOM = {
  room_id: text(),
  /** Number of players. Spectators do not count. */
  players: COUNT,
  /** Absent: no limit. */
  max_players: orNil(COUNT),
  /** Seats that are reserved for players who have not joined yet. */
  reserved: COUNT,
  created_at: text(),
  data: VALUE,
  /** Number of spectators, some seconds old. Absent: the room type has none. */
  spectators: optional(COUNT),
}

/** First fields of all frames of the state stream. In MessagePack, announced keys follow them (R31 of docs/protocol.md). */
const STREAM_HEAD = { room_id: ADDRESS, epoch: COUNT, seq: COUNT, checksum: COUNT }
/** First fields of a patch. Without `epoch`: that of the patch or whole state before it. */
export const PATCH_HEAD = { ...STREAM_HEAD, epoch: orNil(COUNT) }

/** Change of one layer in JSON: its whole state, its changes, or null if the member no longer has it. */
export type LayerJson = ({ state: Json } | { ops: Operation[] }) & { checksum: number }
/** Layers of the member, by name. Absent: none has changed, or the room has no layers. */
const LAYERS = optional(typed<Readonly<Record<string, LayerJson | null>>>(VALUE))

/**
 * Messages of clients. The position of a field is its position in MessagePack, and its type and its check follow from its description. New
 * fields are added at the end of a message as `optional`, because neither side may rely on the other to know them.
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
    /** Features of this client beyond the basic protocol: `layers`, and unknown ones of other versions. */
    features: optional(list(text(MAX.feature), MAX.features)),
  }),
  join: message(1, {
    request_id: REF,
    room_type: text(MAX.room_type),
    options: OPTIONS,
    /**
     * True: the client had a seat in the room, and joins again because its session is lost. Such a join never replaces another session of
     * the player.
     */
    rejoin: optional(FLAG),
    /** False: the join does not create the room. */
    create: optional(FLAG),
    /** True: the client joins as a spectator. Such a join never creates the room. */
    watch: optional(FLAG),
  }),
  leave: message(2, { request_id: REF, room_id: text(MAX.room_id) }),
  message: message(3, {
    room_id: text(MAX.room_id),
    type: text(MAX.type),
    data: VALUE,
    ref: optional(REF),
    /** Highest ref up to which the client knows every outcome in this room. Required with `ref`. */
    settled: optional(COUNT),
  }),
  'state.resync': message(4, { room_id: text(MAX.room_id), reason: choice(RESYNC_REASONS) }),
  ping: message(5, { at: NUMBER }),
  token: message(6, { token: text(MAX.token) }),
  /** The client is about to resume on its next connection. */
  move: message(7, {}),
  /** Ends the session. Its members leave their rooms. */
  goodbye: message(8, {}),
  /** Requests the rooms of a list. `watch`: the server sends the changes of the list until `rooms.end`. */
  rooms: message(9, {
    request_id: REF,
    room_type: text(MAX.room_type),
    query: optional(VALUE),
    watch: optional(FLAG),
  }),
  'rooms.end': message(10, { request_id: REF }),
  /** Requests a room to join: by its code, or by a query, which may create a room. */
  find: message(11, {
    request_id: REF,
    by: either(
      ['code', text(MAX.code)],
      [
        'room',
        record({
          room_type: text(MAX.room_type),
          query: optional(VALUE),
          /** Options of the join that follows. Clients with equal queries and options can share a new room. */
          options: optional(VALUE),
        }),
      ],
    ),
  }),
} satisfies Table

/** Messages of the server except the state streams. */
export const SERVER_MESSAGES = {
  welcome: message(16, {
    session_id: text(),
    resume_token: text(),
    resumed: FLAG,
    resume_ttl_seconds: NUMBER,
    heartbeat_seconds: NUMBER,
    node_id: text(),
    server_time: text(),
    limits: record(LIMIT_FIELDS),
  }),
  joined: message(17, { request_id: REF, room_id: text(), member_id: text(), code: optional(text()) }),
  /** The server needs a fresh token. */
  token: message(18, { within_seconds: COUNT }),
  /** An event of the flush whose state frame came last. */
  event: message(22, { room_id: ADDRESS, name: text(), data: VALUE }),
  /** The present entry of a member in the list of members. Without `connected`: it has none any more. */
  member: message(23, { room_id: ADDRESS, ...MEMBER, connected: optional(FLAG), spectator: SPECTATOR }),
  reply: message(24, { room_id: ADDRESS, ref: REF, data: VALUE }),
  ack: message(25, { room_id: ADDRESS, ref: REF }),
  error: message(26, {
    code: typed<ErrorCode>(text()),
    message: text(),
    retryable: FLAG,
    request_id: optional(REF),
    room_id: optional(text()),
    ref: optional(REF),
    match: optional(record(MATCH)),
  }),
  /** `url` undefined: the client's configured address. */
  move: message(27, { in_ms: NUMBER, url: optional(text()) }),
  pong: message(28, { at: NUMBER, server_time: text() }),
  /** The answer to `move`, and the last message of its connection. */
  moved: message(30, {}),
  /**
   * A list: all rows (`rooms`), or its changes. One after the other, the rows at the positions `gone` go, and then those of `set` come at the
   * positions `at`.
   */
  rooms: message(32, {
    request_id: REF,
    rooms: orNil(list(record(LISTED_ROOM))),
    set: optional(list(record(LISTED_ROOM))),
    gone: optional(list(COUNT)),
    at: optional(list(COUNT)),
  }),
  /** The room to join. The join has `key` in its options, and `create`. */
  found: message(33, { request_id: REF, room_type: text(), key: text(), create: optional(FLAG) }),
  /** Number of spectators in a room. Follows each whole state and each resume, and then each change, at most once a second. */
  spectators: message(34, { room_id: ADDRESS, count: COUNT }),
  /** The present seat of this client has ended. `message`: text for the player. `code`, `match`: a queue has ended it. */
  left: message(35, {
    room_id: text(),
    reason: choice(DEPARTURE_REASONS),
    code: optional(typed<SeatCode>(text())),
    message: optional(text()),
    match: optional(record(MATCH)),
  }),
} satisfies Table

/** Complete visible state of a room at one seq: its state and all members. It replaces the client's copy. */
const WHOLE = { ...STREAM_HEAD, state: VALUE, members: list(record(MEMBER_INFO)), layers: LAYERS }

/** State stream of a room. `RoomEncoder` writes what all members share, and `LayerEncoder` the parts for the members of one layer. */
export const STREAM_MESSAGES = {
  'state.snapshot': message(19, WHOLE),
  'state.resync': message(20, WHOLE),
  'state.patch': message(21, { ...PATCH_HEAD, ops: typed<Operation[]>(VALUE), layers: LAYERS }),
} satisfies Table

type MessageOf<T extends Table> = {
  [N in keyof T]: Values<T[N]['fields']> extends infer V ? (V extends unknown ? { t: N } & V : never) : never
}[keyof T]

/**
 * MessagePack frame `[29, room_id]`: names the room of all frames up to the next of its kind. Without the room in it, a frame has the same
 * bytes for every member. A client is usually in one room and gets one such frame.
 */
export const ROOM_OPCODE = 29

/** A message that omits its room in MessagePack, because the room frame before it names the room. */
export type AddressedMessage = Extract<
  PlainMessage,
  { t: 'event' | 'member' | 'ack' | 'reply' | 'spectators' }
>

/** Messages of clients. */
export type ClientMessage = MessageOf<typeof CLIENT_MESSAGES>
/** Messages of the server except the state stream. */
export type PlainMessage = MessageOf<typeof SERVER_MESSAGES>
/** All messages of the server. */
export type ServerMessage = PlainMessage | MessageOf<typeof STREAM_MESSAGES>

/** Position of a resuming client in one room: the last flush that it has applied, and the ref up to which it knows every outcome. */
export type ResumePosition = Values<typeof RESUME_POSITION>
/** Options of a join. `key` names the instance, and the rest belongs to the room type. */
export type JoinOptions = JsonObject & { readonly key?: string }
export type MemberInfo = Values<typeof MEMBER_INFO>
export type Match = Values<typeof MATCH>
export type ListedRoom = Values<typeof LISTED_ROOM>
export type Limits = Values<typeof LIMIT_FIELDS>
/** A complete state after one flush. */
export type StateAt = Values<typeof STREAM_HEAD> & { state: Json }
/** Position of a patch in its room's history. */
export type PatchAt = Readonly<Values<typeof STREAM_HEAD>>
/** First fields of a patch. */
export type PatchHead = Readonly<Values<typeof PATCH_HEAD>>

type Opcodes<T extends Table> = { readonly [N in keyof T]: number }
const opcodes = <T extends Table>(table: T): Opcodes<T> =>
  Object.fromEntries(Object.entries(table).map(([t, { opcode }]) => [t, opcode])) as Opcodes<T>

/** First element of every MessagePack frame: below 16 from clients, from 16 on from the server. */
export const CLIENT_OPCODES = /* @__PURE__ */ opcodes(CLIENT_MESSAGES)
export const SERVER_OPCODES = /* @__PURE__ */ opcodes(
  // Bundlers keep a spread even if its result is unused.
  /* @__PURE__ */ Object.assign({}, SERVER_MESSAGES, STREAM_MESSAGES),
)

/** Formats of clients and queues, in addition to those of all rooms. */

/** Code of a party: its size, and 128 random bits. */
export const PARTY_CODE = /^([1-9]\d?|100)-[0-9a-f]{32}$/
