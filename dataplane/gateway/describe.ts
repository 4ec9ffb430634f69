import { timestamp } from '../../shared/clock.ts'
import type { Query, SessionColumn, SessionDescription } from '../descriptions.ts'
import { type Order, type Ranking, textFinder } from '../listing.ts'
import type { Session } from './session.ts'

/** Whether a query is for a session, to be asked of many; undefined: it is for all. */
export function sessionsAskedFor({
  room_id,
  project_id,
  q,
}: Query): ((session: Session) => boolean) | undefined {
  const hasText = textFinder(q)
  if (room_id === undefined && project_id === undefined && !hasText) return undefined
  return (session) =>
    (project_id === undefined || session.project_id === project_id) &&
    (room_id === undefined || isIn(session, room_id)) &&
    (hasText === undefined || hasName(session, hasText))
}

function isIn(session: Session, room_id: string): boolean {
  for (const subscription of session.subscriptions.values())
    if (subscription.taken && subscription.room_id === room_id) return true
  return false
}

function hasName(session: Session, hasText: (text: string) => boolean): boolean {
  const { session_id, sub, project_id, claims } = session
  if (hasText(session_id) || hasText(project_id)) return true
  if ((sub !== null && hasText(sub)) || (claims.key_id !== undefined && hasText(claims.key_id))) return true
  for (const subscription of session.subscriptions.values())
    if (subscription.taken && hasText(subscription.room_id)) return true
  return false
}

const KEYS: Readonly<Record<SessionColumn, Ranking<Session>['key']>> = {
  session: (session) => session.session_id,
  player: (session) => session.sub,
  project: (session) => session.project_id,
  key: (session) => session.claims.key_id ?? null,
  connected: (session) => session.connected_at,
  rooms: (session) => session.subscriptions.size,
  queued: (session) => queuedBytes(session),
}

/** The order of sessions by one of their columns. */
export const sessionRanking = ({ by, descending }: Order<SessionColumn>): Ranking<Session> => ({
  key: KEYS[by],
  descending,
  name: (session) => session.session_id,
})

const queuedBytes = (session: Session): number => session.connection?.outbox.queued ?? 0

/** A session as operators see it. */
export const describeSession = (session: Session): SessionDescription => ({
  session_id: session.session_id,
  project_id: session.project_id,
  key_id: session.claims.key_id ?? null,
  sub: session.sub,
  connected_at: timestamp(session.connected_at),
  rooms: session.room_ids,
  queued_bytes: queuedBytes(session),
})
