import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { type RedisServer, startRedis } from '../../support/redis-server.ts'

/** Longer than any save takes; the pause of the writers ends with the server. */
const WRITERS_WAIT_MS = 60_000

/** The Redis of a run, which can come back with all its data or with none of it. */
export class ChaosRedis {
  readonly #server: RedisServer

  private constructor(server: RedisServer) {
    this.#server = server
  }

  static async start(): Promise<ChaosRedis> {
    return new ChaosRedis(await startRedis())
  }

  get url(): string {
    return this.#server.url
  }

  /** Ends it so that everything that was ever answered is there after `start`. */
  async stopKeeping(): Promise<void> {
    await this.#ask(async (redis) => {
      await redis.client('PAUSE', WRITERS_WAIT_MS, 'WRITE')
      await redis.save()
    })
    await this.#server.stop()
  }

  /** Ends it as a crash without any persistence does. */
  async stopLosing(): Promise<void> {
    await this.#server.stop()
  }

  async start(): Promise<void> {
    await this.#server.start()
    // A file that stayed would bring back old data at a later start.
    const [, folder] = (await this.#ask((redis) => redis.config('GET', 'dir'))) as [string, string]
    await rm(join(folder, 'dump.rdb'), { force: true })
  }

  pause(): Promise<void> {
    return this.#server.pause()
  }

  resume(): Promise<void> {
    return this.#server.resume()
  }

  close(): Promise<void> {
    return this.#server.close()
  }

  async #ask<T>(work: (redis: Redis) => Promise<T>): Promise<T> {
    const redis = new Redis(this.#server.url, { lazyConnect: true })
    try {
      await redis.connect()
      return await work(redis)
    } finally {
      redis.disconnect()
    }
  }
}
