import type { NodeInfo } from '../../shared/node-registry.ts'
import type { Random } from '../../shared/random.ts'

/** `create`: the room is nowhere yet. `take_over`: its owner is dead. `hand_over`: this node gives it away. */
export type PlacementReason = 'create' | 'take_over' | 'hand_over'

/** What a node that is to run a room needs code for. */
export interface RoomToRun {
  readonly roomType: string
  /** Of its state: older code cannot run it. */
  readonly stateVersion: number
}

/** Whether a node has code for a room. */
export const canRun = ({ room_types: types }: NodeInfo, { roomType, stateVersion }: RoomToRun): boolean =>
  types === undefined || (types[roomType] ?? 0) >= stateVersion

/** A room that needs a node. */
interface Placement {
  /** This node's id. */
  readonly self: string
  /** The nodes that are alive, this one included. */
  readonly nodes: readonly NodeInfo[]
  readonly random: Random
  readonly reason: PlacementReason
  /** What a node has to have code for. */
  readonly room: RoomToRun
  /** For a hand-over: the node that has most of the room's members. */
  readonly preferred?: string
}

/** What a node may have beyond the average before it counts as above its share, or as well above the others. */
interface Slack {
  readonly factor: number
  readonly rooms: number
  readonly load: number
}

/** A quiet cluster stays within: a few rooms more or less are no reason for a longer way. */
const SHARE: Slack = { factor: 1.1, rooms: 10, load: 0.25 }
const WELL_ABOVE: Slack = { factor: 1.5, rooms: 20, load: 0.4 }

/**
 * The node that is to run a room; undefined when no living node that has code for it can take one more: a new one none that is
 * overloaded, others rather one that is not. New rooms stay here while this node is not above its share, and rooms of dead nodes while it
 * can take them; others go to the less loaded of two random nodes (M. Mitzenmacher, "The power of two choices in randomized load
 * balancing", 2001), which spreads well although what is known of the nodes is some hundred milliseconds old.
 */
export function place({
  self,
  nodes: alive,
  random,
  reason,
  room,
  preferred,
}: Placement): string | undefined {
  const able = alive.filter((node) => canRun(node, room))
  // Of a type that no one knows any node can say so.
  const nodes = able.length === 0 && room.stateVersion === 1 ? alive : able
  const idle = nodes.filter((node) => isOpen(node) && !node.overloaded)
  const open = preferSessions(reason === 'create' || idle.length > 0 ? idle : nodes.filter(isOpen))
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

/** A node that is this busy gets no sessions from others, nor one that has this share of all it takes. */
const BUSY = 0.75
const NEARLY_FULL = 0.9

/** Whether a node that has the rooms of a session is to have the session too. */
export const takesSessions = ({
  draining,
  cordoned,
  overloaded,
  load,
  sessions,
  max_sessions: maxSessions,
}: NodeInfo): boolean =>
  !draining && !cordoned && !overloaded && load < BUSY && hasSpace(sessions, maxSessions * NEARLY_FULL)

/** Whether one more is allowed; `max` 0: no limit. */
const hasSpace = (count: number, max: number): boolean => max === 0 || count < max

const isOpen = ({ draining, cordoned, rooms, max_rooms: maxRooms }: NodeInfo): boolean =>
  !draining && !cordoned && hasSpace(rooms, maxRooms)

/** Those that can take sessions too; when there are none, all: members who are here already may still open rooms. */
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

/** How much a node has of what there is; rooms count when they are many, and load when it is high. */
const pressure = ({ rooms, load }: NodeInfo, average: Average): number =>
  rooms / (average.rooms + SHARE.rooms) + load / (average.load + SHARE.load)

function lesserOfTwo(nodes: readonly NodeInfo[], average: Average, random: Random): NodeInfo | undefined {
  if (nodes.length === 0) return undefined
  const first = Math.floor(random.float() * nodes.length)
  if (nodes.length === 1) return nodes[first]
  // Any but the first.
  const second = (first + 1 + Math.floor(random.float() * (nodes.length - 1))) % nodes.length
  const [a, b] = [nodes[first]!, nodes[second]!]
  return pressure(a, average) <= pressure(b, average) ? a : b
}
