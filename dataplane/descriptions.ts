import type { Json } from '../shared/json.ts'
import type { NodeInfo } from '../shared/node-registry.ts'

/** Plain data that a node shows to operators under `/admin`, and how it is chosen. Times are RFC 3339. */

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
  /** All members, in the order they joined. */
  readonly members: readonly MemberDescription[]
  readonly member_count: number
  /** Seats that are kept for players who are not members. */
  readonly reservations: readonly { readonly sub: string; readonly expires_at: string }[]
  /** Members whose socket is attached. */
  readonly connected_count: number
  /** Between the last two times that rooms were listed, a second apart or more; null: it was not yet here at the first of them. */
  readonly updates_per_second: number | null
  /** Only when asked for. */
  readonly state?: Json
  /** Only for a query by room id; the latest first. */
  readonly events?: readonly RoomEventDescription[]
}

/** A queue this node owns. */
export interface QueueDescription {
  readonly room_id: string
  readonly project_id: string
  /** Tickets that wait for a match. */
  readonly waiting: number
  /** Since when the oldest of them waits; null: none waits. */
  readonly oldest_since: string | null
  /** Matches whose room has not answered yet. */
  readonly pending_matches: number
  /** Matches since this node has the queue. */
  readonly matches: number
  /** Rules that failed and matches that were cancelled, since then. */
  readonly failures: number
}

export interface MemberDescription {
  readonly member_id: string
  readonly session_id: string
  readonly sub: string | null
  /** Whether a socket is attached; a seat stays for a while without one. */
  readonly connected: boolean
  /** The node that holds, or last held, the socket. */
  readonly node_id: string
  /** The layers that it has, its own first; absent: the room hides nothing. */
  readonly layers?: readonly string[]
}

/** Something members of a room were told besides its state. */
export interface RoomEventDescription {
  /** An event of the room's logic, or a member who came or went. */
  readonly kind: 'event' | 'joined' | 'left'
  readonly epoch: number
  readonly seq: number
  /** When its update began; null: before this node had the room. */
  readonly at: string | null
  /** Name of the event. For `joined` and `left`: the member id. */
  readonly name: string
  /** The member ids it was for; null: everyone. */
  readonly to: readonly string[] | null
  /** Data of the event, or `{sub}` and `{sub, reason}`. Absent if it is too long. */
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

/** A node of the cluster, as this one sees it: `node_id` is its name. */
export interface ClusterNodeDescription extends NodeInfo {
  /** Whether it is the node that answers. */
  readonly self: boolean
  /** False: it has ended or died a short while ago, and the rest is what it was then. */
  readonly alive: boolean
}

/** Something that is wrong at a node now, such as `rooms_frozen`. */
export interface ProblemDescription {
  /** One word of few. */
  readonly code: string
  /** A sentence without a full stop. */
  readonly detail: string
}

/** Which rooms or sessions to describe. */
export interface Query {
  readonly room_id?: string
  /** Only items with this text, in any case, in one of their names or ids. */
  readonly q?: string
  /** Maximum number of items; absent: all. */
  readonly limit?: number
}

/** Which rooms to describe, and whether with their states. */
export interface RoomQuery extends Query {
  readonly include_state: boolean
}

/** An answer to a query. */
export interface Found<T> {
  /** As many as the limit allows. Each is described when it is reached, so that a caller with many may pause between them. */
  readonly items: Iterable<T>
  /** Number of items that match the query. */
  readonly found: number
  /** Number of all items. */
  readonly total: number
}

/** Returns the first `limit` of the items that fit, in the given order. */
export function select<T, D>(
  all: readonly T[],
  {
    fits,
    order,
    limit,
    describe,
  }: {
    readonly fits: (item: T) => boolean
    readonly order: (a: T, b: T) => number
    readonly limit: number | undefined
    readonly describe: (item: T) => D
  },
): Found<D> {
  const fitting = all.filter(fits).sort(order)
  const chosen = fitting.slice(0, limit)
  const items = {
    *[Symbol.iterator]() {
      for (const item of chosen) yield describe(item)
    },
  }
  return { items, found: fitting.length, total: all.length }
}

/** Tells whether a text has `q` in it, whatever the case; undefined: without a `q` everything has. */
export function textFinder(q: string | undefined): ((text: string) => boolean) | undefined {
  if (q === undefined || q === '') return undefined
  // Many times as fast as to lower the case of every name of ten thousand sessions.
  const pattern = new RegExp(q.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'), 'i')
  return (text) => pattern.test(text)
}
