import { type ControlClient, ControlError, type Key, type TraceHeaders } from './control-client.ts'

/** The names under which the backend finds its own project and key again after a restart. */
const PROJECT_NAME = 'roomful examples'
const KEY_NAME = 'examples backend'

/** Under which project and key the backend issues its tokens. */
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
 * The project and key of this backend: found by name, or created. Remembered once found; asked for again after
 * control has refused them, so that a rotated key is followed. A revoked one is not replaced while the process runs:
 * the operator who revoked it wanted the players out.
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

  /** A client token for `sub`, for rooms of the type `game` only, in the trace that it was asked for in. Rejects with a ControlError. */
  async issueToken(
    sub: string,
    game: string,
    ttlSeconds: number,
    trace: TraceHeaders,
  ): Promise<{ project_id: string; token: string }> {
    const credentials = await this.credentials()
    try {
      return await this.#issue(credentials, sub, game, ttlSeconds, trace)
    } catch (error) {
      if (!(error instanceof ControlError) || (error.status !== 403 && error.status !== 404)) throw error
      this.#known = undefined
      const renewed = await this.credentials()
      if (renewed.key_id === credentials.key_id) throw error
      return await this.#issue(renewed, sub, game, ttlSeconds, trace)
    }
  }

  async #issue(credentials: Credentials, sub: string, game: string, ttlSeconds: number, trace: TraceHeaders) {
    const { project_id: projectId } = credentials
    const request = { ...credentials, ttl_seconds: ttlSeconds, sub, rooms: [game] }
    const { token } = await this.#control.issueToken(request, trace)
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
