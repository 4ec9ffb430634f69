import type { Credentials } from './clients/client.ts'

export type { Credentials } from './clients/client.ts'

import type { Issuer } from './clients/clients.ts'

/** The longest the control API allows: no run outlives its tokens. */
export const LONGEST_TOKEN_SECONDS = 86_400
const PATIENCE_MS = 15_000

/** Where the control API is, and its operator token where it wants one. */
interface ControlAccess {
  readonly controlUrl: string
  readonly controlToken: string | undefined
}

/** Issues tokens for the clients of a run, in a project of the run's own. */
export class ControlIssuer implements Issuer {
  readonly #access: ControlAccess
  #projectId: Promise<string> | undefined

  constructor(access: ControlAccess) {
    this.#access = access
  }

  /** `sub`: the player that the token names. */
  async issue(sub?: string): Promise<Credentials> {
    return this.#token({ sub }, false)
  }

  async issueUnderKey(): Promise<{ credentials: Credentials; revoke: () => Promise<void> }> {
    const projectId = await this.#project()
    const key = await this.#post(`/projects/${projectId}/keys`, { name: 'to be revoked' })
    return {
      credentials: await this.#token({ key_id: key.id }, true),
      revoke: async () => {
        await this.#post(`/projects/${projectId}/keys/${key.id}/revoke`, undefined)
      },
    }
  }

  async #token(body: object, underRevokedKey: boolean): Promise<Credentials> {
    const projectId = await this.#project()
    const { token } = await this.#post('/tokens', {
      project_id: projectId,
      ttl_seconds: LONGEST_TOKEN_SECONDS,
      ...body,
    })
    return { projectId, token: String(token), underRevokedKey }
  }

  #project(): Promise<string> {
    this.#projectId ??= this.#post('/projects', { name: 'load test' }).then(({ id }) => String(id))
    return this.#projectId
  }

  async #post(path: string, body: object | undefined): Promise<Record<string, unknown>> {
    const { controlUrl, controlToken } = this.#access
    const request = {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        ...(controlToken !== undefined && { authorization: `Bearer ${controlToken}` }),
      },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(PATIENCE_MS),
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
      `POST ${controlUrl}${path} was answered with ${response.status}: ${detail(text)}.${hint && ` ${hint}`}`,
    )
  }
}

const HINTS: Readonly<Record<number, string>> = {
  401: 'Give its operator token with --control-token or CONTROL_API_TOKENS.',
  404: 'Is --control the address of a control process, or of the load balancer before them?',
}

/** Issues what was given. */
export const givenCredentials = (given: { readonly projectId: string; readonly token: string }): Issuer => ({
  issue: async () => ({ ...given, underRevokedKey: false }),
  issueUnderKey: () =>
    Promise.reject(new Error('a key can only be made and revoked through the control API')),
})

/** What a problem document says; the text itself when it is none. */
function detail(text: string): string {
  try {
    const { detail, title } = JSON.parse(text) as { detail?: string; title?: string }
    return (detail ?? title ?? text).replace(/\.$/, '')
  } catch {
    return text.slice(0, 200)
  }
}
