import { InternalToken } from '../../shared/http-server.ts'

/** Addresses and credentials of a deployment. */
export interface DeploymentConfig {
  readonly controlUrl: string
  /** Admin address of any node. Default: http://127.0.0.1:9100. */
  readonly adminUrl: string | undefined
  /** One or several tokens. The first is sent. */
  readonly controlApiTokens: readonly string[] | 'none' | undefined
  readonly internalToken: string | undefined
}

/** Error of a request, with a message for the operator. */
export class RequestFailed extends Error {
  override readonly name = 'RequestFailed'
}

/** A node in the answer of `GET /admin/cluster`. */
export interface ClusterNode {
  readonly node_id: string
  /** True: this node answers at `ADMIN_URL`. */
  readonly self: boolean
  readonly alive: boolean
  readonly draining: boolean
  readonly cordoned?: boolean
  readonly overloaded?: boolean
  /** Reasons why it is not ready. Absent: its version does not report them. */
  readonly not_ready?: readonly { readonly code: string; readonly detail: string }[]
  readonly rooms: number
  readonly sessions: number
  readonly load: number
  readonly version: string
  readonly admin_url?: string
}

interface Schema {
  readonly type?: string
  readonly description?: string
  readonly enum?: readonly string[]
  readonly properties?: Readonly<Record<string, Schema>>
}

/** A parameter in the path or query of a route, or a field of its body. */
export interface Field {
  readonly in: string
  readonly name: string
  readonly description?: string
  readonly schema: Schema
}

/** The parts of an OpenAPI document that commands need. */
export interface ApiDescription {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
}

interface Operation {
  readonly parameters?: readonly Field[]
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: Schema } } }
}

/** Returns the fields of a route, such as `POST /tokens`, without those of pages. Undefined: the API does not have it. */
export function fieldsOf({ paths }: ApiDescription, route: string): Field[] | undefined {
  const [method = '', path = ''] = route.split(' ')
  const operation = paths[path]?.[method.toLowerCase()]
  if (!operation) return undefined
  const { properties = {} } = operation.requestBody?.content['application/json'].schema ?? {}
  const body = Object.entries(properties).map(([name, schema]) => ({ in: 'body', name, schema }))
  return [...(operation.parameters ?? []), ...body].filter(
    (field) => field.in !== 'header' && field.name !== 'limit' && field.name !== 'cursor',
  )
}

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

const DEFAULT_ADMIN_URL = 'http://127.0.0.1:9100'
/** Longer than the slowest request: a batch of `DELETE /projects/:id`. */
const TIMEOUT_MS = 40_000
/** Timeout of a read that needs no other process, or for which a node waits at most 1.5 s. */
const READ_TIMEOUT_MS = 5000

/** The HTTP routes of control and of the nodes. Every method rejects with `RequestFailed`. */
export class DeploymentApi {
  readonly #config: DeploymentConfig

  constructor(config: DeploymentConfig) {
    this.#config = config
  }

  /** Sends a request. `like`: an example of the answer. */
  control<T extends object>(method: Method, path: string, like: T, body?: object): Promise<T> {
    const { controlUrl, controlApiTokens: tokens } = this.#config
    const token = tokens === 'none' ? undefined : tokens?.[0]
    return send<T>({
      who: 'control',
      url: controlUrl,
      ifWrong: 'is CONTROL_URL right?',
      ifSilent: 'It may hang. Use the address of another control process: --control-url.',
      // Control asks the owner of a room, and waits for up to 14 s.
      timeoutMs: method === 'GET' && !path.includes('/rooms') ? READ_TIMEOUT_MS : TIMEOUT_MS,
      hints: { 401: 'Set CONTROL_API_TOKENS.' },
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      method,
      path,
      body,
      like,
    })
  }

  /**
   * Calls a node. The address is that of the node, or `ADMIN_URL` if `node` is missing or is the node there: its own address may be valid
   * only inside of a cluster.
   */
  node<T extends object>(
    method: Method,
    path: string,
    like: T,
    node?: ClusterNode,
    body?: object,
  ): Promise<T> {
    const { adminUrl = DEFAULT_ADMIN_URL, internalToken } = this.#config
    const { shown } = new InternalToken(internalToken)
    const other = node?.self ? undefined : node
    if (other && other.admin_url === undefined)
      return Promise.reject(
        new RequestFailed(`node ${other.node_id} has no admin address in the registry yet`),
      )
    // Adds the path of one worker. Without it, a request to the address of the group reaches all workers.
    const [worker = ''] = /\/worker\/\d+$/.exec(node?.admin_url ?? '') ?? []
    const own = worker === '' ? adminUrl : adminUrl.replace(/(\/worker\/\d+)?\/?$/, worker)
    return send<T>({
      who: node ? `node ${node.node_id}` : 'the node',
      url: other?.admin_url ?? own,
      ifWrong: `is ADMIN_URL${other ? ' of that node' : ''} right?`,
      ifSilent: `It may hang. ${other ? 'Restart it' : 'Use the admin address of another node: --admin-url. Commands for control, such as room, need none'}.`,
      timeoutMs: method === 'GET' ? READ_TIMEOUT_MS : TIMEOUT_MS,
      hints: { 401: 'Set INTERNAL_TOKEN.' },
      headers: shown === undefined ? {} : { 'x-service-internal-token': shown },
      method,
      path,
      like,
      body,
    })
  }

  async nodes(): Promise<readonly ClusterNode[]> {
    const like = { nodes: [{ node_id: '' }] }
    return (await this.node('GET', '/admin/cluster', like)).nodes as ClusterNode[]
  }
}

/** Sends a request to control or a node. Rejects with `RequestFailed`. */
export async function send<T extends object>(request: {
  readonly who: string
  readonly url: string
  /** Question to the operator if the address does not answer, or another service does. */
  readonly ifWrong: string
  /** Advice if the address accepts the request and does not answer within `timeoutMs` (default 40 s). */
  readonly ifSilent?: string
  readonly timeoutMs?: number
  /** Advice by HTTP status. */
  readonly hints: Readonly<Record<number, string>>
  readonly headers: Readonly<Record<string, string>>
  readonly method: Method
  readonly path: string
  readonly body?: object | undefined
  /** Example of the answer. */
  readonly like: T
}): Promise<T> {
  const {
    who,
    url,
    ifWrong,
    ifSilent = 'It may hang.',
    timeoutMs = TIMEOUT_MS,
    hints,
    method,
    path,
    body,
    like,
  } = request
  const headers = { ...request.headers, ...(body && { 'content-type': 'application/json' }) }
  const init = { method, headers, ...(body && { body: JSON.stringify(body) }) }
  let response: Response
  let text: string
  try {
    response = await fetch(url.replace(/\/$/, '') + path, {
      ...init,
      signal: AbortSignal.timeout(timeoutMs),
    })
    text = await response.text()
  } catch (error) {
    const { name, message, cause } = error as Error & { cause?: NodeJS.ErrnoException }
    if (name === 'TimeoutError')
      throw new RequestFailed(`${who} has not answered at ${url} within ${timeoutMs / 1000} s. ${ifSilent}`)
    const reason = cause?.code ?? cause?.message ?? message
    throw new RequestFailed(`${who} does not answer at ${url} (${reason}): ${ifWrong}`)
  }
  const answer = objectIn(text)
  if (response.ok && isLike(answer, like)) return answer as T
  const {
    code,
    detail,
    errors = [],
  } = (answer ?? {}) as {
    code?: string
    detail?: string
    errors?: readonly { path: string; message: string }[]
  }
  if (code === undefined)
    throw new RequestFailed(`${url} answered ${response.status} with nothing that roomful says: ${ifWrong}`)
  const fields = errors.map(({ path, message }) => `\n  ${path}: ${message}`).join('')
  const hint = hints[response.status]
  throw new RequestFailed(
    `${who} answered ${response.status} ${code}: ${detail}${hint === undefined ? '' : ` ${hint}`}${fields}`,
  )
}

/** Returns true if an answer has the fields of an example, with values of the same types. Another service may answer at the address. */
function isLike(answer: unknown, example: unknown): boolean {
  if (Array.isArray(example)) return Array.isArray(answer) && answer.every((item) => isLike(item, example[0]))
  if (typeof example !== 'object') return typeof answer === typeof example
  return (
    typeof answer === 'object' &&
    answer !== null &&
    Object.entries(example!).every(([name, part]) => isLike((answer as Record<string, unknown>)[name], part))
  )
}

/** Returns the object or list in a JSON text. Undefined: it has another value, or is no JSON. */
export function objectIn(text: string): object | undefined {
  try {
    const json: unknown = JSON.parse(text)
    return typeof json === 'object' && json !== null ? json : undefined
  } catch {
    return undefined
  }
}
