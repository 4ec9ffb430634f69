import type { Clock } from '../../shared/clock.ts'
import type { ResumePosition } from '../../shared/protocol/messages.ts'
import type { Connection } from './connection.ts'
import type { Edge } from './edge.ts'
import type { GatewayMetrics } from './metrics.ts'
import type { Session } from './session.ts'

/** A room of a `welcome`: whether what was missed follows frame by frame. If not, a whole state follows, or `not_in_room`. */
export interface ResumedRoom {
  readonly room_id: string
  readonly resumed: boolean
}

/** What bringing subscriptions back takes. */
export interface ResumptionParts {
  readonly edge: Edge
  readonly clock: Clock
  readonly metrics: GatewayMetrics
  /** How long `welcome` waits for the owners' answers. */
  readonly waitMs: number
}

/**
 * Brings the subscriptions of a resuming session back. The client names the rooms it wants to keep; the session leaves the others, among them
 * those whose `joined` never arrived, so that the client can simply join again. Calls `done` once, when every owner has answered or
 * `waitMs` is over; a room without an answer counts as not resumed, and its frames follow when they come.
 */
export function resumeRooms(
  session: Session,
  connection: Connection,
  positions: readonly ResumePosition[],
  { edge, clock, metrics, waitMs }: ResumptionParts,
  done: (rooms: ResumedRoom[]) => void,
): void {
  const listed = new Map(positions.map((position) => [position.room_id, position]))
  const resumed = new Map([...listed.keys()].map((roomId) => [roomId, false]))
  let waiting = listed.size
  let over = false
  const finish = (): void => {
    if (over) return
    over = true
    cancel()
    done([...resumed].map(([roomId, isResumed]) => ({ room_id: roomId, resumed: isResumed })))
  }
  const cancel = clock.schedule(waitMs, finish)
  for (const subscription of [...session.subscriptions.values()])
    if (!listed.has(subscription.roomId) || !subscription.taken) edge.giveUp(subscription, 'left')
  for (const [roomId, position] of listed) {
    const subscription = session.subscriptions.get(roomId)
    if (!subscription) {
      waiting -= 1
      metrics.roomResumes.inc({ result: 'lost' })
      connection.sendError('not_in_room', `the session is not in ${roomId}`, { room_id: roomId })
      continue
    }
    edge.attach(subscription, connection, position, (result) => {
      waiting -= 1
      metrics.roomResumes.inc({ result })
      resumed.set(roomId, result === 'frames')
      if (waiting === 0) finish()
    })
  }
  if (waiting === 0) finish()
}
