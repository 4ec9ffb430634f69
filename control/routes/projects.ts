import type { Logger } from 'pino'
import type { Clock } from '../../shared/clock.ts'
import { Problem } from '../../shared/problem.ts'
import type { Endpoints } from '../endpoint.ts'
import type { Idempotency } from '../idempotency.ts'
import type { Keys } from '../keys.ts'
import type { Nodes } from '../nodes.ts'
import type { Players } from '../players.ts'
import { type Projects, projectView } from '../projects.ts'
import {
  CreateProject,
  DeletedProject,
  EndedSession,
  encodeCursor,
  Nothing,
  PageQuery,
  Project,
  ProjectPage,
  RenameProject,
} from '../schemas.ts'

/** How long one `DELETE /projects/:id` ends rooms. A caller and the proxies before control wait for no longer than 30 s. */
const DELETE_MS = 15_000

/** `/projects`, `/projects/:id`, and the end of a session. */
export function projectRoutes(
  endpoints: Endpoints,
  parts: {
    projects: Projects
    keys: Keys
    players: Players
    idempotency: Idempotency
    nodes: Pick<Nodes, 'call'>
    clock: Clock
    log: Logger
  },
): void {
  const { projects, keys, players, idempotency, nodes, clock, log } = parts

  endpoints.mount(
    {
      method: 'POST',
      path: '/projects',
      tag: 'Projects',
      summary: 'Create a project',
      description: 'A project has its own keys, tokens and rooms. It gets a built-in signing pair at once.',
      access: 'operator',
      body: CreateProject,
      idempotent: '24 hours',
      answer: { status: 201, description: 'The project.', schema: Project },
      problems: ['conflict'],
    },
    async ({ caller, body, path, idempotencyKey }) => {
      const plan = async () => {
        const { project, writes } = await projects.draft(body.name)
        return { writes, answer: projectView(project) }
      }
      const { answer } = await idempotency.run({ callerId: caller.id, path, body, idempotencyKey }, plan)
      return answer
    },
  )

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects',
      tag: 'Projects',
      summary: 'List projects',
      description: 'Newest first, page by page.',
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
      method: 'PATCH',
      path: '/projects/:id',
      tag: 'Projects',
      summary: 'Rename a project',
      description: 'The name is for people; ids stay.',
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
            ? 'Every live session of the project is closed (4003) on every node within a second. Until the project is enabled, it gets no tokens, its tokens are refused, and no session resumes. Its rooms and keys stay. Disabling again is safe.'
            : 'Tokens of the project are issued and accepted again. Enabling again is safe. A project that is being deleted cannot be enabled.',
        access: 'operator',
        body: Nothing,
        answer: { status: 200, description: 'The project.', schema: Project },
        problems: action === 'disable' ? ['project_not_found'] : ['project_not_found', 'conflict'],
      },
      async ({ params }) => {
        const project = await projects.setDisabled(params.id!, action === 'disable')
        log.info({ project_id: project.id }, `project ${action}d`)
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
        'Takes a disabled project only. Ends its rooms as DELETE of each room does, in batches, for up to 15 s. When the last room has ended, it deletes the project with its keys, its notices and dead letters, and what is stored of its players. While rooms are left, the answer says deleted: false; send the request again. A room that cannot end is named in the error.',
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
        'At whichever node it is: its connection is closed (4003), it cannot resume, and its members leave their rooms. A token that is still valid opens a new session.',
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
