import type { Context } from 'hono'
import * as v from 'valibot'
import type { Found, RoomDescription, RoomQuery, SessionDescription, SessionQuery } from '../descriptions.ts'
import type { Load } from './load.ts'
import { problem } from './problem.ts'

/** What `GET /admin/runtime` answers: a node, its rooms and its sessions, at one moment. Times are RFC 3339. */
export interface Runtime {
  readonly node: NodeDescription
  readonly rooms: readonly RoomDescription[]
  readonly sessions: readonly SessionDescription[]
  /** How many rooms and sessions the query is for; of more than its limit only the first are listed. */
  readonly found: { readonly rooms: number; readonly sessions: number }
  /** How many this node has. */
  readonly totals: { readonly rooms: number; readonly members: number; readonly sessions: number }
}

export interface NodeDescription {
  readonly node_id: string
  readonly version: string
  readonly started_at: string
  readonly draining: boolean
  readonly load: Load
}

/** Where the answer comes from. */
export interface RuntimeSource {
  readonly describeNode: () => NodeDescription
  readonly describeRooms: (query: RoomQuery) => Found<RoomDescription>
  readonly describeSessions: (query: SessionQuery) => Found<SessionDescription>
  /** Members of all rooms of this node. */
  readonly members: () => number
}

const MOST = 1000
const flag = v.optional(v.picklist(['0', '1'], 'must be 1 or 0'))
const count = v.optional(
  v.pipe(
    v.string(),
    v.regex(/^\d{1,4}$/, `must be a whole number from 0 to ${MOST}`),
    v.transform(Number),
    v.maxValue(MOST, `must be a whole number from 0 to ${MOST}`),
  ),
)

/** What a room is asked for by. */
export const ROOM_ID = v.pipe(v.string(), v.regex(/^[^:]+:.+$/s, 'must be type:key'))
export const PROJECT_ID = v.pipe(v.string(), v.minLength(1, 'must not be empty'))

const FIELDS = v.object({
  include_state: flag,
  include_events: flag,
  room_id: v.optional(ROOM_ID),
  project_id: v.optional(PROJECT_ID),
  q: v.optional(v.pipe(v.string(), v.maxLength(200, 'must be 200 characters or fewer'))),
  limit: count,
  members: count,
})
/** To read the events of thousands of rooms back takes seconds, in which the node would do nothing else and lose its lease. */
const QUERY = v.pipe(
  FIELDS,
  v.forward(
    v.check(
      ({ include_events, room_id }) => include_events !== '1' || room_id !== undefined,
      'needs a room_id: events are told of one room at a time',
    ),
    ['include_events'],
  ),
)

/** Answers `GET /admin/runtime`: the node, the rooms that are asked for, and the sessions in them. */
export function runtime(c: Context, source: RuntimeSource): Response {
  const parsed = v.safeParse(QUERY, c.req.query())
  if (!parsed.success) return notUnderstood(c, parsed.issues)
  const { include_state, include_events, room_id, project_id, q, limit, members } = parsed.output
  const which: SessionQuery = {
    ...(room_id !== undefined && { room_id }),
    ...(project_id !== undefined && { project_id }),
    ...(q !== undefined && { q: q.trim() }),
    ...(limit !== undefined && { limit }),
  }
  const rooms = source.describeRooms({
    ...which,
    include_state: include_state === '1',
    include_events: include_events === '1',
    ...(members !== undefined && { members }),
  })
  const sessions = source.describeSessions(which)
  const answer: Runtime = {
    node: source.describeNode(),
    rooms: rooms.items,
    sessions: sessions.items,
    found: { rooms: rooms.found, sessions: sessions.found },
    totals: { rooms: rooms.total, members: source.members(), sessions: sessions.total },
  }
  return c.json(answer, 200, { 'cache-control': 'no-store' })
}

/** A 400 that names each parameter that is wrong. */
export const notUnderstood = (c: Context, issues: readonly v.BaseIssue<unknown>[]): Response =>
  problem(c, {
    status: 400,
    code: 'invalid_request',
    title: 'Invalid request',
    detail: 'the query is not understood',
    errors: issues.map((issue) => ({ path: v.getDotPath(issue) ?? '', message: issue.message })),
  })
