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
  private readonly operatorToken: string | undefined

  constructor(url: string, operatorToken?: string) {
    this.url = url.replace(/\/+$/, '')
    this.operatorToken = operatorToken
  }

  async createProject(): Promise<string> {
    const { id } = await this.post<{ id: string }>('/projects', { name: 'conformance' })
    return id
  }

  async createKey(projectId: string): Promise<string> {
    const { id } = await this.post<{ id: string }>(`/projects/${projectId}/keys`, {})
    return id
  }

  revokeKey(projectId: string, keyId: string): Promise<unknown> {
    return this.post(`/projects/${projectId}/keys/${keyId}/revoke`)
  }

  rotateKey(projectId: string, keyId: string, graceSeconds: number): Promise<unknown> {
    return this.post(`/projects/${projectId}/keys/${keyId}/rotate`, { grace_seconds: graceSeconds })
  }

  issueToken(projectId: string, request: TokenRequest = {}): Promise<IssuedToken> {
    return this.post('/tokens', { project_id: projectId, ...request })
  }

  private async post<T>(path: string, body?: object): Promise<T> {
    const headers: Record<string, string> = { 'content-type': 'application/json' }
    if (this.operatorToken !== undefined) headers.authorization = `Bearer ${this.operatorToken}`
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
