import type { AddressInfo } from 'node:net'
import type { Context, Hono } from 'hono'
import type { Registry } from 'prom-client'
import * as v from 'valibot'
import { type Clock, within } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import { LOG_LEVELS, type LogLevel } from '../../shared/log.ts'
import { Problem, problemResponse, storeReason, strayProblem } from '../../shared/problem.ts'
import { Slices } from '../../shared/slices.ts'
import type { StoreFailure } from '../../shared/store/port.ts'
import { readJson, validate } from '../../shared/validate.ts'
import type { ClusterNodeDescription, ProblemDescription, QueueDescription } from '../descriptions.ts'
import { loadAdminPage, type Page } from './admin-page.ts'
import {
  type AdminEnv,
  countUpTo,
  LONGEST_TEXT,
  listen,
  newAdminApp,
  PAGE_LIMIT,
  PROJECT_ID,
  ROOM_ID,
  requireToken,
  SEARCH_TEXT,
  withStore,
} from './http.ts'
import { type InternalCallsSource, internalCalls } from './internal.ts'
import { type ClusterMatches, MOST_MATCHES, type RuntimeSource, runtime } from './runtime.ts'

/** The node that owns a room. */
interface OwningNode {
  readonly node_id: string
  readonly self: boolean
  readonly alive: boolean
  readonly admin_url?: string
}

/** Answer of `GET /admin/owner`. */
export interface RoomWhereabouts {
  readonly project_id: string
  readonly room_id: string
  /** Epoch of the room's latest owner. Null: the store has no such room. */
  readonly epoch: number | null
  /** True: the store knows the epoch of the room, but no state and no owner. The room has ended, or has expired. */
  readonly ended: boolean
  /** Null: no node owns the room now; the next join opens it. */
  readonly owner: OwningNode | null
}

/** The owner of a room as its record names it. */
interface RecordedOwner {
  readonly epoch: number
  /** Node id. Null: no node owns the room. */
  readonly owner: string | null
  /** True: the room has ended. */
  readonly ended: boolean
}

/** Dependencies of a node's operations side. They are plain functions, so that it does not import gateway and rooms. */
export interface AdminOptions extends RuntimeSource, InternalCallsSource {
  readonly describeCluster: () => readonly ClusterNodeDescription[]
  readonly search: {
    find(q: string, limit: number): Promise<ClusterMatches>
    start(): Promise<void>
    stop(): Promise<void>
  }
  readonly log: Logger
  /** Returns the recorded owner of a room. Undefined: the room has no record. Rejects with `StoreUnavailable`. */
  readonly findOwner: (projectId: string, roomId: string) => Promise<RecordedOwner | undefined>
  readonly describeQueues: () => readonly QueueDescription[]
  /** Undefined: all calls under `/admin/` answer 401. */
  readonly internalToken: string | undefined
  /** Address of the control API, which the page calls. */
  readonly controlUrl: string
  readonly registry: Registry
  /** Returns the reasons why the node should get no new clients. Empty: it can serve. */
  readonly ready: () => Promise<Reasons>
  /** Starts to drain the node, as SIGTERM does. Returns before the drain ends. */
  readonly drain: () => void
  /** Cordons or uncordons the node. Resolves when other nodes can see it. */
  readonly setCordoned: (cordoned: boolean) => Promise<void>
  /** Sets the log level of the process, and of the other workers if it is a worker. */
  readonly setLogLevel: (level: LogLevel) => void
}

/** Creates the app of `/metrics`, `/healthz`, `/readyz`, `/admin` with its calls, and the calls under `/internal` that control forwards. */
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
  const slices = new Slices(options.clock, 1)

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
    runtime(c, options, slices, (error) =>
      log.error({ err: error, request_id: c.get('requestId'), path: c.req.path }, 'answer aborted'),
    ),
  )
  // The nodes from the view of this one, itself first.
  app.get('/admin/cluster', guard, async (c) => {
    const own = await options.ready()
    const nodes = options.describeCluster().map((node) => describedNode(node, own))
    return c.json({ nodes }, 200, NOT_STORED)
  })
  app.get('/admin/queues', guard, (c) => c.json({ queues: options.describeQueues() }, 200, NOT_STORED))
  app.get('/admin/owner', guard, (c) => withStore(() => owner(c, options)))
  app.get('/admin/search', guard, async (c) => {
    const { q, limit = MATCHES } = validate(SEARCH_QUERY, c.req.query(), 'query')
    return c.json(await options.search.find(q, limit), 200, NOT_STORED)
  })
  app.post('/admin/drain', guard, (c) => {
    log.warn({ request_id: c.get('requestId') }, 'asked to drain')
    options.drain()
    return c.json({ draining: true }, 202)
  })
  for (const action of ['cordon', 'uncordon'] as const)
    app.post(`/admin/${action}`, guard, async (c) => {
      const cordoned = action === 'cordon'
      log.warn({ request_id: c.get('requestId') }, cordoned ? 'asked to cordon' : 'asked to uncordon')
      await options.setCordoned(cordoned)
      return c.json({ cordoned })
    })
  app.put('/admin/log-level', guard, async (c) => {
    const { level } = validate(LOG_LEVEL_BODY, await readJson(c.req.raw), 'body')
    options.setLogLevel(level)
    return c.json({ level })
  })

  const { notices } = options
  app.get('/admin/notices', guard, (c) =>
    withStore(async () => {
      const { project_id: projectId, limit, cursor } = validate(NOTICES_QUERY, c.req.query(), 'query')
      return c.json(await notices.describe(projectId, limit, cursor), 200, NOT_STORED)
    }),
  )
  app.post('/admin/notices/resend', guard, (c) =>
    withStore(async () => {
      const { project_id: projectId, id } = validate(RESEND_BODY, await readJson(c.req.raw), 'body')
      return c.json(await notices.resend(projectId, id))
    }),
  )
  internalCalls(app, guard, options)

  app.notFound((c) => problemResponse(strayProblem(app.routes, c.req.path), c.get('requestId')))
  return app
}

const NOT_STORED = { 'cache-control': 'no-store' }

const LOG_LEVEL_BODY = v.object({ level: v.picklist(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`) })

const OWNER_QUERY = v.object({ project_id: PROJECT_ID, room_id: ROOM_ID })

const SEARCH_QUERY = v.object({
  q: v.pipe(SEARCH_TEXT, v.minLength(1, `must have 1 to ${LONGEST_TEXT} characters`)),
  limit: v.exactOptional(countUpTo(MOST_MATCHES)),
})
const MATCHES = 50

const NOTICES_QUERY = v.strictObject({
  project_id: v.optional(PROJECT_ID, ''),
  limit: PAGE_LIMIT,
  cursor: v.exactOptional(v.string()),
})
const RESEND_BODY = v.strictObject({ project_id: PROJECT_ID, id: v.exactOptional(v.string()) })

/** Answers `GET /admin/owner`: the node that owns a room. */
async function owner(c: Context, source: AdminOptions): Promise<Response> {
  const { project_id, room_id } = validate(OWNER_QUERY, c.req.query(), 'query')
  const record = await source.findOwner(project_id, room_id)
  const node = source.describeCluster().find(({ node_id: nodeId }) => nodeId === record?.owner)
  const answer: RoomWhereabouts = {
    project_id,
    room_id,
    epoch: record?.epoch ?? null,
    ended: record?.ended ?? false,
    owner: record?.owner
      ? {
          node_id: record.owner,
          self: node?.self ?? false,
          alive: node?.alive ?? false,
          ...(node?.admin_url !== undefined && { admin_url: node.admin_url }),
        }
      : null,
  }
  return c.json(answer, 200, NOT_STORED)
}

/** A node in the answer of `GET /admin/cluster`. */
export interface ClusterNode extends Omit<ClusterNodeDescription, 'lease_lost' | 'outdated' | 'clock_wrong'> {
  /** Reasons why it should get no new clients. Empty: none is known, or it is not alive. */
  readonly not_ready: readonly ProblemDescription[]
}

/** `own`: the reasons of the node that answers. The others are judged by their leases, which a node writes only if it reaches the store. */
function describedNode(description: ClusterNodeDescription, own: Reasons): ClusterNode {
  const { lease_lost: isLost, outdated: isOutdated, clock_wrong: clock, ...node } = description
  if (node.self) return { ...node, not_ready: own }
  if (!node.alive) return { ...node, not_ready: [] }
  const reasons = [
    ...(node.draining ? [DRAINING] : []),
    ...(node.cordoned ? [CORDONED] : []),
    ...(isLost ? [LEASE_LOST] : []),
    ...(clock === undefined ? [] : [{ code: 'clock_wrong', detail: clock } as const]),
    ...(isOutdated ? [OUTDATED] : []),
  ]
  return { ...node, not_ready: reasons }
}

/** The running operations side of a node. */
interface AdminServer {
  readonly host: string
  /** The actual port. */
  readonly port: number
  /** Stops listening and ends the connections. */
  close(): Promise<void>
}

/** Serves the operations side at an address. Rejects if the address is not available, or the store cannot be reached. */
export async function serveAdmin(options: AdminOptions, host: string, port: number): Promise<AdminServer> {
  const { search } = options
  const app = createAdminApp(options)
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

/** A reason why a node cannot serve. */
interface Reason {
  readonly code: 'draining' | 'cordoned' | StoreFailure | 'lease_lost' | 'clock_wrong'
  readonly detail: string
}

/** Reasons why a node should get no new clients. Empty: it can serve. */
type Reasons = readonly Reason[]

/** Dependencies of the readiness of a node. */
interface ReadinessSource {
  /** Resolves if the store accepts writes. */
  readonly ping: () => Promise<void>
  readonly draining: () => boolean
  readonly cordoned: () => boolean
  readonly leaseValid: () => boolean
  /** Returns what is wrong with the node's clock. Undefined: it is right. */
  readonly clockWrong: () => string | undefined
  readonly clock: Clock
}

/** Maximum time for the store to answer. */
const TIMEOUT_MS = 1000
const DRAINING: Reason = { code: 'draining', detail: 'the node is draining' }
const CORDONED: Reason = {
  code: 'cordoned',
  detail: 'the node is cordoned: it accepts no new rooms and sessions',
}
const LEASE_LOST: Reason = { code: 'lease_lost', detail: 'the lease of the node has run out' }
/** Of another node, from the view of a node that does not reach the store. */
const OUTDATED: ProblemDescription = {
  code: 'unknown',
  detail: 'the node that answers cannot read the store, so this is from before',
}
const LATE: Reason = { code: 'store_unreachable', detail: `the store did not answer within ${TIMEOUT_MS} ms` }

/**
 * Returns the check of `/readyz`: the store accepts writes, the lease is valid, the node's clock agrees with the store's, and the node is neither
 * draining nor cordoned. Concurrent calls share one question to the store, so that a hanging store does not get more and more of them.
 */
export function readiness({
  ping,
  draining,
  cordoned,
  leaseValid,
  clockWrong,
  clock,
}: ReadinessSource): () => Promise<Reasons> {
  let asking: Promise<Reasons> | undefined
  /** The last failure of the store. Without a connection, it comes after the time limit, and names the cause for later calls. */
  let known = LATE
  const ask = async (): Promise<Reasons> => {
    const answer = ping().then(
      () => {
        known = LATE
        return []
      },
      (error: unknown) => {
        known = storeReason(error)
        return [known]
      },
    )
    const reasons = await within(clock, TIMEOUT_MS, answer, () => [known])
    asking = undefined
    return reasons
  }
  return async () => {
    asking ??= ask()
    const store = await asking
    const wrong = clockWrong()
    return [
      ...(draining() ? [DRAINING] : []),
      ...(cordoned() ? [CORDONED] : []),
      ...store,
      ...(leaseValid() ? [] : [LEASE_LOST]),
      ...(wrong === undefined ? [] : [{ code: 'clock_wrong', detail: wrong } as const]),
    ]
  }
}
