import { Redis } from 'ioredis'
import { leaseKey } from '../../shared/node-registry.ts'

const ANSWER_MS = 5000
const LOOK_MS = 500
const MARK = 'mark'

/** The Redis of the cluster as this command sees it: whether it answers, how long leases still run, and whether it has kept its data. */
export class RedisView {
  readonly #redis: Redis
  readonly #prefix: string

  constructor(url: string, prefix: string) {
    this.#prefix = prefix
    this.#redis = new Redis(url, {
      lazyConnect: true,
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
      commandTimeout: LOOK_MS,
      retryStrategy: () => 250,
    })
    this.#redis.on('error', () => undefined)
  }

  /** Resolves when it answers. Rejects, with the reason, when nothing listens there or it wants another password. */
  async reach(): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${ANSWER_MS / 1000} s`)), ANSWER_MS)
    })
    await Promise.race([this.#redis.connect().then(() => this.#ping()), late]).finally(() =>
      clearTimeout(timer),
    )
  }

  /** A command may take `LOOK_MS`. On a busy machine the first answer takes longer. */
  async #ping(): Promise<void> {
    await this.#redis.ping().catch((error: Error) => {
      // A closed view ends the attempts with another error.
      if (error.message !== 'Command timed out') throw error
      return this.#ping()
    })
  }

  /** Milliseconds until the lease of a node expires: 0 without one; undefined when Redis does not answer. */
  leaseLeft(nodeId: string): Promise<number | undefined> {
    return answer(this.#redis.pttl(this.#prefix + leaseKey(nodeId)).then((left) => Math.max(0, left)))
  }

  /** Leaves a key by which `marked` can see that Redis has kept its data; false when Redis does not answer. */
  async mark(): Promise<boolean> {
    return (await answer(this.#redis.set(this.#prefix + MARK, '1'))) !== undefined
  }

  /** Whether Redis still has the key of `mark`; undefined when it does not answer. */
  marked(): Promise<boolean | undefined> {
    return answer(this.#redis.exists(this.#prefix + MARK).then((found) => found === 1))
  }

  /** Removes every key of the cluster, for a Redis that runs on after it. */
  async clear(): Promise<void> {
    for await (const keys of this.#redis.scanStream({ match: `${this.#prefix}*`, count: 1000 }))
      if (keys.length > 0) await this.#redis.unlink(keys)
  }

  close(): void {
    this.#redis.disconnect()
  }
}

const answer = <T>(command: Promise<T>): Promise<T | undefined> => command.catch(() => undefined)
