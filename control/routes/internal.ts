import type { Clock } from '../../shared/clock.ts'
import { Problem } from '../../shared/problem.ts'
import type { Endpoints } from '../endpoint.ts'
import { type KeyStatus, type Keys, keyView, MINT_SCOPE } from '../keys.ts'
import type { ProjectRecord, Projects } from '../projects.ts'
import { KeyStatusAnswer, KeyStatusQuery } from '../schemas.ts'

/** What `GET /internal/key-status` answers. */
export interface KeyStatusBody {
  readonly project_id: string
  readonly key_id: string | null
  readonly exists: boolean
  readonly status: KeyStatus | null
  readonly revoked: boolean
  readonly revoked_at: string | null
  readonly scopes: readonly string[]
  readonly public_key: string | null
  /** True: the project takes no players. */
  readonly project_disabled: boolean
}

/** `GET /internal/key-status`: what nodes need to know of a key. */
export function internalRoutes(
  endpoints: Endpoints,
  parts: {
    keys: Keys
    projects: Projects
    clock: Clock
    dataLost: () => Promise<boolean>
  },
): void {
  const { keys, projects, clock, dataLost } = parts

  endpoints.mount(
    {
      method: 'GET',
      path: '/internal/key-status',
      tag: 'Internal',
      summary: 'Status of a key',
      description:
        'For nodes. An unknown key is a 200 with exists false, or a 503 while the store has lost its data. Without key_id: the project’s built-in pair.',
      access: 'internal',
      query: KeyStatusQuery,
      answer: { status: 200, description: 'The status.', schema: KeyStatusAnswer },
      problems: ['store_data_lost'],
    },
    ({ query: { project_id: projectId, key_id: keyId } }) =>
      keyId === undefined ? builtInStatus(projectId) : statusOf(projectId, keyId),
  )

  async function statusOf(projectId: string, keyId: string): Promise<KeyStatusBody> {
    const [key, project] = await Promise.all([keys.find(projectId, keyId), projects.find(projectId)])
    if (!key || !project) return await absent(projectId, keyId, project)
    const { status, revoked_at: revokedAt, scopes } = keyView(key, clock.now())
    const revoked = status === 'revoked'
    const { public_key: publicKey } = key.pair
    return {
      project_id: projectId,
      key_id: keyId,
      exists: true,
      status,
      revoked,
      revoked_at: revokedAt,
      scopes,
      public_key: publicKey,
      project_disabled: project.disabled_at !== null,
    }
  }

  async function builtInStatus(projectId: string): Promise<KeyStatusBody> {
    const project = await projects.find(projectId)
    if (!project) return await absent(projectId, null)
    return {
      project_id: projectId,
      key_id: null,
      exists: true,
      status: 'active',
      revoked: false,
      revoked_at: null,
      scopes: [MINT_SCOPE],
      public_key: project.pair.public_key,
      project_disabled: project.disabled_at !== null,
    }
  }

  /** Nodes close the players of a key that does not exist for good. After a loss of data the key may come back with a backup. */
  async function absent(
    projectId: string,
    keyId: string | null,
    project?: ProjectRecord,
  ): Promise<KeyStatusBody> {
    if (await dataLost())
      throw new Problem(
        'store_data_lost',
        'The store lost its data, so control cannot tell whether this key exists: restore the backup.',
      )
    return {
      project_id: projectId,
      key_id: keyId,
      exists: false,
      status: null,
      revoked: false,
      revoked_at: null,
      scopes: [],
      public_key: null,
      project_disabled: project ? project.disabled_at !== null : await projects.wasDeleted(projectId),
    }
  }
}
