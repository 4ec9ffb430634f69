import { Redis } from 'ioredis'
import { leaseKey } from '../../shared/node-registry.ts'

const ANSWER_MS = 5000
const LOOK_MS = 500
const MARK = 'mark'

/** The Redis of the cluster as this command looks at it: whether it answers, how old the leases are, and what to leave behind. */
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

  /** Resolves when it answers. Rejects, with the reason, when there is no one or it wants another password. */
  async reach(): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${ANSWER_MS / 1000} s`)), ANSWER_MS)
    })
    try {
      await Promise.race([this.#redis.connect().then(() => this.#ping()), late])
    } finally {
      clearTimeout(timer)
    }
  }

  /** A look may take `LOOK_MS`. On a busy machine the first answer takes longer. */
  async #ping(): Promise<void> {
    await this.#redis.ping().catch((error: Error) => {
      // A closed view ends the attempts with another error.
      if (error.message !== 'Command timed out') throw error
      return this.#ping()
    })
  }

  /** How long the lease of a node still runs, in milliseconds: 0 without one; undefined when the store does not answer. */
  async leaseLeft(nodeId: string): Promise<number | undefined> {
    return this.#redis.pttl(this.#prefix + leaseKey(nodeId)).then(
      (left) => Math.max(0, left),
      () => undefined,
    )
  }

  /** Leaves something in the store by which `marked` can see that it has kept it; false when it does not answer. */
  async mark(): Promise<boolean> {
    return this.#redis.set(this.#prefix + MARK, '1').then(
      () => true,
      () => false,
    )
  }

  /** Whether the store still has what `mark` has left there; undefined when it does not answer. */
  async marked(): Promise<boolean | undefined> {
    return this.#redis.exists(this.#prefix + MARK).then(
      (found) => found === 1,
      () => undefined,
    )
  }

  /** Removes every key of the cluster, for a Redis that goes on after it. */
  async clear(): Promise<void> {
    for await (const keys of this.#redis.scanStream({ match: `${this.#prefix}*`, count: 1000 }))
      if (keys.length > 0) await this.#redis.unlink(keys)
  }

  close(): void {
    this.#redis.disconnect()
  }
}
