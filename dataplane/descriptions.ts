import type { Json } from '../shared/json.ts'
import type { Order } from './listing.ts'

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
  /** Between the last two times that rooms were listed, a second apart or more; null: it was not yet here at the first of them. */
  readonly updates_per_second: number | null
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

/** What rooms can be put in order by: the columns of their list. */
export const ROOM_COLUMNS = ['room', 'project', 'members', 'updates', 'seq'] as const
export type RoomColumn = (typeof ROOM_COLUMNS)[number]

/** What sessions can be put in order by: the columns of their list. */
export const SESSION_COLUMNS = [
  'session',
  'player',
  'project',
  'key',
  'connected',
  'rooms',
  'queued',
] as const
export type SessionColumn = (typeof SESSION_COLUMNS)[number]

/** Which things to describe. */
export interface Query {
  readonly room_id?: string
  readonly project_id?: string
  /** Only what has this text, in any case, in one of its names or ids. */
  readonly q?: string
  /** How many at most; absent: all. */
  readonly limit?: number
}

/** Which sessions to describe. */
export interface SessionQuery extends Query {
  /** Absent: the oldest first. */
  readonly order?: Order<SessionColumn>
}

/** Which rooms to describe, and how far. */
export interface RoomQuery extends Query {
  readonly include_state: boolean
  readonly include_events: boolean
  /** How many members of each room at most; absent: all. */
  readonly members?: number
  /** Absent: the oldest first. */
  readonly order?: Order<RoomColumn>
}

/** An answer to a query. */
export interface Found<T> {
  /** As many as the limit allows. Each is described when it is come to, so that somebody with many to tell of may rest between them. */
  readonly items: Iterable<T>
  /** How many there are that the query is for. */
  readonly found: number
  /** How many there are at all. */
  readonly total: number
}
