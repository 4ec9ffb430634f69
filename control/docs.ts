/** `/docs`: the OpenAPI document as one page for people. It is rendered here, so it needs no script and loads nothing. */
import { html, raw } from 'hono/html'
import { STYLE } from './docs-style.ts'
import type { OpenApi } from './openapi.ts'

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

const METHODS = ['get', 'post'] as const

/** The page for an API description. */
export function docsPage(api: OpenApi): Html {
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

/** The fields of an object schema as a table; undefined for what has none. In answers every field is there, so none is marked required. */
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

/** Text in which code stands between backticks. */
const inline = (text = ''): (string | Html)[] =>
  text.split(/`([^`]+)`/).map((part, i) => (i % 2 === 1 ? html`<code>${part}</code>` : part))
