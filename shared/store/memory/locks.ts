import type { Clock } from '../../clock.ts'
import { requireLockTimes } from '../checks.ts'
import type { Locks } from '../port.ts'

/** Who holds a lock, until it gives it back or its time is up. */
interface Holder {
  /** Stops the timer that ends the lock. */
  readonly cancel: () => void
}

/** One that waits for a lock: called with true when it may try again, with false when it has waited long enough. */
type Waiter = (go: boolean) => void

/** `Locks` within this process; who waits longest is next. */
export class MemoryLocks implements Locks {
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

  /** Tells every waiter that the store is closed. */
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

  /** Frees the lock if `holder` still has it, and lets the next one try. */
  #release(name: string, holder: Holder): void {
    if (this.#holders.get(name) !== holder) return
    holder.cancel()
    this.#holders.delete(name)
    const [next] = this.#waiters.get(name) ?? []
    next?.(true)
  }

  /** Resolves with true when the lock was freed, with false after `waitMs`. */
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
