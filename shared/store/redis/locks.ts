import type { Redis } from 'ioredis'
import Redlock, { ExecutionError, type Lock, ResourceLockedError } from 'redlock'
import { type Clock, sleep } from '../../clock.ts'
import type { Random } from '../../random.ts'
import type { Locks } from '../port.ts'
import { requireLockTimes } from '../rules.ts'
import type { Servers } from './servers.ts'

/** How long a waiter sleeps between two tries, milliseconds; spread by half, so that waiters do not march in step. */
const RETRY_MS = 30

/** `Locks` in Redis: a string at `lock:<name>` that holds the holder's secret and ends with the lock. */
export class RedisLocks implements Locks {
  readonly #redlock: Redlock
  readonly #prefix: string
  readonly #clock: Clock
  readonly #random: Random

  constructor(servers: Servers, prefix: string, { clock, random }: { clock: Clock; random: Random }) {
    this.#redlock = new Redlock([clientOf(servers)], { retryCount: 0 })
    this.#prefix = prefix
    this.#clock = clock
    this.#random = random
  }

  async withLock<T>(
    name: string,
    options: { ttlMs: number; waitMs: number },
    work: () => Promise<T>,
  ): Promise<T | undefined> {
    requireLockTimes(options)
    const until = this.#clock.monotonic() + options.waitMs
    let lock = await this.#try(name, options.ttlMs)
    while (!lock) {
      const leftMs = until - this.#clock.monotonic()
      if (leftMs <= 0) return undefined
      await sleep(this.#clock, Math.min(leftMs, RETRY_MS * (0.5 + this.#random.float())))
      lock = await this.#try(name, options.ttlMs)
    }
    try {
      return await work()
    } finally {
      await lock.release().catch(() => undefined) // It runs out by itself.
    }
  }

  /** The lock, or undefined when another holds it. */
  async #try(name: string, ttlMs: number): Promise<Lock | undefined> {
    try {
      return await this.#redlock.acquire([`${this.#prefix}lock:${name}`], ttlMs)
    } catch (error) {
      const reason = await whyNot(error)
      if (reason instanceof ResourceLockedError) return undefined
      throw reason
    }
  }
}

/**
 * What `redlock` needs of a client: the two commands that run its scripts, sent wherever the lock's key is. It looks at errors only
 * to find out that a server does not know a script yet.
 */
function clientOf(servers: Servers) {
  type Args = (string | number)[]
  const run = async (key: string, send: (redis: Redis) => Promise<unknown>): Promise<unknown> => {
    const reply = await servers.run('lock', key, (redis) =>
      send(redis).catch((error: Error) => {
        if (error.message.startsWith('NOSCRIPT')) return error
        throw error
      }),
    )
    if (reply instanceof Error) throw reply
    return reply
  }
  return {
    evalsha: (hash: string, keys: number, args: Args) =>
      run(String(args[0]), (redis) => redis.evalsha(hash, keys, ...args)),
    eval: (lua: string, keys: number, args: Args) =>
      run(String(args[0]), (redis) => redis.eval(lua, keys, ...args)),
  }
}

/** What the server (or the connection to it) said when a lock was not to be had. */
async function whyNot(error: unknown): Promise<unknown> {
  if (!(error instanceof ExecutionError)) return error
  const attempt = await error.attempts.at(-1)
  const [reason] = attempt?.votesAgainst.values() ?? []
  return reason ?? error
}
