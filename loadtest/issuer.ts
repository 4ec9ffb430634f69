import type { BackendOptions } from '../server/index.ts'

/** Maximum lifetime of a token of the control API, and so of a run. */
export const LONGEST_TOKEN_SECONDS = 86_400
const TIME_LIMIT_MS = 15_000
/** All runs against a service use one project. */
const PROJECT = 'load test'
const SCOPES = ['token:mint', 'room:read', 'room:call', 'player:manage']

/** Credentials of a client. */
export interface Credentials {
  readonly projectId: string
  readonly token: string
  /** True: the key of the token will be revoked, so the end of its sessions is expected. */
  readonly underRevokedKey: boolean
}

/** Source of credentials. */
export interface Issuer {
  /** Returns credentials. `sub`: player of the token. Given credentials keep their player. */
  issue(sub?: string): Promise<Credentials>
  /** Issues credentials with a new key. `revoke` revokes the key. */
  issueUnderKey(): Promise<{ readonly credentials: Credentials; readonly revoke: () => Promise<void> }>
  /** Creates a project, and a key of it with all scopes. */
  issueProject(): Promise<BackendOptions>
}

/** Issues tokens through the control API, in the project of the load test, which the first run creates. */
export class ControlIssuer implements Issuer {
  readonly #access: { readonly controlUrl: string; readonly controlToken: string | undefined }
  #projectId: Promise<string> | undefined

  constructor(access: { controlUrl: string; controlToken: string | undefined }) {
    this.#access = access
  }

  issue(sub?: string): Promise<Credentials> {
    return this.#token({ sub }, false)
  }

  async issueUnderKey(): Promise<{ credentials: Credentials; revoke: () => Promise<void> }> {
    const keys = `/projects/${await this.#project()}/keys`
    const { id } = await this.#ask('POST', keys, { name: 'to be revoked' })
    return {
      credentials: await this.#token({ key_id: id }, true),
      revoke: async () => {
        await this.#ask('POST', `${keys}/${id}/revoke`)
      },
    }
  }

  async issueProject(): Promise<BackendOptions> {
    const projectId = String((await this.#ask('POST', '/projects', { name: 'load test of backends' })).id)
    const { secret } = await this.#ask('POST', `/projects/${projectId}/keys`, { scopes: SCOPES })
    return { url: this.#access.controlUrl, projectId, key: String(secret) }
  }

  async #token(body: object, underRevokedKey: boolean): Promise<Credentials> {
    const projectId = await this.#project()
    const request = { project_id: projectId, ttl_seconds: LONGEST_TOKEN_SECONDS, ...body }
    const { token } = await this.#ask('POST', '/tokens', request)
    return { projectId, token: String(token), underRevokedKey }
  }

  #project(): Promise<string> {
    this.#projectId ??= this.#findProject()
    return this.#projectId
  }

  async #findProject(): Promise<string> {
    for (let query = '?limit=100'; query !== ''; ) {
      const page = await this.#ask('GET', `/projects${query}`)
      const all = page.projects as readonly { readonly id: string; readonly name: string }[]
      const found = all.find(({ name }) => name === PROJECT)
      if (found) return found.id
      query = page.next_cursor === null ? '' : `?limit=100&cursor=${page.next_cursor}`
    }
    return String((await this.#ask('POST', '/projects', { name: PROJECT })).id)
  }

  async #ask(method: 'GET' | 'POST', path: string, body?: object): Promise<Record<string, unknown>> {
    const { controlUrl, controlToken } = this.#access
    const request = {
      method,
      headers: {
        ...(body && { 'content-type': 'application/json' }),
        ...(controlToken !== undefined && { authorization: `Bearer ${controlToken}` }),
      },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(TIME_LIMIT_MS),
    }
    const response = await fetch(`${controlUrl}${path}`, request).catch((error: Error) => {
      const why = error.cause instanceof Error ? error.cause.message : error.message
      throw new Error(
        `The control API at ${controlUrl} cannot be reached (${why}). Is the service running? --control says where it is; --local 3 starts one.`,
      )
    })
    const text = await response.text()
    if (response.ok) return JSON.parse(text)
    const hint = HINTS[response.status] ?? ''
    throw new Error(
      `${method} ${controlUrl}${path} was answered with ${response.status}: ${detail(text)}.${hint && ` ${hint}`}`,
    )
  }
}

const HINTS: Readonly<Record<number, string>> = {
  401: 'Give its operator token with --control-token or CONTROL_API_TOKENS.',
  404: 'Is --control the address of a control process, or of the load balancer before them?',
}

/** Returns the same credentials each time. */
export const givenCredentials = (given: { readonly projectId: string; readonly token: string }): Issuer => ({
  issue: async () => ({ ...given, underRevokedKey: false }),
  issueUnderKey: () =>
    Promise.reject(new Error('a key can only be made and revoked through the control API')),
  issueProject: () => Promise.reject(new Error('a project can only be made through the control API')),
})

/** Returns the detail of a problem document, or the text of another answer. */
function detail(text: string): string {
  try {
    const { detail, title } = JSON.parse(text) as { detail?: string; title?: string }
    return (detail ?? title ?? text).replace(/\.$/, '')
  } catch {
    return text.slice(0, 200)
  }
}
