import Redlock, { ExecutionError, type Lock, ResourceLockedError } from 'redlock'
import type { Clock } from '../../clock.ts'
import type { Random } from '../../random.ts'
import { requireLockTimes } from '../checks.ts'
import type { Locks } from '../port.ts'
import type { Connection } from './connection.ts'

/** How long a waiter sleeps between two tries, milliseconds; spread by half, so that waiters do not march in step. */
const RETRY_MS = 30

/** `Locks` in Redis: a string at `lock:<name>` that holds the holder's secret and ends with the lock. */
export class RedisLocks implements Locks {
  readonly #connection: Connection
  readonly #redlock: Redlock
  readonly #prefix: string
  readonly #clock: Clock
  readonly #random: Random

  constructor(connection: Connection, prefix: string, { clock, random }: { clock: Clock; random: Random }) {
    this.#connection = connection
    this.#redlock = new Redlock([connection.client], { retryCount: 0 })
    this.#prefix = prefix
    this.#clock = clock
    this.#random = random
  }

  async withLock<T>(
    name: string,
    options: { ttl_ms: number; wait_ms: number },
    work: () => Promise<T>,
  ): Promise<T | undefined> {
    requireLockTimes(options)
    const until = this.#clock.monotonic() + options.wait_ms
    let lock = await this.#try(name, options.ttl_ms)
    while (!lock) {
      const left_ms = until - this.#clock.monotonic()
      if (left_ms <= 0) return undefined
      await this.#sleep(Math.min(left_ms, RETRY_MS * (0.5 + this.#random.float())))
      lock = await this.#try(name, options.ttl_ms)
    }
    try {
      return await work()
    } finally {
      await this.#release(lock)
    }
  }

  /** The lock, or undefined when somebody else holds it. */
  #try(name: string, ttl_ms: number): Promise<Lock | undefined> {
    return this.#connection.run('lock', async () => {
      try {
        return await this.#redlock.acquire([`${this.#prefix}lock:${name}`], ttl_ms)
      } catch (error) {
        const reason = await whyNot(error)
        if (reason instanceof ResourceLockedError) return undefined
        throw reason
      }
    })
  }

  /** A lock that cannot be given back runs out by itself. */
  async #release(lock: Lock): Promise<void> {
    await this.#connection.run('unlock', () => lock.release()).catch(() => undefined)
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#clock.schedule(ms, resolve))
  }
}

/** What the server (or the connection to it) said when a lock was not to be had. */
async function whyNot(error: unknown): Promise<unknown> {
  if (!(error instanceof ExecutionError)) return error
  const attempt = await error.attempts.at(-1)
  const [reason] = attempt?.votesAgainst.values() ?? []
  return reason ?? error
}
