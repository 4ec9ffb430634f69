import type { Json } from '../shared/json.ts'
import type { NodeInfo } from '../shared/node-registry.ts'

/** Plain data that a node shows to operators under `/admin`, and the selection of it. Times are RFC 3339. */

/** A room that this node owns. */
export interface RoomDescription {
  /** The room id that clients use: `type:key`. */
  readonly room_id: string
  readonly project_id: string
  readonly room_type: string
  readonly key: string
  readonly epoch: number
  readonly seq: number
  readonly checksum: number
  /** All members, in the order they joined. */
  readonly members: readonly MemberDescription[]
  /** Number of members: players and spectators. */
  readonly member_count: number
  readonly spectator_count: number
  /** Reserved seats of players who are not members. */
  readonly reservations: readonly { readonly sub: string; readonly expires_at: string }[]
  /** Number of members with a connection. */
  readonly connected_count: number
  /** Rate between the last two listings of rooms that were at least a second apart. Null: the room was not here at the first of them. */
  readonly updates_per_second: number | null
  /** Only with `include_state`. */
  readonly state?: Json
  /** Only for a query by room id. Newest first. */
  readonly events?: readonly RoomEventDescription[]
}

/** A queue that this node owns. */
export interface QueueDescription {
  readonly room_id: string
  readonly project_id: string
  /** Number of tickets that wait for a match. */
  readonly waiting: number
  /** Start of the longest wait. Null: no ticket waits. */
  readonly oldest_since: string | null
  /** Number of matches whose room has not answered yet. */
  readonly pending_matches: number
  /** Number of matches since this node owns the queue. */
  readonly matches: number
  /** Number of failed rules and cancelled matches since then. */
  readonly failures: number
}

export interface MemberDescription {
  readonly member_id: string
  readonly session_id: string
  readonly sub: string | null
  /** True if the member has a connection. A seat stays for a while without one. */
  readonly connected: boolean
  readonly spectator: boolean
  /** The node with the member's connection, or with its latest one. */
  readonly node_id: string
  /** Layers of the member, its own layer first. Absent: the room has no hidden layers. */
  readonly layers?: readonly string[]
}

/** An event of a room, or the arrival or departure of a member. */
export interface RoomEventDescription {
  /** `event`: sent by room code. `joined`, `left`: a member came or went. */
  readonly kind: 'event' | 'joined' | 'left'
  readonly epoch: number
  readonly seq: number
  /** Start of its update. Null: before this node owned the room. */
  readonly at: string | null
  /** Name of the event. For `joined` and `left`: the member id. */
  readonly name: string
  /** Ids of the members that got it. Null: all members. */
  readonly to: readonly string[] | null
  /** Data of the event, or `{sub}` or `{sub, reason}`. Absent if it is too long. */
  readonly data?: Json
  /** The start of the data as JSON, if it is too long. */
  readonly cut?: string
}

/** A session whose connection, or latest connection, is at this node. */
export interface SessionDescription {
  readonly session_id: string
  readonly project_id: string
  readonly key_id: string | null
  readonly sub: string | null
  readonly connected_at: string
  /** Room ids. */
  readonly rooms: readonly string[]
  /** Bytes queued for the client. */
  readonly queued_bytes: number
}

/** A node of the cluster, from the view of this node. `node_id` is its name. */
export interface ClusterNodeDescription extends NodeInfo {
  /** True for the node that answers. */
  readonly self: boolean
  /** False: the node has ended or crashed a short while ago. The other fields are from before. */
  readonly alive: boolean
  /** True: it has no lease, and is not presumed dead yet. */
  readonly lease_lost?: true
  /** True: the node that answers cannot read the store. The other fields are from before. */
  readonly outdated?: true
}

/** A current problem of a node, such as `rooms_frozen`. */
export interface ProblemDescription {
  /** One of a few fixed words. */
  readonly code: string
  /** Sentence without a full stop. */
  readonly detail: string
}

/** Selection of rooms or sessions. */
export interface Query {
  readonly room_id?: string
  /** Only items with this text in one of their names or ids, case-insensitive. */
  readonly q?: string
  /** Maximum number of items; absent: all. */
  readonly limit?: number
}

/** Selection of rooms. `include_state`: with their states. */
export interface RoomQuery extends Query {
  readonly include_state: boolean
}

/** An answer to a query. */
export interface Found<T> {
  /** The items, up to the limit. Each is described when the iteration reaches it, so that a caller can pause between many. */
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

/** Returns a case-insensitive search for `q`. Undefined: there is no `q`, so every text matches. */
export function textFinder(q: string | undefined): ((text: string) => boolean) | undefined {
  if (q === undefined || q === '') return undefined
  // Much faster than converting every name of ten thousand sessions to lower case.
  const pattern = new RegExp(q.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'), 'i')
  return (text) => pattern.test(text)
}
