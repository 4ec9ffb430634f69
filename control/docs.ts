/** `/docs`: the OpenAPI document as one page for people. It is rendered here, so it needs no script and loads nothing. */
import { STYLE } from './docs-style.ts'
import type { OpenApi } from './openapi.ts'

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
export function docsPage(api: OpenApi): string {
  const schemas = (api.components.schemas ?? {}) as Readonly<Record<string, Schema>>
  const routes = Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method): Route => {
      return { method: method.toUpperCase(), path, operation: item[method] as Operation }
    }),
  )
  const groups = api.tags.map(({ name, description }) => ({
    name,
    description: description ?? '',
    routes: routes.filter(({ operation }) => operation.tags?.includes(name)),
  }))
  const links = groups.map(
    (group) => `<h2>${escaped(group.name)}</h2><ul>${group.routes.map(link).join('')}</ul>`,
  )
  const sections = groups.map(
    (group) =>
      `<section><h2>${escaped(group.name)}</h2>${prose(group.description)}${group.routes.map((route) => card(route, schemas)).join('')}</section>`,
  )
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escaped(api.info.title)}</title>
<style>${STYLE}</style>
</head>
<body>
<nav aria-label="Calls"><a class="home" href="#top">${escaped(api.info.title)}</a>${links.join('')}</nav>
<main id="top">
<header><h1>${escaped(api.info.title)}</h1><p class="version">Version ${escaped(api.info.version)} · <a href="openapi.json">openapi.json</a></p>
${prose(api.info.description ?? '')}</header>
${sections.join('\n')}
</main>
</body>
</html>
`
}

const link = (route: Route): string =>
  `<li><a href="#${anchor(route)}">${badge(route.method)}<span>${escaped(route.operation.summary ?? route.path)}</span></a></li>`

function card(route: Route, schemas: Readonly<Record<string, Schema>>): string {
  const { operation, method, path } = route
  const body = operation.requestBody?.content?.['application/json']?.schema
  const body_fields = body ? fields(body, schemas, true) : ''
  const parts = [
    `<h3>${escaped(operation.summary ?? '')}</h3>`,
    `<p class="call">${badge(method)}<code>${escaped(path).replaceAll(/\{(\w+)\}/g, '<var>{$1}</var>')}</code></p>`,
    prose(operation.description ?? ''),
    `<p class="access">${escaped(access(operation))}</p>`,
    parameters(operation.parameters ?? []),
    body_fields === '' ? '' : `<h4>Body</h4>${body_fields}`,
    `<h4>Answers</h4>${answers(operation, schemas)}`,
    `<details><summary>With curl</summary><pre><code>${escaped(curl(route, schemas))}</code></pre></details>`,
  ]
  return `<article id="${anchor(route)}">${parts.join('')}</article>`
}

function access({ security = [] }: Operation): string {
  if (security.some((scheme) => 'internal' in scheme)) return 'Needs x-service-internal-token.'
  return security.length > 0 ? 'Needs Authorization: Bearer <credential>.' : 'Needs no credential.'
}

function parameters(list: readonly Parameter[]): string {
  const shown = list.filter((parameter) => parameter.in !== 'path')
  if (shown.length === 0) return ''
  const rows = shown.map(({ name, schema = {}, required = false, description = '' }) =>
    row(name, schema, required, description),
  )
  return `<h4>Query and headers</h4>${table(rows)}`
}

function answers({ responses = {} }: Operation, schemas: Readonly<Record<string, Schema>>): string {
  return Object.entries(responses)
    .map(([status, response]) => {
      const [media, value] = Object.entries(response.content ?? {})[0] ?? []
      const good = status.startsWith('2')
      const shape = good && value?.schema ? fields(value.schema, schemas, false) : ''
      const head = `<span class="status ${good ? 'good' : 'bad'}">${status}</span> ${inline(response.description ?? '')}`
      return shape
        ? `<details><summary>${head}</summary>${shape}</details>`
        : `<p class="answer">${head}${good && media ? ` <small>${escaped(media)}</small>` : ''}</p>`
    })
    .join('')
}

/** The fields of an object schema as a table; empty for what has none. In answers every field is there, so none is marked required. */
function fields(schema: Schema, schemas: Readonly<Record<string, Schema>>, marks_required: boolean): string {
  const { properties = {}, required = [] } = resolve(schema, schemas)
  const rows = Object.entries(properties).map(([name, property]) => {
    const inner = resolve(property.items ?? property, schemas)
    const nested = inner.properties
      ? `<div class="nested">${fields(inner, schemas, marks_required)}</div>`
      : ''
    const marked = marks_required && required.includes(name)
    return row(name, property, marked, property.description ?? '', nested)
  })
  return rows.length > 0 ? table(rows) : ''
}

const resolve = (schema: Schema, schemas: Readonly<Record<string, Schema>>): Schema =>
  schema.$ref === undefined ? schema : (schemas[nameOf(schema.$ref)] ?? {})

const nameOf = (ref: string): string => ref.slice(ref.lastIndexOf('/') + 1)

const table = (rows: readonly string[]): string => `<table><tbody>${rows.join('')}</tbody></table>`

function row(name: string, schema: Schema, required: boolean, description: string, nested = ''): string {
  const fallback =
    schema.default === undefined ? '' : ` default <code>${escaped(JSON.stringify(schema.default))}</code>`
  const kind = `${escaped(typeOf(schema))}${required ? ' <b>required</b>' : ''}${fallback}`
  return `<tr><th scope="row"><code>${escaped(name)}</code></th><td><span class="kind">${kind}</span>${prose(description)}${nested}</td></tr>`
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
  escaped(operation.operationId ?? `${method}${path.replaceAll(/\W+/g, '-')}`)

const badge = (method: string): string => `<span class="method ${method.toLowerCase()}">${method}</span>`

const prose = (text: string): string =>
  text
    .split('\n\n')
    .filter((paragraph) => paragraph !== '')
    .map((paragraph) => `<p>${inline(paragraph)}</p>`)
    .join('')

const inline = (text: string): string => escaped(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>')

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
