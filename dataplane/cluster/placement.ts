import type { NodeInfo } from '../../shared/node-registry.ts'
import type { Random } from '../../shared/random.ts'

/** `create`: the room is new. `take_over`: its owner is dead. `hand_over`: this node releases it. */
export type PlacementReason = 'create' | 'take_over' | 'hand_over'

/** Code that a node needs to run a room. */
export interface RoomToRun {
  readonly roomType: string
  /** Version of the room's state. Older code cannot run it. */
  readonly stateVersion: number
}

/** A room that needs a node. */
export interface RoomToPlace extends RoomToRun {
  readonly projectId: string
}

/** Returns true if a node has code for a room. */
export const canRun = ({ room_types: types }: NodeInfo, { roomType, stateVersion }: RoomToRun): boolean =>
  types === undefined || (types[roomType] ?? 0) >= stateVersion

/** Dependencies of `Placement`. */
export interface PlacementEnvironment {
  readonly nodeId: string
  readonly random: Random
  /** Returns true if this node has a place for one more room of a project, perhaps a spare one. */
  readonly hasPlaceFor: (projectId: string) => boolean
}

/** Chooses nodes for rooms, from those that are known to live. */
export class Placement {
  readonly #environment: PlacementEnvironment
  readonly #cluster: { nodes(): readonly NodeInfo[] }

  constructor(environment: PlacementEnvironment, cluster: { nodes(): readonly NodeInfo[] }) {
    this.#environment = environment
    this.#cluster = cluster
  }

  /** Returns the node for a room. Undefined: no node can take it. `preferred`: for a handoff, the node with most of the room's members. */
  choose(reason: PlacementReason, room: RoomToPlace, preferred?: string): string | undefined {
    const { nodeId: self, random, hasPlaceFor } = this.#environment
    const nodes = this.#cluster.nodes()
    const hasSpare = hasPlaceFor(room.projectId)
    return place({ self, nodes, random, reason, room, hasSpare, preferred })
  }
}

/** Input of `place`. */
interface Choice {
  /** Id of this node. */
  readonly self: string
  /** The living nodes, including this one. */
  readonly nodes: readonly NodeInfo[]
  readonly random: Random
  readonly reason: PlacementReason
  /** Code that the node needs. */
  readonly room: RoomToRun
  /** True if this node has a place for the room, perhaps a spare one. */
  readonly hasSpare: boolean
  /** For a handoff: the node with most of the room's members. */
  readonly preferred?: string | undefined
}

/** Amount above the average from which a node counts as above its share, or as far above the others. */
interface Slack {
  readonly factor: number
  readonly rooms: number
  readonly load: number
}

/** A quiet cluster stays within this slack: a difference of a few rooms does not justify another hop for messages. */
const SHARE: Slack = { factor: 1.1, rooms: 10, load: 0.25 }
const WELL_ABOVE: Slack = { factor: 1.5, rooms: 20, load: 0.4 }

/**
 * Chooses the node for a room. Undefined: no living node with code for it can accept one more. A new room never goes to an overloaded node; other
 * rooms do only if all nodes are. New rooms stay here while this node is not above its share, and rooms of dead nodes while it can accept them.
 * If all nodes have their maximum of rooms, this node takes a new room, or one of a dead node, if it has a spare place for its project.
 * Others go to the less loaded of two random nodes (M. Mitzenmacher, "The power of two choices in randomized load balancing", 2001). This
 * spreads well although the data about nodes is some hundred milliseconds old.
 */
export function place({
  self,
  nodes: alive,
  random,
  reason,
  room,
  hasSpare,
  preferred,
}: Choice): string | undefined {
  const able = alive.filter((node) => canRun(node, room))
  // For a room type that no node knows, any node can answer with the error.
  const nodes = able.length === 0 && room.stateVersion === 1 ? alive : able
  const idle = nodes.filter((node) => isOpen(node) && !node.overloaded)
  const open = preferSessions(reason === 'create' || idle.length > 0 ? idle : nodes.filter(isOpen))
  if (open.length === 0 && reason !== 'hand_over') {
    const own = nodes.find(({ node_id: nodeId }) => nodeId === self)
    return hasSpare && own && isWilling(own) && !own.overloaded ? self : undefined
  }
  const average = averageOf(open)
  const here = open.find(({ node_id: nodeId }) => nodeId === self)
  const others = open.filter(({ node_id: nodeId }) => nodeId !== self)
  if (reason === 'hand_over') {
    const wanted = others.find(({ node_id: nodeId }) => nodeId === preferred)
    if (wanted && !isAbove(wanted, averageOf(others), WELL_ABOVE)) return preferred
    return lesserOfTwo(others, averageOf(others), random)?.node_id
  }
  if (here && (reason === 'take_over' || !isAbove(here, average, SHARE))) return self
  const other = lesserOfTwo(others, average, random)
  if (here && (!other || pressure(here, average) <= pressure(other, average))) return self
  return other?.node_id
}

/** A node with this load, or with this share of its maximum sessions, accepts no sessions from other nodes. */
const BUSY = 0.75
const NEARLY_FULL = 0.9

/** Returns true if a node that has the rooms of a session should also get the session. */
export const takesSessions = ({
  draining,
  cordoned,
  overloaded,
  load,
  sessions,
  max_sessions: maxSessions,
}: NodeInfo): boolean =>
  !draining && !cordoned && !overloaded && load < BUSY && hasSpace(sessions, maxSessions * NEARLY_FULL)

/** Returns true if one more is allowed; `max` 0: no limit. */
const hasSpace = (count: number, max: number): boolean => max === 0 || count < max

const isOpen = (node: NodeInfo): boolean => isWilling(node) && hasSpace(node.rooms, node.max_rooms)

const isWilling = ({ draining, cordoned }: NodeInfo): boolean => !draining && !cordoned

/** Prefers nodes that also accept sessions. If there are none, returns all: existing members may still open rooms. */
function preferSessions(nodes: readonly NodeInfo[]): readonly NodeInfo[] {
  const roomy = nodes.filter(({ sessions, max_sessions: maxSessions }) => hasSpace(sessions, maxSessions))
  return roomy.length > 0 ? roomy : nodes
}

interface Average {
  readonly rooms: number
  readonly load: number
}

function averageOf(nodes: readonly NodeInfo[]): Average {
  const sum = { rooms: 0, load: 0 }
  for (const { rooms, load } of nodes) {
    sum.rooms += rooms
    sum.load += load
  }
  const count = Math.max(1, nodes.length)
  return { rooms: sum.rooms / count, load: sum.load / count }
}

const isAbove = (node: NodeInfo, average: Average, slack: Slack): boolean =>
  node.rooms > average.rooms * slack.factor + slack.rooms || node.load > average.load + slack.load

/** Pressure of a node relative to the average. Rooms matter if they are many, and load if it is high. */
const pressure = ({ rooms, load }: NodeInfo, average: Average): number =>
  rooms / (average.rooms + SHARE.rooms) + load / (average.load + SHARE.load)

function lesserOfTwo(nodes: readonly NodeInfo[], average: Average, random: Random): NodeInfo | undefined {
  if (nodes.length === 0) return undefined
  const first = Math.floor(random.float() * nodes.length)
  if (nodes.length === 1) return nodes[first]
  // Any node but the first.
  const second = (first + 1 + Math.floor(random.float() * (nodes.length - 1))) % nodes.length
  const [a, b] = [nodes[first]!, nodes[second]!]
  return pressure(a, average) <= pressure(b, average) ? a : b
}
