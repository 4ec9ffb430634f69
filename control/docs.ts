import type { Hono } from 'hono'
import { html, raw } from 'hono/html'
import { type DescribeRouteOptions, describeRoute, generateSpecs, resolver } from 'hono-openapi'
import type { Registry } from 'prom-client'
import type { LogLevel } from '../shared/log.ts'
import { Problem } from '../shared/problem.ts'
import type { Store } from '../shared/store/port.ts'
import type { ControlEnv, Endpoints } from './endpoint.ts'
import { Health, ProblemDocument, SetLogLevel } from './schemas.ts'

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
  const page = lazily(async () => docsPage(await description()))

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

const open = (summary: string, description: string, media: string): DescribeRouteOptions => ({
  tags: ['Operations'],
  summary,
  description,
  security: [],
  responses: { 200: { description: 'The document.', content: { [media]: { schema: { type: 'string' } } } } },
})

const health = { 'application/json': { schema: resolver(Health) } }
const problem = { 'application/problem+json': { schema: resolver(ProblemDocument) } }

const HEALTHZ: DescribeRouteOptions = {
  ...open('Is the process alive?', 'Never depends on the store.', 'application/json'),
  responses: { 200: { description: 'It is alive.', content: health } },
}

const READYZ: DescribeRouteOptions = {
  ...open(
    'Can it serve?',
    'The store accepts writes, the clock agrees with the store’s, and the process is not shutting down.',
    'application/json',
  ),
  responses: {
    200: { description: 'It is ready.', content: health },
    503: {
      description: '`store_unreachable`, `store_full`, `store_refused`, `draining`: it is not ready.',
      content: problem,
    },
  },
}

const METRICS = open('Metrics', 'Prometheus text. Every name starts with service_.', 'text/plain')

const OPENAPI: DescribeRouteOptions = {
  ...open('This description', 'OpenAPI 3.1, made from the schemas that validate.', 'application/json'),
  responses: {
    200: { description: 'OpenAPI.', content: { 'application/json': { schema: { type: 'object' } } } },
  },
}

const DOCS = open('This description, for people', 'One page that loads nothing else.', 'text/html')

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

/** `/docs`: the OpenAPI document as one page. It is rendered on the server, so it needs no script and loads nothing. */

type Html = ReturnType<typeof html>

interface Schema {
  readonly $ref?: string
  readonly type?: string
  readonly format?: string
  readonly description?: string
  readonly enum?: readonly string[]
  readonly anyOf?: readonly Schema[]
  readonly items?: Schema
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly pattern?: string
  readonly default?: unknown
  readonly minimum?: number
  readonly maximum?: number
  readonly maxItems?: number
}

interface Content {
  readonly content?: Readonly<Record<string, { readonly schema?: Schema }>>
  readonly description?: string
}

interface Parameter {
  readonly in: string
  readonly name: string
  readonly required?: boolean
  readonly description?: string
  readonly schema?: Schema
}

interface Operation {
  readonly tags?: readonly string[]
  readonly summary?: string
  readonly description?: string
  readonly operationId?: string
  readonly security?: readonly Readonly<Record<string, unknown>>[]
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: Content
  readonly responses?: Readonly<Record<string, Content>>
}

interface Route {
  readonly method: string
  readonly path: string
  readonly operation: Operation
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete'] as const

/** Returns the page for an API description. */
function docsPage(api: OpenApi): Html {
  const schemas = (api.components.schemas ?? {}) as Readonly<Record<string, Schema>>
  const routes = Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method): Route => {
      return { method: method.toUpperCase(), path, operation: item[method] as Operation }
    }),
  )
  const groups = api.tags.map(({ name, description }) => ({
    name,
    description,
    routes: routes.filter(({ operation }) => operation.tags?.includes(name)),
  }))
  const links = groups.map((group) => html`<h2>${group.name}</h2><ul>${group.routes.map(link)}</ul>`)
  const sections = groups.map(
    (group) =>
      html`<section><h2>${group.name}</h2>${prose(group.description)}${group.routes.map((route) => card(route, schemas))}</section>`,
  )
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${api.info.title}</title>
<style>${raw(STYLE)}</style>
</head>
<body>
<nav aria-label="Calls"><a class="home" href="#top">${api.info.title}</a>${links}</nav>
<main id="top">
<header><h1>${api.info.title}</h1><p class="version">Version ${api.info.version} · <a href="openapi.json">openapi.json</a></p>
${prose(api.info.description)}</header>
${sections}
</main>
</body>
</html>
`
}

const link = (route: Route): Html =>
  html`<li><a href="#${anchor(route)}">${badge(route.method)}<span>${route.operation.summary ?? route.path}</span></a></li>`

function card(route: Route, schemas: Readonly<Record<string, Schema>>): Html {
  const { operation, method, path } = route
  const body = operation.requestBody?.content?.['application/json']?.schema
  const bodyFields = body && fields(body, schemas, true)
  const words = path.split(/(\{\w+\})/).map((part, i) => (i % 2 === 1 ? html`<var>${part}</var>` : part))
  return html`<article id="${anchor(route)}">
<h3>${operation.summary}</h3>
<p class="call">${badge(method)}<code>${words}</code></p>
${prose(operation.description)}
<p class="access">${access(operation)}</p>
${parameters(operation.parameters ?? [])}
${bodyFields && html`<h4>Body</h4>${bodyFields}`}
<h4>Answers</h4>${answers(operation, schemas)}
<details><summary>With curl</summary><pre><code>${curl(route, schemas)}</code></pre></details>
</article>`
}

function access({ security = [] }: Operation): string {
  if (security.some((scheme) => 'internal' in scheme)) return 'Needs x-service-internal-token.'
  return security.length > 0 ? 'Needs Authorization: Bearer <credential>.' : 'Needs no credential.'
}

function parameters(list: readonly Parameter[]): Html | undefined {
  const shown = list.filter((parameter) => parameter.in !== 'path')
  if (shown.length === 0) return undefined
  const rows = shown.map(({ name, schema = {}, required = false, description }) =>
    row(name, schema, required, description),
  )
  return html`<h4>Query and headers</h4>${table(rows)}`
}

function answers({ responses = {} }: Operation, schemas: Readonly<Record<string, Schema>>): Html[] {
  return Object.entries(responses).map(([status, response]) => {
    const [media, value] = Object.entries(response.content ?? {})[0] ?? []
    const good = status.startsWith('2')
    const shape = good && value?.schema && fields(value.schema, schemas, false)
    const head = html`<span class="status ${good ? 'good' : 'bad'}">${status}</span> ${inline(response.description)}`
    return shape
      ? html`<details><summary>${head}</summary>${shape}</details>`
      : html`<p class="answer">${head}${good && media && html` <small>${media}</small>`}</p>`
  })
}

/** Returns the fields of an object schema as a table. Undefined: it has no fields. Answers have all fields, so none is marked as required. */
function fields(
  schema: Schema,
  schemas: Readonly<Record<string, Schema>>,
  marksRequired: boolean,
): Html | undefined {
  const { properties = {}, required = [] } = resolve(schema, schemas)
  const rows = Object.entries(properties).map(([name, property]) => {
    const inner = resolve(property.items ?? property, schemas)
    const nested =
      inner.properties && html`<div class="nested">${fields(inner, schemas, marksRequired)}</div>`
    return row(name, property, marksRequired && required.includes(name), property.description, nested)
  })
  return rows.length > 0 ? table(rows) : undefined
}

const resolve = (schema: Schema, schemas: Readonly<Record<string, Schema>>): Schema =>
  schema.$ref === undefined ? schema : (schemas[nameOf(schema.$ref)] ?? {})

const nameOf = (ref: string): string => ref.slice(ref.lastIndexOf('/') + 1)

const table = (rows: readonly Html[]): Html => html`<table><tbody>${rows}</tbody></table>`

function row(name: string, schema: Schema, required: boolean, description?: string, nested?: Html): Html {
  const fallback =
    schema.default !== undefined && html` default <code>${JSON.stringify(schema.default)}</code>`
  const kind = html`${typeOf(schema)}${required && html` <b>required</b>`}${fallback}`
  return html`<tr><th scope="row"><code>${name}</code></th><td><span class="kind">${kind}</span>${prose(description)}${nested}</td></tr>`
}

function typeOf(schema: Schema): string {
  if (schema.$ref !== undefined) return nameOf(schema.$ref)
  if (schema.enum) return schema.enum.join(' | ')
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(' | ')
  if (schema.type === 'array') return `list of ${schema.items ? typeOf(schema.items) : 'anything'}`
  const characters = /^\^\.\{(\d+),(\d+)\}\$$/.exec(schema.pattern ?? '')
  if (characters) return `text of ${characters[1]} to ${characters[2]} characters`
  const range = schema.minimum === undefined ? '' : `, ${schema.minimum} to ${schema.maximum}`
  return `${schema.format ?? schema.type ?? 'anything'}${range}`
}

function curl({ method, path, operation }: Route, schemas: Readonly<Record<string, Schema>>): string {
  const lines = [`curl ${method === 'GET' ? '' : `-X ${method} `}"$CONTROL_URL${path}"`]
  const needs = access(operation)
  if (needs.includes('internal')) lines.push(`-H "x-service-internal-token: $INTERNAL_TOKEN"`)
  if (needs.includes('Bearer')) lines.push(`-H "authorization: Bearer $CREDENTIAL"`)
  const body = operation.requestBody?.content?.['application/json']?.schema
  const { properties = {}, required = [] } = body ? resolve(body, schemas) : {}
  const sample = Object.fromEntries(
    Object.keys(properties)
      .filter((name) => required.includes(name))
      .map((name) => [name, '…']),
  )
  if (required.length > 0) lines.push(`-H "content-type: application/json"`, `-d '${JSON.stringify(sample)}'`)
  return lines.join(' \\\n  ')
}

const anchor = ({ operation, method, path }: Route): string =>
  operation.operationId ?? `${method}${path.replaceAll(/\W+/g, '-')}`

const badge = (method: string): Html => html`<span class="method ${method.toLowerCase()}">${method}</span>`

const prose = (text = ''): Html[] =>
  text
    .split('\n\n')
    .filter((paragraph) => paragraph !== '')
    .map((paragraph) => html`<p>${inline(paragraph)}</p>`)

/** Returns text as HTML, with code between backticks. */
const inline = (text = ''): (string | Html)[] =>
  text.split(/`([^`]+)`/).map((part, i) => (i % 2 === 1 ? html`<code>${part}</code>` : part))

/** Styles of `/docs`, light and dark. */
const STYLE = `
:root { --ground: #fbfaf8; --panel: #fff; --ink: #1d2129; --soft: #5d6675; --line: #e4e1da; --accent: #2456c9; --get: #17734a; --post: #2456c9; --bad: #a3341f; --code: #f1efea; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14161b; --panel: #1b1e25; --ink: #e7e9ee; --soft: #9aa3b2; --line: #2d323c; --accent: #8fb0ff; --get: #6fd3a3; --post: #8fb0ff; --bad: #f0907c; --code: #252932; }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
body { margin: 0; display: grid; grid-template-columns: 17rem minmax(0, 1fr); background: var(--ground); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.5rem 1rem; border-right: 1px solid var(--line); font-size: .875rem; }
nav .home { display: block; margin: 0 .5rem 1rem; font-weight: 700; font-size: 1rem; color: var(--ink); text-decoration: none; }
nav h2 { margin: 1.25rem .5rem .25rem; font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; color: var(--soft); }
nav ul { list-style: none; margin: 0; padding: 0; }
nav li a { display: flex; gap: .5rem; align-items: baseline; padding: .25rem .5rem; border-radius: .375rem; color: var(--ink); text-decoration: none; }
nav li a:hover, nav li a:focus-visible { background: var(--code); }
main { max-width: 54rem; width: 100%; margin: 0 auto; padding: 2.5rem 2rem 6rem; }
h1 { margin: 0; font-size: 2rem; line-height: 1.2; }
section > h2 { margin: 3rem 0 0; font-size: 1.375rem; }
section > p { color: var(--soft); margin: .25rem 0 1rem; }
h3 { margin: 0; font-size: 1.125rem; }
h4 { margin: 1.25rem 0 .25rem; font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; color: var(--soft); }
a { color: var(--accent); }
article { margin: 1rem 0; padding: 1.25rem 1.5rem; background: var(--panel); border: 1px solid var(--line); border-radius: .75rem; }
article:target { border-color: var(--accent); }
article p { margin: .5rem 0; }
code, pre { font: .875em/1.5 ui-monospace, monospace; }
code { background: var(--code); padding: .1em .3em; border-radius: .25rem; overflow-wrap: anywhere; }
pre { margin: .5rem 0 0; padding: .75rem 1rem; background: var(--code); border-radius: .5rem; overflow-x: auto; }
pre code { background: none; padding: 0; overflow-wrap: normal; }
var { font-style: normal; color: var(--accent); }
.version, .access, .kind, small { color: var(--soft); font-size: .875rem; }
.call { display: flex; gap: .5rem; align-items: center; }
.method { flex: none; font: 700 .6875rem/1 ui-monospace, monospace; color: var(--get); min-width: 2.25rem; }
.method.post { color: var(--post); }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .5rem .75rem .5rem 0; border-top: 1px solid var(--line); text-align: left; vertical-align: top; }
th { width: 11rem; font-weight: 400; }
td p { margin: .125rem 0 0; }
.kind b { color: var(--bad); font-weight: 600; }
.nested { margin-top: .5rem; padding-left: .75rem; border-left: 2px solid var(--line); }
details, .answer { margin: .375rem 0; font-size: .9375rem; }
summary { cursor: pointer; }
.status { display: inline-block; min-width: 2.25rem; font: 700 .8125rem/1 ui-monospace, monospace; }
.status.good { color: var(--get); }
.status.bad { color: var(--bad); }
@media (max-width: 48rem) {
  body { display: block; }
  nav { position: static; height: auto; border-right: 0; border-bottom: 1px solid var(--line); }
  main { padding: 1.5rem 1rem 4rem; }
  th, td { display: block; width: auto; padding: .375rem 0 0; border-top: 0; }
  tr { display: block; padding: .375rem 0; border-top: 1px solid var(--line); }
  html { scroll-behavior: auto; }
}
`
