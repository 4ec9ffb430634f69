import type { Context } from 'hono'
import * as v from 'valibot'
import {
  type Found,
  type Query,
  ROOM_COLUMNS,
  type RoomDescription,
  type RoomQuery,
  SESSION_COLUMNS,
  type SessionDescription,
  type SessionQuery,
} from '../descriptions.ts'
import type { Order } from '../listing.ts'
import type { Load } from './load.ts'
import { problem } from './problem.ts'
import { answerInSlices } from './slices.ts'

/**
 * What `GET /admin/runtime` answers: a node, its rooms and its sessions. Times are RFC 3339. Which rooms and sessions there are is of one
 * moment; each of them is as it is when the answer comes to it, which for thousands is some turns of the event loop later.
 */
export interface Runtime {
  readonly node: NodeDescription
  readonly rooms: Iterable<RoomDescription>
  readonly sessions: Iterable<SessionDescription>
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

/** A column's name, or one with a minus before it for the other way round. */
const orderBy = <C extends string>(columns: readonly C[]) =>
  v.optional(
    v.pipe(
      v.string(),
      v.check(
        (text) => (columns as readonly string[]).includes(text.replace(/^-/, '')),
        `must be one of ${columns.join(', ')}, with a - before it for the largest first`,
      ),
      v.transform(
        (text): Order<C> => ({ by: text.replace(/^-/, '') as C, descending: text.startsWith('-') }),
      ),
    ),
  )

/** What a room is asked for by. */
export const ROOM_ID = v.pipe(v.string(), v.regex(/^[^:]+:.+$/s, 'must be type:key'))
export const PROJECT_ID = v.pipe(v.string(), v.minLength(1, 'must not be empty'))

/** What is searched for. */
export const SEARCH_TEXT = v.pipe(
  v.string(),
  v.maxLength(200, 'must be 200 characters or fewer'),
  v.transform((text) => text.trim()),
)

const FIELDS = v.object({
  include_state: flag,
  include_events: flag,
  room_id: v.optional(ROOM_ID),
  project_id: v.optional(PROJECT_ID),
  q: v.optional(SEARCH_TEXT),
  limit: count,
  members: count,
  sort_rooms: orderBy(ROOM_COLUMNS),
  sort_sessions: orderBy(SESSION_COLUMNS),
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
  const { sort_rooms, sort_sessions } = parsed.output
  const which: Query = {
    ...(room_id !== undefined && { room_id }),
    ...(project_id !== undefined && { project_id }),
    ...(q !== undefined && { q }),
    ...(limit !== undefined && { limit }),
  }
  const rooms = source.describeRooms({
    ...which,
    include_state: include_state === '1',
    include_events: include_events === '1',
    ...(members !== undefined && { members }),
    ...(sort_rooms && { order: sort_rooms }),
  })
  const sessions = source.describeSessions({ ...which, ...(sort_sessions && { order: sort_sessions }) })
  const answer: Runtime = {
    node: source.describeNode(),
    rooms: rooms.items,
    sessions: sessions.items,
    found: { rooms: rooms.found, sessions: sessions.found },
    totals: { rooms: rooms.total, members: source.members(), sessions: sessions.total },
  }
  return answerInSlices(c, piecesOf(answer))
}

/** The answer as JSON, a room or a session at a time. */
function* piecesOf({ node, rooms, sessions, found, totals }: Runtime): Iterable<string> {
  yield `{"node":${JSON.stringify(node)},"rooms":[`
  yield* listOf(rooms)
  yield '],"sessions":['
  yield* listOf(sessions)
  yield `],"found":${JSON.stringify(found)},"totals":${JSON.stringify(totals)}}`
}

function* listOf(items: Iterable<unknown>): Iterable<string> {
  let between = ''
  for (const item of items) {
    yield between + JSON.stringify(item)
    between = ','
  }
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
