import type { RoomDescription, SessionDescription } from '../descriptions.ts'
import type { Load } from './load.ts'

/** What `GET /admin/runtime` answers: a node, its rooms and its sessions, at one moment. Times are RFC 3339. */
export interface Runtime {
  readonly node: NodeDescription
  readonly rooms: readonly RoomDescription[]
  readonly sessions: readonly SessionDescription[]
}

export interface NodeDescription {
  readonly node_id: string
  readonly version: string
  readonly started_at: string
  readonly draining: boolean
  readonly load: Load
}
