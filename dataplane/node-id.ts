import { randomToken } from '../shared/ids.ts'
import type { Random } from '../shared/random.ts'

/**
 * A node id is the node's name (`NODE_ID`) and its boot, such as `node-1~f3Kx9a_Q`: another one after each start of a process, whatever its
 * name. Nodes know each other by it, so what an earlier process had (rooms, members' sockets, sessions, a channel, a lease) is never taken
 * for that of a later one with its name. Operators and clients see the name.
 */
const BOOT_AT = '~'
const BOOT_LENGTH = 8

/** The id of a process that starts now under a name. */
export const newNodeId = (name: string, random: Random): string =>
  `${name}${BOOT_AT}${randomToken(random, BOOT_LENGTH)}`

/** The name in a node id. */
export function nodeName(nodeId: string): string {
  const at = nodeId.lastIndexOf(BOOT_AT)
  return at < 0 ? nodeId : nodeId.slice(0, at)
}
