import type { Clock } from '../../clock.ts'
import { type Store, StoreUnavailable, type StoreVitals } from '../port.ts'
import { MemoryBus } from './bus.ts'
import { MemoryLocks } from './locks.ts'
import { MemoryRecords } from './records.ts'
import { MemoryRooms } from './rooms.ts'

/** A store for one process: everything is gone when it ends. Lifetimes follow `clock.monotonic()`, epochs `clock.now()`. */
export function memoryStore({ clock }: { clock: Clock }): Store {
  return new MemoryStore(clock)
}

/** Memory is never out of reach, and knows neither commands nor servers. */
const VITALS: StoreVitals = { reachable: true, observe: () => () => undefined, servers: async () => [] }

class MemoryStore implements Store {
  readonly kind = 'memory'
  readonly records: MemoryRecords
  readonly rooms: MemoryRooms
  readonly bus: MemoryBus
  readonly locks: MemoryLocks
  readonly vitals = VITALS
  readonly #clock: Clock
  #closed = false

  constructor(clock: Clock) {
    const requireOpen = () => this.#requireOpen()
    this.#clock = clock
    this.records = new MemoryRecords(clock, requireOpen)
    this.rooms = new MemoryRooms(clock, requireOpen)
    this.bus = new MemoryBus(requireOpen)
    this.locks = new MemoryLocks(clock, requireOpen)
  }

  async time(): Promise<number> {
    this.#requireOpen()
    return this.#clock.now()
  }

  async uptime(): Promise<number> {
    this.#requireOpen()
    return Number.POSITIVE_INFINITY
  }

  /** Memory is never out of reach. */
  onReturn(_callback: () => void): () => void {
    return () => undefined
  }

  async ping(): Promise<void> {
    this.#requireOpen()
  }

  async close(): Promise<void> {
    this.#closed = true
    this.bus.close()
    this.locks.close()
  }

  #requireOpen(): void {
    if (this.#closed) throw new StoreUnavailable('the store is closed')
  }
}
