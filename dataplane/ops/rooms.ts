import type { Context, Hono } from 'hono'
import type { MiddlewareHandler } from 'hono/types'
import * as v from 'valibot'
import { timestamp } from '../../shared/clock.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import { Problem } from '../../shared/problem.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import { type CountedRoom, StoreUnavailable } from '../../shared/store/port.ts'
import { storeProblem } from '../../shared/store/problem.ts'
import { invalid, validate } from '../../shared/validate.ts'
import type { RoomList } from '../directory/directory.ts'
import { DEFAULT_LIMIT, InvalidQuery, MAX_LIMIT } from '../directory/query.ts'
import { type StoredRow, takenSeats } from '../directory/row.ts'
import type { Position } from '../directory/rows.ts'
import { type AdminEnv, countUpTo, PROJECT_ID, ROOM_ID } from './query.ts'

/** What the calls under `/internal/rooms` need to know of the node. */
export interface RoomCallsSource {
  /** Rooms of a project that no living node has, page by page. Rejects with `StoreUnavailable`. */
  readonly ownerlessRooms: (
    projectId: string,
    limit: number,
    after: CountedRoom | undefined,
  ) => Promise<{ readonly rooms: readonly CountedRoom[]; readonly next: CountedRoom | undefined }>
  /** Rows of a list that match, behind `after`. Rejects with `InvalidQuery` or `StoreUnavailable`. */
  readonly listedRooms: (list: RoomList, query: JsonObject, after?: Position) => Promise<readonly StoredRow[]>
  /** Ends a room, whichever node has it. */
  readonly endRoom: (
    projectId: string,
    roomId: string,
  ) => Promise<'done' | 'not_found' | 'timed_out' | { readonly code: ErrorCode; readonly message: string }>
}

/** A position in the list of rooms without owner, as the text that a caller gives back. */
export const CURSOR = v.pipe(
  v.string(),
  v.rawTransform(({ dataset, addIssue, NEVER }): CountedRoom => {
    const read = v.safeParse(POSITION, decoded(dataset.value))
    if (read.success) return { until: read.output[0] ?? Number.POSITIVE_INFINITY, roomId: read.output[1] }
    addIssue({ message: 'must be the next_cursor of a page' })
    return NEVER
  }),
)
const POSITION = v.strictTuple([v.nullable(v.number()), v.string()])

const decoded = (text: string): Json | undefined => parsed(Buffer.from(text, 'base64url').toString())

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

export const cursorOf = ({ until, roomId }: CountedRoom): string =>
  encoded([until === Number.POSITIVE_INFINITY ? null : until, roomId])

const encoded = (position: Json): string => Buffer.from(JSON.stringify(position)).toString('base64url')

const LARGEST_PAGE = 200
const LIST_QUERY = v.object({
  project_id: v.optional(PROJECT_ID, ''),
  limit: v.optional(
    v.pipe(countUpTo(LARGEST_PAGE), v.minValue(1, `must be a whole number from 1 to ${LARGEST_PAGE}`)),
    '50',
  ),
  cursor: v.exactOptional(CURSOR),
})
const END_QUERY = v.object({ project_id: v.optional(PROJECT_ID, ''), room_id: v.optional(ROOM_ID, '') })

const LISTING_QUERY = v.object({
  project_id: v.optional(PROJECT_ID, ''),
  room_type: v.string(),
  where: v.exactOptional(v.string()),
  order: v.exactOptional(v.string()),
  full: v.exactOptional(v.picklist(['1'], 'must be 1')),
  limit: v.optional(countUpTo(MAX_LIMIT), String(DEFAULT_LIMIT)),
  cursor: v.exactOptional(v.string()),
})
/** The position of a row in its list, as `next_cursor` has it. */
const ROW_POSITION = v.strictTuple([v.number(), v.string(), v.string()])

/** Mounts the calls that control forwards to a node: `GET` and `DELETE /internal/rooms`, and `GET /internal/listings`. */
export function roomCalls(
  app: Hono<AdminEnv>,
  guard: MiddlewareHandler<AdminEnv>,
  source: RoomCallsSource,
): void {
  app.get('/internal/rooms', guard, (c) => withStore(() => list(c, source)))
  app.delete('/internal/rooms', guard, (c) => withStore(() => end(c, source)))
  app.get('/internal/listings', guard, (c) => withStore(() => listing(c, source)))
}

async function list(c: Context, { ownerlessRooms }: RoomCallsSource): Promise<Response> {
  const { project_id: projectId, limit, cursor } = validate(LIST_QUERY, c.req.query(), 'query')
  const { rooms, next } = await ownerlessRooms(projectId, limit, cursor)
  return c.json(
    {
      rooms: rooms.map(({ roomId, until }) => {
        const keyAt = roomId.indexOf(':')
        return {
          room_id: roomId,
          room_type: roomId.slice(0, keyAt),
          key: roomId.slice(keyAt + 1),
          expires_at: until === Number.POSITIVE_INFINITY ? null : timestamp(until),
        }
      }),
      next_cursor: next ? cursorOf(next) : null,
    },
    200,
    { 'cache-control': 'no-store' },
  )
}

/** A room type that this node does not know has an empty list. */
async function listing(c: Context, { listedRooms }: RoomCallsSource): Promise<Response> {
  const asked = validate(LISTING_QUERY, c.req.query(), 'query')
  const { project_id: projectId, room_type: roomType, where, order, full, limit, cursor } = asked
  const position = cursor === undefined ? undefined : v.safeParse(ROW_POSITION, decoded(cursor))
  if (position?.success === false)
    throw invalid([{ path: 'cursor', message: 'must be the next_cursor of a page' }])
  const [members = 0, createdAt = '', roomId = ''] = position?.output ?? []
  const after = position && { members, reserved: 0, created_at: createdAt, room_id: roomId }
  const query = {
    ...(where !== undefined && { where: parsed(where) ?? where }),
    ...(order !== undefined && { order }),
    full: full !== undefined,
    limit,
  }
  const rows = await listedRooms({ projectId, roomType }, query, after).catch((error: unknown) => {
    if (!(error instanceof InvalidQuery)) throw error
    if (error.code === 'unknown_room_type') return []
    throw new Problem('invalid_request', `${error.message}.`)
  })
  const last = rows.length === limit ? rows.at(-1) : undefined
  return c.json(
    {
      rooms: rows.map(({ node_id: _, ...row }) => row),
      next_cursor: last ? encoded([takenSeats(last), last.created_at, last.room_id]) : null,
    },
    200,
    { 'cache-control': 'no-store' },
  )
}

async function end(c: Context, { endRoom }: RoomCallsSource): Promise<Response> {
  const { project_id: projectId, room_id: roomId } = validate(END_QUERY, c.req.query(), 'query')
  const outcome = await endRoom(projectId, roomId)
  if (outcome === 'done') return c.json({ project_id: projectId, room_id: roomId, ended: true })
  if (outcome === 'not_found')
    throw new Problem('room_not_found', `There is no room ${roomId} in the project ${projectId}.`)
  if (outcome === 'timed_out')
    throw new Problem(
      'timeout',
      `${roomId} has not ended within 10 s: its owner does not answer, or its database does not take its last state. Try again.`,
    )
  throw new Problem('room_unavailable', outcome.message)
}

/** Answers with a 503 if the store does not answer. */
export async function withStore(answer: () => Promise<Response>): Promise<Response> {
  try {
    return await answer()
  } catch (error) {
    throw error instanceof StoreUnavailable ? storeProblem(error) : error
  }
}
