import type { Redis } from 'ioredis'
import Redlock, { ExecutionError, type Lock, ResourceLockedError } from 'redlock'
import { type Clock, sleep } from '../../clock.ts'
import { randomToken } from '../../ids.ts'
import type { Random } from '../../random.ts'
import {
  type Lease,
  type LeaseRenewal,
  type ListedRoom,
  type ListingChanges,
  type Listings,
  type Locks,
  REMOVED_ROW_MS,
  type Records,
  requireLease,
  requireLimit,
  requireLockTimes,
  requireRoomTtl,
  requireWrites,
  type StoredRecord,
  type Write,
} from '../port.ts'
import { incoming, outgoing } from './connection.ts'
import { callScript, type Servers } from './servers.ts'

/**
 * `Records` in Redis. A record is a hash with `v` (value) and `n` (version); a lease also has `holder` and `since`. An index is a sorted
 * set whose scores are all 0.
 */
export class RedisRecords implements Records {
  readonly #servers: Servers
  readonly #prefix: string

  constructor(servers: Servers, prefix: string) {
    this.#servers = servers
    this.#prefix = prefix
  }

  read(keys: readonly string[]): Promise<(StoredRecord | undefined)[]> {
    return Promise.all(keys.map((key) => this.#read(this.#prefix + key)))
  }

  async write(writes: readonly Write[]): Promise<boolean> {
    requireWrites(writes)
    if (writes.length === 0) return true
    const keys: string[] = []
    const args: (string | Buffer)[] = []
    for (const write of writes) {
      const step = encode(write)
      keys.push(this.#prefix + step.key)
      args.push(step.action, step.condition, step.ttlMs, step.payload)
    }
    const reply = await callScript(this.#servers, 'write', keys, args)
    return reply === 1
  }

  async renewLease(renewal: LeaseRenewal): Promise<Lease> {
    requireLease(renewal)
    const { key, holder, value, ttlMs, listed } = renewal
    const keys = [this.#prefix + key]
    const args = [holder, outgoing(value), String(ttlMs)]
    if (listed) {
      keys.push(this.#prefix + listed.index)
      args.push(listed.member)
    }
    const reply = await callScript(this.#servers, 'renew_lease', keys, args)
    const [heldBy, since] = reply as [Buffer, Buffer]
    return { holder: heldBy.toString(), since: Number(since) }
  }

  async page(index: string, options: { before?: string; limit: number }): Promise<string[]> {
    requireLimit(options.limit)
    const below = options.before === undefined ? '+' : `(${options.before}`
    const key = this.#prefix + index
    return this.#servers.run('page', key, (redis) =>
      redis.zrevrangebylex(key, below, '-', 'LIMIT', 0, options.limit),
    )
  }

  async #read(key: string): Promise<StoredRecord | undefined> {
    const [value, version] = await this.#servers.run('read', key, (redis) => redis.hmgetBuffer(key, 'v', 'n'))
    return value && version ? { value: incoming(value), version: Number(version) } : undefined
  }
}

/** Arguments of one write for `write.lua`. */
interface Step {
  readonly key: string
  readonly action: 'put' | 'remove' | 'add' | 'drop'
  /** Returns the version of a record, or the number of members of an index. */
  readonly condition: string
  readonly ttlMs: string
  readonly payload: string | Buffer
}

function encode(write: Write): Step {
  if ('put' in write) {
    return {
      key: write.put,
      action: 'put',
      condition: write.ifVersion?.toString() ?? '',
      ttlMs: write.ttlMs?.toString() ?? '',
      payload: outgoing(write.value),
    }
  }
  if ('remove' in write) {
    const condition = write.ifVersion?.toString() ?? ''
    return { key: write.remove, action: 'remove', condition, ttlMs: '', payload: '' }
  }
  if ('drop' in write)
    return { key: write.index, action: 'drop', condition: '', ttlMs: '', payload: write.drop }
  const { index, add, ifFewerThan, ttlMs } = write
  const condition = ifFewerThan?.toString() ?? ''
  return { key: index, action: 'add', condition, ttlMs: ttlMs?.toString() ?? '', payload: add }
}

const SPACE = 0x20
const GENERATION_LENGTH = 16

type Reply = [
  generation: Buffer | null,
  change: Buffer,
  since: Buffer,
  restarted: number,
  more: number,
  rooms: [roomId: Buffer, row: Buffer][],
]

/**
 * `Listings` in Redis. A list has four keys with one hash tag: `{list:…}` (hash: generation, number of changes), `{list:…}:rows` (hash:
 * rows by room id), `:order` (sorted set: rooms by the number of their last change) and `:expiry` (sorted set: rooms by the expiry of their
 * row). A row is `<epoch> <version> <value>`, a removed one `<epoch> <version>`. Each operation is one script.
 *
 * A list gets a random generation when it is created. A cursor names it, so a reader detects that the store has lost the list.
 */
export class RedisListings implements Listings {
  readonly #servers: Pick<Servers, 'run'>
  readonly #prefix: string
  readonly #random: Random

  constructor(servers: Pick<Servers, 'run'>, prefix: string, { random }: { readonly random: Random }) {
    this.#servers = servers
    this.#prefix = prefix
    this.#random = random
  }

  async write(list: string, room: ListedRoom, ttlMs: number, by?: number): Promise<boolean> {
    requireRoomTtl(ttlMs)
    const { roomId, epoch, version, value } = room
    const lifetime = value ? ttlMs : REMOVED_ROW_MS
    const args = [
      String(REMOVED_ROW_MS),
      roomId,
      String(epoch),
      String(version),
      value ? Buffer.concat([Buffer.from(' '), value]) : '',
      lifetime === Number.POSITIVE_INFINITY ? '' : String(lifetime),
      randomToken(this.#random, GENERATION_LENGTH),
      by === undefined ? '' : String(Math.floor(by)),
    ]
    return (await callScript(this.#servers, 'write_listing', this.#keys(list), args)) === 1
  }

  async changes(list: string, cursor: string, limit: number): Promise<ListingChanges> {
    requireLimit(limit)
    const [generation = '', change = '0', since = '0'] = cursor.split(':')
    const args = [String(REMOVED_ROW_MS), generation, change || '0', since, String(limit)]
    const reply = await callScript(this.#servers, 'read_listing', this.#keys(list), args)
    const [readGeneration, ...rest] = reply as Reply
    const [readChange, readSince, restarted, more, rooms] = rest
    return {
      cursor: readGeneration ? `${readGeneration}:${readChange}:${readSince}` : '',
      rooms: rooms.map(([roomId, row]) => decode(roomId.toString(), row)),
      restarted: restarted === 1,
      more: more === 1,
    }
  }

  #keys(list: string): string[] {
    const stem = `${this.#prefix}{list:${list}}`
    return [stem, `${stem}:rows`, `${stem}:order`, `${stem}:expiry`]
  }
}

function decode(roomId: string, row: Buffer): ListedRoom {
  const first = row.indexOf(SPACE)
  const second = row.indexOf(SPACE, first + 1)
  const end = second < 0 ? row.length : second
  return {
    roomId,
    epoch: Number(row.subarray(0, first).toString()),
    version: Number(row.subarray(first + 1, end).toString()),
    value: second < 0 ? undefined : new Uint8Array(row.subarray(second + 1)),
  }
}

/** Average delay between two attempts of a waiter, in milliseconds. It varies by half, so that waiters do not synchronize. */
const RETRY_MS = 30

/** `Locks` in Redis: the string `lock:<name>` contains the holder's secret and expires with the lock. */
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
      await lock.release().catch(() => undefined) // It expires.
    }
  }

  /** Returns the lock. Undefined: another process holds it. */
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
 * The part of a client that `redlock` uses: the two commands that run its scripts, sent to the server of the lock's key. It reads errors
 * only to find out that a server does not know a script yet.
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

/** Returns the error of the server, or of the connection, for a lock that could not be acquired. */
async function whyNot(error: unknown): Promise<unknown> {
  if (!(error instanceof ExecutionError)) return error
  const attempt = await error.attempts.at(-1)
  const [reason] = attempt?.votesAgainst.values() ?? []
  return reason ?? error
}
