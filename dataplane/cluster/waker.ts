import { type Store, StoreUnavailable, WAKEUP_PARTS, type Wakeup } from '../../shared/store/port.ts'
import { roomNamed } from '../traffic.ts'
import type { Claims } from './claims.ts'
import type { NodeLease } from './lease.ts'
import type { ClusterMetrics, WakeupResult } from './metrics.ts'
import type { ClusterNodes } from './nodes.ts'
import type { ClusterEnvironment, LocalRooms, Ownership } from './ownership.ts'
import { canRun } from './placement.ts'
import type { Router } from './router.ts'

interface WakerEnvironment
  extends Pick<ClusterEnvironment, 'nodeId' | 'clock' | 'random' | 'log' | 'leaseMs' | 'maxRooms'> {
  readonly store: Pick<Store, 'wakeups'>
  readonly rooms: () => Pick<LocalRooms, 'accepts' | 'claimed' | 'wake'>
  readonly metrics: Pick<ClusterMetrics, 'roomWakeups'>
}

/** The ownership that rooms are woken for. */
interface WakingOwnership extends Pick<Ownership, 'cordoned' | 'openElsewhere'> {
  readonly lease: Pick<NodeLease, 'valid'>
  readonly claims: Pick<Claims, 'inspect'>
  readonly nodes: Pick<ClusterNodes, 'nodes' | 'judge'>
  readonly router: Pick<Router, 'open'>
}

/** So many rooms of each part of the store are opened at a time. */
const BATCH = 25
/** How late rooms may be woken by a cluster of one node, however long its lease is. */
const LATEST_MS = 5000
/** How long a room waits to be looked at again for which no node has code: until a deployment brings it. */
const NO_CODE_MS = 300_000

/**
 * Opens rooms that no node runs when their time has come. Every node looks twice in a lease, and each five seconds at least, at times
 * that differ; what one takes the others pass over for as long, and a claim decides who has a room. The store has no more than hints,
 * which are looked at again until an owner of the room says otherwise. A node that has as many rooms as it may takes none.
 */
export class RoomWaker {
  readonly #environment: WakerEnvironment
  readonly #ownership: WakingOwnership
  readonly #everyMs: number
  #cancel: (() => void) | undefined
  #stopped = false
  /** How many rooms the looks that are under way may open. */
  #taken = 0

  constructor(environment: WakerEnvironment, ownership: WakingOwnership) {
    this.#environment = environment
    this.#ownership = ownership
    this.#everyMs = Math.min(environment.leaseMs / 2, LATEST_MS)
  }

  start(): void {
    const { clock, random } = this.#environment
    if (this.#stopped) return
    this.#cancel = clock.schedule(this.#everyMs * (0.5 + random.float() / 2), () => {
      this.#look().finally(() => this.start())
    })
  }

  stop(): void {
    this.#stopped = true
    this.#cancel?.()
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    const parts = Array.from({ length: WAKEUP_PARTS }, (_, part) => part)
    await Promise.all(parts.map((part) => this.#wakeAll(part)))
  }

  /** One batch after the other, until none is full: those that were taken are put off. */
  async #wakeAll(part: number): Promise<void> {
    const { rooms, log } = this.#environment
    try {
      while (!this.#stopped && this.#ownership.lease.valid() && rooms().accepts) {
        const limit = Math.min(BATCH, this.#space - this.#taken)
        if (limit <= 0 || (await this.#wakeSome(part, limit)) < limit) break
      }
    } catch (error) {
      if (!(error instanceof StoreUnavailable))
        log.error({ err: error }, 'rooms with timers that are due could not be looked for')
    }
  }

  /** How many more rooms this node may open. */
  get #space(): number {
    const { maxRooms, rooms } = this.#environment
    if (this.#ownership.cordoned) return 0
    return maxRooms === 0 ? Number.POSITIVE_INFINITY : maxRooms - rooms().claimed
  }

  /** Resolves with how many rooms were due. */
  async #wakeSome(part: number, limit: number): Promise<number> {
    this.#taken += limit
    try {
      const due = await this.#environment.store.wakeups.take(part, { limit, againMs: this.#everyMs })
      await Promise.all(due.map((wakeup) => this.#wake(wakeup)))
      return due.length
    } finally {
      this.#taken -= limit
    }
  }

  async #wake(wakeup: Wakeup): Promise<void> {
    this.#environment.metrics.roomWakeups.inc({ result: await this.#result(wakeup) })
  }

  async #result({ room, fence }: Wakeup): Promise<WakeupResult> {
    const { nodeId, store, clock } = this.#environment
    const { claims, nodes, router } = this.#ownership
    const rooms = this.#environment.rooms()
    if (rooms.wake(room)) return 'running'
    const found = await claims.inspect(room)
    const owner = found?.owner ?? nodeId
    // What members here say meanwhile must not wait for a claim that cannot be had.
    if (owner !== nodeId && (await nodes.judge(owner)) === 'alive') return 'elsewhere'
    const address = roomNamed(room)
    const { stateVersion = 1 } = found ?? {}
    const able = nodes.nodes().filter((node) => canRun(node, { roomType: address.roomType, stateVersion }))
    if (found && able.length === 0) {
      await store.wakeups.set(room, fence, clock.now() + NO_CODE_MS)
      return 'no_code'
    }
    if (found && !able.some((node) => node.node_id === nodeId))
      return this.#ownership.openElsewhere(address, stateVersion) ? 'elsewhere' : 'unavailable'
    const place = found && (await router.open(address))
    // An owner that has made the room again since has said so under a later fence.
    if (!found || (place?.at === 'nowhere' && place.why === 'absent')) {
      await store.wakeups.set(room, fence, undefined)
      return 'absent'
    }
    // The room is being looked for or claimed here, for messages that came first.
    if (!place) return rooms.accepts ? 'running' : 'unavailable'
    if (place.at === 'nowhere') return 'unavailable'
    return place.at === 'here' ? 'opened' : 'elsewhere'
  }
}
