import { type Clock, sleep } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { NodeInfo } from '../../shared/node-registry.ts'
import type { Random } from '../../shared/random.ts'
import { Semaphore } from '../../shared/semaphore.ts'
import type { CountedRoom, RoomQuota, Store } from '../../shared/store/port.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import type { Inbox } from '../inbox.ts'
import type { Claimed, ClaimedType, Nowhere } from '../place.ts'
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

/** A room of this node that is to go on elsewhere. */
export interface LeavingRoom {
  readonly address: RoomAddress
  /** Of its state, as its type counts. */
  readonly stateVersion: number
  /** The node with most of its members' sockets. */
  readonly mostlyAt: string | undefined
  /** Saves the room and releases it. Resolves with true if the node `successor` can claim it. */
  handOver(successor?: string): Promise<boolean>
}

/** The rooms of a node (`RoomHost`), as far as the cluster has to do with them. */
export interface LocalRooms {
  readonly size: number
  /** Rooms that this node has claimed: those that run here, and those that are being opened. */
  readonly claimed: number
  /** The version of each room type that there is code for. */
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
  /** Runs a room that this node has claimed, for the messages in the inbox. Of a type that is not installed it is ended. */
  run(room: RoomAddress, inbox: Inbox, claimed: Claimed): void
  /** The time of a room has come. False: the room neither runs here nor is being opened. */
  wake(name: string): boolean
  /** Adds a message to the inbox of a room that does not run. If the inbox is full, the message is refused, or its edge sends it again. */
  wait(inbox: Inbox, arrival: Arrival): void
  /** Answers the messages of a room that is nowhere. Messages that look for the room again stay in the inbox. */
  refuse(room: RoomAddress, inbox: Inbox, place: Nowhere): void
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
export interface LocalGateway {
  readonly edge: {
    /** An owner has something for members here. */
    receive(message: ToEdge): void
    /** Members of the room ask its owner again what they have missed. */
    reattach(room: RoomAddress): void
    /** Whether it has members in a room (`project/type:key`). */
    subscribes(room: string): boolean
  }
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
  readonly gateway: () => LocalGateway
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
  /** Describes this node for the other nodes. */
  readonly info: () => Omit<NodeInfo, 'node_id' | 'draining' | 'cordoned' | 'rooms' | 'room_types'>
  /** Another process has the name of this node: the lease is never valid again, and this process is to end at once. */
  readonly onReplaced: (replaced: Error) => void
}

/** One page of rooms without owner. */
export interface OwnerlessPage {
  readonly rooms: readonly CountedRoom[]
  /** The next page begins behind it; undefined: there is none. */
  readonly next: CountedRoom | undefined
}

/** Rooms that are looked at together, and at most for one page: most rooms of a project have an owner. */
const BATCH = 100
const MOST_LOOKED_AT = 2000

/** How long rooms may take to be handed over; those left are saved for the first node that asks for them. */
const HAND_OVER_MS = 5000

/**
 * Decides which node acts for which room. Makes the parts: the lease of this node, the live nodes, the claims of rooms, the router of messages, and
 * the waker. Hands the rooms over when this node ends. A wrong guess about another node is harmless: the fence of a room's record decides.
 */
export class Ownership {
  readonly lease: NodeLease
  readonly nodes: ClusterNodes
  readonly claims: Claims
  readonly router: Router
  readonly requests: RoomRequests
  /** Wakes rooms that no node runs. Started by the node, which waits until it takes clients. */
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
   * Listens to the other nodes, takes the lease, and reads who is alive. Rejects with `NodeIdInUse` when another process has the name of
   * this node, and when the store cannot be reached.
   */
  async start(): Promise<void> {
    this.#forgetReturn ??= this.#environment.store.onReturn(() => {
      this.#environment.gateway().storeReturned()
      // Rooms in which nothing happens would not find out for minutes that their records are gone.
      this.#environment.rooms().recheck()
    })
    await this.#environment.links.start(this.router)
    await this.lease.start()
    await this.nodes.start()
  }

  /** Ends the lease, and with it everything that this node might do for a room. */
  async stop(): Promise<void> {
    this.waker.stop()
    this.nodes.stop()
    this.#forgetReturn?.()
    await this.#environment.links.close()
    await this.lease.stop()
  }

  /** Tells a node that a session it had was resumed here, or `ended` here by an operator. */
  tellTaken(nodeId: string, sessionId: string, ended: boolean): void {
    this.#environment.links.send(nodeId, { to: 'gateway', session_id: sessionId, ended })
  }

  /**
   * Describes a room: its owner does, or its record if no living node has it. A sleeping room stays asleep. Rejects with `StoreUnavailable`, or
   * if the record cannot be read.
   */
  async describe(room: RoomAddress, shown: Shown): Promise<RequestAnswer> {
    const owner = (await this.#environment.store.rooms.inspect(room.name))?.owner ?? null
    if (owner !== null && (await this.nodes.judge(owner)) === 'alive')
      return this.requests.send(room, { id: 'describe', hash: '', do: { op: 'describe', ...shown } })
    const answer = await this.#environment.rooms().recorded(room, shown)
    return answer ?? { code: 'room_not_found', message: `there is no room ${roomIdOf(room)}` }
  }

  /**
   * A page of the rooms of a project that no living node has: those that sleep, wait for a timer, or whose owner has died. At most `limit`,
   * those first that expire first, behind `after` when given. A page may have fewer, or none, and still a next one. Rejects with
   * `StoreUnavailable`.
   */
  async ownerless(projectId: string, limit: number, after?: CountedRoom): Promise<OwnerlessPage> {
    const { store } = this.#environment
    const now = await store.time()
    const rooms: CountedRoom[] = []
    let last = after
    for (let looked = 0; looked < MOST_LOOKED_AT; looked += BATCH) {
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

  /** Whether clients could be sent to some other node. */
  reroutes(): boolean {
    return this.nodes.others().some(({ advertise_url: url }) => url !== undefined)
  }

  /**
   * The other node that has all these rooms, as far as is known here, when clients reach it at an address of its own and it has space for
   * them; undefined: members are served best where they are.
   */
  nearerNode(rooms: readonly RoomAddress[]): { readonly nodeId: string; readonly url: string } | undefined {
    const owners = new Set(rooms.map((room) => this.router.ownerOf(room)))
    const [owner] = owners
    if (owners.size !== 1 || owner === undefined || owner === this.#environment.nodeId) return undefined
    const node = this.nodes.get(owner)
    if (node?.advertise_url === undefined || !takesSessions(node)) return undefined
    return { nodeId: owner, url: node.advertise_url }
  }

  /** Asks another node that has the code and space for a room to open it. False: there is none. */
  openElsewhere(room: RoomAddress, stateVersion: number): boolean {
    const { links, nodeId } = this.#environment
    const other = this.place('take_over', { roomType: room.roomType, stateVersion })
    if (other === undefined || other === nodeId) return false
    links.send(other, { to: 'host', room })
    return true
  }

  /** Whether this node gives its rooms away, and takes nothing more. */
  get draining(): boolean {
    return this.#draining
  }

  /** True: this node keeps its rooms and sessions, and takes no more. */
  get cordoned(): boolean {
    return this.#cordoned
  }

  /** Cordons or uncordons this node. Resolves when the others can read it, or the store has not answered. */
  async setCordoned(cordoned: boolean): Promise<void> {
    this.#cordoned = cordoned
    await this.lease.renewNow()
  }

  /** From now on this node takes no room, and the others know. */
  async drain(): Promise<void> {
    this.#draining = true
    this.#environment.rooms().refuseMore()
    await this.lease.renewNow()
  }

  /** Gives every room to another node, as far as that is done in 5 seconds. */
  async handOver(): Promise<void> {
    const { clock, rooms } = this.#environment
    const handed = handOver(rooms().rooms, this.#environment, this)
    await Promise.race([handed, sleep(clock, HAND_OVER_MS)])
  }

  /** This node, as the others see it. */
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

  /** The node that is to have a room; undefined: none can take it. */
  place(reason: PlacementReason, room: RoomToRun, preferred?: string): string | undefined {
    const { nodeId: self, random } = this.#environment
    const nodes = this.nodes.nodes()
    return place({ self, nodes, random, reason, room, ...(preferred !== undefined && { preferred }) })
  }

  /** The lease is valid again after it had expired. Another node may have taken rooms of this node. */
  regained(): void {
    const { log, rooms } = this.#environment
    log.warn({ rooms: rooms().size }, 'the lease had expired and is renewed: every room is checked')
    this.nodes.hold()
    rooms().recheck()
  }

  /** Another node has died or ended. */
  gone(nodeId: string): void {
    const { links, gateway, rooms } = this.#environment
    links.forget(nodeId)
    for (const room of this.router.gone(nodeId)) gateway().edge.reattach(room)
    rooms().edgeGone(nodeId)
  }

  /** Another node is alive that was not, or was not known. */
  joined({ node_id: peer, version }: NodeInfo): void {
    const { links, gateway, log } = this.#environment
    log.info({ peer, version }, 'a node is in the cluster')
    // It may have been taken for gone, and know nothing of it: what it has open here is asked again, and the other way round.
    links.greet(peer)
    for (const room of this.router.roomsAt(peer)) gateway().edge.reattach(room)
  }

  /** A room was taken from a node that was judged dead. If that node lives, it is to find out, whatever happens in the room. */
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
    const nodeId = ownership.place('hand_over', { roomType: address.roomType, stateVersion }, mostlyAt)
    const began = clock.monotonic()
    if ((await room.handOver(nodeId)) && nodeId !== undefined)
      links.send(nodeId, { to: 'host', room: address })
    metrics.handOverDuration.observe((clock.monotonic() - began) / 1000)
  }
  await Promise.all(rooms.map((room) => places.run(() => move(room))))
}
