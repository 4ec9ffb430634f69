import { Problem } from '../../shared/problem.ts'
import { invalid } from '../../shared/validate.ts'
import { requireOperator, requireProject, requireScope } from '../auth.ts'
import type { Endpoints } from '../endpoint.ts'
import { ROOM_READ_SCOPE } from '../keys.ts'
import type { Nodes } from '../nodes.ts'
import type { Projects } from '../projects.ts'
import { EndedRoom, RoomPage, RoomsQuery } from '../schemas.ts'

/** `GET /projects/:id/rooms`, `DELETE /projects/:id/rooms/:type/:key`: a node answers them. */
export function roomRoutes(
  endpoints: Endpoints,
  parts: { projects: Projects; nodes: Pick<Nodes, 'call'> },
): void {
  const { projects, nodes } = parts

  const requireExists = async (projectId: string): Promise<void> => {
    if (!(await projects.find(projectId)))
      throw new Problem('project_not_found', `There is no project ${projectId}.`)
  }

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id/rooms',
      tag: 'Rooms',
      summary: 'List rooms',
      description:
        'With type: the listed rooms of a room type that have a row. A row can be about two seconds old. A key needs the scope room:read. With sleeping=1: rooms that no node has, which are those that sleep or wait for a timer, and those whose node has died and to which no one has come back. The ones that expire first come first. A page may have fewer rooms than limit; the list ends where next_cursor is null.',
      access: 'caller',
      query: RoomsQuery,
      answer: { status: 200, description: 'One page of rooms.', schema: RoomPage },
      problems: ['missing_scope', 'project_not_found', 'node_unavailable', 'timeout'],
    },
    async ({ caller, params: { id = '' }, query: { sleeping, type, limit, ...query } }) => {
      if (sleeping !== undefined) requireOperator(caller)
      requireProject(caller, id)
      if (caller.kind === 'key') requireScope(caller.key, ROOM_READ_SCOPE)
      if ((type === undefined) === (sleeping === undefined))
        throw invalid([{ path: 'type', message: 'give either type, or sleeping=1' }])
      await requireExists(id)
      return nodes.call({
        method: 'GET',
        path: type === undefined ? '/internal/rooms' : '/internal/listings',
        query: { project_id: id, room_type: type, limit: limit?.toString(), ...query },
      })
    },
  )

  endpoints.mount(
    {
      method: 'DELETE',
      path: '/projects/:id/rooms/:type/:key',
      tag: 'Rooms',
      summary: 'End a room',
      description:
        'Ends a room as ctx.close() does: its members leave with reason closed, onDispose runs, and its database gets the last state. A room that sleeps or waits for a timer is opened for that. One of a type that no node has code for is deleted without a hook.',
      access: 'operator',
      answer: { status: 200, description: 'The room has ended.', schema: EndedRoom },
      problems: ['project_not_found', 'room_not_found', 'room_unavailable', 'node_unavailable', 'timeout'],
    },
    async ({ params: { id = '', type = '', key = '' } }) => {
      await requireExists(id)
      return nodes.call({
        method: 'DELETE',
        path: '/internal/rooms',
        query: { project_id: id, room_id: `${type}:${key}` },
      })
    },
  )
}
