import type { NodeInfo } from '../../../dataplane/descriptions.ts'

/** An idle node with room for everything. */
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
