import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Random } from '../../shared/random.ts'
import { type Store, StoreUnavailable, type Wakeup } from '../../shared/store/port.ts'
import { WAKEUP_PARTS } from '../../shared/store/rules.ts'
import { type RoomAddress, roomNamed } from '../traffic.ts'
import type { Claims } from './claims.ts'
import type { ClusterMetrics, WakeupResult } from './metrics.ts'
import type { ClusterNodes } from './nodes.ts'
import { canRun } from './placement.ts'
import type { LocalRooms } from './router.ts'

/** What a waker works with. */
interface RoomWakerParts {
  readonly nodeId: string
  readonly store: Pick<Store, 'wakeups'>
  readonly claims: Pick<Claims, 'inspect'>
  readonly nodes: Pick<ClusterNodes, 'nodes' | 'judge'>
  /** The rooms of this node (`RoomHost`). */
  readonly rooms: Pick<LocalRooms, 'accepts' | 'open'> & {
    /** A room whose time has come runs here, or is about to; false: it does not. */
    wake(name: string): boolean
  }
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: Pick<ClusterMetrics, 'roomWakeups'>
  /** How long others take a node for alive after its last renewal. */
  readonly leaseMs: number
  /** How many more rooms this node may open; Infinity: any number. */
  readonly space: () => number
  /** Asks another node that has the code and space for a room to open it. False: there is none. */
  readonly openElsewhere: (room: RoomAddress, stateVersion: number) => boolean
  /** Whether this node may act (its lease is valid). */
  readonly mayAct: () => boolean
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
  readonly #parts: RoomWakerParts
  readonly #everyMs: number
  #cancel: (() => void) | undefined
  #stopped = false
  /** How many rooms the looks that are under way may open. */
  #taken = 0

  constructor(parts: RoomWakerParts) {
    this.#parts = parts
    this.#everyMs = Math.min(parts.leaseMs / 2, LATEST_MS)
  }

  start(): void {
    const { clock, random } = this.#parts
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
    const { rooms, log, mayAct, space } = this.#parts
    try {
      while (!this.#stopped && mayAct() && rooms.accepts) {
        const limit = Math.min(BATCH, space() - this.#taken)
        if (limit <= 0 || (await this.#wakeSome(part, limit)) < limit) break
      }
    } catch (error) {
      if (!(error instanceof StoreUnavailable))
        log.error({ err: error }, 'rooms with timers that are due could not be looked for')
    }
  }

  /** Resolves with how many rooms were due. */
  async #wakeSome(part: number, limit: number): Promise<number> {
    this.#taken += limit
    try {
      const due = await this.#parts.store.wakeups.take(part, { limit, againMs: this.#everyMs })
      await Promise.all(due.map((wakeup) => this.#wake(wakeup)))
      return due.length
    } finally {
      this.#taken -= limit
    }
  }

  async #wake(wakeup: Wakeup): Promise<void> {
    this.#parts.metrics.roomWakeups.inc({ result: await this.#result(wakeup) })
  }

  async #result({ room, fence }: Wakeup): Promise<WakeupResult> {
    const { nodeId, store, rooms, claims, clock, nodes, openElsewhere } = this.#parts
    if (rooms.wake(room)) return 'running'
    const seen = await claims.inspect(room)
    const { record: found } = seen
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
      return openElsewhere(address, stateVersion) ? 'elsewhere' : 'unavailable'
    const place = found && (await rooms.open(address, undefined, seen))
    // An owner that has made the room again since has said so under a later fence.
    if (!found || (place?.at === 'nowhere' && place.why === 'absent')) {
      await store.wakeups.set(room, fence, undefined)
      return 'absent'
    }
    if (!place || place.at === 'nowhere') return 'unavailable'
    return place.at === 'here' ? 'opened' : 'elsewhere'
  }
}
