import type { Json } from '../shared/json.ts'

/** What gateway/ and rooms/ tell operators of themselves, through ops/: plain data, as `GET /admin/runtime` answers it. */

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
