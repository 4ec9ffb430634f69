import { Hono, type MiddlewareHandler } from 'hono'
import type { Registry } from 'prom-client'
import { newId } from '../../shared/ids.ts'
import { InternalToken } from '../../shared/internal-token.ts'
import type { Logger } from '../../shared/log.ts'
import type { Random } from '../../shared/random.ts'
import { loadAdminPage, type Page } from './admin-page.ts'
import { type ClusterSource, cluster, owner, search } from './cluster-view.ts'
import type { Reasons } from './health.ts'
import { problem } from './problem.ts'
import { type RuntimeSource, runtime } from './runtime.ts'

/** What the operations side of a node needs to know of it; plain functions, so that it knows nothing of gateway and rooms. */
export interface AdminOptions extends RuntimeSource, ClusterSource {
  /** Undefined: everything under `/admin/` answers 401 to everybody. */
  readonly internal_token: string | undefined
  readonly registry: Registry
  readonly random: Random
  readonly log: Logger
  /** Why the node should get no new clients; empty when it can serve. */
  readonly ready: () => Promise<Reasons>
  /** Starts to drain the node, as SIGTERM does; returns at once. */
  readonly drain: () => void
}

/** Variables of a request. */
export type AdminEnv = { Variables: { request_id: string } }

/** `/metrics`, `/healthz`, `/readyz`, `/admin` and the calls under it. */
export function createAdminApp(options: AdminOptions): Hono<AdminEnv> {
  const { registry, log } = options
  const app = new Hono<AdminEnv>()
  let page: Promise<Page> | undefined
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

  app.get('/admin', async (c) => {
    page ??= loadAdminPage()
    const { html, headers } = await page
    return c.html(html, 200, headers)
  })
  app.get('/admin/runtime', guard, (c) =>
    runtime(c, options, (error) =>
      log.error({ err: error, request_id: c.get('request_id'), path: c.req.path }, 'an answer broke off'),
    ),
  )
  app.get('/admin/cluster', guard, (c) => cluster(c, options))
  app.get('/admin/owner', guard, (c) => owner(c, options))
  app.get('/admin/search', guard, (c) => search(c, options))
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
  '/admin/cluster': 'GET',
  '/admin/owner': 'GET',
  '/admin/search': 'GET',
  '/admin/drain': 'POST',
}

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
