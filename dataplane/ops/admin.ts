import { type Context, Hono, type MiddlewareHandler } from 'hono'
import type { Registry } from 'prom-client'
import * as v from 'valibot'
import { newId } from '../../shared/ids.ts'
import { InternalToken } from '../../shared/internal-token.ts'
import type { Logger } from '../../shared/log.ts'
import type { Random } from '../../shared/random.ts'
import type { RoomDescription, RoomQuery, SessionDescription } from '../descriptions.ts'
import { loadAdminPage } from './admin-page.ts'
import type { Reasons } from './health.ts'
import { problem } from './problem.ts'
import type { NodeDescription, Runtime } from './runtime.ts'

/** What the operations side of a node needs to know of it; plain functions, so that it knows nothing of gateway and rooms. */
export interface AdminOptions {
  /** Undefined: `/admin/runtime` and `/admin/drain` answer 401 to everybody. */
  readonly internal_token: string | undefined
  readonly registry: Registry
  readonly random: Random
  readonly log: Logger
  /** Why the node should get no new clients; empty when it can serve. */
  readonly ready: () => Promise<Reasons>
  readonly describeNode: () => NodeDescription
  readonly describeRooms: (query: RoomQuery) => readonly RoomDescription[]
  readonly describeSessions: () => readonly SessionDescription[]
  /** Starts to drain the node, as SIGTERM does; returns at once. */
  readonly drain: () => void
}

/** Variables of a request. */
export type AdminEnv = { Variables: { request_id: string } }

const QUERY = v.object({
  include_state: v.optional(v.picklist(['0', '1'], 'must be 1 or 0')),
  room_id: v.optional(v.pipe(v.string(), v.regex(/^[^:]+:.+$/s, 'must be type:key'))),
  project_id: v.optional(v.pipe(v.string(), v.minLength(1, 'must not be empty'))),
})

/** `/metrics`, `/healthz`, `/readyz`, `/admin`, `/admin/runtime` and `/admin/drain`. */
export function createAdminApp(options: AdminOptions): Hono<AdminEnv> {
  const { registry, log } = options
  const app = new Hono<AdminEnv>()
  const page = loadAdminPage()
  const guard = requireToken(options.internal_token)

  app.use(async (c, next) => {
    c.set('request_id', newId('req', options.random))
    await next()
    c.header('x-request-id', c.get('request_id'))
  })

  app.get('/metrics', async (c) =>
    c.body(await registry.metrics(), 200, { 'content-type': registry.contentType }),
  )
  app.get('/healthz', (c) => c.json({ status: 'alive' }))
  app.get('/readyz', async (c) => {
    const reasons = await options.ready()
    const [first] = reasons
    if (first === undefined) return c.json({ status: 'ready' })
    c.header('retry-after', '1')
    const detail = reasons.map((reason) => reason.detail).join('; ')
    return problem(c, { status: 503, code: first.code, title: 'The node cannot serve', detail })
  })

  app.get('/admin', (c) => c.html(page.html, 200, page.headers))
  app.get('/admin/runtime', guard, (c) => runtime(c, options))
  app.post('/admin/drain', guard, (c) => {
    log.warn({ request_id: c.get('request_id') }, 'asked to drain')
    options.drain()
    return c.json({ draining: true }, 202)
  })

  for (const [path, allow] of Object.entries(METHODS))
    app.all(path, (c) => {
      c.header('allow', allow)
      return problem(c, {
        status: 405,
        code: 'method_not_allowed',
        title: 'Method not allowed',
        detail: `${c.req.method} does not exist here; ${allow} does`,
      })
    })
  app.notFound((c) =>
    problem(c, {
      status: 404,
      code: 'not_found',
      title: 'Not found',
      detail: `there is nothing at ${c.req.path}`,
    }),
  )
  app.onError((error, c) => {
    log.error({ err: error, request_id: c.get('request_id'), path: c.req.path }, 'request failed')
    return problem(c, {
      status: 500,
      code: 'internal_error',
      title: 'Internal error',
      detail: 'the node failed to answer; its log says why',
    })
  })
  return app
}

const METHODS = {
  '/metrics': 'GET',
  '/healthz': 'GET',
  '/readyz': 'GET',
  '/admin': 'GET',
  '/admin/runtime': 'GET',
  '/admin/drain': 'POST',
}

/** The node, its rooms and its sessions; with `room_id` or `project_id` only the rooms that match, and the sessions in them. */
function runtime(c: Context<AdminEnv>, options: AdminOptions): Response {
  const parsed = v.safeParse(QUERY, c.req.query())
  if (!parsed.success)
    return problem(c, {
      status: 400,
      code: 'invalid_request',
      title: 'Invalid request',
      detail: 'the query is not understood',
      errors: parsed.issues.map((issue) => ({ path: v.getDotPath(issue) ?? '', message: issue.message })),
    })
  const { include_state, room_id, project_id } = parsed.output
  const query: RoomQuery = {
    include_state: include_state === '1',
    ...(room_id !== undefined && { room_id }),
    ...(project_id !== undefined && { project_id }),
  }
  const answer: Runtime = {
    node: options.describeNode(),
    rooms: options.describeRooms(query).filter((room) => fits(room, query)),
    sessions: options
      .describeSessions()
      .filter((session) => room_id === undefined || session.rooms.includes(room_id))
      .filter((session) => project_id === undefined || session.project_id === project_id),
  }
  return c.json(answer, 200, { 'cache-control': 'no-store' })
}

const fits = (room: RoomDescription, query: RoomQuery): boolean =>
  (query.room_id === undefined || room.room_id === query.room_id) &&
  (query.project_id === undefined || room.project_id === query.project_id)

/** Lets a request pass only with an internal token. */
function requireToken(tokens: string | undefined): MiddlewareHandler<AdminEnv> {
  const internal = new InternalToken(tokens)
  return async (c, next) => {
    if (internal.accepts(c.req.header('x-service-internal-token'))) return next()
    return problem(c, {
      status: 401,
      code: 'unauthenticated',
      title: 'Unauthenticated',
      detail: 'the header x-service-internal-token must carry the internal token of this deployment',
    })
  }
}
