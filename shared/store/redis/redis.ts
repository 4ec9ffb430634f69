import type { Logger } from 'pino'
import { type Clock, sleep, systemClock } from '../../clock.ts'
import { randomToken } from '../../ids.ts'
import { type Random, systemRandom } from '../../random.ts'
import { type Store, StoreUnavailable } from '../port.ts'
import { parseAddress, type RedisAddress } from './address.ts'
import { type BusMode, Probe, RedisBus } from './bus.ts'
import { Clients, SentinelReport, SentinelWatch } from './clients.ts'
import { ClusterServers, nameOf } from './cluster.ts'
import { Observers } from './connection.ts'
import { RedisListings, RedisLocks, RedisRecords } from './records.ts'
import { RedisDueTimes, RedisNotices, RedisRooms } from './rooms.ts'
import { checkServer, hasShards, nameAt, RedisVitals, Server, type Servers, SingleServer } from './servers.ts'

/** Options of a Redis store. */
export interface RedisStoreOptions {
  /** `redis://`, `rediss://` (TLS), `redis+sentinel://`, `redis+cluster://` and so on: see `parseAddress`. */
  readonly url: string
  /** Prefix of every key and channel, so that several deployments share a server. Default `roomful:`. */
  readonly keyPrefix?: string
  readonly log: Logger
  /**
   * Time limit of the wait for a connection, and again for the answer, before a call rejects with `StoreUnavailable`. Calls of one turn are
   * sent together, and the next ones after their answers, so a call ends within three times this limit. Default 2000.
   */
  readonly commandTimeoutMs?: number
  /** Time limit of the start. Default 10,000. */
  readonly connectTimeoutMs?: number
  /** Spreads the reconnects of many processes. */
  readonly random?: Random
}

/**
 * Connects to Redis 6.2 or newer (or Valkey), of any shape. Rejects if it does not answer, refuses the password, or is unsuitable (see
 * `checkServer`). Deadlines use the machine's clock, as those of the client library do. Lifetimes and epochs use the server's.
 */
export async function redisStore(options: RedisStoreOptions): Promise<Store> {
  const prefix = options.keyPrefix ?? 'roomful:'
  requirePrefix(prefix)
  const address = parseAddress(options.url)
  const parts: Parts = {
    prefix,
    clock: systemClock,
    random: options.random ?? systemRandom,
    log: options.log.child({ store: address.label }),
    timeoutMs: options.commandTimeoutMs ?? 2000,
    observers: new Observers(),
  }
  const servers = serversAt(address, parts)
  try {
    const connectTimeoutMs = options.connectTimeoutMs ?? 10_000
    const until = parts.clock.monotonic() + connectTimeoutMs
    await servers.opened(connectTimeoutMs)
    const mode = await checkServersUntil(until, servers, address, parts)
    const store = new RedisStore(servers, mode, parts)
    await store.start()
    await serving(until, servers, parts)
    return store
  } catch (error) {
    await servers.close()
    throw error
  }
}

interface Parts {
  readonly prefix: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly timeoutMs: number
  readonly observers: Observers
}

function serversAt(address: RedisAddress, parts: Parts): Servers {
  const clients = new Clients(address, parts)
  if (address.kind === 'cluster') return new ClusterServers({ ...parts, clients, seeds: address.endpoints })
  const [endpoint] = address.endpoints
  if (address.kind === 'single')
    return new SingleServer(new Server(clients.both(endpoint!), { ...parts, name: nameOf(endpoint!) }))
  const sentinels = clients.sentinels()
  const watch = new SentinelWatch(sentinels, { ...parts, masterName: address.masterName })
  const report = new SentinelReport(address.masterName, sentinels)
  const explain = (reason: string | undefined) => report.explain(reason)
  const server = new Server(clients.bothOfMaster(watch, report), {
    ...{ ...parts, explain },
    name: address.masterName,
  })
  watch.onSwitch(() => server.rebuild('the Sentinels appointed another master'))
  return new SingleServer(server, () => watch.close())
}

/** Delay between two attempts to check the servers, in milliseconds. */
const CHECK_AGAIN_MS = 250

/**
 * Repeats `checkServers` while it gets no answer. A process that starts on a busy machine may read an answer after the time limit of a
 * command. `until` is a time of the monotonic clock.
 */
async function checkServersUntil(
  until: number,
  servers: Servers,
  address: RedisAddress,
  parts: Parts,
): Promise<BusMode> {
  for (;;) {
    try {
      return await checkServers(servers, address, parts)
    } catch (error) {
      const isUnanswered = error instanceof StoreUnavailable && error.reply === undefined
      if (!isUnanswered || parts.clock.monotonic() > until) throw error
      await sleep(parts.clock, CHECK_AGAIN_MS)
    }
  }
}

/** Error codes of servers that are starting or failing over. */
const SOON = new Set(['LOADING', 'NOREPLICAS', 'READONLY', 'MASTERDOWN', 'CLUSTERDOWN'])

/**
 * Resolves when the servers accept writes, or do not for a reason that lasts. After a restart of everything, a master refuses writes until
 * its replicas are back. `until` is a time of the monotonic clock.
 */
async function serving(until: number, servers: Servers, parts: Parts): Promise<void> {
  const write = (server: Server) => {
    const scratch = scratchAt(server, servers, parts)
    return server.commands.run('del', (redis) => redis.del(scratch))
  }
  for (;;) {
    try {
      await Promise.all(servers.all().map(write))
      return
    } catch (error) {
      const isStarting = error instanceof StoreUnavailable && SOON.has(error.reply ?? '')
      if (!isStarting || parts.clock.monotonic() > until) return
      await sleep(parts.clock, CHECK_AGAIN_MS)
    }
  }
}

/** Checks that every server is suitable, and returns how they publish. */
async function checkServers(servers: Servers, { kind, db }: RedisAddress, parts: Parts): Promise<BusMode> {
  const check = (server: Server) =>
    checkServer(server, { scratch: scratchAt(server, servers, parts), kind, db, log: parts.log })
  const infos = await Promise.all(servers.all().map(check))
  if (kind !== 'cluster') return 'everywhere'
  return infos.every(hasShards) ? 'shards' : 'flood'
}

/** Returns a name (with prefix) of a key and a channel of this server that nothing else uses. */
function scratchAt(server: Server, servers: Servers, { prefix, random }: Parts): string {
  const stem = `${prefix}check:${randomToken(random, 16)}`
  return nameAt(stem, (name) => servers.serverOf(name) === server) ?? stem
}

/** Lifetime of the key that `ping` writes, in milliseconds. */
const PING_TTL_MS = 1000

class RedisStore implements Store {
  readonly kind = 'redis'
  readonly records: RedisRecords
  readonly rooms: RedisRooms
  readonly wakeups: RedisDueTimes
  readonly notices: RedisNotices
  readonly listings: RedisListings
  readonly bus: RedisBus
  readonly locks: RedisLocks
  readonly vitals: RedisVitals
  readonly #servers: Servers
  readonly #parts: Parts
  readonly #probes = new Set<Probe>()
  #closed = false

  constructor(servers: Servers, mode: BusMode, parts: Parts) {
    const { prefix, clock } = parts
    this.#servers = servers
    this.#parts = parts
    this.records = new RedisRecords(servers, prefix)
    this.rooms = new RedisRooms(servers, prefix)
    this.wakeups = new RedisDueTimes(servers, `${prefix}{room_wakeups:`)
    this.notices = new RedisNotices(servers, prefix)
    this.listings = new RedisListings(servers, prefix, parts)
    this.bus = new RedisBus(servers, prefix, { mode, clock })
    this.locks = new RedisLocks(servers, prefix, parts)
    this.vitals = new RedisVitals(servers, parts)
  }

  /** Starts the probes of the bus. Resolves when the first probes have subscribed, or have failed once. */
  async start(): Promise<void> {
    const started: Promise<void>[] = []
    this.#servers.onServer((server) => void started.push(this.#watch(server)))
    await Promise.all(started.splice(0))
  }

  async time(): Promise<number> {
    const [seconds, microseconds] = await this.#servers.run('time', `${this.#parts.prefix}time`, (redis) =>
      redis.time(),
    )
    return Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000)
  }

  /** Returns the uptime of the youngest server. */
  async uptime(): Promise<number> {
    return Math.min(...(await Promise.all(this.#servers.all().map((server) => server.uptime()))))
  }

  onReturn(callback: () => void): () => void {
    return this.#servers.onReturn(callback)
  }

  /** Writes at each server, because a full server and a replica answer PING too. */
  async ping(): Promise<void> {
    await Promise.all(this.#servers.all().map((server) => this.#pingServer(server)))
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const probe of this.#probes) probe.stop()
    await this.#servers.close()
  }

  async #pingServer(server: Server): Promise<void> {
    const { prefix, random } = this.#parts
    const stem = `${prefix}check:${randomToken(random, 16)}`
    const key = nameAt(stem, (name) => this.#servers.serverOf(name) === server)
    if (key === undefined) await server.commands.run('ping', (redis) => redis.ping())
    else await this.#servers.run('ping', key, (redis) => redis.set(key, '', 'PX', PING_TTL_MS))
  }

  async #watch(server: Server): Promise<void> {
    if (this.#closed) return
    const { clock, random } = this.#parts
    const token = randomToken(random, 16)
    const probe = new Probe({ bus: this.bus, servers: this.#servers, server, token, clock })
    for (const known of this.#probes) if (known.stopped) this.#probes.delete(known)
    this.#probes.add(probe)
    await probe.start()
  }
}

/** Braces in a prefix would replace the hash tags of the keys. */
function requirePrefix(prefix: string): void {
  if (/[{}]/.test(prefix)) throw new RangeError(`the key prefix is ${prefix}: it must not contain { or }`)
}
