import type { JsonObject } from '../../shared/json.ts'

/** A failed call of the control API. */
export class ControlError extends Error {
  /** HTTP status of the response, or 0 without a response. */
  readonly status: number
  /** `code` of the problem document, or `unreachable`. */
  readonly code: string

  constructor(status: number, code: string, message: string) {
    super(message)
    this.name = 'ControlError'
    this.status = status
    this.code = code
  }
}

export interface Project {
  id: string
  name: string
}

export interface Key {
  id: string
  name: string | null
  scopes: string[]
  status: 'active' | 'retiring' | 'revoked'
}

export interface TokenRequest {
  project_id: string
  /** Default: the key pair that every project has. */
  key_id?: string
  ttl_seconds: number
  sub: string
  /** Room types or rooms that the token opens. Default: all. */
  rooms?: string[]
  /** Data of the player for room code. */
  data?: JsonObject
}

/** Trace headers of a request: https://www.w3.org/TR/trace-context/. */
export interface TraceHeaders {
  traceparent?: string
  tracestate?: string
}

const TIMEOUT_MS = 5_000

/** The part of the control API that a game backend needs, over HTTP. Every failure is a ControlError. */
export class ControlClient {
  readonly #url: string
  readonly #token: string | undefined

  /** `url`: base address of the control API; `token`: an operator token, if the API requires one. */
  constructor(url: string, token?: string) {
    this.#url = url.replace(/\/+$/, '')
    this.#token = token
  }

  /** All projects, newest first. */
  async projects(): Promise<Project[]> {
    const found: Project[] = []
    let cursor: string | null = null
    do {
      const page: { projects: Project[]; next_cursor: string | null } = await this.#call(
        'GET',
        `/projects?limit=200${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ''}`,
      )
      found.push(...page.projects)
      cursor = page.next_cursor
    } while (cursor)
    return found
  }

  createProject(name: string): Promise<Project> {
    return this.#call('POST', '/projects', { name })
  }

  async keys(projectId: string): Promise<Key[]> {
    const answer: { keys: Key[] } = await this.#call('GET', `/projects/${encodeURIComponent(projectId)}/keys`)
    return answer.keys
  }

  createKey(projectId: string, name: string): Promise<Key> {
    return this.#call('POST', `/projects/${encodeURIComponent(projectId)}/keys`, { name })
  }

  /** `trace` is forwarded unchanged. Control ignores invalid values. */
  issueToken(request: TokenRequest, trace: TraceHeaders = {}): Promise<{ token: string }> {
    return this.#call('POST', '/tokens', request, trace)
  }

  /** The state of a room, without its hidden layers. */
  async stateOf(projectId: string, type: string, key: string): Promise<unknown> {
    const room = [projectId, 'rooms', type, key].map(encodeURIComponent).join('/')
    const answer: { state: unknown } = await this.#call('GET', `/projects/${room}?include_state=1`)
    return answer.state
  }

  async #call<T>(method: 'GET' | 'POST', path: string, body?: object, trace: TraceHeaders = {}): Promise<T> {
    const response = await this.#send(method, path, body, trace)
    const answer: unknown = await response.json().catch(() => null)
    if (response.ok && answer !== null) return answer as T
    const problem = (answer ?? {}) as { code?: string; detail?: string; title?: string }
    throw new ControlError(
      response.status,
      problem.code ?? 'unexpected_answer',
      `control answered ${method} ${path} with ${response.status}: ${problem.detail ?? problem.title ?? 'no reason given'}`,
    )
  }

  async #send(
    method: string,
    path: string,
    body: object | undefined,
    trace: TraceHeaders,
  ): Promise<Response> {
    const headers: Record<string, string> = { accept: 'application/json', ...trace }
    if (body) headers['content-type'] = 'application/json'
    if (this.#token) headers.authorization = `Bearer ${this.#token}`
    try {
      return await fetch(this.#url + path, {
        method,
        headers,
        ...(body ? { body: JSON.stringify(body) } : {}),
        signal: AbortSignal.timeout(TIMEOUT_MS),
      })
    } catch (error) {
      const cause =
        error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error)
      throw new ControlError(0, 'unreachable', `control does not answer at ${this.#url} (${cause})`)
    }
  }
}

/** Names of the backend's project and key. After a restart, the backend finds both by these names. */
const PROJECT_NAME = 'roomful examples'
const KEY_NAME = 'examples backend'

/** Project and key that the backend issues tokens with. */
export interface Credentials {
  project_id: string
  key_id: string
}

const isUsable = (key: Key) => key.status === 'active' && key.scopes.includes('token:mint')

async function ownProject(control: ControlClient): Promise<string> {
  const known = (await control.projects()).find((project) => project.name === PROJECT_NAME)
  return (known ?? (await control.createProject(PROJECT_NAME))).id
}

/**
 * The project and key of this backend. The backend finds them by name, or creates them, and caches them. If the control API
 * rejects them, for example after a rotation of the key, the backend looks them up again. A revoked key is not replaced while
 * the process runs, because the operator wanted to stop logins.
 */
export class OwnProject {
  readonly #control: ControlClient
  readonly #givenProjectId: string | undefined
  #known: Promise<Credentials> | undefined
  #hadKey = false

  /** `project_id`: use this project instead of finding or creating one by name. */
  constructor(control: ControlClient, projectId?: string) {
    this.#control = control
    this.#givenProjectId = projectId
  }

  /** Finds or creates both. Rejects with a ControlError. */
  credentials(): Promise<Credentials> {
    this.#known ??= this.#find().catch((error: unknown) => {
      this.#known = undefined
      throw error
    })
    return this.#known
  }

  /** Finds or creates the project. Rejects with a ControlError. */
  async id(): Promise<string> {
    return (await this.credentials()).project_id
  }

  /** The state of a room of the project, without its hidden layers. Rejects with a ControlError. */
  async stateOf(type: string, key: string): Promise<unknown> {
    return this.#control.stateOf(await this.id(), type, key)
  }

  /** Issues a client token for a player, within the trace of the request. Rejects with a ControlError. */
  async issueToken(
    player: Omit<TokenRequest, 'project_id' | 'key_id'>,
    trace: TraceHeaders = {},
  ): Promise<{ project_id: string; token: string }> {
    const credentials = await this.credentials()
    try {
      return await this.#issue(credentials, player, trace)
    } catch (error) {
      if (!(error instanceof ControlError) || (error.status !== 403 && error.status !== 404)) throw error
      this.#known = undefined
      const renewed = await this.credentials()
      if (renewed.key_id === credentials.key_id) throw error
      return await this.#issue(renewed, player, trace)
    }
  }

  async #issue(
    credentials: Credentials,
    player: Omit<TokenRequest, 'project_id' | 'key_id'>,
    trace: TraceHeaders,
  ) {
    const { project_id: projectId } = credentials
    const { token } = await this.#control.issueToken({ ...credentials, ...player }, trace)
    return { project_id: projectId, token }
  }

  async #find(): Promise<Credentials> {
    const projectId = this.#givenProjectId ?? (await ownProject(this.#control))
    const keys = (await this.#control.keys(projectId)).filter((key) => key.name === KEY_NAME)
    const key = keys.find(isUsable) ?? (await this.#firstKey(projectId, keys))
    this.#hadKey = true
    return { project_id: projectId, key_id: key.id }
  }

  #firstKey(projectId: string, earlier: readonly Key[]): Promise<Key> {
    if (this.#hadKey && earlier.length > 0) {
      throw new ControlError(
        403,
        'key_revoked',
        `the key "${KEY_NAME}" of ${projectId} was revoked: restart the backend to let players in again`,
      )
    }
    return this.#control.createKey(projectId, KEY_NAME)
  }
}
