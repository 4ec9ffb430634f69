import type { Logger } from 'pino'
import type { Clock } from '../clock.ts'
import type { Random } from '../random.ts'
import { memoryStore } from './memory/memory.ts'
import type { Store } from './port.ts'
import { redisStore } from './redis/redis.ts'

/** Options that select the store of a process. */
interface OpenStoreOptions {
  /** Absent: the memory store. */
  readonly redisUrl?: string | undefined
  /** Default `roomful:`. Not used by the memory store. */
  readonly keyPrefix?: string | undefined
  readonly log: Logger
  readonly clock: Clock
  readonly random: Random
}

/** Opens the store at `redisUrl`, or a store in memory, which serves only this process and logs a warning about that. */
export async function openStore(options: OpenStoreOptions): Promise<Store> {
  const { redisUrl: url, keyPrefix, log, clock, random } = options
  if (url) return redisStore({ url, log, random, ...(keyPrefix !== undefined && { keyPrefix }) })
  log.info('the store is in memory: only this process can use it, and its data is lost when the process ends')
  return memoryStore({ clock })
}
