import { type Clock, sleep } from '../../shared/clock.ts'
import { Semaphore } from '../../shared/semaphore.ts'
import type { CountedRoom, Store } from '../../shared/store/port.ts'
import type { RequestAnswer, RoomAddress, Shown } from '../traffic.ts'
import { Claims, type ClaimsEnvironment } from './claims.ts'
import type { PeerMessage } from './envelope.ts'
import { type LeaseEnvironment, NodeLease } from './lease.ts'
import type { ClusterMetrics } from './metrics.ts'
import { ClusterNodes, type NodesEnvironment } from './nodes.ts'
import {
  Placement,
  type PlacementEnvironment,
  type PlacementReason,
  type RoomToPlace,
  takesSessions,
} from './placement.ts'
import { type RequestsEnvironment, RoomRequests } from './requests.ts'
import { type LocalGateway, type LocalHost, Router, type RouterEnvironment } from './router.ts'
import { type NodeFigures, Self } from './self.ts'

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

/** Dependencies of `Ownership` and of all its parts. */
export interface ClusterEnvironment
  extends ClaimsEnvironment,
    LeaseEnvironment,
    NodesEnvironment,
    PlacementEnvironment,
    RequestsEnvironment,
    RouterEnvironment {
  readonly store: Store
  readonly links: RouterEnvironment['links'] & {
    /** Starts to pass messages of other nodes to the router. */
    start(router: Router): Promise<void>
    close(): Promise<void>
  }
  readonly metrics: ClusterMetrics
  /** Describes this node for the other nodes. */
  readonly figures: () => NodeFigures
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
 * Decides which node owns which room. Makes the parts, each from those before it: the lease of this node, the live nodes, the claims of rooms,
 * and the router of messages. Hands the rooms over when this node drains. A wrong guess about another node is harmless: the fence of a room's
 * record decides.
 */
export class Ownership {
  /** This node, as the other nodes see it. */
  readonly self: Self
  readonly lease: NodeLease
  readonly nodes: ClusterNodes
  readonly claims: Claims
  readonly router: Router
  readonly requests: RoomRequests
  readonly #environment: ClusterEnvironment
  readonly #placement: Placement
  #forgetReturn: (() => void) | undefined

  constructor(environment: ClusterEnvironment) {
    this.#environment = environment
    const self = new Self(environment.nodeId, environment.figures)
    const lease = new NodeLease(environment, self)
    const nodes = new ClusterNodes(environment, self)
    const claims = new Claims(environment, lease, nodes)
    const placement = new Placement(environment, nodes)
    const router = new Router(environment, { self, nodes, claims, placement })
    nodes.observe(router)
    this.self = self
    this.lease = lease
    this.nodes = nodes
    this.claims = claims
    this.router = router
    this.requests = new RoomRequests(environment, router)
    this.#placement = placement
  }

  /**
   * Subscribes to the messages of other nodes, acquires the lease, and reads the live nodes. Rejects with `NodeIdInUse` if another process has
   * the name of this node, and if the store cannot be reached.
   */
  async start(host: LocalHost, gateway: LocalGateway): Promise<void> {
    const { store, links, log } = this.#environment
    this.router.start(host, gateway, this.requests)
    this.#forgetReturn ??= store.onReturn(() => {
      gateway.storeReturned()
      // Otherwise rooms without activity would run for minutes without a record.
      host.recheck()
    })
    await links.start(this.router)
    await this.lease.start(() => {
      log.warn(
        { rooms: this.self.info().rooms },
        'the lease had expired and is renewed: every room is checked',
      )
      this.nodes.hold()
      host.recheck()
    })
    await this.nodes.start()
  }

  /** Ends the lease. From then on this node may not act for any room. */
  async stop(): Promise<void> {
    this.nodes.stop()
    this.#forgetReturn?.()
    await this.#environment.links.close()
    await this.lease.stop()
  }

  /** Notifies a node that one of its sessions was resumed here, or `ended` here by an operator. */
  notifyTaken(nodeId: string, sessionId: string, ended: boolean): void {
    this.#environment.links.send(nodeId, { to: 'gateway', session_id: sessionId, ended })
  }

  /** Lets the owner of a room describe it. Undefined: no live node owns the room, and it stays asleep. Rejects with `StoreUnavailable`. */
  async describe(room: RoomAddress, shown: Shown): Promise<RequestAnswer | undefined> {
    const owner = (await this.#environment.store.rooms.inspect(room.name))?.owner ?? null
    if (owner === null || (await this.nodes.judge(owner)) === 'dead') return undefined
    return this.requests.send(room, { id: 'describe', hash: '', do: { op: 'describe', ...shown } })
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

  /** True: this node accepts no new sessions. */
  get cordoned(): boolean {
    return this.self.cordoned
  }

  /** Cordons or uncordons this node. Resolves when the other nodes can read it, or the store has not answered. */
  async setCordoned(cordoned: boolean): Promise<void> {
    this.self.cordoned = cordoned
    await this.lease.renewNow()
  }

  /** Takes no more rooms. Resolves when the other nodes can read it, or the store has not answered. */
  async drain(): Promise<void> {
    this.self.draining = true
    await this.lease.renewNow()
  }

  /** Hands all rooms over to other nodes. Resolves after 5 s at the latest. */
  async handOver(rooms: readonly LeavingRoom[]): Promise<void> {
    const handed = handOver(rooms, this.#environment, this.#placement)
    await Promise.race([handed, sleep(this.#environment.clock, HAND_OVER_MS)])
  }
}

/** Dependencies of `handOver`. */
interface HandOverEnvironment {
  readonly clock: Clock
  readonly links: { send(to: string, message: PeerMessage): void }
  readonly metrics: { readonly handOverDuration: ClusterMetrics['handOverDuration'] }
}

/** Maximum number of rooms that are handed over at the same time: each has no owner for a few round trips to the store. */
const MAX_HANDED_OVER = 8

/** Hands each room over to a living node. Saves a room that no node can take for the first node that asks for it. */
export async function handOver(
  rooms: readonly LeavingRoom[],
  { links, clock, metrics }: HandOverEnvironment,
  placement: { choose(reason: PlacementReason, room: RoomToPlace, preferred?: string): string | undefined },
): Promise<void> {
  const places = new Semaphore(MAX_HANDED_OVER)
  const move = async (room: LeavingRoom): Promise<void> => {
    const { address, stateVersion, mostlyAt } = room
    const nodeId = placement.choose('hand_over', { ...address, stateVersion }, mostlyAt)
    const began = clock.monotonic()
    if ((await room.handOver(nodeId)) && nodeId !== undefined)
      links.send(nodeId, { to: 'host', room: address })
    metrics.handOverDuration.observe((clock.monotonic() - began) / 1000)
  }
  await Promise.all(rooms.map((room) => places.run(() => move(room))))
}
