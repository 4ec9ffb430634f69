/** The messages of docs/protocol.md. This code is written from the page only, and imports nothing from the product. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

export type Codec = 'json' | 'msgpack'
export const CODECS: readonly Codec[] = ['json', 'msgpack']

/** A flush of a room. */
interface RoomFlush {
  room_id: string
  epoch: number
  seq: number
}

/** A member's position in a room. */
export interface RoomPosition extends RoomFlush {
  member_id: string
}

/** A position in a resume. */
export interface ResumePosition extends RoomPosition {
  settled: number
}

export type ClientMessage =
  | { t: 'hello'; project_id: string; token: string; features?: string[] }
  | {
      t: 'hello'
      project_id: string
      resume: { session_id: string; resume_token: string; rooms: ResumePosition[] }
      features?: string[]
    }
  | {
      t: 'join'
      request_id: number
      room_type: string
      options?: { [key: string]: Json } | undefined
      create?: boolean
      watch?: boolean
    }
  | { t: 'leave'; request_id: number; room_id: string }
  | {
      t: 'message'
      room_id: string
      type: string
      data: Json
      ref?: number | undefined
      settled?: number | undefined
    }
  | { t: 'state.resync'; room_id: string; reason: 'sequence' | 'checksum' }
  | { t: 'ping'; at: number }
  | { t: 'token'; token: string }
  | { t: 'move' }
  | { t: 'goodbye' }
  | { t: 'rooms'; request_id: number; room_type: string; query?: Json; watch?: boolean }
  | { t: 'rooms.end'; request_id: number }
  | { t: 'find'; request_id: number; code: string }
  | { t: 'find'; request_id: number; room: Finding }

/** A `find` without a code. */
export interface Finding {
  room_type: string
  query?: Json
  options?: Json
  not?: string[]
}

/** One room in a list. */
export interface ListedRoom {
  room_id: string
  players: number
  max_players?: number
  reserved: number
  created_at: string
  data: Json
  spectators?: number
}

export interface Member {
  member_id: string
  sub: string | null
}

/** A member in a list of members. */
export interface MemberInfo extends Member {
  connected: boolean
  spectator?: boolean
}

export interface Limits {
  max_message_bytes: number
  messages_per_second: number
  message_burst: number
  max_rooms: number
}

/** One operation of a JSON Patch. The protocol uses three kinds. */
export type Operation = { op: 'add' | 'replace'; path: string; value: Json } | { op: 'remove'; path: string }

/** Keys that a MessagePack frame adds to the table, from the index `from`. */
export interface Announcement {
  from: number
  keys: string[]
}

/** A state on the wire. MessagePack has interned keys. */
export type WireState =
  | { codec: 'json'; state: Json }
  | { codec: 'msgpack'; announced: Announcement; state: WireValue }

/** The change of a patch on the wire. `change` is undefined if the patch changes nothing. */
type WirePatch =
  | { codec: 'json'; ops: Operation[] }
  | { codec: 'msgpack'; announced: Announcement | null; change: WireValue | undefined }

/** A layer in a frame. JSON has its name; MessagePack a number, and the name in the first frame. Without `change`: it is removed. */
export interface WireLayer {
  name?: string
  number?: number
  change?: { checksum: number; body: WirePatch | Extract<WireState, { codec: 'json' }> }
}

/** A decoded MessagePack value. A key of a map is `#5` for the integer 5, and `$5` for the string "5". */
export type WireValue = null | boolean | number | string | WireValue[] | { [tagged: string]: WireValue }

interface Stamp extends RoomFlush {
  checksum: number
  layers: WireLayer[]
}

export type LeaveReason = 'left' | 'session_ended' | 'kicked' | 'closed' | 'replaced'

/** The room of a match, and the options of the join there. */
export interface Match {
  room_id: string
  options: Record<string, Json>
}

interface ServerMessages {
  welcome: {
    session_id: string
    resume_token: string
    resumed: boolean
    resume_ttl_seconds: number
    heartbeat_seconds: number
    node_id: string
    server_time: string
    limits: Limits
  }
  joined: { request_id: number; room_id: string; member_id: string; code?: string }
  'state.snapshot': Stamp & { body: WireState; members: MemberInfo[] }
  token: { within_seconds: number }
  'state.resync': Stamp & { body: WireState; members: MemberInfo[] }
  /** Without `epoch`: that of the frame of the state before it. */
  'state.patch': Omit<Stamp, 'epoch'> & { epoch?: number; body: WirePatch }
  event: { room_id: string; name: string; data: Json }
  /** Without `connected`: the member has no entry any more. */
  member: { room_id: string } & Member & { connected?: boolean; spectator?: boolean }
  left: {
    room_id: string
    reason: LeaveReason
    code?: string
    message?: string
    match?: Match
  }
  spectators: { room_id: string; count: number }
  ack: { room_id: string; ref: number }
  reply: { room_id: string; ref: number; data: Json }
  error: {
    code: string
    message: string
    retryable: boolean
    request_id?: number
    room_id?: string
    ref?: number
    match?: Match
  }
  move: { in_ms: number; url?: string }
  pong: { at: number; server_time: string }
  moved: Record<never, never>
  /** Either `rooms`, or `set`, `gone` and `at`. */
  rooms: { request_id: number; rooms?: ListedRoom[]; set?: ListedRoom[]; gone?: number[]; at?: number[] }
  found: { request_id: number; room_type: string; key: string; create?: boolean }
}

export type ServerName = keyof ServerMessages
export type ServerMessage = { [T in ServerName]: { t: T } & ServerMessages[T] }[ServerName]
export type Received<T extends ServerName> = { t: T } & ServerMessages[T]

/** A frame that the page does not allow. */
export class ProtocolFault extends Error {
  override readonly name = 'ProtocolFault'
}
