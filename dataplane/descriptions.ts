import type { Json } from '../shared/json.ts'

/** What a node tells operators of itself, through ops/: plain data, as the calls under `/admin` answer it. Times are RFC 3339. */

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
  /** Everybody in the room, in the order they joined; the first of them only, when the query says so. */
  readonly members: readonly MemberDescription[]
  readonly member_count: number
  /** Members whose socket is attached. */
  readonly connected_count: number
  /** Only when asked for. */
  readonly state?: Json
  /** Only when asked for; the latest first. */
  readonly events?: readonly RoomEventDescription[]
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

/** Something members of a room were told besides its state. */
export interface RoomEventDescription {
  /** An event of the room's logic, or somebody who came or went. */
  readonly kind: 'event' | 'joined' | 'left'
  readonly epoch: number
  readonly seq: number
  /** When its update began; null: before this node had the room. */
  readonly at: string | null
  /** Of the event; for who came or went, the member id. */
  readonly name: string
  /** The member ids it was for; null: everybody. */
  readonly to: readonly string[] | null
  /** What the event carried, or `{sub}` and `{sub, reason}`; absent where it is too long. */
  readonly data?: Json
  /** The beginning of the data as JSON, where that is too long. */
  readonly cut?: string
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

/** A node of the cluster, as this one sees it. */
export interface ClusterNodeDescription {
  readonly node_id: string
  readonly started_at: string
  readonly version: string
  /** Whether it is the node that answers. */
  readonly self: boolean
  /** False: it has ended or died a short while ago, and the rest is what it was then. */
  readonly alive: boolean
  readonly draining: boolean
  readonly rooms: number
  readonly sessions: number
  /** How busy its event loop is, 0–1. */
  readonly load: number
  readonly max_rooms: number
  readonly max_sessions: number
  readonly ws_url?: string
  readonly advertise_url?: string
  readonly admin_url?: string
}

/** Which sessions to describe. */
export interface SessionQuery {
  readonly room_id?: string
  readonly project_id?: string
  /** Only what has this text, in any case, in one of its names or ids. */
  readonly q?: string
  /** How many at most; absent: all. */
  readonly limit?: number
}

/** Which rooms to describe, and how far. */
export interface RoomQuery extends SessionQuery {
  readonly include_state: boolean
  readonly include_events: boolean
  /** How many members of each room at most; absent: all. */
  readonly members?: number
}

/** An answer to a query. */
export interface Found<T> {
  /** As many as the limit allows, the oldest first. */
  readonly items: readonly T[]
  /** How many there are that the query is for. */
  readonly found: number
  /** How many there are at all. */
  readonly total: number
}

/** Whether one of `texts` has `q` in it, whatever the case; without a `q` everything has. */
export function hasText(q: string | undefined, texts: Iterable<string | null>): boolean {
  if (q === undefined || q === '') return true
  const wanted = q.toLowerCase()
  for (const text of texts) if (text?.toLowerCase().includes(wanted)) return true
  return false
}
