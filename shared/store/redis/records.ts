import { requireLimit, requireWrites } from '../checks.ts'
import type { Records, StoredRecord, Write } from '../port.ts'
import { incoming, outgoing } from './bytes.ts'
import type { Connection } from './connection.ts'
import type { Scripts } from './scripts.ts'

/** `Records` in Redis: a record is a hash of `v` (value) and `n` (version), an index a sorted set whose scores are all 0. */
export class RedisRecords implements Records {
  readonly #connection: Connection
  readonly #scripts: Scripts
  readonly #prefix: string

  constructor(connection: Connection, scripts: Scripts, prefix: string) {
    this.#connection = connection
    this.#scripts = scripts
    this.#prefix = prefix
  }

  read(keys: readonly string[]): Promise<(StoredRecord | undefined)[]> {
    return this.#connection.run('read', (redis) =>
      Promise.all(
        keys.map(async (key) => {
          const [value, version] = await redis.hmgetBuffer(this.#prefix + key, 'v', 'n')
          return value && version ? { value: incoming(value), version: Number(version) } : undefined
        }),
      ),
    )
  }

  async write(writes: readonly Write[]): Promise<boolean> {
    requireWrites(writes)
    if (writes.length === 0) return true
    const keys: string[] = []
    const args: (string | Buffer)[] = []
    for (const write of writes) {
      const step = encode(write)
      keys.push(this.#prefix + step.key)
      args.push(step.action, step.if_version, step.ttl_ms, step.payload)
    }
    return (await this.#connection.run('write', () => this.#scripts.write(keys, args))) === 1
  }

  async page(index: string, options: { before?: string; limit: number }): Promise<string[]> {
    requireLimit(options.limit)
    const below = options.before === undefined ? '+' : `(${options.before}`
    return this.#connection.run('page', (redis) =>
      redis.zrevrangebylex(this.#prefix + index, below, '-', 'LIMIT', 0, options.limit),
    )
  }
}

/** One write as `write.lua` reads it. */
interface Step {
  readonly key: string
  readonly action: 'put' | 'remove' | 'add' | 'drop'
  readonly if_version: string
  readonly ttl_ms: string
  readonly payload: string | Buffer
}

function encode(write: Write): Step {
  if ('put' in write) {
    return {
      key: write.put,
      action: 'put',
      if_version: write.if_version?.toString() ?? '',
      ttl_ms: write.ttl_ms?.toString() ?? '',
      payload: outgoing(write.value),
    }
  }
  if ('remove' in write) {
    const if_version = write.if_version?.toString() ?? ''
    return { key: write.remove, action: 'remove', if_version, ttl_ms: '', payload: '' }
  }
  const step = { key: write.index, if_version: '', ttl_ms: '' }
  return 'add' in write
    ? { ...step, action: 'add', payload: write.add }
    : { ...step, action: 'drop', payload: write.drop }
}
