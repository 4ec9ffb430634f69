import { timestamp } from '../../shared/clock.ts'
import { hasText, type SessionDescription, type SessionQuery } from '../descriptions.ts'
import type { Session } from './session.ts'

/** Whether a query is for a session. */
export const isAskedFor = (session: Session, { room_id, project_id, q }: SessionQuery): boolean =>
  (project_id === undefined || session.project_id === project_id) &&
  (room_id === undefined || isIn(session, room_id)) &&
  hasText(q, namesOf(session))

function isIn(session: Session, room_id: string): boolean {
  for (const seat of session.seats.values()) if (seat.taken && seat.room_id === room_id) return true
  return false
}

function* namesOf(session: Session): Iterable<string | null> {
  yield session.session_id
  yield session.sub
  yield session.project_id
  yield session.claims.key_id ?? null
  yield* session.room_ids
}

/** A session as operators see it. */
export const describeSession = (session: Session): SessionDescription => ({
  session_id: session.session_id,
  project_id: session.project_id,
  key_id: session.claims.key_id ?? null,
  sub: session.sub,
  connected_at: timestamp(session.connected_at),
  rooms: session.room_ids,
  queued_bytes: session.connection?.outbox.queued ?? 0,
})
