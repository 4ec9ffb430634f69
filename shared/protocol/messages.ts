import type { Json, JsonObject } from '../json.ts'
import type { Operation } from '../sync/operations.ts'
import type { ErrorCode } from './error-codes.ts'

/** The subprotocols a socket can speak: same messages, same meaning. The first is what a client that names none gets. */
export const SUBPROTOCOLS = ['roomful.v1.json', 'roomful.v1.msgpack'] as const
export type Subprotocol = (typeof SUBPROTOCOLS)[number]

/** Where a resuming client stands in one room: the last flush it has applied, and the ref up to which it knows every outcome. */
export interface ResumePosition {
  room_id: string
  epoch: number
  seq: number
  settled?: number
}

/** Options of a join: `key` names the instance, the rest belongs to the room type. */
export type JoinOptions = JsonObject & { readonly key?: string }

export type ResyncReason = 'sequence' | 'checksum'

/** What a client sends. */
export type ClientMessage =
  | { t: 'hello'; project_id: string; token: string }
  | {
      t: 'hello'
      project_id: string
      resume: { session_id: string; resume_token: string; rooms: ResumePosition[] }
    }
  | { t: 'join'; ref: number; room_type: string; options: JoinOptions }
  | { t: 'leave'; ref: number; room_id: string }
  /** `settled`: the highest ref up to which the client knows every outcome in this room. */
  | { t: 'message'; room_id: string; type: string; data: Json; ref?: number; settled?: number }
  | { t: 'state.resync'; room_id: string; have_seq: number; reason: ResyncReason }
  | { t: 'ping'; at: number }
  | { t: 'token'; token: string }

/** One client in one room, as the others see it. `sub` is the player's id from the token, null when it carries none. */
export interface MemberInfo {
  member_id: string
  sub: string | null
}

/** Why a member left. */
export type LeaveReason = 'left' | 'session_ended' | 'kicked' | 'closed'

/** What the server will accept; a client that stays below never meets `rate_limited` or 4008. */
export interface Limits {
  max_message_bytes: number
  messages_per_second: number
  message_burst: number
  max_rooms: number
}

/** A whole state at one flush. */
export interface StateAt {
  room_id: string
  epoch: number
  seq: number
  checksum: number
  state: Json
}

/** What the server sends. */
export type ServerMessage =
  | {
      t: 'welcome'
      session_id: string
      resume_token: string
      resumed: boolean
      resume_ttl_seconds: number
      heartbeat_seconds: number
      node_id: string
      server_time: string
      limits: Limits
      rooms?: { room_id: string; resumed: boolean }[]
    }
  | { t: 'joined'; ref: number; room_id: string; member_id: string; members: MemberInfo[] }
  | { t: 'left'; ref: number; room_id: string }
  | ({ t: 'state.snapshot' } & StateAt)
  /** `members`: everyone in the room at that seq; replaces the list the client holds, as `state` replaces the state. */
  | ({ t: 'state.resync'; members: MemberInfo[] } & StateAt)
  | { t: 'state.patch'; room_id: string; epoch: number; seq: number; checksum: number; ops: Operation[] }
  | { t: 'event'; room_id: string; epoch: number; seq: number; name: string; data: Json }
  | { t: 'room.joined'; room_id: string; epoch: number; seq: number; member_id: string; sub: string | null }
  | {
      t: 'room.left'
      room_id: string
      epoch: number
      seq: number
      member_id: string
      sub: string | null
      reason: LeaveReason
    }
  | { t: 'ack'; room_id: string; ref: number }
  | { t: 'error'; ref?: number; room_id?: string; code: ErrorCode; message: string; retryable: boolean }
  | { t: 'draining'; reconnect_in_ms: number }
  | { t: 'pong'; at: number; server_time: string }
