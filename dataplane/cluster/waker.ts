import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { NodeInfo } from '../../shared/node-registry.ts'
import type { Random } from '../../shared/random.ts'
import { DUE_PARTS, type DueRoom, type DueTimes, type RoomOwner } from '../../shared/store/port.ts'
import { DueRooms } from '../due-rooms.ts'
import { Counts } from '../metrics.ts'
import type { Place } from '../place.ts'
import { hasPlace, type Places, withSpare } from '../shares.ts'
import { type RoomAddress, roomNamed } from '../traffic.ts'
import type { ClusterMetrics, WakeupResult } from './metrics.ts'
import { canRun } from './placement.ts'

/** Dependencies of `RoomWaker`. */
interface WakerEnvironment {
  readonly nodeId: string
  readonly store: { readonly wakeups: DueTimes }
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: { readonly roomWakeups: ClusterMetrics['roomWakeups'] }
  readonly leaseMs: number
  /** Places for rooms of this node. */
  readonly roomPlaces: Places
}

/** The cluster (`Ownership`), as the waker uses it. */
interface Cluster {
  readonly self: { readonly cordoned: boolean }
  readonly lease: { valid(): boolean }
  readonly nodes: { nodes(): readonly NodeInfo[]; judge(nodeId: string): Promise<'alive' | 'dead'> }
  readonly claims: { inspect(room: string): Promise<RoomOwner | undefined> }
  readonly router: {
    open(room: RoomAddress): Promise<Place | undefined>
    openElsewhere(room: RoomAddress, stateVersion: number): boolean
  }
}

/** The host of the rooms of this node (`RoomHost`), as the waker uses it. */
interface WakingHost {
  readonly rooms: {
    readonly accepts: boolean
    /** Number of rooms that this node has claimed: they run here or are being opened. */
    readonly claimed: number
    /** The same by project. */
    readonly projects: { of(projectId: string): number }
  }
  /** A timer of the room is due. False: the room neither runs here nor is being opened. */
  wake(name: string): boolean
}

/** Maximum number of rooms in each part of the index that this node opens at the same time. */
const MAX_RUNNING = 25
/** Maximum time between two looks, however long the lease of a node is. */
const MAX_INTERVAL_MS = 5000
/** Time until a room is due again for which no node has code. A deployment may bring the code. */
const NO_CODE_MS = 300_000

/**
 * Opens rooms without an owner when one of their timers is due. The index of the store has hints only: the claim of a room decides which
 * node opens it. A node without a place for a project's rooms opens none of them.
 */
export class RoomWaker {
  readonly #environment: WakerEnvironment
  readonly #cluster: Cluster
  readonly #host: WakingHost
  readonly #due: DueRooms<DueRoom>
  /** Number of rooms that this node is opening, and the same by project. */
  #opening = 0
  readonly #openingOf = new Counts()

  constructor(environment: WakerEnvironment, cluster: Cluster, host: WakingHost) {
    this.#environment = environment
    this.#cluster = cluster
    this.#host = host
    const { clock, random, log, store, leaseMs } = environment
    const everyMs = Math.min(leaseMs / 2, MAX_INTERVAL_MS)
    this.#due = new DueRooms({
      ...{ clock, random, log, everyMs },
      parts: DUE_PARTS,
      maxRunning: MAX_RUNNING,
      take: async (part, places) => {
        const limit = Math.min(places, this.#space)
        return limit > 0 ? store.wakeups.take(part, { limit, againMs: everyMs }) : []
      },
      work: (wakeup) => this.#wake(wakeup),
    })
  }

  start(): void {
    this.#due.start()
  }

  /** Opens no more rooms. */
  stop(): void {
    void this.#due.stop()
  }

  /** Number of rooms that this node can open in addition to those that it is opening, with the spare places. */
  get #space(): number {
    const { self, lease } = this.#cluster
    const { accepts, claimed } = this.#host.rooms
    if (self.cordoned || !lease.valid() || !accepts) return 0
    return withSpare(this.#environment.roomPlaces) - claimed - this.#opening
  }

  async #wake(wakeup: DueRoom): Promise<void> {
    this.#environment.metrics.roomWakeups.inc({ result: await this.#result(wakeup) })
  }

  async #open(room: RoomAddress): Promise<Place | undefined> {
    this.#opening++
    this.#openingOf.add(room.projectId, 1)
    const place = await this.#cluster.router.open(room)
    this.#opening--
    this.#openingOf.add(room.projectId, -1)
    return place
  }

  async #result({ room, fence }: DueRoom): Promise<WakeupResult> {
    const { nodeId, store, clock, roomPlaces } = this.#environment
    const { claims, nodes, router } = this.#cluster
    const { rooms } = this.#host
    if (this.#host.wake(room)) return 'running'
    const found = await claims.inspect(room)
    const owner = found?.owner ?? nodeId
    // Otherwise messages of members here would wait in the inbox for a claim that cannot succeed.
    if (owner !== nodeId && (await nodes.judge(owner)) === 'alive') return 'elsewhere'
    const address = roomNamed(room)
    const { stateVersion = 1 } = found ?? {}
    const able = nodes.nodes().filter((node) => canRun(node, { roomType: address.roomType, stateVersion }))
    if (found && able.length === 0) {
      await store.wakeups.set(room, fence, clock.now() + NO_CODE_MS)
      return 'no_code'
    }
    if (found && !able.some((node) => node.node_id === nodeId))
      return router.openElsewhere(address, stateVersion) ? 'elsewhere' : 'unavailable'
    // The parts of the index are read at the same time, so there may be more rooms than places.
    const taken = rooms.claimed + this.#opening
    const ofProject = rooms.projects.of(address.projectId) + this.#openingOf.of(address.projectId)
    if (found && !hasPlace(roomPlaces, taken, ofProject)) return 'unavailable'
    const place = found && (await this.#open(address))
    // If an owner has made the room again since, it has set its time under a later fence, and this call has no effect.
    if (!found || (place?.at === 'nowhere' && place.why === 'absent')) {
      await store.wakeups.set(room, fence, undefined)
      return 'absent'
    }
    // This node looks for the room or claims it already, for messages that came first.
    if (!place) return rooms.accepts ? 'running' : 'unavailable'
    if (place.at === 'nowhere') return 'unavailable'
    return place.at === 'here' ? 'opened' : 'elsewhere'
  }
}
