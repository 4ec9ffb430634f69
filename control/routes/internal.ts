import type { Clock } from '../../shared/clock.ts'
import type { Endpoints } from '../endpoint.ts'
import { type KeyStatus, type Keys, keyView, MINT_SCOPE } from '../keys.ts'
import type { Projects } from '../projects.ts'
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
}

/** `GET /internal/key-status`: what nodes need to know of a key. */
export function internalRoutes(
  endpoints: Endpoints,
  parts: { keys: Keys; projects: Projects; clock: Clock },
): void {
  const { keys, projects, clock } = parts

  endpoints.mount(
    {
      method: 'GET',
      path: '/internal/key-status',
      tag: 'Internal',
      summary: 'Status of a key',
      description:
        'For nodes. An unknown key is a 200 with exists false. Without key_id: the project’s built-in pair.',
      access: 'internal',
      query: KeyStatusQuery,
      answer: { status: 200, description: 'The status.', schema: KeyStatusAnswer },
      problems: [],
    },
    ({ query: { project_id, key_id } }) =>
      key_id === undefined ? builtInStatus(project_id) : statusOf(project_id, key_id),
  )

  async function statusOf(project_id: string, key_id: string): Promise<KeyStatusBody> {
    const key = await keys.find(project_id, key_id)
    if (!key) return absent(project_id, key_id)
    const { status, revoked_at, scopes } = keyView(key, clock.now())
    const revoked = status === 'revoked'
    const { public_key } = key.pair
    return { project_id, key_id, exists: true, status, revoked, revoked_at, scopes, public_key }
  }

  async function builtInStatus(project_id: string): Promise<KeyStatusBody> {
    const project = await projects.find(project_id)
    if (!project) return absent(project_id, null)
    return {
      project_id,
      key_id: null,
      exists: true,
      status: 'active',
      revoked: false,
      revoked_at: null,
      scopes: [MINT_SCOPE],
      public_key: project.pair.public_key,
    }
  }
}

const absent = (project_id: string, key_id: string | null): KeyStatusBody => ({
  project_id,
  key_id,
  exists: false,
  status: null,
  revoked: false,
  revoked_at: null,
  scopes: [],
  public_key: null,
})
