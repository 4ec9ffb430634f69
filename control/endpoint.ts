import { toJsonSchema } from '@valibot/to-json-schema'
import type { Context, Hono } from 'hono'
import { type DescribeRouteOptions, describeRoute, resolver } from 'hono-openapi'
import * as v from 'valibot'
import type { Logger } from '../shared/log.ts'
import { answerOf, PROBLEMS, Problem, type ProblemCode } from '../shared/problem.ts'
import type { RateLimits } from '../shared/rate-limit.ts'
import type { StoreFailure } from '../shared/store/port.ts'
import type { Span } from '../shared/tracing/tracer.ts'
import {
  MAX_BODY_BYTES,
  type ObjectSchema,
  readExactJson,
  requireJson,
  validate,
} from '../shared/validate.ts'
import { type Authentication, type Caller, requireOperator } from './auth.ts'
import type { Keys } from './keys.ts'
import type { ControlMetrics } from './metrics.ts'
import type { Nodes } from './nodes.ts'
import type { Players } from './players.ts'
import type { Projects } from './projects.ts'
import type { Idempotency, RecordsEnvironment } from './records.ts'
import { PATH_PARAMETERS, ProblemDocument } from './schemas.ts'

/** Values that middleware sets for handlers. */
export interface ControlEnv {
  Variables: { requestId: string; callerId: string | undefined; span: Span }
}

/** Allowed callers: an operator; an operator or a key; nodes with the internal token. */
type Access = 'operator' | 'caller' | 'internal'

/** One call of the API: its request, its answer and its problems. The validation and the API description use it. */
export interface Endpoint<Body, Query> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly path: string
  readonly tag: string
  readonly summary: string
  readonly description: string
  readonly access: Access
  /** A schema without entries accepts any JSON. Without a body the value is `null`. */
  readonly body?: ObjectSchema<Body> | v.GenericSchema<unknown, Body>
  readonly query?: ObjectSchema<Query>
  /** Time for which an `idempotency-key` is kept. Absent: the call has none. */
  readonly idempotent?: '24 hours' | '10 minutes'
  readonly answer: {
    readonly status: 200 | 201
    readonly description: string
    readonly schema: v.GenericSchema
  }
  /** Problems of this endpoint, in addition to those of every call. */
  readonly problems: readonly ProblemCode[]
}

/** A request that passed authentication and validation. */
export interface Call<Body, Query> {
  readonly caller: Caller
  readonly params: Readonly<Record<string, string>>
  readonly body: Body
  readonly query: Query
  readonly path: string
  readonly idempotencyKey: string | undefined
  /** The request, in its trace. */
  readonly span: Span
}

/** Dependencies of the calls of the API. */
export interface Services extends Pick<RecordsEnvironment, 'keyring' | 'clock' | 'random'> {
  readonly projects: Projects
  readonly keys: Keys
  readonly players: Players
  readonly idempotency: Idempotency
  /** Nodes that receive the calls of rooms. */
  readonly nodes: Pick<Nodes, 'call'>
  /** Rate of tokens for one caller. */
  readonly tokenLimits: RateLimits
  /** Values of `NOTIFY_SECRET`. */
  readonly notifySecrets: readonly string[]
  readonly requireKeyId: boolean
  /** Checks the store. Resolves with true if it has lost its data. */
  readonly dataLost: () => Promise<boolean>
  readonly metrics: ControlMetrics
  readonly log: Logger
}

/** Mounts endpoints on `app`. */
export class Endpoints {
  readonly #app: Hono<ControlEnv>
  readonly #auth: Authentication

  constructor(app: Hono<ControlEnv>, auth: Authentication) {
    this.#app = app
    this.#auth = auth
  }

  /** Mounts `endpoint`. `handle` resolves with the JSON body of the answer. */
  mount<Body = undefined, Query = undefined>(
    endpoint: Endpoint<Body, Query>,
    handle: (call: Call<Body, Query>) => Promise<object>,
  ): void {
    this.#app.on(endpoint.method, endpoint.path, describeRoute(describe(endpoint)), async (c) => {
      const caller = await this.#authenticate(c, endpoint.access)
      c.set('callerId', caller.id)
      const answer = await handle({
        caller,
        params: c.req.param() as Record<string, string>,
        query: validate<unknown>(endpoint.query ?? NO_QUERY, c.req.query(), 'query') as Query,
        body: (endpoint.body && (await readBody(endpoint.body, c.req.raw))) as Body,
        path: c.req.path,
        idempotencyKey: c.req.header('idempotency-key'),
        span: c.get('span'),
      })
      return c.json(answer, endpoint.answer.status)
    })
  }

  async #authenticate(c: Context<ControlEnv>, access: Access): Promise<Caller> {
    if (access === 'internal') {
      this.#auth.internal(c.req.header('x-service-internal-token'))
      return { kind: 'operator', id: 'internal' }
    }
    const caller = await this.#auth.caller(c.req.header('authorization'), c.req.param('id'))
    if (access === 'operator') requireOperator(caller)
    return caller
  }
}

const NO_QUERY = v.object({})

async function readBody(schema: v.GenericSchema, request: Request): Promise<unknown> {
  if (isObjectSchema(schema)) return validate(schema, await readExactJson(request), 'body')
  const value = await readExactJson(request, MAX_BODY_BYTES, null)
  requireJson(value)
  return value
}

const isObjectSchema = (schema: v.GenericSchema): schema is ObjectSchema<unknown> => 'entries' in schema

function describe<Body, Query>(endpoint: Endpoint<Body, Query>): DescribeRouteOptions {
  const { body, query, answer } = endpoint
  return {
    tags: [endpoint.tag],
    summary: endpoint.summary,
    description: endpoint.description,
    security: security(endpoint.access),
    parameters: [
      ...pathParameters(endpoint.path),
      ...(query ? queryParameters(query) : []),
      ...(endpoint.idempotent ? [idempotencyKey(endpoint.idempotent)] : []),
    ],
    ...(body && {
      requestBody: {
        required: isRequired(body),
        content: { 'application/json': { schema: resolver(body), example: exampleOf(body) ?? {} } },
      },
    }),
    responses: {
      [answer.status]: {
        description: answer.description,
        content: {
          'application/json': { schema: resolver(answer.schema), example: exampleOf(answer.schema) },
        },
      },
      ...refusals(endpoint),
    },
    ...sample(curl(endpoint)),
  }
}

/** Returns the extension of OpenAPI with a request to copy. */
export const sample = (source: string) => ({ 'x-code-samples': [{ lang: 'bash', label: 'curl', source }] })

/** Credential of an operation, as a header of curl. */
const CREDENTIALS: Readonly<Record<Access, string>> = {
  operator: 'authorization: Bearer $OPERATOR_TOKEN',
  caller: 'authorization: Bearer $KEY_SECRET',
  internal: 'x-service-internal-token: $INTERNAL_TOKEN',
}

/** Returns the example of an endpoint as a command. */
function curl<Body, Query>({ method, path, access, query, body }: Endpoint<Body, Query>): string {
  const filled = path.replaceAll(/:(\w+)/g, (_, name: string) => PATH_PARAMETERS[name]!.example)
  const search = query && new URLSearchParams(Object.entries(exampleOf(query) ?? {})).toString()
  const data = body && exampleOf(body)
  return [
    `curl ${method === 'GET' ? '' : `-X ${method} `}"$CONTROL_URL${filled}${search ? `?${search}` : ''}"`,
    `-H "${CREDENTIALS[access]}"`,
    ...(data ? ['-H "content-type: application/json"', `-d '${JSON.stringify(data)}'`] : []),
  ].join(' \\\n  ')
}

/** Returns the example of a schema. Undefined: it has none. */
const exampleOf = (schema: v.GenericSchema): Record<string, string> | undefined =>
  (v.getExamples(schema) as readonly unknown[])[0] as Record<string, string> | undefined

const pathParameters = (path: string): Parameter[] =>
  [...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
    in: 'path',
    name: name!,
    required: true,
    ...PATH_PARAMETERS[name!],
    schema: { type: 'string' },
  }))

const security = (access: Access) => (access === 'internal' ? [{ internal: [] }] : [{ bearer: [] }])

const idempotencyKey = (kept: string) =>
  ({
    in: 'header',
    name: 'idempotency-key',
    description: `The same key and body within ${kept} give the first answer again; another body is a 409.`,
    schema: { type: 'string', minLength: 1, maxLength: 255 },
  }) as const

type Parameter = NonNullable<DescribeRouteOptions['parameters']>[number]

function queryParameters(schema: v.GenericSchema): Parameter[] {
  const { properties = {}, required = [] } = toJsonSchema(schema, { typeMode: 'output', errorMode: 'ignore' })
  const example = exampleOf(schema)
  return Object.entries(properties).map(([name, property]) => {
    const { description, default: fallback, ...type } = typeof property === 'object' ? property : {}
    const number = type.type === 'integer'
    return {
      in: 'query',
      name,
      required: required.includes(name),
      ...(description !== undefined && { description }),
      ...(example?.[name] !== undefined && { example: example[name] }),
      schema: { ...type, ...(fallback !== undefined && { default: number ? Number(fallback) : fallback }) },
    } as Parameter
  })
}

const isRequired = (body: v.GenericSchema): boolean =>
  (toJsonSchema(body, { errorMode: 'ignore' }).required ?? []).length > 0

const STORE_PROBLEMS: readonly StoreFailure[] = ['store_unreachable', 'store_full', 'store_refused']

function refusals<Body, Query>(endpoint: Endpoint<Body, Query>): DescribeRouteOptions['responses'] {
  const codes: ProblemCode[] = ['unauthenticated', ...STORE_PROBLEMS, 'store_data_lost', ...endpoint.problems]
  if (endpoint.access !== 'internal') codes.push('forbidden', 'key_revoked')
  if (endpoint.body) codes.push('payload_too_large', 'unsupported_media_type')
  codes.push('invalid_request')
  const responses: Responses = {}
  for (const status of [...new Set(codes.map((code) => PROBLEMS[code].status))].sort()) {
    responses[status] = problemAnswer([...new Set(codes)].filter((code) => PROBLEMS[code].status === status))
  }
  return responses
}

type Responses = NonNullable<DescribeRouteOptions['responses']>

/** Returns the description of an answer with one of these problems. */
export function problemAnswer(codes: readonly ProblemCode[]): Responses[string] {
  const example = new Problem(codes[0]!, 'What was wrong, and what would be right.')
  const { body } = answerOf(example, 'req_Xa9Lc4VuPf7Bj2Ns')
  return {
    description: codes.map((code) => `- \`${code}\`: ${PROBLEMS[code].title}.`).join('\n'),
    content: {
      'application/problem+json': { schema: resolver(ProblemDocument), example: JSON.parse(body) as unknown },
    },
  }
}
