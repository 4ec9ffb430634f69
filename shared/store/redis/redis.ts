import { Redis, type RedisOptions } from 'ioredis'
import type { Logger } from 'pino'
import { type Clock, systemClock } from '../../clock.ts'
import { randomToken } from '../../ids.ts'
import { type Random, systemRandom } from '../../random.ts'
import type { Store } from '../port.ts'
import { RedisBus } from './bus.ts'
import { Connection } from './connection.ts'
import { RedisLocks } from './locks.ts'
import { Probe } from './probe.ts'
import { RedisRecords } from './records.ts'
import { RedisRooms } from './rooms.ts'
import { loadScripts } from './scripts.ts'
import { checkServer, uptimeOf } from './server-check.ts'

/** What a Redis store needs to know. */
export interface RedisStoreOptions {
  /** `redis://` or `rediss://` (TLS), with user, password and database number as usual. */
  readonly url: string
  /** Stands before every key and channel, so that several clusters share a server. Default `roomful:`. */
  readonly key_prefix?: string
  readonly log: Logger
  /**
   * How long a call waits for a connection, and again for its answer, before it rejects with `StoreUnavailable`. Calls of one turn are
   * sent together, the next ones when those are answered: so a call ends within three times this. Default 2000.
   */
  readonly command_timeout_ms?: number
  /** How long to try at start before giving up. Default 10,000. */
  readonly connect_timeout_ms?: number
  /** Spreads reconnects of many processes. */
  readonly random?: Random
}

/**
 * Connects to Redis 6.2 or newer (or Valkey); rejects when it does not answer, is too old or refuses the password. Deadlines run on the
 * machine's clock, like those of the client library, lifetimes and epochs on the server's.
 */
export async function redisStore(options: RedisStoreOptions): Promise<Store> {
  const store = new RedisStore(options)
  try {
    await store.open()
    return store
  } catch (error) {
    await store.close()
    throw error
  }
}

class RedisStore implements Store {
  readonly kind = 'redis'
  readonly records: RedisRecords
  readonly rooms: RedisRooms
  readonly bus: RedisBus
  readonly locks: RedisLocks
  readonly #commands: Connection
  readonly #listener: Connection
  readonly #probe: Probe
  readonly #log: Logger
  readonly #connect_timeout_ms: number

  constructor(options: RedisStoreOptions) {
    const prefix = options.key_prefix ?? 'roomful:'
    const random = options.random ?? systemRandom
    const clock: Clock = systemClock
    requirePrefix(prefix)
    this.#log = options.log.child({ store: addressOf(options.url) })
    this.#connect_timeout_ms = options.connect_timeout_ms ?? 10_000
    const timeout_ms = options.command_timeout_ms ?? 2000

    const common = { ...reconnecting(random), commandTimeout: timeout_ms, connectTimeout: timeout_ms }
    const commands = new Redis(options.url, {
      ...common,
      connectionName: 'roomful-commands',
      enableAutoPipelining: true,
      socketTimeout: 2 * timeout_ms,
    })
    const listener = new Redis(options.url, { ...common, connectionName: 'roomful-bus' })
    const connection = (redis: Redis, name: string) =>
      new Connection(redis, { clock, log: this.#log.child({ connection: name }), timeout_ms })
    this.#commands = connection(commands, 'commands')
    this.#listener = connection(listener, 'bus')

    const scripts = loadScripts(commands)
    this.records = new RedisRecords(this.#commands, scripts, prefix)
    this.rooms = new RedisRooms(this.#commands, scripts, prefix)
    this.bus = new RedisBus(this.#commands, this.#listener, prefix)
    this.locks = new RedisLocks(this.#commands, prefix, { clock, random })
    listener.on('messageBuffer', (channel: Buffer, message: Buffer) =>
      this.bus.deliver(channel.toString(), message),
    )
    const channel = `probe:${randomToken(random, 16)}`
    this.#probe = new Probe({ bus: this.bus, listener: this.#listener, channel, clock })
  }

  /** Resolves once both connections stand and the server is one that will do. */
  async open(): Promise<void> {
    await this.#commands.opened(this.#connect_timeout_ms)
    await checkServer(this.#commands, this.#log)
    await this.#listener.opened(this.#connect_timeout_ms)
    await this.#probe.start()
  }

  async time(): Promise<number> {
    const [seconds, microseconds] = await this.#commands.run('time', (redis) => redis.time())
    return Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000)
  }

  async uptime(): Promise<number> {
    return uptimeOf(await this.#commands.run('uptime', (redis) => redis.info('server')))
  }

  onReturn(callback: () => void): () => void {
    return this.#commands.onReturn(callback)
  }

  async ping(): Promise<void> {
    await this.#commands.run('ping', (redis) => redis.ping())
  }

  async close(): Promise<void> {
    this.#probe.stop()
    await Promise.all([this.#commands.close(), this.#listener.close()])
  }
}

/**
 * Reconnects for ever, quickly at first, and never repeats a command by itself: what a lost connection left unanswered is rejected at
 * once, and nothing waits inside the client library, where it would be sent after its caller was told that it failed.
 */
const reconnecting = (random: Random) =>
  ({
    retryStrategy: (attempt: number) =>
      Math.min(25 * 2 ** Math.min(attempt, 6), 1000) * (0.5 + random.float() / 2),
    /** A fail-over may have made this server a replica: connect anew, to whatever the address means by now. */
    reconnectOnError: (error: Error) => error.message.includes('READONLY'),
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: false,
    autoResubscribe: false,
    maxLoadingRetryTime: 500,
    disconnectTimeout: 250,
  }) satisfies RedisOptions

/** Where the store is, without user and password. */
function addressOf(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  if (!parsed || !['redis:', 'rediss:'].includes(parsed.protocol)) {
    throw new RangeError(
      'the store URL must look like redis://host:6379 or rediss://user:password@host:6379/0',
    )
  }
  return `${parsed.protocol}//${parsed.host}${parsed.pathname}`
}

/** Braces in a prefix would take the place of the hash tags in the keys behind it. */
function requirePrefix(prefix: string): void {
  if (/[{}]/.test(prefix)) throw new RangeError(`the key prefix is ${prefix}: it must not contain { or }`)
}
