import type { Context, Hono } from 'hono'
import type { MiddlewareHandler } from 'hono/types'
import * as v from 'valibot'
import { type Clock, timestamp } from '../../shared/clock.ts'
import { randomToken } from '../../shared/ids.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import { Problem, type ProblemCode } from '../../shared/problem.ts'
import type { Random } from '../../shared/random.ts'
import { type RateLimit, RateLimits } from '../../shared/rate-limit.ts'
import type { CountedRoom } from '../../shared/store/port.ts'
import { MAX_SUB_LENGTH } from '../../shared/tokens.ts'
import { invalid, MAX_BODY_BYTES, readJson, requireJson, validate } from '../../shared/validate.ts'
import type { RoomList } from '../features/lists/directory.ts'
import {
  DEFAULT_LIMIT,
  InvalidQuery,
  MAX_LIMIT,
  type Position,
  type QueryResult,
  takenSeats,
} from '../features/lists/rows.ts'
import type { NoticesDescription, ResendResult } from '../features/notices/dead-letters.ts'
import type { RequestAnswer, RequestCode, RoomRequest, Shown } from '../traffic.ts'
import { type AdminEnv, countUpTo, PAGE_LIMIT, PROJECT_ID, ROOM_ID, withStore } from './http.ts'

/**
 * Calls of backends and operators, which control forwards. Requests to a room go to its owner over `cluster/requests.ts`, and run there in
 * `room/request-turns.ts`.
 */

/** Dependencies of the calls under `/internal`. */
export interface InternalCallsSource {
  /** Returns a page of the rooms of a project that no living node owns. Rejects with `StoreUnavailable`. */
  readonly ownerlessRooms: (
    projectId: string,
    limit: number,
    after: CountedRoom | undefined,
  ) => Promise<{ readonly rooms: readonly CountedRoom[]; readonly next: CountedRoom | undefined }>
  /** Returns the matching rows of a list, behind `after`. Rejects with `InvalidQuery` or `StoreUnavailable`. */
  readonly listedRooms: (list: RoomList, query: JsonObject, after?: Position) => Promise<QueryResult>
  /** Describes a room, whether or not a node runs it. Rejects with `StoreUnavailable`, or if its record cannot be read. */
  readonly describeRoom: (projectId: string, roomId: string, shown: Shown) => Promise<RequestAnswer>
  /** Sends a request to a room, whichever node owns it. Never rejects. */
  readonly requestRoom: (projectId: string, roomId: string, request: RoomRequest) => Promise<RequestAnswer>
  /** Returns rooms of a project in the store, behind `after`. Rejects with `StoreUnavailable`. */
  readonly countedRooms: (
    projectId: string,
    limit: number,
    after: CountedRoom | undefined,
  ) => Promise<readonly CountedRoom[]>
  /** Ends a session, whichever node has it. Returns false if the project has no such session. Rejects with `StoreUnavailable`. */
  readonly endSession: (projectId: string, sessionId: string) => Promise<boolean>
  readonly notices: {
    describe(projectId: string, limit: number, before?: string): Promise<NoticesDescription>
    resend(projectId: string, id?: string): Promise<ResendResult>
    removeAll(projectId: string): Promise<void>
  }
  readonly clock: Clock
  readonly random: Random
}

/** A position in the list of rooms without owner, as the opaque text that a caller returns. */
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

const decoded = (text: string): Json | undefined => parsed(Buffer.from(text, 'base64url').toString())

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const cursorOf = ({ until, roomId }: CountedRoom): string =>
  encoded([until === Number.POSITIVE_INFINITY ? null : until, roomId])

const encoded = (position: Json): string => Buffer.from(JSON.stringify(position)).toString('base64url')

const LIST_QUERY = v.object({
  project_id: v.optional(PROJECT_ID, ''),
  limit: PAGE_LIMIT,
  cursor: v.exactOptional(CURSOR),
})
/** Maximum number of seats of one request. */
const MAX_SUBS = 1000

/** Idempotency id of a request: the id of an API key, a slash, and the key of the request. Printable ASCII. */
const REQUEST_ID = v.pipe(
  v.string(),
  v.regex(/^[!-.0-~]{1,64}\/[ -~]{1,255}$/, 'must be <key id>/<idempotency key>'),
)
const SUB = v.pipe(
  v.string(),
  v.minLength(1, 'must not be empty'),
  v.maxLength(MAX_SUB_LENGTH, `must have at most ${MAX_SUB_LENGTH} characters`),
)
const SUBS = v.pipe(
  v.array(SUB),
  v.minLength(1, 'must not be empty'),
  v.maxLength(MAX_SUBS, `must have at most ${MAX_SUBS} entries`),
)
const ACTION = v.variant('op', [
  v.strictObject({
    op: v.literal('call'),
    name: v.string(),
    data: v.unknown() as v.GenericSchema<unknown, Json>,
    caller: v.strictObject({ key_id: v.string(), call_id: v.string() }),
  }),
  v.strictObject({
    op: v.literal('reserve'),
    subs: SUBS,
    seconds: v.pipe(v.number(), v.gtValue(0, 'must be above 0'), v.maxValue(86_400, 'must be at most 86400')),
  }),
  v.strictObject({ op: v.literal('cancel'), subs: SUBS }),
  v.strictObject({
    op: v.literal('kick'),
    sub: SUB,
    reason: v.exactOptional(v.pipe(v.string(), v.minLength(1, 'must not be empty'))),
  }),
  v.strictObject({ op: v.literal('close') }),
  v.strictObject({ op: v.literal('open') }),
])
const REQUEST_BODY = v.object({
  project_id: PROJECT_ID,
  room_id: ROOM_ID,
  request: v.strictObject({
    id: REQUEST_ID,
    hash: v.pipe(v.string(), v.maxLength(64, 'must have at most 64 characters')),
    create: v.exactOptional(v.strictObject({ options: v.optional(v.record(v.string(), v.unknown()), {}) })),
    do: ACTION,
  }),
})
/** Maximum size of a request. Control parses and re-encodes its data, where `1e20` becomes five times as long. */
const REQUEST_BYTES = 5 * MAX_BODY_BYTES + 16 * 1024
/** Rate of requests and reads of a project at this node. The burst is one second. Large answers may cost the requests of three seconds more. */
const REQUEST_RATE = { perSecond: 200, burst: 200, debt: 600 }
/** Bytes of the answer to a read that cost as much as a request. */
const BYTES_PER_REQUEST = 32 * 1024

const FLAG = v.exactOptional(v.picklist(['1'], 'must be 1'))
const DESCRIBE_QUERY = v.object({
  project_id: PROJECT_ID,
  room_id: ROOM_ID,
  include_state: FLAG,
  include_layers: FLAG,
})
const END_QUERY = v.object({ project_id: PROJECT_ID, room_id: ROOM_ID, id: REQUEST_ID })

const LISTING_QUERY = v.object({
  project_id: v.optional(PROJECT_ID, ''),
  room_type: v.string(),
  where: v.exactOptional(v.string()),
  order: v.exactOptional(v.string()),
  full: v.exactOptional(v.picklist(['1'], 'must be 1')),
  limit: v.optional(countUpTo(MAX_LIMIT), String(DEFAULT_LIMIT)),
  cursor: v.exactOptional(v.string()),
})
/** Position of a row in its list, encoded in `next_cursor`. */
const ROW_POSITION = v.strictTuple([v.number(), v.string(), v.string()])

/**
 * Mounts the calls that control forwards to a node: `GET` and `DELETE /internal/rooms`, `GET /internal/room`, `POST /internal/rooms/requests`,
 * `GET /internal/listings`, `DELETE /internal/sessions`, and `DELETE /internal/project-rooms`. The last one ends the next rooms of a project,
 * and with its last room also its notices.
 */
export function internalCalls(
  app: Hono<AdminEnv>,
  guard: MiddlewareHandler<AdminEnv>,
  source: InternalCallsSource,
): void {
  app.get('/internal/rooms', guard, (c) => withStore(() => list(c, source)))
  app.delete('/internal/rooms', guard, (c) => withStore(() => end(c, source)))
  const rates = new RateLimits(source.clock, REQUEST_RATE)
  app.get('/internal/room', guard, (c) => withStore(() => describe(c, source, rates)))
  app.post('/internal/rooms/requests', guard, (c) => request(c, source, rates))
  app.get('/internal/listings', guard, (c) => withStore(() => listing(c, source, rates)))
  app.delete('/internal/project-rooms', guard, (c) => withStore(() => endRooms(c, source)))
  app.delete('/internal/sessions', guard, (c) => withStore(() => endSession(c, source)))
}

async function list(c: Context, { ownerlessRooms }: InternalCallsSource): Promise<Response> {
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

/** Takes one request from the rate of a project. Throws a Problem if there is none. */
function pay(rates: RateLimits, projectId: string): RateLimit {
  const rate = rates.of(projectId)
  if (rate.take()) return rate
  throw new Problem(
    'rate_limited',
    `The project ${projectId} sends more than ${REQUEST_RATE.perSecond} requests to rooms in a second; ${BYTES_PER_REQUEST / 1024} KiB of the answer to a read count as one.`,
    { headers: { 'retry-after': '1' } },
  )
}

/** Answers a read with JSON, whose bytes the project pays. */
function answerRead(c: Context, rate: RateLimit, answer: object): Response {
  const text = JSON.stringify(answer)
  rate.charge(Buffer.byteLength(text) / BYTES_PER_REQUEST)
  return c.body(text, 200, { 'content-type': 'application/json', 'cache-control': 'no-store' })
}

/** Answers with an empty list for a room type that this node does not know. A query that looked at many rows ends its page early. */
async function listing(
  c: Context,
  { listedRooms }: InternalCallsSource,
  rates: RateLimits,
): Promise<Response> {
  const asked = validate(LISTING_QUERY, c.req.query(), 'query')
  const { project_id: projectId, room_type: roomType, where, order, full, limit, cursor } = asked
  const rate = pay(rates, projectId)
  const position = cursor === undefined ? undefined : v.safeParse(ROW_POSITION, decoded(cursor))
  if (position?.success === false)
    throw invalid([{ path: 'cursor', message: 'must be the next_cursor of a page' }])
  const [players = 0, createdAt = '', roomId = ''] = position?.output ?? []
  const after = position && { players, reserved: 0, created_at: createdAt, room_id: roomId }
  const query = {
    ...(where !== undefined && { where: parsed(where) ?? where }),
    ...(order !== undefined && { order }),
    full: full !== undefined,
    limit,
  }
  const answer = await listedRooms({ projectId, roomType }, query, after).catch((error: unknown) => {
    if (!(error instanceof InvalidQuery)) throw error
    if (error.code === 'unknown_room_type') return { rows: [], stoppedAt: undefined }
    throw new Problem('invalid_request', `${error.message}.`)
  })
  const { rows, stoppedAt } = answer
  const last = rows.length === limit ? rows.at(-1) : stoppedAt
  return answerRead(c, rate, {
    rooms: rows.map(({ node_id: _, ...row }) => row),
    next_cursor: last ? encoded([takenSeats(last), last.created_at, last.room_id]) : null,
  })
}

async function end(c: Context, { requestRoom }: InternalCallsSource): Promise<Response> {
  const { project_id: projectId, room_id: roomId, id } = validate(END_QUERY, c.req.query(), 'query')
  const answer = await requestRoom(projectId, roomId, { id, hash: '', do: { op: 'close' } })
  if ('reply' in answer) return c.json({ project_id: projectId, room_id: roomId, ended: true })
  if (answer.code !== 'timeout') throw problemOf(answer)
  throw new Problem(
    'timeout',
    `${roomId} has not ended within 10 s: its owner does not answer, or its database does not take its last state. Try again.`,
  )
}

async function describe(
  c: Context,
  { describeRoom }: InternalCallsSource,
  rates: RateLimits,
): Promise<Response> {
  const query = validate(DESCRIBE_QUERY, c.req.query(), 'query')
  const { project_id: projectId, room_id: roomId, include_state: state, include_layers: layers } = query
  const rate = pay(rates, projectId)
  const answer = await describeRoom(projectId, roomId, {
    state: state !== undefined,
    layers: layers !== undefined,
  })
  if ('code' in answer) throw problemOf(answer)
  const { reply, epoch, seq } = answer
  const room = { project_id: projectId, room_id: roomId, epoch, seq, ...(reply as JsonObject) }
  return answerRead(c, rate, room)
}

/** Runs a request of a backend once. */
async function request(c: Context, source: InternalCallsSource, rates: RateLimits): Promise<Response> {
  const body = validate(REQUEST_BODY, await readJson(c.req.raw, REQUEST_BYTES), 'body')
  const { project_id: projectId, room_id: roomId } = body
  const { create, ...asked } = body.request
  pay(rates, projectId)
  if (asked.do.op === 'call') requireJson(asked.do.data, 'data')
  if (create) requireJson(create.options, 'options')
  const [keyId] = asked.id.split('/')
  const answer = await source.requestRoom(projectId, roomId, {
    ...asked,
    ...(create && { create: { principal: `backend:${keyId}`, options: create.options as JsonObject } }),
  })
  if ('code' in answer) throw problemOf(answer)
  const { reply, epoch, seq } = answer
  const fields = asked.do.op === 'call' ? { reply } : (reply as JsonObject)
  return c.json({ ...fields, epoch, seq })
}

/** Problem codes by error code of a room. All others become `room_unavailable`. */
const PROBLEM_OF: { readonly [code in RequestCode]?: ProblemCode } = {
  room_not_found: 'room_not_found',
  unknown_room_type: 'room_not_found',
  room_full: 'room_full',
  room_logic_refused: 'room_logic_refused',
  room_logic_failed: 'room_logic_failed',
  invalid_options: 'invalid_request',
  invalid_request: 'invalid_request',
  conflict: 'conflict',
  cancelled: 'conflict',
  rate_limited: 'rate_limited',
  project_full: 'project_full',
  too_many_rooms: 'too_many_rooms',
  timeout: 'timeout',
}

function problemOf(answer: Extract<RequestAnswer, { code: RequestCode }>): Problem {
  const { code, message, retry_after_seconds: seconds = 1 } = answer
  const problem = PROBLEM_OF[code] ?? 'room_unavailable'
  const again = problem === 'room_unavailable' || problem === 'rate_limited'
  return new Problem(problem, message, again ? { headers: { 'retry-after': `${seconds}` } } : {})
}

/** Number of rooms that one call ends. All are opened and ended at the same time. */
const BATCH = 50

const ROOMS_QUERY = v.object({ project_id: PROJECT_ID, cursor: v.exactOptional(CURSOR) })
const SESSION_QUERY = v.object({ project_id: PROJECT_ID, session_id: v.string() })

async function endRooms(c: Context, source: InternalCallsSource): Promise<Response> {
  const { project_id: projectId, cursor } = validate(ROOMS_QUERY, c.req.query(), 'query')
  const rooms = await source.countedRooms(projectId, BATCH, cursor)
  await Promise.all(
    rooms.map(async ({ roomId }) => {
      const id = `operator/${randomToken(source.random, 16)}`
      const answer = await source.requestRoom(projectId, roomId, { id, hash: '', do: { op: 'close' } })
      if ('reply' in answer || answer.code === 'room_not_found') return
      throw new Problem('room_unavailable', `${roomId} has not ended: ${answer.message}. Try again.`)
    }),
  )
  const last = rooms.length === BATCH ? rooms.at(-1) : undefined
  if (!last) await source.notices.removeAll(projectId)
  return c.json({ ended_rooms: rooms.length, next_cursor: last ? cursorOf(last) : null })
}

async function endSession(c: Context, source: InternalCallsSource): Promise<Response> {
  const { project_id: projectId, session_id: sessionId } = validate(SESSION_QUERY, c.req.query(), 'query')
  if (!(await source.endSession(projectId, sessionId)))
    throw new Problem('session_not_found', `The project ${projectId} has no session ${sessionId}.`)
  return c.json({ project_id: projectId, session_id: sessionId, ended: true })
}
