import type { Logger } from 'pino'
import type { Clock } from '../clock.ts'
import type { Random } from '../random.ts'
import { memoryStore } from './memory/memory.ts'
import type { Store } from './port.ts'
import { redisStore } from './redis/redis.ts'

/** What decides which store a process uses. */
export interface OpenStoreOptions {
  /** Absent: the memory store. */
  readonly redis_url?: string | undefined
  /** Default `roomful:`; the memory store has no use for it. */
  readonly key_prefix?: string | undefined
  readonly log: Logger
  readonly clock: Clock
  readonly random: Random
}

/** Opens the store at `redis_url`, or one in memory, which serves this process only and says so in the log. */
export async function openStore(options: OpenStoreOptions): Promise<Store> {
  const { redis_url: url, key_prefix, log, clock, random } = options
  if (url) return redisStore({ url, log, random, ...(key_prefix !== undefined && { key_prefix }) })
  log.info('the store is in memory: it serves this process only, and its data ends with it')
  return memoryStore({ clock })
}
