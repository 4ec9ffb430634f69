import type { JsonObject } from '../../shared/json.ts'
import { notifyKeys } from '../../shared/notify-keys.ts'
import type { PlayerRecord } from '../../shared/players.ts'
import { Problem } from '../../shared/problem.ts'
import { invalid, type ObjectSchema, validate } from '../../shared/validate.ts'
import { type Caller, requireProject, requireScope } from '../auth.ts'
import type { Endpoint, Endpoints, Services } from '../endpoint.ts'
import { PLAYER_SCOPE } from '../keys.ts'
import type { PlayerChange } from '../metrics.ts'
import { projectView } from '../projects.ts'
import {
  BanPage,
  BansQuery,
  CreateProject,
  DeletedProject,
  EndedSession,
  encodeCursor,
  Nothing,
  NotifyKey,
  PageQuery,
  Player,
  Project,
  ProjectPage,
  RenameProject,
  SetBan,
  SetData,
  SubPath,
} from '../schemas.ts'

/** Time for which one `DELETE /projects/:id` ends rooms. Callers and proxies wait for at most 30 s. */
const DELETE_MS = 15_000

/** `/projects`, `/projects/:id`, and the end of a session. */
export function projectRoutes(
  endpoints: Endpoints,
  { projects, keys, players, idempotency, nodes, notifySecrets, clock, log }: Services,
): void {
  endpoints.mount(
    {
      method: 'POST',
      path: '/projects',
      tag: 'Projects',
      summary: 'Create a project',
      description:
        'A project has separate keys, tokens and rooms. It is created with a built-in signing pair.',
      access: 'operator',
      body: CreateProject,
      idempotent: '24 hours',
      answer: { status: 201, description: 'The project.', schema: Project },
      problems: ['conflict'],
    },
    async (call) => {
      const { answer } = await idempotency.run(call, async () => {
        const { project, writes } = await projects.draft(call.body.name)
        return { writes, answer: projectView(project) }
      })
      return answer
    },
  )

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects',
      tag: 'Projects',
      summary: 'List projects',
      description: 'Newest first, in pages.',
      access: 'operator',
      query: PageQuery,
      answer: { status: 200, description: 'One page of projects.', schema: ProjectPage },
      problems: [],
    },
    async ({ query }) => {
      const { projects: found, next } = await projects.page({ limit: query.limit, before: query.cursor })
      return { projects: found.map(projectView), next_cursor: encodeCursor(next) }
    },
  )

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id',
      tag: 'Projects',
      summary: 'One project',
      description: 'Its name, and whether it is disabled.',
      access: 'operator',
      answer: { status: 200, description: 'The project.', schema: Project },
      problems: ['project_not_found'],
    },
    async ({ params }) => projectView(await projects.require(params.id!)),
  )

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id/notify-key',
      tag: 'Projects',
      summary: 'Notify key of a project',
      description:
        'The key with which the backend of the project verifies notices (verifyNotice). It is derived from NOTIFY_SECRET and the id of the project, so it is no secret of another project. 409 if control has no NOTIFY_SECRET.',
      access: 'operator',
      answer: { status: 200, description: 'The notify key.', schema: NotifyKey },
      problems: ['project_not_found', 'conflict'],
    },
    async ({ params }) => {
      const { id } = await projects.require(params.id!)
      if (notifySecrets.length === 0)
        throw new Problem(
          'conflict',
          'NOTIFY_SECRET is not set at control, so it cannot compute notify keys: give control the value of the nodes.',
        )
      return { project_id: id, notify_key: notifyKeys(notifySecrets, id).join(',') }
    },
  )

  endpoints.mount(
    {
      method: 'PATCH',
      path: '/projects/:id',
      tag: 'Projects',
      summary: 'Rename a project',
      description: 'The name is for people. The id does not change.',
      access: 'operator',
      body: RenameProject,
      answer: { status: 200, description: 'The project.', schema: Project },
      problems: ['project_not_found'],
    },
    async ({ params, body }) => projectView(await projects.rename(params.id!, body.name)),
  )

  for (const action of ['disable', 'enable'] as const)
    endpoints.mount(
      {
        method: 'POST',
        path: `/projects/:id/${action}`,
        tag: 'Projects',
        summary: action === 'disable' ? 'Disable a project' : 'Enable a project',
        description:
          action === 'disable'
            ? 'All sessions of the project are closed (4003) on every node within a second. Until the project is enabled, it gets no tokens, its tokens are refused, and no session resumes. Its rooms and keys are kept. A repetition is safe.'
            : 'Tokens of the project are issued and accepted again. A repetition is safe. A project that is being deleted cannot be enabled.',
        access: 'operator',
        body: Nothing,
        answer: { status: 200, description: 'The project.', schema: Project },
        problems: action === 'disable' ? ['project_not_found'] : ['project_not_found', 'conflict'],
      },
      async ({ params }) => {
        const project = await projects.setDisabled(params.id!, action === 'disable')
        log.info({ project_id: project.id }, action === 'disable' ? 'project disabled' : 'project enabled')
        return projectView(project)
      },
    )

  endpoints.mount(
    {
      method: 'DELETE',
      path: '/projects/:id',
      tag: 'Projects',
      summary: 'Delete a project',
      description:
        'The project must be disabled. The request ends its rooms as DELETE of each room does, in batches, for up to 15 s. When the last room has ended, it deletes the project with its keys, its notices and dead letters, and what is stored of its players. While rooms remain, the answer has deleted: false; send the request again. A room that cannot end is named in the error.',
      access: 'operator',
      answer: { status: 200, description: 'Whether the project is deleted.', schema: DeletedProject },
      problems: ['project_not_found', 'conflict', 'room_unavailable', 'node_unavailable', 'timeout'],
    },
    async ({ params: { id = '' } }) => {
      const { disabled_at: disabledAt } = await projects.require(id)
      if (disabledAt === null)
        throw new Problem('conflict', `The project ${id} is enabled: disable it before you delete it.`)
      const until = clock.monotonic() + DELETE_MS
      let ended = 0
      let cursor: string | undefined
      do {
        const query = { project_id: id, cursor }
        const batch = await nodes.call({ method: 'DELETE', path: '/internal/project-rooms', query })
        const { ended_rooms: more, next_cursor: next } = batch as EndedBatch
        ended += more
        cursor = next ?? undefined
        if (cursor !== undefined && clock.monotonic() >= until)
          return { id, deleted: false, ended_rooms: ended }
      } while (cursor !== undefined)
      await projects.startDeletion(id, disabledAt)
      await keys.removeAll(id)
      await players.removeAll(id)
      await projects.remove(id)
      log.info({ project_id: id, rooms: ended }, 'project deleted')
      return { id, deleted: true, ended_rooms: ended }
    },
  )

  endpoints.mount(
    {
      method: 'DELETE',
      path: '/projects/:id/sessions/:sessionId',
      tag: 'Projects',
      summary: 'End a session',
      description:
        'The session may be at any node. Its connection is closed (4003), it cannot resume, and its members leave their rooms. A valid token can open a new session.',
      access: 'operator',
      answer: { status: 200, description: 'The session has ended.', schema: EndedSession },
      problems: ['project_not_found', 'session_not_found', 'node_unavailable', 'timeout'],
    },
    async ({ params: { id = '', sessionId } }) => {
      await projects.require(id)
      const query = { project_id: id, session_id: sessionId }
      return nodes.call({ method: 'DELETE', path: '/internal/sessions', query })
    },
  )
}

/** Answer of a node to `DELETE /internal/project-rooms`. */
interface EndedBatch {
  readonly ended_rooms: number
  readonly next_cursor: string | null
}

/** A change of the record of a player that a request makes. */
interface Change<Body>
  extends Pick<Endpoint<Body, undefined>, 'method' | 'path' | 'summary' | 'description' | 'access'> {
  readonly change: PlayerChange
  readonly body?: ObjectSchema<Body>
  readonly apply: (record: PlayerRecord, body: Body, now: number) => PlayerRecord
}

/** `/projects/:id/subs/:sub`: revocation, ban and data of a player; `/projects/:id/bans`. */
export function playerRoutes(
  endpoints: Endpoints,
  { players, projects, idempotency, clock, metrics, log }: Services,
): void {
  async function requireMay(caller: Caller, projectId: string): Promise<void> {
    requireProject(caller, projectId)
    if (caller.kind === 'key') requireScope(caller.key, PLAYER_SCOPE)
    await projects.require(projectId)
  }

  function mount<Body>({ change, apply, ...endpoint }: Change<Body>): void {
    endpoints.mount<Body>(
      {
        ...endpoint,
        tag: 'Players',
        idempotent: '24 hours',
        answer: { status: 200, description: 'The player.', schema: Player },
        problems: [
          'project_not_found',
          'conflict',
          ...(endpoint.access === 'caller' ? ['missing_scope' as const] : []),
        ],
      },
      async (call) => {
        const { caller, body } = call
        const { id: projectId = '', sub: named } = call.params
        await requireMay(caller, projectId)
        const { sub } = validate(SubPath, { sub: named }, 'query')
        const request = { ...call, path: `${endpoint.method} ${call.path}` }
        const { answer, replayed } = await idempotency.run(request, () =>
          players.draft(projectId, sub, (record, now) => apply(record, body, now)),
        )
        // Also for a repeated request, because the message of the first one may be lost.
        await players.announce(projectId, sub)
        if (!replayed) metrics.playerChanges.inc({ change })
        log.info({ project_id: projectId, sub, change, caller_id: caller.id }, 'player changed')
        return answer
      },
    )
  }

  mount({
    method: 'POST',
    path: '/projects/:id/subs/:sub/revoke',
    change: 'revoked',
    summary: 'Revoke the tokens of a player',
    description:
      'All sessions of the player (sub) are closed (4003) on every node within a second and cannot resume. Tokens that were issued up to now are refused, also JWTs of your own login; clocks may differ by 5 s. The player can connect with a later token. A repetition is safe.',
    access: 'operator',
    body: Nothing,
    apply: (record, _, now) => ({ ...record, revoked_at: now }),
  })

  mount({
    method: 'PUT',
    path: '/projects/:id/subs/:sub/ban',
    change: 'banned',
    summary: 'Ban a player',
    description:
      'Without room_types: all sessions of the player (sub) are closed (4003) on every node within a second, and new sessions and resumes are refused with banned. With room_types: seats in rooms of these types end with the reason kicked, and joins to them are refused with banned. The ban replaces an earlier one. A key needs the scope player:manage.',
    access: 'caller',
    body: SetBan,
    apply: (record, { until, room_types: roomTypes, reason }) => {
      const ban = {
        until: until === undefined ? null : Date.parse(until),
        room_types: roomTypes ?? null,
        reason: reason ?? null,
      }
      if (ban.until !== null && !(ban.until > clock.now()))
        throw invalid([{ path: 'until', message: `must be in the future; got ${until}` }])
      return { ...record, ban }
    },
  })

  mount({
    method: 'DELETE',
    path: '/projects/:id/subs/:sub/ban',
    change: 'unbanned',
    summary: 'End the ban of a player',
    description: 'Without a ban, nothing changes. A key needs the scope player:manage.',
    access: 'caller',
    apply: ({ ban: _, ...record }) => record,
  })

  mount({
    method: 'PUT',
    path: '/projects/:id/subs/:sub/data',
    change: 'data_set',
    summary: 'Set the data of a player',
    description:
      'Replaces member.data of the player’s (sub) current seats within a second. Until it is deleted, it is used instead of the claim data of the player’s tokens. A key needs the scope player:manage.',
    access: 'caller',
    body: SetData,
    apply: (record, { data }) => ({ ...record, data: data as JsonObject }),
  })

  mount({
    method: 'DELETE',
    path: '/projects/:id/subs/:sub/data',
    change: 'data_deleted',
    summary: 'Delete the data of a player',
    description:
      'member.data is that of the token again, also in live seats. A key needs the scope player:manage.',
    access: 'caller',
    apply: ({ data: _, ...record }) => record,
  })

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id/bans',
      tag: 'Players',
      summary: 'List bans',
      description:
        'Banned players in pages, latest end first. A page may have fewer bans than limit. The list ends where next_cursor is null. A key needs the scope player:manage.',
      access: 'caller',
      query: BansQuery,
      answer: { status: 200, description: 'One page of bans.', schema: BanPage },
      problems: ['missing_scope', 'project_not_found'],
    },
    async ({ caller, params: { id: projectId = '' }, query }) => {
      await requireMay(caller, projectId)
      const { bans, next } = await players.bans(projectId, { limit: query.limit, before: query.cursor })
      return { bans, next_cursor: encodeCursor(next) }
    },
  )
}
