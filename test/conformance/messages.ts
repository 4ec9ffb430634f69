/** The messages of docs/protocol.md, as this suite understands them. Written from the document alone. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

export type Codec = 'json' | 'msgpack'
export const CODECS: readonly Codec[] = ['json', 'msgpack']

/** A flush of a room. */
export interface RoomFlush {
  room_id: string
  epoch: number
  seq: number
}

/** Where a client stands in a room. */
export interface RoomPosition extends RoomFlush {
  member_id: string
}

/** The same when it resumes. */
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
  | { t: 'goodbye' }
  | { t: 'rooms'; request_id: number; room_type: string; query?: Json; watch?: boolean }
  | { t: 'rooms.end'; request_id: number }
  | { t: 'find'; request_id: number; code: string }
  | { t: 'find'; request_id: number; room: Finding }

/** What `find` looks for, if not for a code. */
export interface Finding {
  room_type: string
  query?: Json
  options?: Json
  not?: string[]
}

/** One room in a list. */
export interface ListedRoom {
  room_id: string
  members: number
  max_members?: number
  reserved: number
  created_at: string
  data: Json
}

export interface Member {
  member_id: string
  sub: string | null
}

/** A member as lists of members have it. */
export interface MemberInfo extends Member {
  connected: boolean
}

export interface Limits {
  max_message_bytes: number
  messages_per_second: number
  message_burst: number
  max_rooms: number
}

/** One operation of a JSON Patch; the protocol uses three kinds only. */
export type Operation = { op: 'add' | 'replace'; path: string; value: Json } | { op: 'remove'; path: string }

/** The keys a MessagePack frame announces: `from`, and what follows behind it in the table. */
export interface Announcement {
  from: number
  keys: string[]
}

/** A state as it is on the wire: whole in JSON, with interned keys in MessagePack. */
export type WireState =
  | { codec: 'json'; state: Json }
  | { codec: 'msgpack'; announced: Announcement; state: WireValue }

/** What a patch changes, as it is on the wire. `change` is undefined when nothing did. */
export type WirePatch =
  | { codec: 'json'; ops: Operation[] }
  | { codec: 'msgpack'; announced: Announcement | null; change: WireValue | undefined }

/** A decoded MessagePack value whose maps keep integer keys (`#5`) and string keys (`$5`) apart. */
export type WireValue = null | boolean | number | string | WireValue[] | { [tagged: string]: WireValue }

interface Stamp extends RoomFlush {
  checksum: number
}

export type MemberStatus = 'joined' | 'connected' | 'disconnected' | 'left'
export type LeaveReason = 'left' | 'session_ended' | 'kicked' | 'closed' | 'replaced'

interface ServerMessages {
  welcome: {
    session_id: string
    resume_token: string
    resumed: boolean
    resume_ttl_seconds: number
    heartbeat_seconds: number
    token_seconds: number
    node_id: string
    server_time: string
    limits: Limits
  }
  joined: { request_id: number; room_id: string; member_id: string; code?: string }
  'state.snapshot': Stamp & { body: WireState; members: MemberInfo[] }
  token: { token_seconds: number }
  'state.resync': Stamp & { body: WireState; members: MemberInfo[] }
  'state.patch': Stamp & { body: WirePatch }
  event: RoomFlush & { name: string; data: Json }
  member: RoomFlush & Member & { status: MemberStatus; reason?: LeaveReason; message?: string }
  /** Without a body and a checksum: the layer is gone. */
  'layer.state': RoomFlush & { checksum?: number; layer: string; body?: WireState }
  'layer.patch': Stamp & { layer: string; body: WirePatch }
  ack: { room_id: string; ref: number }
  reply: { room_id: string; ref: number; data: Json }
  error: {
    code: string
    message: string
    retryable: boolean
    request_id?: number
    room_id?: string
    ref?: number
  }
  move: { in_ms: number; url?: string }
  pong: { at: number; server_time: string }
  rooms: { request_id: number; rooms: ListedRoom[] }
  found: { request_id: number; room_id: string }
}

export type ServerName = keyof ServerMessages
export type ServerMessage = { [T in ServerName]: { t: T } & ServerMessages[T] }[ServerName]
export type Received<T extends ServerName> = { t: T } & ServerMessages[T]

/** A frame from the server that the document does not allow. */
export class ProtocolFault extends Error {
  override readonly name = 'ProtocolFault'
}
