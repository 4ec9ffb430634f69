import * as v from 'valibot'
import type { Records } from './store/port.ts'

/** The registry of nodes in the store. Nodes write it with their leases, and control reads it to reach a node. */

/**
 * Returns the key of a node's lease record, which has the node's information. It exists while the node lives. Of several processes with one
 * name, one has it.
 */
export const leaseKey = (name: string): string => `{nodes}:lease:${name}`

/** Ordered set with the names of all living nodes, and of some dead ones. */
export const NODES = '{nodes}'

const COUNT = v.number()
/** Information of a node for other processes, written with each renewal of its lease. */
const NODE_INFO = v.object({
  node_id: v.string(),
  started_at: v.string(),
  version: v.string(),
  /** Absent: the node's version does not report it. */
  commit: v.exactOptional(v.string()),
  /**
   * Hash of the code of all room types. `unknown`: the room types are not loaded from files. Absent: the node's version does not report it.
   */
  rooms_hash: v.exactOptional(v.string()),
  /** True: the node hands off its rooms and accepts no new ones. */
  draining: v.boolean(),
  /**
   * True: the node keeps its rooms and sessions, and accepts no new ones. Absent: it is not cordoned, or its version does not report it.
   */
  cordoned: v.exactOptional(v.boolean()),
  /** What is wrong with its clock. Absent: nothing, or the node's version does not report it. */
  clock_wrong: v.exactOptional(v.string()),
  /** Number of owned rooms. */
  rooms: COUNT,
  sessions: COUNT,
  /** Utilization of its event loop, 0 to 1. */
  load: v.number(),
  /** True: the node is overloaded. Absent: the node's version does not report it. */
  overloaded: v.exactOptional(v.boolean()),
  /** Maximum numbers of rooms and sessions. */
  max_rooms: COUNT,
  max_sessions: COUNT,
  /** Latest state version of each room type that the node has code for. Absent: the node's version does not report it. */
  room_types: v.exactOptional(v.record(v.string(), COUNT)),
  /** Address of its websocket server. */
  ws_url: v.exactOptional(v.string()),
  /** Public address for clients. */
  advertise_url: v.exactOptional(v.string()),
  admin_url: v.exactOptional(v.string()),
})
export type NodeInfo = Readonly<v.InferOutput<typeof NODE_INFO>>

/** Returns the information of a node as bytes of its lease record. */
export const encodeNodeInfo = (info: NodeInfo): Uint8Array => new TextEncoder().encode(JSON.stringify(info))

/** Reads the information of a node of any version. Unknown fields are dropped. Undefined: the value is invalid. */
export function decodeNodeInfo(bytes: Uint8Array): NodeInfo | undefined {
  try {
    return v.parse(NODE_INFO, JSON.parse(new TextDecoder().decode(bytes)))
  } catch {
    return undefined
  }
}

/** Returns the nodes with valid leases. Rejects with `StoreUnavailable`. */
export async function readLiveNodes(records: Pick<Records, 'page' | 'read'>): Promise<NodeInfo[]> {
  const names = await records.page(NODES, { limit: MOST_NODES })
  const leases = await records.read(names.map(leaseKey))
  return leases.flatMap((lease) => (lease && decodeNodeInfo(lease.value)) ?? [])
}

/** Larger than the number of nodes of any deployment. */
const MOST_NODES = 1000
