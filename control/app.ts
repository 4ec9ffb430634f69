import { type Context, Hono } from 'hono'
import { matchedRoutes } from 'hono/route'
import type { Registry } from 'prom-client'
import { requestIdOf } from '../shared/ids.ts'
import type { LogLevel } from '../shared/log.ts'
import { Quiet } from '../shared/log.ts'
import {
  PROBLEMS,
  Problem,
  problemResponse,
  storeDataLost,
  storeProblem,
  strayProblem,
} from '../shared/problem.ts'
import { type Rate, RateLimits } from '../shared/rate-limit.ts'
import { type Store, StoreUnavailable } from '../shared/store/port.ts'
import { noSpan, type Span, type Tracer } from '../shared/tracing/tracer.ts'
import { Authentication, allowAdminPages, type OpenTo, requireSameMachine } from './auth.ts'
import { logRoutes, opsRoutes } from './docs.ts'
import { type ControlEnv, Endpoints, type Services } from './endpoint.ts'
import { Keys } from './keys.ts'
import { countRequest, REFUSALS } from './metrics.ts'
import type { Nodes } from './nodes.ts'
import { Players } from './players.ts'
import { Projects } from './projects.ts'
import { Idempotency } from './records.ts'
import { internalRoutes, keyRoutes, tokenRoutes } from './routes/keys.ts'
import { playerRoutes, projectRoutes } from './routes/projects.ts'
import { roomRoutes } from './routes/rooms.ts'

/** Dependencies of the API. */
export interface ControlDeps
  extends Pick<
    Services,
    'keyring' | 'clock' | 'random' | 'metrics' | 'log' | 'notifySecrets' | 'requireKeyId' | 'dataLost'
  > {
  readonly store: Store
  /** Source of `/metrics`. */
  readonly exposition: Pick<Registry, 'metrics' | 'contentType'>
  readonly tracer: Tracer
  /** Empty: the API is open. */
  readonly operatorTokens: readonly string[]
  /** Allowed callers of an open API. */
  readonly openTo: OpenTo
  /** Nodes that receive the calls of rooms. Their admin pages may call control. */
  readonly nodes: Pick<Nodes, 'call' | 'adminPages'>
  /** Undefined: `/internal` answers 401 to everyone. */
  readonly internalToken: string | undefined
  /** Rate of tokens for one caller. */
  readonly tokenRate: Rate
  /** Sets the level of the log of the process, and of its siblings where it is one of several workers. */
  readonly setLogLevel: (level: LogLevel) => void
  /** Returns true while the process shuts down. */
  readonly draining: () => boolean
  /** Returns the error of the process's clock. Undefined: it is right. */
  readonly clockWrong: () => string | undefined
}

/** Routes without log lines: health checks and metrics. */
const QUIET = new Set(['/healthz', '/readyz', '/metrics'])

/** Milliseconds between two log lines about the same failure of the store: each load balancer asks `/readyz` several times a second. */
const STORE_FAILURE_QUIET_MS = 10_000

/** The control API as a Hono app. It has no state, so any number of processes on one store behave as one. */
export function createControlApp(deps: ControlDeps): Hono<ControlEnv> {
  const { store, clock, operatorTokens, internalToken } = deps
  const app = new Hono<ControlEnv>()
  const env = { records: store.records, bus: store.bus, clock, random: deps.random, keyring: deps.keyring }
  const services: Services = {
    ...deps,
    projects: new Projects(env),
    keys: new Keys(env),
    players: new Players(env),
    idempotency: new Idempotency(env),
    tokenLimits: new RateLimits(clock, deps.tokenRate),
  }
  const endpoints = new Endpoints(app, new Authentication({ ...services, operatorTokens, internalToken }))

  observe(app, deps)
  if (operatorTokens.length === 0)
    app.use('*', (c, next) => {
      requireSameMachine(c.req.raw.headers, deps.openTo)
      return next()
    })
  app.use(
    '*',
    allowAdminPages(() => deps.nodes.adminPages(), operatorTokens.length === 0),
  )
  const storeFailures = new Quiet(clock, STORE_FAILURE_QUIET_MS)
  app.onError(async (error, c) => {
    const isUncertain = error instanceof Problem && error.isAbsence && (await deps.dataLost())
    const certain = isUncertain ? storeDataLost() : error
    const problem = asProblem(certain, { ...deps, storeFailures }, c.get('requestId'))
    const { status } = PROBLEMS[problem.code]
    if (status < 500) c.get('span').set({ 'error.type': problem.code })
    else c.get('span').fail(problem.code, PROBLEMS[problem.code].title)
    return problemResponse(problem, c.get('requestId'))
  })
  app.notFound((c) => problemResponse(strayProblem(app.routes, c.req.path), c.get('requestId')))

  projectRoutes(endpoints, services)
  keyRoutes(endpoints, services)
  playerRoutes(endpoints, services)
  tokenRoutes(endpoints, services)
  roomRoutes(endpoints, services)
  internalRoutes(endpoints, services)
  logRoutes(endpoints, deps.setLogLevel)
  opsRoutes(app, deps)
  return app
}

/** Adds an id to every request, and headers, metrics and a log line to every answer. */
function observe(app: Hono<ControlEnv>, deps: ControlDeps): void {
  const { clock, random, metrics, log, tracer, draining } = deps
  app.use('*', async (c, next) => {
    const begun = clock.monotonic()
    const requestId = requestIdOf(c.req.header('x-request-id'), random)
    c.set('requestId', requestId)
    const pattern = matchedRoutes(c).at(-1)?.path ?? '/*'
    const route = pattern === '/*' ? 'unmatched' : pattern
    const quiet = QUIET.has(route)
    const span = quiet ? noSpan : requestSpan(tracer, c, route)
    c.set('span', span)
    await next()
    span.set({ 'http.response.status_code': c.res.status, 'roomful.caller_id': c.get('callerId') })
    span.end()
    c.res.headers.set('x-request-id', requestId)
    c.res.headers.set('cache-control', 'no-store')
    c.res.headers.set('x-content-type-options', 'nosniff')
    if (draining()) c.res.headers.set('connection', 'close')
    const { method } = c.req
    const seconds = Math.round((clock.monotonic() - begun) * 1000) / 1e6
    countRequest(metrics, { method, route, status: c.res.status }, seconds)
    const line = {
      request_id: requestId,
      trace_id: traceId(span),
      method,
      route,
      status: c.res.status,
      seconds,
      caller_id: c.get('callerId'),
    }
    if (quiet) log.debug(line, 'request')
    else log.info(line, 'request')
  })
}

/** Returns the problem that the caller gets for an error. Internal details go to the log only. */
function asProblem(
  error: Error,
  { log, metrics, storeFailures }: ControlDeps & { readonly storeFailures: Quiet },
  requestId: string,
): Problem {
  if (error instanceof Problem) {
    if (REFUSALS.includes(error.code)) metrics.httpRefusals.inc({ code: error.code })
    return error
  }
  if (error instanceof StoreUnavailable) {
    metrics.storeErrors.inc()
    const { failure } = error
    const suppressed = storeFailures.pass(failure)
    if (suppressed !== undefined)
      log.warn({ request_id: requestId, failure, suppressed, err: error }, 'the store failed a request')
    return storeProblem(error)
  }
  log.error({ request_id: requestId, err: error }, 'a request failed')
  return new Problem(
    'internal_error',
    'The service failed at this request. Its log has the details under the request_id.',
  )
}

/** Methods of HTTP and its extensions. Any other method is traced as `_OTHER`, so that callers cannot invent attribute values. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT'])

/** Returns the span of a request, in the caller's trace if the request has one. `route` is the pattern, or `unmatched` for an unknown path. */
function requestSpan(tracer: Tracer, { req }: Context<ControlEnv>, route: string): Span {
  const method = METHODS.has(req.method) ? req.method : '_OTHER'
  const matched = route !== 'unmatched'
  const name = method === '_OTHER' ? 'HTTP' : method
  return tracer.span(matched ? `${name} ${route}` : name, {
    kind: 'server',
    parent: { traceparent: req.header('traceparent'), tracestate: req.header('tracestate') },
    attributes: {
      'http.request.method': method,
      'http.route': matched ? route : undefined,
      // An unknown path may contain anything, such as a credential.
      'url.path': matched ? req.path : undefined,
      'url.scheme': 'http',
    },
  })
}

/** Returns the trace id of a span, for the log. Undefined: the span has no trace. */
const traceId = ({ traceparent }: Span): string | undefined => traceparent?.split('-')[1]
