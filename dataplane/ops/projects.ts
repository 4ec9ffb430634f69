import type { Context, Hono } from 'hono'
import type { MiddlewareHandler } from 'hono/types'
import * as v from 'valibot'
import { Problem } from '../../shared/problem.ts'
import type { CountedRoom } from '../../shared/store/port.ts'
import { validate } from '../../shared/validate.ts'
import type { NoticesSource } from './notices.ts'
import { type AdminEnv, PROJECT_ID } from './query.ts'
import { CURSOR, closeRoom, cursorOf, type RoomCallsSource, withStore } from './rooms.ts'

/** What the calls about a whole project, or a session, need to know of the node. */
export interface ProjectCallsSource extends Pick<RoomCallsSource, 'requestRoom' | 'random'>, NoticesSource {
  /** Rooms of a project in the store, behind `after`. Rejects with `StoreUnavailable`. */
  readonly countedRooms: (
    projectId: string,
    limit: number,
    after: CountedRoom | undefined,
  ) => Promise<readonly CountedRoom[]>
  /** Ends a session, whichever node has it. False: the project has no such session. Rejects with `StoreUnavailable`. */
  readonly endSession: (projectId: string, sessionId: string) => Promise<boolean>
}

/** Rooms that one call ends. All are opened and ended at the same time. */
const BATCH = 50

const ROOMS_QUERY = v.object({ project_id: PROJECT_ID, cursor: v.exactOptional(CURSOR) })
const SESSION_QUERY = v.object({ project_id: PROJECT_ID, session_id: v.string() })

/** Mounts `DELETE /internal/project-rooms`, which ends the next rooms of a project, with the last of them its notices, and `DELETE /internal/sessions`. */
export function projectCalls(
  app: Hono<AdminEnv>,
  guard: MiddlewareHandler<AdminEnv>,
  source: ProjectCallsSource,
): void {
  app.delete('/internal/project-rooms', guard, (c) => withStore(() => endRooms(c, source)))
  app.delete('/internal/sessions', guard, (c) => withStore(() => endSession(c, source)))
}

async function endRooms(c: Context, source: ProjectCallsSource): Promise<Response> {
  const { project_id: projectId, cursor } = validate(ROOMS_QUERY, c.req.query(), 'query')
  const rooms = await source.countedRooms(projectId, BATCH, cursor)
  await Promise.all(
    rooms.map(async ({ roomId }) => {
      const answer = await closeRoom(source, projectId, roomId)
      if ('reply' in answer || answer.code === 'room_not_found') return
      throw new Problem('room_unavailable', `${roomId} has not ended: ${answer.message}. Try again.`)
    }),
  )
  const last = rooms.length === BATCH ? rooms.at(-1) : undefined
  if (!last) await source.notices.removeAll(projectId)
  return c.json({ ended_rooms: rooms.length, next_cursor: last ? cursorOf(last) : null })
}

async function endSession(c: Context, source: ProjectCallsSource): Promise<Response> {
  const { project_id: projectId, session_id: sessionId } = validate(SESSION_QUERY, c.req.query(), 'query')
  if (!(await source.endSession(projectId, sessionId)))
    throw new Problem('session_not_found', `The project ${projectId} has no session ${sessionId}.`)
  return c.json({ project_id: projectId, session_id: sessionId, ended: true })
}
