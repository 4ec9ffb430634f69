import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Random } from '../../shared/random.ts'
import { type Store, StoreUnavailable, type Wakeup } from '../../shared/store/port.ts'
import { WAKEUP_PARTS } from '../../shared/store/rules.ts'
import { roomNamed } from '../traffic.ts'
import type { Claims } from './claims.ts'
import type { ClusterMetrics } from './metrics.ts'
import type { LocalRooms } from './router.ts'

/** What a waker works with. */
interface RoomWakerParts {
  readonly store: Pick<Store, 'wakeups'>
  readonly claims: Pick<Claims, 'isElsewhere'>
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
  /** Whether this node may act (its lease is valid). */
  readonly mayAct: () => boolean
}

/** So many rooms of each part of the store are opened at a time. */
const BATCH = 25
/** How late rooms may be woken by a cluster of one node, however long its lease is. */
const LATEST_MS = 5000

/**
 * Opens rooms that no node runs when their time has come. Every node looks twice in a lease, and each five seconds at least, at times
 * that differ; what one takes the others pass over for as long, and a claim decides who has a room. The store has no more than hints,
 * which are looked at again until an owner of the room says otherwise.
 */
export class RoomWaker {
  readonly #parts: RoomWakerParts
  readonly #everyMs: number
  #cancel: (() => void) | undefined
  #stopped = false

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
    const { store, rooms, log, mayAct } = this.#parts
    try {
      while (!this.#stopped && mayAct() && rooms.accepts) {
        const due = await store.wakeups.take(part, { limit: BATCH, againMs: this.#everyMs })
        await Promise.all(due.map((wakeup) => this.#wake(wakeup)))
        if (due.length < BATCH) break
      }
    } catch (error) {
      if (!(error instanceof StoreUnavailable))
        log.error({ err: error }, 'rooms with timers that are due could not be looked for')
    }
  }

  async #wake({ room, epoch }: Wakeup): Promise<void> {
    const { store, rooms, claims, metrics } = this.#parts
    if (rooms.wake(room)) {
      metrics.roomWakeups.inc({ result: 'running' })
      return
    }
    // What members here say meanwhile must not wait for a claim that cannot be had.
    if (await claims.isElsewhere(room)) {
      metrics.roomWakeups.inc({ result: 'elsewhere' })
      return
    }
    const claimed = await rooms.open(roomNamed(room), [])
    if (claimed === 'absent') {
      metrics.roomWakeups.inc({ result: 'absent' })
      // A node that makes the room again has a later epoch, and is not told otherwise by this.
      await store.wakeups.set(room, { epoch, version: Number.MAX_SAFE_INTEGER }, undefined)
    } else if (typeof claimed === 'object' && 'fence' in claimed)
      metrics.roomWakeups.inc({ result: 'opened' })
    else if (typeof claimed === 'object' && 'elsewhere' in claimed)
      metrics.roomWakeups.inc({ result: 'elsewhere' })
    else metrics.roomWakeups.inc({ result: 'unavailable' })
  }
}
