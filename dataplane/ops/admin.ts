import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Context, Hono, MiddlewareHandler } from 'hono'
import type { Registry } from 'prom-client'
import * as v from 'valibot'
import { createHttpServer, InternalToken } from '../../shared/http-server.ts'
import { LOG_LEVELS, type Logger, type LogLevel } from '../../shared/log.ts'
import { Problem, problemResponse, storeProblem } from '../../shared/problem.ts'
import type { Random } from '../../shared/random.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { readJson, validate } from '../../shared/validate.ts'
import type { ClusterNodeDescription, QueueDescription } from '../descriptions.ts'
import { loadAdminPage, type Page } from './admin-page.ts'
import {
  type ClusterMatches,
  ClusterSearch,
  type ClusterSearchParts,
  MOST_MATCHES,
} from './cluster-search.ts'
import type { Reasons } from './health.ts'
import { type NoticesSource, noticeCalls } from './notices.ts'
import { type ProjectCallsSource, projectCalls } from './projects.ts'
import {
  type AdminEnv,
  countUpTo,
  LONGEST_TEXT,
  newAdminApp,
  PROJECT_ID,
  ROOM_ID,
  SEARCH_TEXT,
} from './query.ts'
import { type RoomCallsSource, roomCalls } from './rooms.ts'
import { type RuntimeSource, runtime } from './runtime.ts'

/** The node that has a room. */
interface RoomOwner {
  readonly node_id: string
  readonly self: boolean
  readonly alive: boolean
  readonly admin_url?: string
}

/** What `GET /admin/owner` answers. */
export interface RoomWhereabouts {
  readonly project_id: string
  readonly room_id: string
  /** Of its last owner; null: the store knows of no such room. */
  readonly epoch: number | null
  /** Null: no node has the room now; the next join opens it. */
  readonly owner: RoomOwner | null
}

/** What the operations side of a node needs to know of it; plain functions, so that it knows nothing of gateway and rooms. */
export interface AdminOptions extends RuntimeSource, RoomCallsSource, NoticesSource, ProjectCallsSource {
  readonly describeCluster: () => readonly ClusterNodeDescription[]
  /** Who owns a room, as recorded; undefined: there is no record of it. Rejects when the store cannot be reached. */
  readonly findOwner: (
    projectId: string,
    roomId: string,
  ) => Promise<{ readonly epoch: number; readonly owner: string | null } | undefined>
  readonly describeQueues: () => readonly QueueDescription[]
  /** Looks for rooms and sessions at all nodes; never rejects. */
  readonly searchCluster: (q: string, limit: number) => Promise<ClusterMatches>
  /** Undefined: everything under `/admin/` answers 401 to everyone. */
  readonly internalToken: string | undefined
  /** Address of the control API, which the page calls. */
  readonly controlUrl: string
  readonly registry: Registry
  readonly random: Random
  readonly log: Logger
  /** Why the node should get no new clients; empty when it can serve. */
  readonly ready: () => Promise<Reasons>
  /** Starts to drain the node, as SIGTERM does; returns at once. */
  readonly drain: () => void
  /** Cordons or uncordons the node. Resolves when the other nodes can read it. */
  readonly setCordoned: (cordoned: boolean) => Promise<void>
  /** Sets the level of the log of the process, and of its siblings where it is one of several workers. */
  readonly setLogLevel: (level: LogLevel) => void
}

/** `/metrics`, `/healthz`, `/readyz`, `/admin` and the calls under it, and the calls under `/internal` that control forwards. */
export function createAdminApp(options: AdminOptions): Hono<AdminEnv> {
  const { registry, log } = options
  const app = newAdminApp(options.random, (error, c) => {
    log.error({ err: error, request_id: c.get('requestId'), path: c.req.path }, 'request failed')
    return new Problem(
      'internal_error',
      'The node failed at this request; its log knows more under the request_id.',
    )
  })
  let page: Promise<Page> | undefined
  const guard = requireToken(options.internalToken)

  app.get('/metrics', async (c) =>
    c.body(await registry.metrics(), 200, { 'content-type': registry.contentType }),
  )
  app.get('/healthz', (c) => c.json({ status: 'alive' }))
  app.get('/readyz', async (c) => {
    const reasons = await options.ready()
    const [first] = reasons
    if (first === undefined) return c.json({ status: 'ready' })
    const detail = `The node cannot serve: ${reasons.map((reason) => reason.detail).join('; ')}.`
    throw new Problem(first.code, detail, { headers: { 'retry-after': '1' } })
  })

  app.get('/admin', async (c) => {
    page ??= loadAdminPage(options.controlUrl)
    const { html, headers } = await page
    return c.html(html, 200, headers)
  })
  app.get('/admin/runtime', guard, (c) =>
    runtime(c, options, (error) =>
      log.error({ err: error, request_id: c.get('requestId'), path: c.req.path }, 'an answer broke off'),
    ),
  )
  // The nodes as this one sees them, itself first.
  app.get('/admin/cluster', guard, (c) =>
    c.json({ nodes: options.describeCluster() }, 200, { 'cache-control': 'no-store' }),
  )
  app.get('/admin/queues', guard, (c) =>
    c.json({ queues: options.describeQueues() }, 200, { 'cache-control': 'no-store' }),
  )
  app.get('/admin/owner', guard, (c) => owner(c, options))
  app.get('/admin/search', guard, (c) => search(c, options))
  app.post('/admin/drain', guard, (c) => {
    log.warn({ request_id: c.get('requestId') }, 'asked to drain')
    options.drain()
    return c.json({ draining: true }, 202)
  })
  for (const action of ['cordon', 'uncordon'] as const)
    app.post(`/admin/${action}`, guard, async (c) => {
      const cordoned = action === 'cordon'
      log.warn({ request_id: c.get('requestId') }, `asked to ${action}`)
      await options.setCordoned(cordoned)
      return c.json({ cordoned })
    })
  app.put('/admin/log-level', guard, async (c) => {
    const { level } = validate(LOG_LEVEL_BODY, await readJson(c.req.raw), 'body')
    options.setLogLevel(level)
    return c.json({ level })
  })

  roomCalls(app, guard, options)
  noticeCalls(app, guard, options)
  projectCalls(app, guard, options)

  app.notFound((c) => {
    const { method, path } = c.req
    const methods = app.routes.flatMap((route) =>
      route.method !== 'ALL' && route.path === path ? route.method : [],
    )
    const allow = [...new Set(methods)].join(', ')
    const problem =
      allow === ''
        ? new Problem('not_found', `There is nothing at ${path.slice(0, 200)}.`)
        : new Problem('method_not_allowed', `${method} does not exist here; ${allow} does.`, {
            headers: { allow },
          })
    return problemResponse(problem, c.get('requestId'))
  })
  return app
}

/** Lets a request pass only with an internal token. */
function requireToken(tokens: string | undefined): MiddlewareHandler<AdminEnv> {
  const internal = new InternalToken(tokens)
  return async (c, next) => {
    if (internal.accepts(c.req.header('x-service-internal-token'))) return next()
    throw new Problem(
      'unauthenticated',
      'The header x-service-internal-token must carry the internal token of this deployment.',
    )
  }
}

const LOG_LEVEL_BODY = v.object({ level: v.picklist(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`) })

const OWNER_QUERY = v.object({ project_id: PROJECT_ID, room_id: ROOM_ID })

const SEARCH_QUERY = v.object({
  q: v.pipe(SEARCH_TEXT, v.minLength(1, `must have 1 to ${LONGEST_TEXT} characters`)),
  limit: v.exactOptional(countUpTo(MOST_MATCHES)),
})
const MATCHES = 50

/** Returns which node has a room. Rejects with a `Problem` while the store does not answer. */
async function whereabouts(
  source: AdminOptions,
  projectId: string,
  roomId: string,
): Promise<RoomWhereabouts> {
  const record = await source.findOwner(projectId, roomId).catch((error: unknown) => {
    throw error instanceof StoreUnavailable ? storeProblem(error) : error
  })
  const node = source.describeCluster().find(({ node_id: nodeId }) => nodeId === record?.owner)
  return {
    project_id: projectId,
    room_id: roomId,
    epoch: record?.epoch ?? null,
    owner: record?.owner
      ? {
          node_id: record.owner,
          self: node?.self ?? false,
          alive: node?.alive ?? false,
          ...(node?.admin_url !== undefined && { admin_url: node.admin_url }),
        }
      : null,
  }
}

/** Answers `GET /admin/owner`: which node has a room, wherever in the cluster it is. */
async function owner(c: Context, source: AdminOptions): Promise<Response> {
  const { project_id: projectId, room_id: roomId } = validate(OWNER_QUERY, c.req.query(), 'query')
  return c.json(await whereabouts(source, projectId, roomId), 200, { 'cache-control': 'no-store' })
}

/** Answers `GET /admin/search`: what matches a text, at whichever node it is. */
async function search(c: Context, source: AdminOptions): Promise<Response> {
  const { q, limit = MATCHES } = validate(SEARCH_QUERY, c.req.query(), 'query')
  return c.json(await source.searchCluster(q, limit), 200, { 'cache-control': 'no-store' })
}

/** The running operations side of a node. */
interface AdminServer {
  readonly host: string
  /** The port it really listens on. */
  readonly port: number
  /** Stops listening and ends the connections. */
  close(): Promise<void>
}

/** What it is made of. */
export type AdminServerOptions = Omit<AdminOptions, 'searchCluster'> & ClusterSearchParts

/** Serves the operations side at an address. Rejects when the address cannot be had, or the store cannot be reached. */
export async function serveAdmin(
  options: AdminServerOptions,
  host: string,
  port: number,
): Promise<AdminServer> {
  const search = new ClusterSearch(options)
  const app = createAdminApp({ ...options, searchCluster: (q, limit) => search.find(q, limit) })
  await search.start()
  const server = await listen(app.fetch, options.random, host, port).catch(async (error: unknown) => {
    await search.stop()
    throw error
  })
  return {
    host,
    port: (server.address() as AddressInfo).port,
    close: async () => {
      await search.stop()
      await new Promise<void>((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      })
    },
  }
}

/** Serves an app at an address that no other worker of this process shares. Rejects when it cannot be had. */
export const listen = (
  fetch: Hono<AdminEnv>['fetch'],
  random: Random,
  host: string,
  port: number,
): Promise<Server> =>
  new Promise((resolve, reject) => {
    const server = createHttpServer(fetch, random)
    server.once('error', reject)
    server.listen({ port, host, exclusive: true }, () => {
      server.off('error', reject)
      resolve(server)
    })
  })
