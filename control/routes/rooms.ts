import { Problem } from '../../shared/problem.ts'
import type { Endpoints } from '../endpoint.ts'
import type { Nodes } from '../nodes.ts'
import type { Projects } from '../projects.ts'
import { EndedRoom, RoomPage, RoomsQuery } from '../schemas.ts'

/** `GET /projects/:id/rooms`, `DELETE /projects/:id/rooms/:type/:key`: a node answers them. */
export function roomRoutes(
  endpoints: Endpoints,
  parts: { projects: Projects; nodes: Pick<Nodes, 'call'> },
): void {
  const { projects, nodes } = parts

  const requireProject = async (projectId: string): Promise<void> => {
    if (!(await projects.find(projectId)))
      throw new Problem('project_not_found', `There is no project ${projectId}.`)
  }

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects/:id/rooms',
      tag: 'Rooms',
      summary: 'List rooms without owner',
      description:
        'Rooms that no node has: those that sleep, or wait for a timer, and those whose node has died and to which no one has come back. The ones that expire first come first. A page may have fewer rooms than limit; the list ends where next_cursor is null.',
      access: 'operator',
      query: RoomsQuery,
      answer: { status: 200, description: 'One page of rooms.', schema: RoomPage },
      problems: ['project_not_found', 'node_unavailable', 'timeout'],
    },
    async ({ params: { id = '' }, query: { limit, cursor } }) => {
      await requireProject(id)
      return nodes.call({
        method: 'GET',
        path: '/internal/rooms',
        query: { project_id: id, limit: String(limit), cursor },
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
      await requireProject(id)
      return nodes.call({
        method: 'DELETE',
        path: '/internal/rooms',
        query: { project_id: id, room_id: `${type}:${key}` },
      })
    },
  )
}
