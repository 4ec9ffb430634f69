/** A call to the control API that did not go through. */
export class ControlError extends Error {
  /** HTTP status of the answer, or 0 when there was none. */
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
  key_id: string
  ttl_seconds: number
  sub: string
  rooms: string[]
}

/** The trace that a request belongs to, as its headers say: https://www.w3.org/TR/trace-context/. */
export interface TraceHeaders {
  traceparent?: string
  tracestate?: string
}

const TIMEOUT_MS = 5_000

/** The part of the control API that a game backend needs, over HTTP. Every failure is a ControlError. */
export class ControlClient {
  readonly #url: string
  readonly #token: string | undefined

  /** `url`: base address of the control API; `token`: an operator token, where the API wants one. */
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

  /** `trace`: passed on as it is; control drops what is not valid. */
  issueToken(request: TokenRequest, trace: TraceHeaders = {}): Promise<{ token: string }> {
    return this.#call('POST', '/tokens', request, trace)
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
