import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { NodeInfo } from '../../shared/node-registry.ts'
import type { Random } from '../../shared/random.ts'
import type { RoomQuota, Store } from '../../shared/store/port.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import type { Inbox } from '../inbox.ts'
import type { Claimed, ClaimedType, Nowhere } from '../place.ts'
import type { RequestAnswer, RoomAddress, RoomRequest, Shown, ToEdge, ToOwner } from '../traffic.ts'
import type { LeavingRoom } from './hand-over.ts'
import type { NodeLinks } from './links.ts'
import type { ClusterMetrics } from './metrics.ts'

/** The rooms of a node (`RoomHost`), as far as the cluster has to do with them. */
export interface LocalRooms {
  readonly size: number
  /** Rooms that run here, and those that are about to. */
  readonly claimed: number
  /** The version of each room type that there is code for. */
  readonly versions: Readonly<Record<string, number>>
  readonly rooms: readonly LeavingRoom[]
  /** Whether a room (`project/type:key`) runs here, or is about to. */
  has(name: string): boolean
  /** Whether this node opens rooms for others. */
  readonly accepts: boolean
  /** False: no such room runs here, or is about to. */
  receive(message: ToOwner, from: string): boolean
  /** Returns the room type, or the answer to messages of a type that is not installed. */
  typeOf(roomType: string): ClaimedType | Nowhere
  /** Runs a room that this node has claimed, for the messages in the inbox. Of a type that is not installed it is ended. */
  run(room: RoomAddress, inbox: Inbox, claimed: Claimed): void
  /** A room whose time has come runs here, or is about to; false: it does not. */
  wake(name: string): boolean
  /** Each room reads its record: another node may have taken it over, or the store may have lost it. */
  recheck(): void
  /** One room (`project/type:key`) does: another node says that it has it. */
  verify(name: string): void
  /** A node is gone, and with it the sockets of the members there. */
  edgeGone(nodeId: string): void
  /** Messages to a node may be lost: the rooms here ask it to attach its members again. */
  edgeMissed(nodeId: string): void
  /** Resolves to the stored answer of a room that has ended, if the request has come before. */
  endedAnswer(room: RoomAddress, request: RoomRequest): Promise<RequestAnswer | undefined>
  /** A room that no node runs, as its record has it. */
  recorded(room: RoomAddress, shown: Shown): Promise<RequestAnswer | undefined>
  /** From now on no room is opened here. */
  refuseMore(): void
}

/** The sockets of a node (`Gateway`), as the cluster uses them. */
export interface LocalEdge {
  /** An owner has something for members here. */
  receive(message: ToEdge): void
  /** Members of the room ask its owner again what they have missed. */
  reattach(room: RoomAddress): void
  /** Whether it has members in a room (`project/type:key`). */
  subscribes(room: string): boolean
  /** The session was resumed at another node. */
  sessionTaken(sessionId: string, ended: boolean): Promise<void>
  /** The store was away, and messages over it may be lost. */
  storeReturned(): void
}

/** Dependencies of `Ownership` and of all its parts. */
export interface ClusterEnvironment {
  readonly nodeId: string
  readonly store: Store
  readonly links: Pick<NodeLinks, 'start' | 'send' | 'greet' | 'forget' | 'close'>
  /** Both are made after ownership, and exist once it is started. */
  readonly rooms: () => LocalRooms
  readonly edge: () => LocalEdge
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: ClusterMetrics
  readonly tracer: Tracer
  /** How long others take this node for alive after the last renewal of its lease, in milliseconds. */
  readonly leaseMs: number
  /** How long a room's record outlives its last write, in milliseconds. */
  readonly recordTtlMs: number
  /** How many rooms may be made. */
  readonly quota: RoomQuota
  /** Maximum number of rooms of this node. 0: no limit. */
  readonly maxRooms: number
  /** How many messages wait for one room while its owner is looked for. */
  readonly maxWaitingMessages: number
  /** Called when a message came while `maxWaitingMessages` were waiting. */
  readonly backlogFull: (roomType: string) => void
  /** Describes this node for the other nodes. */
  readonly info: () => Omit<NodeInfo, 'node_id' | 'draining' | 'cordoned' | 'rooms' | 'room_types'>
  /** Another process has the name of this node: the lease is never valid again, and this process is to end at once. */
  readonly onReplaced: (replaced: Error) => void
}
