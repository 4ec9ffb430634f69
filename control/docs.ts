import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { Hono } from 'hono'
import { type DescribeRouteOptions, describeRoute, generateSpecs, resolver } from 'hono-openapi'
import type { Registry } from 'prom-client'
import type { LogLevel } from '../shared/log.ts'
import { Problem, type ProblemCode } from '../shared/problem.ts'
import type { Store } from '../shared/store/port.ts'
import { type ControlEnv, type Endpoints, problemAnswer, sample } from './endpoint.ts'
import { Health, SetLogLevel } from './schemas.ts'

/** `/healthz`, `/readyz`, `/metrics`, `/openapi.json` and `/docs`, which need no credential. */
export function opsRoutes(
  app: Hono<ControlEnv>,
  {
    store,
    exposition,
    draining,
    clockWrong,
  }: {
    readonly store: Store
    readonly exposition: Pick<Registry, 'metrics' | 'contentType'>
    readonly draining: () => boolean
    readonly clockWrong: () => string | undefined
  },
): void {
  const description = lazily(() => describeApi(app))
  const script = lazily(explorer)

  app.get('/healthz', describeRoute(HEALTHZ), (c) => c.json({ status: 'alive' }))

  app.get('/readyz', describeRoute(READYZ), async (c) => {
    if (draining())
      throw new Problem('draining', 'The process is shutting down: use another one.', {
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

  app.get('/docs', describeRoute(DOCS), (c) => c.html(PAGE, 200, PAGE_HEADERS))
  app.get('/docs/explorer.js', async (c) =>
    c.body(await script(), 200, { 'content-type': 'text/javascript; charset=utf-8' }),
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
        'Applies to the answering process with all its workers, until its next start. LOG_LEVEL is the level at the start.',
      access: 'operator',
      body: SetLogLevel,
      answer: { status: 200, description: 'The new level.', schema: SetLogLevel },
      problems: [],
    },
    async ({ body }) => {
      setLogLevel(body.level)
      return body
    },
  )
}

/** Returns a function that makes a value at its first call and then returns the same value. */
function lazily<Value>(make: () => Promise<Value>): () => Promise<Value> {
  let value: Promise<Value> | undefined
  return () => {
    value ??= make()
    return value
  }
}

/** Returns the description of a call without a credential. `problems`: its answer with 503. */
const open = (
  path: string,
  about: { readonly summary: string; readonly description: string },
  content: ResponseContent,
  problems?: readonly ProblemCode[],
): DescribeRouteOptions => ({
  ...about,
  tags: ['Operations'],
  security: [],
  responses: {
    200: { description: 'The answer.', content },
    ...(problems && { 503: problemAnswer(problems) }),
  },
  ...sample(`curl "$CONTROL_URL${path}"`),
})

type ResponseContent = { readonly [media: string]: { readonly schema: object; readonly example?: unknown } }

const HEALTHZ = open(
  '/healthz',
  { summary: 'Is the process alive?', description: 'Never depends on the store.' },
  { 'application/json': { schema: resolver(Health), example: { status: 'alive' } } },
)

const READYZ = open(
  '/readyz',
  {
    summary: 'Can it serve?',
    description:
      'The store accepts writes, the clock agrees with the store’s, and the process is not shutting down.',
  },
  { 'application/json': { schema: resolver(Health), example: { status: 'ready' } } },
  ['store_unreachable', 'store_full', 'store_refused', 'draining', 'clock_wrong'],
)

const METRICS = open(
  '/metrics',
  { summary: 'Metrics', description: 'Prometheus text. Every name starts with service_.' },
  { 'text/plain': { schema: { type: 'string' }, example: 'service_store_up 1' } },
)

const OPENAPI = open(
  '/openapi.json',
  { summary: 'This description', description: 'OpenAPI 3.1, made from the schemas that validate.' },
  { 'application/json': { schema: { type: 'object' }, example: { openapi: '3.1.0' } } },
)

const DOCS = open(
  '/docs',
  { summary: 'This description, for people', description: 'A page that needs no other server.' },
  { 'text/html': { schema: { type: 'string' }, example: '<!doctype html>…' } },
)

/** The OpenAPI 3.1 document of the control API. */
type OpenApi = Awaited<ReturnType<typeof generateSpecs>>

/** Version of the API, not of the software. */
const API_VERSION = '1.0.0'

const DESCRIPTION = `For game backends, never for game clients. A backend creates projects and keys, and exchanges a key’s secret for
short-lived client tokens that it hands to its players. It calls rooms and acts on players.

Send \`Authorization: Bearer <credential>\`: an operator token, which may call everything but \`/internal\`, or a key’s secret, which may
read its own project’s keys, and do there what its scopes allow. Times are RFC 3339 in UTC with milliseconds. Ids are opaque. A body
field that is not known is refused. Errors are \`application/problem+json\` (RFC 9457) with a stable \`code\`, and every answer has an
\`x-request-id\` (yours, when you send a sensible one). Bodies may have 64 KiB.`

/** Returns the description of all endpoints on `app`, from the schemas that validate requests. */
function describeApi(app: Hono<ControlEnv>): Promise<OpenApi> {
  return generateSpecs(app, {
    excludeStaticFile: false,
    documentation: {
      info: { title: 'roomful control API', version: API_VERSION, description: DESCRIPTION },
      tags: [
        { name: 'Projects', description: 'A game, or one stage of it.' },
        {
          name: 'Keys',
          description: 'Credentials of backends, with the key pairs that sign their tokens.',
        },
        { name: 'Tokens', description: 'Credentials of game clients.' },
        { name: 'Rooms', description: 'Rooms that run on nodes or sleep in the store.' },
        { name: 'Internal', description: 'Calls of nodes.' },
        { name: 'Operations', description: 'Health, metrics and this description. No credential is needed.' },
      ],
      components: {
        securitySchemes: {
          bearer: {
            type: 'http',
            scheme: 'bearer',
            description: 'An operator token, or the secret of a key.',
          },
          internal: { type: 'apiKey', in: 'header', name: 'x-service-internal-token' },
        },
      },
    },
  })
}

/**
 * `/docs`: the OpenAPI document as a page of OpenAPI Explorer. The page shows requests to copy and sends none, so it never has a credential.
 * The styles replace those of the element, which has no dark colours.
 */
const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>roomful control API</title>
<link rel="icon" href="data:,">
<style>
body { margin: 0; height: 100vh }
openapi-explorer {
  --font-regular: system-ui, sans-serif; --font-mono: ui-monospace, monospace;
  --font-size-regular: 16px; --font-size-small: 15px; --font-size-mono: 14px;
  --bg: #fff; --bg2: #f8f7f5; --bg3: #f1efea; --light-bg: #e4e1da; --input-bg: #fff; --hover-color: #f1efea;
  --fg: #1d2129; --fg2: #1d2129; --fg3: #4a5260; --light-fg: #5d6675;
  --border-color: #d9d5cc; --light-border-color: #e4e1da; --header-bg: #1d2129; --header-color-border: #d9d5cc;
  --primary-color: #2456c9; --secondary-color: #2456c9; --primary-btn-text-color: #fff;
  --nav-bg-color: #f8f7f5; --nav-text-color: #1d2129; --nav-hover-bg-color: #e4e1da; --nav-hover-text-color: #1d2129;
  --code-fg: #1d2129; --inline-code-fg: #8a2a2a;
  --red: #b3261e; --orange: #a24a00; --yellow: #7a5c00; --green: #17734a; --blue: #2456c9;
}
@media (prefers-color-scheme: dark) {
  openapi-explorer {
    --bg: #14161b; --bg2: #1b1e25; --bg3: #252932; --light-bg: #2d323c; --input-bg: #1b1e25; --hover-color: #252932;
    --fg: #e7e9ee; --fg2: #e7e9ee; --fg3: #c3c9d4; --light-fg: #9aa3b2;
    --border-color: #3a404c; --light-border-color: #2d323c; --header-bg: #e7e9ee; --header-color-border: #3a404c;
    --primary-color: #8fb0ff; --secondary-color: #8fb0ff; --primary-btn-text-color: #14161b;
    --nav-bg-color: #1b1e25; --nav-text-color: #e7e9ee; --nav-hover-bg-color: #2d323c; --nav-hover-text-color: #e7e9ee;
    --code-fg: #e7e9ee; --inline-code-fg: #f0a99c;
    --code-property-color: #f0a99c; --code-keyword-color: #8fb0ff; --code-operator-color: #c3c9d4;
    --red: #f0907c; --orange: #f0b07c; --yellow: #e6c96a; --green: #6fd3a3; --blue: #8fb0ff;
    --light-red: #2b1d1b; --light-orange: #2b231b; --light-yellow: #29261a; --light-green: #17261f; --light-blue: #1a2130;
  }
}
</style>
</head>
<body>
<openapi-explorer spec-url="openapi.json" default-schema-tab="body" hide-authentication hide-components hide-console hide-server-selection></openapi-explorer>
<script type="module" src="docs/explorer.js"></script>
</body>
</html>
`

const PAGE_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
}

/** Resolves with the script of OpenAPI Explorer: the copy in the package, or in a clone that of its own package. */
function explorer(): Promise<string> {
  const built = new URL('explorer.js', import.meta.url)
  const source = () => import.meta.resolve('openapi-explorer/dist/browser/openapi-explorer.min.js')
  return readFile(existsSync(built) ? built : new URL(source()), 'utf8')
}
