import type { Lease, LeaseRenewal, Records, StoredRecord, Write } from '../port.ts'
import { requireLease, requireLimit, requireWrites } from '../rules.ts'
import { incoming, outgoing } from './connection.ts'
import { callScript, type Servers } from './servers.ts'

/**
 * `Records` in Redis: a record is a hash of `v` (value) and `n` (version), and of a lease `holder` and `since`; an index a sorted set
 * whose scores are all 0.
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

/** One write as `write.lua` reads it. */
interface Step {
  readonly key: string
  readonly action: 'put' | 'remove' | 'add' | 'drop'
  /** The version of a record, or the number of members of an index. */
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
