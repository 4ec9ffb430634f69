import type { ClientMessage } from '../../shared/protocol/messages.ts'
import type { Connection } from './connection.ts'
import type { Session } from './session.ts'

/** A request of a client for rooms that it is not in. */
export type FindingRequest = Extract<ClientMessage, { t: 'rooms' | 'rooms.end' | 'find' }>

/** The requests of all clients of a node for rooms. */
export interface RoomFinding {
  /** Returns the finder of one client. `source`: see `PendingConnection.source`. */
  of(connection: Connection, source: string): RoomFinder
  /** The session asks to join a room, perhaps one that was found for it. */
  joins(session: Session, roomId: string): void
  /** To be called about once a second. */
  sweep(): void
}

/** Answers the requests of one client for rooms, until its connection ends. */
export interface RoomFinder {
  handle(session: Session, request: FindingRequest): void
  /** The client has caught up. */
  hasRoom(): void
  /** The token allows other rooms than before. */
  renewed(session: Session): void
  /** The connection has ended. */
  stop(): void
}
