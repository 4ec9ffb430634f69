import type { Context, Hono } from 'hono'
import type { MiddlewareHandler } from 'hono/types'
import * as v from 'valibot'
import { timestamp } from '../../shared/clock.ts'
import { Problem } from '../../shared/problem.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import { type CountedRoom, StoreUnavailable } from '../../shared/store/port.ts'
import { storeProblem } from '../../shared/store/problem.ts'
import { validate } from '../../shared/validate.ts'
import { type AdminEnv, countUpTo, PROJECT_ID, ROOM_ID } from './query.ts'

/** What the calls under `/internal/rooms` need to know of the node. */
export interface RoomCallsSource {
  /** Rooms of a project that no living node has, page by page. Rejects with `StoreUnavailable`. */
  readonly ownerlessRooms: (
    projectId: string,
    limit: number,
    after: CountedRoom | undefined,
  ) => Promise<{ readonly rooms: readonly CountedRoom[]; readonly next: CountedRoom | undefined }>
  /** Ends a room, whichever node has it. */
  readonly endRoom: (
    projectId: string,
    roomId: string,
  ) => Promise<'done' | 'not_found' | 'timed_out' | { readonly code: ErrorCode; readonly message: string }>
}

/** A position in the list of rooms, as the text that a caller gives back. */
const CURSOR = v.pipe(
  v.string(),
  v.rawTransform(({ dataset, addIssue, NEVER }): CountedRoom => {
    const read = v.safeParse(POSITION, decoded(dataset.value))
    if (read.success) return { until: read.output[0] ?? Number.POSITIVE_INFINITY, roomId: read.output[1] }
    addIssue({ message: 'must be the next_cursor of a page' })
    return NEVER
  }),
)
const POSITION = v.strictTuple([v.nullable(v.number()), v.string()])

function decoded(text: string): unknown {
  try {
    return JSON.parse(Buffer.from(text, 'base64url').toString())
  } catch {
    return undefined
  }
}

const cursorOf = ({ until, roomId }: CountedRoom): string =>
  Buffer.from(JSON.stringify([until === Number.POSITIVE_INFINITY ? null : until, roomId])).toString(
    'base64url',
  )

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

/** Mounts the calls that control forwards to a node, which routes them to the owner of the room: `GET` and `DELETE /internal/rooms`. */
export function roomCalls(
  app: Hono<AdminEnv>,
  guard: MiddlewareHandler<AdminEnv>,
  source: RoomCallsSource,
): void {
  app.get('/internal/rooms', guard, (c) => withStore(() => list(c, source)))
  app.delete('/internal/rooms', guard, (c) => withStore(() => end(c, source)))
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
async function withStore(answer: () => Promise<Response>): Promise<Response> {
  try {
    return await answer()
  } catch (error) {
    throw error instanceof StoreUnavailable ? storeProblem(error) : error
  }
}
