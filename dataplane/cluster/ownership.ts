import { type Clock, sleep } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { NodeInfo } from '../../shared/node-registry.ts'
import type { Random } from '../../shared/random.ts'
import { Semaphore } from '../../shared/semaphore.ts'
import type { CountedRoom, RoomQuota, Store } from '../../shared/store/port.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import type { Inbox } from '../inbox.ts'
import type { Claimed, ClaimedType, Nowhere } from '../place.ts'
import { hasPlace, type Places } from '../shares.ts'
import {
  type Arrival,
  type RequestAnswer,
  type RoomAddress,
  type RoomRequest,
  roomIdOf,
  roomNamed,
  type Shown,
  type ToEdge,
  type ToOwner,
} from '../traffic.ts'
import { Claims } from './claims.ts'
import { NodeLease } from './lease.ts'
import type { NodeLinks } from './links.ts'
import type { ClusterMetrics } from './metrics.ts'
import { ClusterNodes } from './nodes.ts'
import { type PlacementReason, place, type RoomToRun, takesSessions } from './placement.ts'
import { RoomRequests } from './requests.ts'
import { Router } from './router.ts'
import { RoomWaker } from './waker.ts'

/** A room that needs a node. */
interface RoomToPlace extends RoomToRun {
  readonly projectId: string
}

/** A room of this node that another node is to continue. */
export interface LeavingRoom {
  readonly address: RoomAddress
  /** Version of its state, as its room type counts. */
  readonly stateVersion: number
  /** The node with most of its members' sockets. */
  readonly mostlyAt: string | undefined
  /** Saves the room and releases it. Resolves with true if the node `successor` can claim it. */
  handOver(successor?: string): Promise<boolean>
}

/** The rooms of a node (`RoomHost`), as the cluster uses them. */
export interface LocalRooms {
  readonly size: number
  /** Number of rooms that this node has claimed: they run here or are being opened. */
  readonly claimed: number
  /** The same of one project. */
  claimedOf(projectId: string): number
  /** Version of each room type for which this node has code. */
  readonly versions: Readonly<Record<string, number>>
  readonly rooms: readonly LeavingRoom[]
  /** Whether a room (`project/type:key`) runs here, or is being opened under the claim of this node. */
  has(name: string): boolean
  /** Whether this node opens rooms for others. */
  readonly accepts: boolean
  /** False: the room neither runs here nor is being opened. */
  receive(message: ToOwner, from: string): boolean
  /** Returns the room type, or the answer to messages of a type that is not installed. */
  typeOf(roomType: string): ClaimedType | Nowhere
  /** Runs a room that this node has claimed, for the messages in the inbox. Ends a room whose type is not installed. */
  run(room: RoomAddress, inbox: Inbox, claimed: Claimed): void
  /** A timer of the room is due. False: the room neither runs here nor is being opened. */
  wake(name: string): boolean
  /** Adds a message to the inbox of a room that does not run. If the inbox is full, the message is refused, or its edge sends it again. */
  wait(inbox: Inbox, arrival: Arrival): void
  /** Answers the messages for a room that is nowhere. Messages that look for the room again stay in the inbox. */
  refuse(room: RoomAddress, inbox: Inbox, place: Nowhere): void
  /** Lets each room read its record: another node may have taken it over, or the store may have lost it. */
  recheck(): void
  /** Lets one room (`project/type:key`) read its record: another node says that it owns the room. */
  verify(name: string): void
  /** A node has ended or died, and the sockets of the members there are closed. */
  edgeGone(nodeId: string): void
  /** Messages to a node may be lost. The rooms here ask it to attach its members again. */
  edgeMissed(nodeId: string): void
  /** Resolves to the stored answer of a room that has ended, if the room has carried out the request. */
  endedAnswer(room: RoomAddress, request: RoomRequest): Promise<RequestAnswer | undefined>
  /** Describes a room that no node runs, from its record. Undefined: it has none. */
  recorded(room: RoomAddress, shown: Shown): Promise<RequestAnswer | undefined>
  /** Opens no more rooms. */
  refuseMore(): void
}

/** The sockets of a node (`Gateway`), as the cluster uses them. */
export interface LocalGateway {
  readonly edge: {
    /** Handles a message of an owner for members here. */
    receive(message: ToEdge): void
    /** Asks the owner of the room again for everything that members here have missed. */
    reattach(room: RoomAddress): void
    /** Whether sessions here have seats in a room (`project/type:key`). */
    subscribes(room: string): boolean
  }
  /** The session was resumed at another node, or `ended` there by an operator. */
  sessionTaken(sessionId: string, ended: boolean): Promise<void>
  /** The store answers again. Messages over it may be lost. */
  storeReturned(): void
}

/** Dependencies of `Ownership` and of all its parts. */
export interface ClusterEnvironment {
  readonly nodeId: string
  readonly store: Store
  readonly links: Pick<NodeLinks, 'start' | 'send' | 'greet' | 'forget' | 'close'>
  /** Rooms and gateway are made after the ownership, and exist when it starts. */
  readonly rooms: () => LocalRooms
  readonly gateway: () => LocalGateway
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: ClusterMetrics
  readonly tracer: Tracer
  /** Time after the last renewal of its lease for which other nodes consider this node alive, in milliseconds. */
  readonly leaseMs: number
  /** Lifetime of a room's record after its last write, in milliseconds. */
  readonly recordTtlMs: number
  /** Maximum numbers of rooms that may be made. */
  readonly quota: RoomQuota
  /** Places for rooms of this node. */
  readonly roomPlaces: Places
  /** Maximum number of messages that wait for one room while the node looks for its owner. */
  readonly maxWaitingMessages: number
  /** Describes this node for the other nodes. */
  readonly info: () => Omit<NodeInfo, 'node_id' | 'draining' | 'cordoned' | 'rooms' | 'room_types'>
  /** Another process has the name of this node. The lease is never valid again, and this process must end immediately. */
  readonly onReplaced: (replaced: Error) => void
}

/** A page of rooms without an owner. */
interface OwnerlessPage {
  readonly rooms: readonly CountedRoom[]
  /** Last room of this page: the next page begins behind it. Undefined: there is no next page. */
  readonly next: CountedRoom | undefined
}

/** Number of rooms that are read together, and the maximum for one page: most rooms of a project have an owner. */
const BATCH = 100
const MAX_READ = 2000

/** Time for the hand-over of all rooms. The remaining rooms are saved for the first node that asks for them. */
const HAND_OVER_MS = 5000

/**
 * Decides which node owns which room. Makes the parts: the lease of this node, the live nodes, the claims of rooms, the router of messages, and
 * the waker. Hands the rooms over when this node drains. A wrong guess about another node is harmless: the fence of a room's record decides.
 */
export class Ownership {
  readonly lease: NodeLease
  readonly nodes: ClusterNodes
  readonly claims: Claims
  readonly router: Router
  readonly requests: RoomRequests
  /** Opens rooms without an owner when a timer is due. The node starts it, after this ownership. */
  readonly waker: RoomWaker
  readonly #environment: ClusterEnvironment
  #draining = false
  #cordoned = false
  #forgetReturn: (() => void) | undefined

  constructor(environment: ClusterEnvironment) {
    this.#environment = environment
    this.lease = new NodeLease(environment, this)
    this.nodes = new ClusterNodes(environment, this)
    this.claims = new Claims(environment, this)
    this.router = new Router(environment, this)
    this.requests = new RoomRequests(environment, this.router)
    this.waker = new RoomWaker(environment, this)
  }

  /**
   * Subscribes to the messages of other nodes, acquires the lease, and reads the live nodes. Rejects with `NodeIdInUse` if another process has
   * the name of this node, and if the store cannot be reached.
   */
  async start(): Promise<void> {
    this.#forgetReturn ??= this.#environment.store.onReturn(() => {
      this.#environment.gateway().storeReturned()
      // Otherwise rooms without activity would run for minutes without a record.
      this.#environment.rooms().recheck()
    })
    await this.#environment.links.start(this.router)
    await this.lease.start()
    await this.nodes.start()
  }

  /** Ends the lease. From then on this node may not act for any room. */
  async stop(): Promise<void> {
    this.waker.stop()
    this.nodes.stop()
    this.#forgetReturn?.()
    await this.#environment.links.close()
    await this.lease.stop()
  }

  /** Notifies a node that one of its sessions was resumed here, or `ended` here by an operator. */
  notifyTaken(nodeId: string, sessionId: string, ended: boolean): void {
    this.#environment.links.send(nodeId, { to: 'gateway', session_id: sessionId, ended })
  }

  /**
   * Describes a room, by its owner, or by its record if no live node owns it. A sleeping room stays asleep. Rejects with `StoreUnavailable`,
   * and if the record cannot be read.
   */
  async describe(room: RoomAddress, shown: Shown): Promise<RequestAnswer> {
    const owner = (await this.#environment.store.rooms.inspect(room.name))?.owner ?? null
    if (owner !== null && (await this.nodes.judge(owner)) === 'alive')
      return this.requests.send(room, { id: 'describe', hash: '', do: { op: 'describe', ...shown } })
    const answer = await this.#environment.rooms().recorded(room, shown)
    return answer ?? { code: 'room_not_found', message: `there is no room ${roomIdOf(room)}` }
  }

  /**
   * Returns a page of the rooms of a project that no live node owns: they sleep, wait for a timer, or their owner has died. The rooms are in
   * the order in which they expire, at most `limit`, and behind `after` if that is given. A page with fewer rooms, or none, can have a next
   * one. Rejects with `StoreUnavailable`.
   */
  async ownerless(projectId: string, limit: number, after?: CountedRoom): Promise<OwnerlessPage> {
    const { store } = this.#environment
    const now = await store.time()
    const rooms: CountedRoom[] = []
    let last = after
    for (let read = 0; read < MAX_READ; read += BATCH) {
      const batch = await store.rooms.counted(projectId, { limit: BATCH, ...(last && { after: last }) })
      const ownerless = await Promise.all(
        batch.map(({ roomId, until }) => until > now && this.#isOwnerless(`${projectId}/${roomId}`)),
      )
      for (const [n, room] of batch.entries()) {
        if (rooms.length === limit) return { rooms, next: last }
        if (ownerless[n]) rooms.push(room)
        last = room
      }
      if (batch.length < BATCH) return { rooms, next: undefined }
    }
    return { rooms, next: last }
  }

  async #isOwnerless(name: string): Promise<boolean> {
    const found = await this.#environment.store.rooms.inspect(name)
    if (!found) return false
    return found.owner === null || (await this.nodes.judge(found.owner)) === 'dead'
  }

  /** Whether clients can be sent to another node. */
  reroutes(): boolean {
    return this.nodes.others().some(({ advertise_url: url }) => url !== undefined)
  }

  /**
   * Returns the other node that owns all these rooms, as far as this node knows, if clients reach that node at its address and it has space.
   * Undefined: there is no better node for the members.
   */
  nearerNode(rooms: readonly RoomAddress[]): { readonly nodeId: string; readonly url: string } | undefined {
    const owners = new Set(rooms.map((room) => this.router.ownerOf(room)))
    const [owner] = owners
    if (owners.size !== 1 || owner === undefined || owner === this.#environment.nodeId) return undefined
    const node = this.nodes.get(owner)
    if (node?.advertise_url === undefined || !takesSessions(node)) return undefined
    return { nodeId: owner, url: node.advertise_url }
  }

  /** Asks another node with the code and space for a room to open it. False: there is no such node. */
  openElsewhere(room: RoomAddress, stateVersion: number): boolean {
    const { links, nodeId } = this.#environment
    const other = this.place('take_over', { ...room, stateVersion })
    if (other === undefined || other === nodeId) return false
    links.send(other, { to: 'host', room })
    return true
  }

  /** True when this node hands its rooms over and takes no rooms or sessions. */
  get draining(): boolean {
    return this.#draining
  }

  /** True when this node keeps its rooms and sessions, and takes no more. */
  get cordoned(): boolean {
    return this.#cordoned
  }

  /** Cordons or uncordons this node. Resolves when the other nodes can read it, or the store has not answered. */
  async setCordoned(cordoned: boolean): Promise<void> {
    this.#cordoned = cordoned
    await this.lease.renewNow()
  }

  /** Takes no more rooms. Resolves when the other nodes can read it, or the store has not answered. */
  async drain(): Promise<void> {
    this.#draining = true
    this.#environment.rooms().refuseMore()
    await this.lease.renewNow()
  }

  /** Hands all rooms over to other nodes. Resolves after 5 s at the latest. */
  async handOver(): Promise<void> {
    const { clock, rooms } = this.#environment
    const handed = handOver(rooms().rooms, this.#environment, this)
    await Promise.race([handed, sleep(clock, HAND_OVER_MS)])
  }

  /** Describes this node for the other nodes. */
  info(): NodeInfo {
    const { nodeId, rooms, info } = this.#environment
    const { size, versions } = rooms()
    return {
      ...info(),
      node_id: nodeId,
      draining: this.#draining,
      ...(this.#cordoned && { cordoned: true }),
      rooms: size,
      room_types: versions,
    }
  }

  /** Chooses the node for a room. Undefined: no node can take it. */
  place(reason: PlacementReason, room: RoomToPlace, preferred?: string): string | undefined {
    const { nodeId: self, random } = this.#environment
    const nodes = this.nodes.nodes()
    const hasSpare = this.hasPlaceFor(room.projectId)
    return place({
      self,
      nodes,
      random,
      reason,
      room,
      hasSpare,
      ...(preferred !== undefined && { preferred }),
    })
  }

  /** Whether this node has a place for one more room of a project. `opening`: rooms without a claim yet, of all projects and of this one. */
  hasPlaceFor(projectId: string, opening: readonly [all: number, ofProject: number] = [0, 0]): boolean {
    const { roomPlaces, rooms } = this.#environment
    const [all, ofProject] = opening
    return hasPlace(roomPlaces, rooms().claimed + all, rooms().claimedOf(projectId) + ofProject)
  }

  /** The lease is valid again after it had expired. Other nodes may have claimed rooms of this node. */
  regained(): void {
    const { log, rooms } = this.#environment
    log.warn({ rooms: rooms().size }, 'the lease had expired and is renewed: every room is checked')
    this.nodes.hold()
    rooms().recheck()
  }

  /** Another node has ended or died. */
  gone(nodeId: string): void {
    const { links, gateway, rooms } = this.#environment
    links.forget(nodeId)
    for (const room of this.router.gone(nodeId)) gateway().edge.reattach(room)
    rooms().edgeGone(nodeId)
  }

  /** A node is alive that was not, or that this node did not know. */
  joined({ node_id: peer, version }: NodeInfo): void {
    const { links, gateway, log } = this.#environment
    log.info({ peer, version }, 'a node is in the cluster')
    // This node may have considered it dead, and the other does not know that. So edges at both ends ask again for everything they have open.
    links.greet(peer)
    for (const room of this.router.roomsAt(peer)) gateway().edge.reattach(room)
  }

  /** This node has claimed a room of a node that it considers dead. If that node lives, this message makes it check the room's record. */
  takenOver(room: string, from: string): void {
    const { nodeId } = this.#environment
    this.router.deliver(from, { room: roomNamed(room), epoch: 0, kind: 'redirect', owner: nodeId })
  }
}

interface HandOverEnvironment extends Pick<ClusterEnvironment, 'clock'> {
  readonly links: Pick<NodeLinks, 'send'>
  readonly metrics: Pick<ClusterMetrics, 'handOverDuration'>
}

/** Maximum number of rooms that are handed over at the same time: each has no owner for a few round trips to the store. */
const MAX_HANDED_OVER = 8

/** Hands each room over to a living node. Saves a room that no node can take for the first node that asks for it. */
export async function handOver(
  rooms: readonly LeavingRoom[],
  { links, clock, metrics }: HandOverEnvironment,
  ownership: Pick<Ownership, 'place'>,
): Promise<void> {
  const places = new Semaphore(MAX_HANDED_OVER)
  const move = async (room: LeavingRoom): Promise<void> => {
    const { address, stateVersion, mostlyAt } = room
    const nodeId = ownership.place('hand_over', { ...address, stateVersion }, mostlyAt)
    const began = clock.monotonic()
    if ((await room.handOver(nodeId)) && nodeId !== undefined)
      links.send(nodeId, { to: 'host', room: address })
    metrics.handOverDuration.observe((clock.monotonic() - began) / 1000)
  }
  await Promise.all(rooms.map((room) => places.run(() => move(room))))
}
