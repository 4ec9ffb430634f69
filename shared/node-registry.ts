import * as v from 'valibot'
import type { Records } from './store/port.ts'

/** The registry of nodes in the store: nodes write it with their leases, control reads it to reach one. */

/** Where the lease of a node is recorded, with what it tells of itself. It is there while the node lives; of processes with one name, one has it. */
export const leaseKey = (name: string): string => `{nodes}:lease:${name}`

/** The ordered set of the names of all nodes that live, and of some that have died. */
export const NODES = '{nodes}'

const COUNT = v.number()
/** What a node tells the others about itself, with each renewal of its lease. */
const NODE_INFO = v.object({
  node_id: v.string(),
  started_at: v.string(),
  version: v.string(),
  /** Absent: a node of a version that does not say. */
  commit: v.exactOptional(v.string()),
  /** Hash of the code of all its room types, `unknown` where they are not loaded from files. Absent: a node of a version that does not say. */
  rooms_hash: v.exactOptional(v.string()),
  /** It gives its rooms away, and takes nothing more. */
  draining: v.boolean(),
  /** It keeps its rooms and sessions, and takes no more. Absent: it does, or is of a version that does not say. */
  cordoned: v.exactOptional(v.boolean()),
  /** Rooms it owns. */
  rooms: COUNT,
  sessions: COUNT,
  /** How busy its event loop is, 0–1. */
  load: v.number(),
  /** It is asked for more than it can do. Absent: a node of a version that does not say. */
  overloaded: v.exactOptional(v.boolean()),
  /** Rooms and sessions it takes at most. */
  max_rooms: COUNT,
  max_sessions: COUNT,
  /** The version of the state of each room type that it has code for. Absent: a node of a version that does not say. */
  room_types: v.exactOptional(v.record(v.string(), COUNT)),
  /** Where its websockets are accepted. */
  ws_url: v.exactOptional(v.string()),
  /** Where clients from outside reach it. */
  advertise_url: v.exactOptional(v.string()),
  admin_url: v.exactOptional(v.string()),
})
export type NodeInfo = Readonly<v.InferOutput<typeof NODE_INFO>>

/** What a node tells of itself, as its lease has it. */
export const encodeNodeInfo = (info: NodeInfo): Uint8Array => new TextEncoder().encode(JSON.stringify(info))

/** Reads what a node wrote, also one of another version: fields that this one does not know are left out. Undefined for anything else. */
export function decodeNodeInfo(bytes: Uint8Array): NodeInfo | undefined {
  try {
    return v.parse(NODE_INFO, JSON.parse(new TextDecoder().decode(bytes)))
  } catch {
    return undefined
  }
}

/** The nodes whose leases are valid. Rejects with `StoreUnavailable`. */
export async function readLiveNodes(records: Pick<Records, 'page' | 'read'>): Promise<NodeInfo[]> {
  const names = await records.page(NODES, { limit: MOST_NODES })
  const leases = await records.read(names.map(leaseKey))
  return leases.flatMap((lease) => (lease && decodeNodeInfo(lease.value)) ?? [])
}

/** More than any deployment has. */
const MOST_NODES = 1000
