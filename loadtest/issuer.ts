import { type Method, send } from '../deploy/cli/admin-api.ts'
import type { BackendOptions } from '../server/index.ts'

/** Maximum lifetime of a token of the control API, and so of a run. */
export const LONGEST_TOKEN_SECONDS = 86_400
/** All runs against a service use one project. */
const PROJECT = { id: '', name: 'load test' }
interface ProjectPage {
  readonly projects: readonly (typeof PROJECT)[]
  readonly next_cursor?: string | null
}
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
    const { id } = await this.#ask('POST', keys, { id: '' }, { name: 'to be revoked' })
    return {
      credentials: await this.#token({ key_id: id }, true),
      revoke: async () => {
        await this.#ask('POST', `${keys}/${id}/revoke`, {})
      },
    }
  }

  async issueProject(): Promise<BackendOptions> {
    const { id: projectId } = await this.#ask('POST', '/projects', PROJECT, { name: 'load test of backends' })
    const { secret: key } = await this.#ask(
      'POST',
      `/projects/${projectId}/keys`,
      { secret: '' },
      { scopes: SCOPES },
    )
    return { url: this.#access.controlUrl, projectId, key }
  }

  async #token(body: object, underRevokedKey: boolean): Promise<Credentials> {
    const projectId = await this.#project()
    const request = { project_id: projectId, ttl_seconds: LONGEST_TOKEN_SECONDS, ...body }
    const { token } = await this.#ask('POST', '/tokens', { token: '' }, request)
    return { projectId, token, underRevokedKey }
  }

  #project(): Promise<string> {
    this.#projectId ??= this.#findProject()
    return this.#projectId
  }

  async #findProject(): Promise<string> {
    for (let query = '?limit=100'; query !== ''; ) {
      const page: ProjectPage = await this.#ask('GET', `/projects${query}`, { projects: [PROJECT] })
      const found = page.projects.find(({ name }) => name === PROJECT.name)
      if (found) return found.id
      query = page.next_cursor ? `?limit=100&cursor=${page.next_cursor}` : ''
    }
    return (await this.#ask('POST', '/projects', PROJECT, { name: PROJECT.name })).id
  }

  #ask<T extends object>(method: Method, path: string, like: T, body?: object): Promise<T> {
    const { controlUrl: url, controlToken: token } = this.#access
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
    return send({ who: 'control', url, ifWrong: IF_WRONG, hints: HINTS, headers, method, path, body, like })
  }
}

const IF_WRONG = 'is the service running? --control says where it is; --local 3 starts one.'
const HINTS = {
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
