/** What a project key or an anonymous call may ask of a token; see contract and OpenAPI of the control API. */
export interface TokenRequest {
  key_id?: string
  ttl_seconds?: number
  sub?: string
  rooms?: string[]
}

export interface IssuedToken {
  token: string
  claims: { expires_at: string }
}

/** The control API did not answer as it should; `status` is 0 when it did not answer at all. */
export class ControlFailure extends Error {
  override readonly name = 'ControlFailure'
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

/** The calls of the control API that this suite needs. */
export class Control {
  private readonly url: string
  private readonly operator_token: string | undefined

  constructor(url: string, operator_token?: string) {
    this.url = url.replace(/\/+$/, '')
    this.operator_token = operator_token
  }

  async createProject(): Promise<string> {
    const { id } = await this.post<{ id: string }>('/projects', { name: 'conformance' })
    return id
  }

  async createKey(project_id: string): Promise<string> {
    const { id } = await this.post<{ id: string }>(`/projects/${project_id}/keys`, {})
    return id
  }

  revokeKey(project_id: string, key_id: string): Promise<unknown> {
    return this.post(`/projects/${project_id}/keys/${key_id}/revoke`)
  }

  rotateKey(project_id: string, key_id: string, grace_seconds: number): Promise<unknown> {
    return this.post(`/projects/${project_id}/keys/${key_id}/rotate`, { grace_seconds })
  }

  issueToken(project_id: string, request: TokenRequest = {}): Promise<IssuedToken> {
    return this.post('/tokens', { project_id, ...request })
  }

  private async post<T>(path: string, body?: object): Promise<T> {
    const headers: Record<string, string> = { 'content-type': 'application/json' }
    if (this.operator_token !== undefined) headers.authorization = `Bearer ${this.operator_token}`
    let response: Response
    try {
      response = await fetch(this.url + path, {
        method: 'POST',
        headers,
        signal: AbortSignal.timeout(10_000),
        ...(body && { body: JSON.stringify(body) }),
      })
    } catch (problem) {
      const { cause, message } = problem as Error
      throw new ControlFailure(
        0,
        `no answer of ${this.url}${path}: ${cause instanceof Error ? cause.message : message}`,
      )
    }
    const text = await response.text()
    if (!response.ok) throw new ControlFailure(response.status, `POST ${path}: ${response.status} ${text}`)
    return JSON.parse(text)
  }
}
