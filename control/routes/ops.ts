import type { Hono } from 'hono'
import { type DescribeRouteOptions, describeRoute, resolver } from 'hono-openapi'
import type { Registry } from 'prom-client'
import type { LogLevel } from '../../shared/log.ts'
import { Problem } from '../../shared/problem.ts'
import type { Store } from '../../shared/store/port.ts'
import { describeApi, docsPage } from '../docs.ts'
import type { ControlEnv, Endpoints } from '../endpoint.ts'
import { Health, ProblemDocument, SetLogLevel } from '../schemas.ts'

/** `/healthz`, `/readyz`, `/metrics`, `/openapi.json`, `/docs`: they need no credential. */
export function opsRoutes(
  app: Hono<ControlEnv>,
  parts: {
    store: Store
    exposition: Pick<Registry, 'metrics' | 'contentType'>
    draining: () => boolean
    clockWrong: () => string | undefined
  },
): void {
  const { store, exposition, draining, clockWrong } = parts
  const description = lazily(() => describeApi(app))
  const page = lazily(async () => docsPage(await description()))

  app.get('/healthz', describeRoute(HEALTHZ), (c) => c.json({ status: 'alive' }))

  app.get('/readyz', describeRoute(READYZ), async (c) => {
    if (draining())
      throw new Problem('draining', 'The process is going away; ask another.', {
        headers: { 'retry-after': '1' },
      })
    await store.ping()
    const wrong = clockWrong()
    if (wrong !== undefined) throw new Problem('clock_wrong', `Not ready: ${wrong}.`)
    return c.json({ status: 'ready' })
  })

  app.get('/metrics', describeRoute(METRICS), async (c) =>
    c.body(await exposition.metrics(), 200, { 'content-type': exposition.contentType }),
  )

  app.get('/openapi.json', describeRoute(OPENAPI), async (c) => c.json(await description()))

  app.get('/docs', describeRoute(DOCS), async (c) =>
    c.html(await page(), 200, {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    }),
  )
}

/** `PUT /admin/log-level`. */
export function logRoutes(endpoints: Endpoints, setLogLevel: (level: LogLevel) => void): void {
  endpoints.mount(
    {
      method: 'PUT',
      path: '/admin/log-level',
      tag: 'Operations',
      summary: 'Set the level of the log',
      description:
        'Of the process that answers, with all its workers, until its next start. LOG_LEVEL is the level at the start.',
      access: 'operator',
      body: SetLogLevel,
      answer: { status: 200, description: 'The level from now on.', schema: SetLogLevel },
      problems: [],
    },
    async ({ body }) => {
      setLogLevel(body.level)
      return body
    },
  )
}

/** Makes a value when it is first asked for. */
function lazily<Value>(make: () => Promise<Value>): () => Promise<Value> {
  let value: Promise<Value> | undefined
  return () => {
    value ??= make()
    return value
  }
}

const open = (summary: string, description: string, media: string): DescribeRouteOptions => ({
  tags: ['Operations'],
  summary,
  description,
  security: [],
  responses: { 200: { description: 'As it says.', content: { [media]: { schema: { type: 'string' } } } } },
})

const health = { 'application/json': { schema: resolver(Health) } }
const problem = { 'application/problem+json': { schema: resolver(ProblemDocument) } }

const HEALTHZ: DescribeRouteOptions = {
  ...open('Is the process alive?', 'Never depends on the store.', 'application/json'),
  responses: { 200: { description: 'It is.', content: health } },
}

const READYZ: DescribeRouteOptions = {
  ...open(
    'Can it serve?',
    'The store takes writes, the clock agrees with the store’s, and the process is not going away.',
    'application/json',
  ),
  responses: {
    200: { description: 'It can.', content: health },
    503: {
      description: '`store_unreachable`, `store_full`, `store_refused`, `draining`: it cannot, for now.',
      content: problem,
    },
  },
}

const METRICS = open('Figures', 'Prometheus text; every name begins with service_.', 'text/plain')

const OPENAPI: DescribeRouteOptions = {
  ...open('This description', 'OpenAPI 3.1, made from the schemas that validate.', 'application/json'),
  responses: {
    200: { description: 'OpenAPI.', content: { 'application/json': { schema: { type: 'object' } } } },
  },
}

const DOCS = open('This description, for people', 'One page that loads nothing else.', 'text/html')
