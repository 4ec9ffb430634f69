import { timestamp } from '../../shared/clock.ts'
import {
  type Order,
  type Query,
  type Ranking,
  type SessionColumn,
  type SessionDescription,
  textFinder,
} from '../descriptions.ts'
import type { Session } from './session.ts'

/** Whether a query is for a session, to be asked of many; undefined: it is for all. */
export function sessionsAskedFor({
  room_id: roomId,
  project_id: projectId,
  q,
}: Query): ((session: Session) => boolean) | undefined {
  const hasText = textFinder(q)
  if (roomId === undefined && projectId === undefined && !hasText) return undefined
  return (session) =>
    (projectId === undefined || session.projectId === projectId) &&
    (roomId === undefined || isIn(session, roomId)) &&
    (hasText === undefined || hasName(session, hasText))
}

function isIn(session: Session, roomId: string): boolean {
  for (const subscription of session.subscriptions.values())
    if (subscription.taken && subscription.roomId === roomId) return true
  return false
}

function hasName(session: Session, hasText: (text: string) => boolean): boolean {
  const { sessionId, sub, projectId, claims } = session
  if (hasText(sessionId) || hasText(projectId)) return true
  if ((sub !== null && hasText(sub)) || (claims.key_id !== undefined && hasText(claims.key_id))) return true
  for (const subscription of session.subscriptions.values())
    if (subscription.taken && hasText(subscription.roomId)) return true
  return false
}

const KEYS: Readonly<Record<SessionColumn, Ranking<Session>['key']>> = {
  session: (session) => session.sessionId,
  player: (session) => session.sub,
  project: (session) => session.projectId,
  key: (session) => session.claims.key_id ?? null,
  connected: (session) => session.connectedAt,
  rooms: (session) => session.subscriptions.size,
  queued: (session) => queuedBytes(session),
}

/** The order of sessions by one of their columns. */
export const sessionRanking = ({ by, descending }: Order<SessionColumn>): Ranking<Session> => ({
  key: KEYS[by],
  descending,
  name: (session) => session.sessionId,
})

const queuedBytes = (session: Session): number => session.connection?.outbox.queued ?? 0

/** A session as operators see it. */
export const describeSession = (session: Session): SessionDescription => ({
  session_id: session.sessionId,
  project_id: session.projectId,
  key_id: session.claims.key_id ?? null,
  sub: session.sub,
  connected_at: timestamp(session.connectedAt),
  rooms: session.roomIds,
  queued_bytes: queuedBytes(session),
})
