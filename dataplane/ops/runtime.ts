import type { Json } from '../../shared/json.ts'
import type { Load } from './load.ts'

/** What `GET /admin/runtime` answers: a node, its rooms and its sessions, at one moment. Times are RFC 3339. */
export interface Runtime {
  readonly node: NodeDescription
  readonly rooms: readonly RoomDescription[]
  readonly sessions: readonly SessionDescription[]
}

export interface NodeDescription {
  readonly node_id: string
  readonly version: string
  readonly started_at: string
  readonly draining: boolean
  readonly load: Load
}

/** A room this node owns. */
export interface RoomDescription {
  /** `type:key`, as clients see it. */
  readonly room_id: string
  readonly project_id: string
  readonly room_type: string
  readonly key: string
  readonly epoch: number
  readonly seq: number
  readonly checksum: number
  readonly members: readonly MemberDescription[]
  /** Only when asked for. */
  readonly state?: Json
}

export interface MemberDescription {
  readonly member_id: string
  readonly session_id: string
  readonly sub: string | null
  /** Whether a socket is attached; a seat stays for a while without one. */
  readonly connected: boolean
  /** The node that holds, or last held, the socket. */
  readonly node_id: string
}

/** A session whose socket this node holds, or last held. */
export interface SessionDescription {
  readonly session_id: string
  readonly project_id: string
  readonly key_id: string | null
  readonly sub: string | null
  readonly connected_at: string
  /** Room ids. */
  readonly rooms: readonly string[]
  /** Bytes waiting to be read by the client. */
  readonly queued_bytes: number
}

/** Which rooms to describe, and how far. */
export interface RoomQuery {
  readonly include_state: boolean
  readonly room_id?: string
  readonly project_id?: string
}
