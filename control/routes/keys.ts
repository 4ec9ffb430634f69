import type { Logger } from 'pino'
import type { Clock } from '../../shared/clock.ts'
import { Problem } from '../../shared/problem.ts'
import { requireProject } from '../auth.ts'
import type { Endpoints } from '../endpoint.ts'
import type { Idempotency } from '../idempotency.ts'
import { type KeyDraft, type Keys, keyStatus, keyView } from '../keys.ts'
import type { ControlMetrics } from '../metrics.ts'
import type { Projects } from '../projects.ts'
import {
  CreateKey,
  encodeCursor,
  Key,
  KeyPage,
  KeyWithSecret,
  Nothing,
  PageQuery,
  RotateKey,
} from '../schemas.ts'

/** `/projects/:id/keys` and what is below it. */
export function keyRoutes(
  endpoints: Endpoints,
  parts: {
    keys: Keys
    projects: Projects
    idempotency: Idempotency
    clock: Clock
    metrics: ControlMetrics
    log: Logger
  },
): void {
  const { keys, projects, idempotency, clock, metrics, log } = parts

  const requireKnown = async (projectId: string): Promise<void> => {
    if (!(await projects.find(projectId)))
      throw new Problem('project_not_found', `There is no project ${projectId}.`)
  }

  const planOf = ({ key, secret, writes }: KeyDraft) => ({
    writes,
    answer: { ...keyView(key, clock.now()), secret },
  })

  endpoints.mount(
    {
      method: 'POST',
      path: '/projects/:id/keys',
      tag: 'Keys',
      summary: 'Create a key',
      description:
        'The secret in the answer is the credential of the key and is shown this once: only its hash is stored.',
      access: 'operator',
      body: CreateKey,
      idempotent: true,
      answer: { status: 201, description: 'The key, with its secret.', schema: KeyWithSecret },
      problems: ['project_not_found', 'conflict'],
    },
    async ({ caller, params, body, path, idempotencyKey }) => {
      const projectId = params.id!
      await requireKnown(projectId)
      const wish = { name: body.name ?? null, scopes: [...new Set(body.scopes)] }
      const { answer, replayed } = await idempotency.run(
        { callerId: caller.id, path, body, idempotencyKey },
        async () => planOf(await keys.draft(projectId, wish)),
      )
      if (!replayed) metrics.keyChanges.inc({ change: 'created' })
      return answer
    },
  )

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id/keys',
      tag: 'Keys',
      summary: 'List the keys of a project',
      description:
        'Newest first, page by page, never a secret. A key’s secret may read the keys of its own project.',
      access: 'caller',
      query: PageQuery,
      answer: { status: 200, description: 'One page of keys.', schema: KeyPage },
      problems: ['project_not_found'],
    },
    async ({ caller, params, query }) => {
      const projectId = params.id!
      requireProject(caller, projectId)
      await requireKnown(projectId)
      const now = clock.now()
      const { keys: found, next } = await keys.page(projectId, { limit: query.limit, before: query.cursor })
      return { keys: found.map((key) => keyView(key, now)), next_cursor: encodeCursor(next) }
    },
  )

  endpoints.mount(
    {
      method: 'POST',
      path: '/projects/:id/keys/:keyId/revoke',
      tag: 'Keys',
      summary: 'Revoke a key',
      description:
        'Every live session under the key is closed (4003) on every node within a second and cannot resume. Revoking again changes nothing.',
      access: 'operator',
      body: Nothing,
      answer: { status: 200, description: 'The key, revoked.', schema: Key },
      problems: ['project_not_found', 'key_not_found'],
    },
    async ({ params }) => {
      const projectId = params.id!
      await requireKnown(projectId)
      const key = await keys.revoke(projectId, params.keyId!)
      metrics.keyChanges.inc({ change: 'revoked' })
      log.info({ project_id: projectId, key_id: key.id }, 'key revoked')
      return keyView(key, clock.now())
    },
  )

  endpoints.mount(
    {
      method: 'POST',
      path: '/projects/:id/keys/:keyId/rotate',
      tag: 'Keys',
      summary: 'Rotate a key',
      description:
        'Makes a new key with the same name and scopes. The old one is retiring for grace_seconds, still works, and then is revoked.',
      access: 'operator',
      body: RotateKey,
      idempotent: true,
      answer: { status: 201, description: 'The new key, with its secret.', schema: KeyWithSecret },
      problems: ['project_not_found', 'key_not_found', 'conflict'],
    },
    async ({ caller, params, body, path, idempotencyKey }) => {
      const projectId = params.id!
      const oldId = params.keyId!
      await requireKnown(projectId)
      const { answer, replayed } = await idempotency.run(
        { callerId: caller.id, path, body, idempotencyKey },
        async () => planOf(await keys.draftRotation(projectId, oldId, body.grace_seconds * 1000)),
      )
      if (!replayed) metrics.keyChanges.inc({ change: 'rotated' })
      log.info({ project_id: projectId, key_id: oldId, new_key_id: answer.id, replayed }, 'key rotated')
      await announceRotation(projectId, oldId)
      return answer
    },
  )

  /** The rotation stands and its secret is told only now: a bus that fails must not cost the caller the answer. Nodes re-check keys anyway. */
  async function announceRotation(projectId: string, keyId: string): Promise<void> {
    try {
      const old = await keys.find(projectId, keyId)
      if (old) await keys.announce(projectId, keyId, keyStatus(old, clock.now()))
    } catch (error) {
      log.warn(
        { err: error, project_id: projectId, key_id: keyId },
        'a rotation could not be announced to the nodes',
      )
    }
  }
}
