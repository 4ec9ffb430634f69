import type { Json } from '../shared/json.ts'
import type { NodeInfo } from '../shared/node-registry.ts'

/**
 * What a node tells operators of itself, through ops/: plain data, as the calls under `/admin` answer it, and how it is chosen. Times are
 * RFC 3339.
 */

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
  /** All members, in the order they joined; the first of them only, when the query says so. */
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
  /** Of the event; for who came or went, the member id. */
  readonly name: string
  /** The member ids it was for; null: everyone. */
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

/** A node of the cluster, as this one sees it: `node_id` is its name. */
export interface ClusterNodeDescription extends NodeInfo {
  /** Whether it is the node that answers. */
  readonly self: boolean
  /** False: it has ended or died a short while ago, and the rest is what it was then. */
  readonly alive: boolean
}

/** What rooms can be put in order by: the columns of their list. */
export const ROOM_KEYS = {
  room: (room: RoomDescription) => room.room_id,
  project: (room: RoomDescription) => room.project_id,
  members: (room: RoomDescription) => room.member_count,
  updates: (room: RoomDescription) => room.updates_per_second,
  seq: (room: RoomDescription) => room.seq,
}
export type RoomColumn = keyof typeof ROOM_KEYS
export const ROOM_COLUMNS = Object.keys(ROOM_KEYS) as RoomColumn[]

/** What sessions can be put in order by: the columns of their list. */
export const SESSION_KEYS = {
  session: (session: SessionDescription) => session.session_id,
  player: (session: SessionDescription) => session.sub,
  project: (session: SessionDescription) => session.project_id,
  key: (session: SessionDescription) => session.key_id,
  connected: (session: SessionDescription) => session.connected_at,
  rooms: (session: SessionDescription) => session.rooms.length,
  queued: (session: SessionDescription) => session.queued_bytes,
}
export type SessionColumn = keyof typeof SESSION_KEYS
export const SESSION_COLUMNS = Object.keys(SESSION_KEYS) as SessionColumn[]

/** By which column, and which way. */
export interface Order<Column extends string> {
  readonly by: Column
  readonly descending: boolean
}

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
  /** As many as the limit allows. Each is described when it is come to, so that a caller with many may rest between them. */
  readonly items: Iterable<T>
  /** How many there are that the query is for. */
  readonly found: number
  /** How many there are at all. */
  readonly total: number
}

/** What decides the order of items. */
export interface Ranking<T> {
  /** Null: it has none, and comes last either way. */
  readonly key: (item: T) => string | number | null
  readonly descending: boolean
  /** What items of equal keys go by, so that rows with equal values stay where they are. */
  readonly name: (item: T) => string
}

/** What is to be chosen. */
interface Choice<T> {
  /** Undefined: all do. */
  readonly fits: ((item: T) => boolean) | undefined
  /** Undefined: in the order in which they come. */
  readonly ranking: Ranking<T> | undefined
  /** How many at most; undefined: all. */
  readonly limit: number | undefined
}

/**
 * The first `limit` of those that fit, in order, and how many fit. It sorts little more than it gives: of ten thousand items, a page of
 * fifty costs about one comparison each.
 */
export function choose<T>(
  items: Iterable<T>,
  { fits, ranking, limit = Number.POSITIVE_INFINITY }: Choice<T>,
): { readonly chosen: readonly T[]; readonly found: number } {
  let kept: Ranked<T>[] = []
  /** The last within the limit; undefined: there are fewer yet. */
  let last: Ranked<T> | undefined
  let found = 0
  const cut = (): void => {
    if (ranking) kept.sort((a, b) => compare(ranking, a, b))
    kept = kept.slice(0, limit)
  }
  for (const item of items) {
    if (fits && !fits(item)) continue
    found++
    const next = { item, key: ranking?.key(item) ?? null }
    if (ranking ? last && compare(ranking, next, last) >= 0 : kept.length >= limit) continue
    // So many are gathered before they are sorted, and those behind the limit let go.
    if (kept.push(next) < 4 * limit + 100) continue
    cut()
    last = kept.at(-1)
  }
  cut()
  return { chosen: kept.map(({ item }) => item), found }
}

interface Ranked<T> {
  readonly item: T
  readonly key: string | number | null
}

function compare<T>({ name, descending }: Ranking<T>, a: Ranked<T>, b: Ranked<T>): number {
  if (a.key !== b.key) {
    if (a.key === null) return 1
    if (b.key === null) return -1
    return a.key < b.key === descending ? 1 : -1
  }
  const [left, right] = [name(a.item), name(b.item)]
  return left === right ? 0 : left < right ? -1 : 1
}

/** Describes each item only when it is come to. */
export const lazily = <T, D>(items: readonly T[], describe: (item: T) => D): Iterable<D> => ({
  *[Symbol.iterator]() {
    for (const item of items) yield describe(item)
  },
})

/** Tells whether a text has `q` in it, whatever the case; undefined: without a `q` everything has. */
export function textFinder(q: string | undefined): ((text: string) => boolean) | undefined {
  if (q === undefined || q === '') return undefined
  // Many times as fast as to lower the case of every name of ten thousand sessions.
  const pattern = new RegExp(q.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'), 'i')
  return (text) => pattern.test(text)
}
