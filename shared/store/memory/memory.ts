import type { Clock } from '../../clock.ts'
import {
  type Bus,
  type Locks,
  requireLockTimes,
  type Store,
  StoreUnavailable,
  type StoreVitals,
} from '../port.ts'
import { MemoryRecords } from './records.ts'
import { MemoryDueTimes, MemoryListings, MemoryNotices, MemoryRooms } from './rooms.ts'

/** A store for one process, which is lost when the process ends. Lifetimes use `clock.monotonic()`, epochs `clock.now()`. */
export function memoryStore({ clock }: { clock: Clock }): Store {
  return new MemoryStore(clock)
}

/** Memory is always reachable, and has neither commands nor servers. */
const VITALS: StoreVitals = { reachable: true, observe: () => () => undefined, servers: async () => [] }

class MemoryStore implements Store {
  readonly kind = 'memory'
  readonly records: MemoryRecords
  readonly rooms: MemoryRooms
  readonly wakeups: MemoryDueTimes
  readonly notices: MemoryNotices
  readonly listings: MemoryListings
  readonly bus: MemoryBus
  readonly locks: MemoryLocks
  readonly vitals = VITALS
  readonly #clock: Clock
  #closed = false

  constructor(clock: Clock) {
    const requireOpen = this.#requireOpen
    this.#clock = clock
    this.records = new MemoryRecords(clock, requireOpen)
    this.notices = new MemoryNotices(clock, requireOpen)
    this.rooms = new MemoryRooms(clock, requireOpen, this.notices)
    this.wakeups = new MemoryDueTimes(clock, requireOpen)
    this.listings = new MemoryListings(clock, requireOpen)
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

  /** Memory is always reachable. */
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

  readonly #requireOpen = (): void => {
    if (this.#closed) throw new StoreUnavailable('the store is closed')
  }
}

type Subscriber = (message: Uint8Array) => void

/** `Bus` within this process. It loses no message, so `onGap` is never called. */
class MemoryBus implements Bus {
  readonly #channels = new Map<string, Set<Subscriber>>()
  readonly #requireOpen: () => void

  constructor(requireOpen: () => void) {
    this.#requireOpen = requireOpen
  }

  /** Counts as Redis does: a listening process is one subscriber, however many callbacks it has. */
  async publish(channel: string, message: Uint8Array): Promise<number> {
    this.#requireOpen()
    const subscribers = this.#channels.get(channel)
    if (!subscribers) return 0
    for (const subscriber of subscribers) {
      const copy = new Uint8Array(message)
      queueMicrotask(() => {
        if (this.#channels.get(channel)?.has(subscriber)) subscriber(copy)
      })
    }
    return 1
  }

  async subscribe(channel: string, onMessage: Subscriber): Promise<() => Promise<void>> {
    this.#requireOpen()
    const subscribers = this.#channels.get(channel) ?? new Set()
    this.#channels.set(channel, subscribers)
    const subscriber: Subscriber = (message) => onMessage(message)
    subscribers.add(subscriber)
    return async () => {
      subscribers.delete(subscriber)
      if (subscribers.size === 0 && this.#channels.get(channel) === subscribers)
        this.#channels.delete(channel)
    }
  }

  async listeners(channels: readonly string[]): Promise<number[]> {
    this.#requireOpen()
    return channels.map((channel) => (this.#channels.has(channel) ? 1 : 0))
  }

  /** Ends every subscription. */
  close(): void {
    this.#channels.clear()
  }
}

/** Holder of a lock until it releases the lock or its time is over. */
interface Holder {
  /** Stops the timer that ends the lock. */
  readonly cancel: () => void
}

/** Waiter for a lock. Called with true when it may try again, with false when its time is over. */
type Waiter = (go: boolean) => void

/** `Locks` within this process. The longest waiter is next. */
class MemoryLocks implements Locks {
  readonly #clock: Clock
  readonly #requireOpen: () => void
  readonly #holders = new Map<string, Holder>()
  readonly #waiters = new Map<string, Set<Waiter>>()

  constructor(clock: Clock, requireOpen: () => void) {
    this.#clock = clock
    this.#requireOpen = requireOpen
  }

  async withLock<T>(
    name: string,
    options: { ttlMs: number; waitMs: number },
    work: () => Promise<T>,
  ): Promise<T | undefined> {
    this.#requireOpen()
    requireLockTimes(options)
    const until = this.#clock.monotonic() + options.waitMs
    while (this.#holders.has(name)) {
      const leftMs = until - this.#clock.monotonic()
      if (leftMs <= 0 || !(await this.#turn(name, leftMs))) return undefined
    }
    const holder = this.#hold(name, options.ttlMs)
    try {
      return await work()
    } finally {
      this.#release(name, holder)
    }
  }

  /** Notifies all waiters that the store is closed. */
  close(): void {
    for (const waiters of this.#waiters.values()) {
      for (const waiter of waiters) waiter(true)
    }
  }

  #hold(name: string, ttlMs: number): Holder {
    const holder = { cancel: this.#clock.schedule(ttlMs, () => this.#release(name, holder)) }
    this.#holders.set(name, holder)
    return holder
  }

  /** Releases the lock if `holder` still has it, and lets the next waiter try. */
  #release(name: string, holder: Holder): void {
    if (this.#holders.get(name) !== holder) return
    holder.cancel()
    this.#holders.delete(name)
    const [next] = this.#waiters.get(name) ?? []
    next?.(true)
  }

  /** Resolves with true when the lock was released, with false after `waitMs`. */
  async #turn(name: string, waitMs: number): Promise<boolean> {
    const waiters = this.#waiters.get(name) ?? new Set()
    this.#waiters.set(name, waiters)
    const freed = await new Promise<boolean>((resolve) => {
      const waiter: Waiter = (go) => {
        cancel()
        waiters.delete(waiter)
        if (waiters.size === 0) this.#waiters.delete(name)
        resolve(go)
      }
      const cancel = this.#clock.schedule(waitMs, () => waiter(false))
      waiters.add(waiter)
    })
    this.#requireOpen()
    return freed
  }
}
