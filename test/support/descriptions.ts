import type { RoomDescription, SessionDescription } from '../../dataplane/descriptions.ts'
import type { NodeInfo } from '../../shared/node-registry.ts'

/** A node without rooms and sessions. */
export const nodeInfo = (nodeId: string, changes: Partial<NodeInfo> = {}): NodeInfo => ({
  node_id: nodeId,
  started_at: '2026-01-01T00:00:00.000Z',
  version: '1.2.3',
  draining: false,
  rooms: 0,
  sessions: 0,
  load: 0,
  max_rooms: 1000,
  max_sessions: 10_000,
  ...changes,
})

/** An empty room. `roomId`: `type:key`. */
export const roomDescription = (roomId: string, changes: Partial<RoomDescription> = {}): RoomDescription => ({
  room_id: roomId,
  project_id: 'prj_1',
  room_type: roomId.slice(0, roomId.indexOf(':')),
  key: roomId.slice(roomId.indexOf(':') + 1),
  epoch: 1,
  seq: 1,
  checksum: 1,
  members: [],
  member_count: 0,
  spectator_count: 0,
  reservations: [],
  connected_count: 0,
  updates_per_second: null,
  ...changes,
})

/** A session in no room, of a token without key and player. */
export const sessionDescription = (
  sessionId: string,
  changes: Partial<SessionDescription> = {},
): SessionDescription => ({
  session_id: sessionId,
  project_id: 'prj_1',
  key_id: null,
  sub: null,
  connected_at: '2026-01-01T00:00:00.000Z',
  rooms: [],
  queued_bytes: 0,
  ...changes,
})
