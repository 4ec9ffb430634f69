import { requireOwner, requireTtl } from '../checks.ts'
import { EPOCH_OUTLIVES_MS } from '../epoch.ts'
import type { Claim, Fence, RoomOwner, RoomRecords } from '../port.ts'
import { incoming, outgoing } from './bytes.ts'
import { runScript } from './scripts.ts'
import type { Servers } from './servers.ts'

/**
 * `RoomRecords` in Redis. A room has four keys with one hash tag: `{room:…}:record` (hash: epoch, version, owner), `:epoch` (string,
 * see `EPOCH_OUTLIVES_MS`), `:snapshot` (string) and `:journal` (list). Each operation is one script.
 */
export class RedisRooms implements RoomRecords {
  readonly #servers: Servers
  readonly #prefix: string

  constructor(servers: Servers, prefix: string) {
    this.#servers = servers
    this.#prefix = prefix
  }

  async inspect(room: string): Promise<RoomOwner | undefined> {
    const { record, epoch } = this.#keys(room)
    const reply = await this.#servers.run('inspect', record, (redis) =>
      runScript(redis, 'inspect', [record, epoch], []),
    )
    if (reply === null) return undefined
    const [at, version, owner] = reply as [Buffer, Buffer, Buffer]
    return { epoch: Number(at), version: Number(version), owner: owner.toString() || null }
  }

  async claim(
    room: string,
    owner: string,
    expected_epoch: number,
    ttl_ms: number,
  ): Promise<Claim | undefined> {
    requireOwner(owner)
    requireTtl(ttl_ms)
    const { record, epoch, snapshot, journal } = this.#keys(room)
    const args = [String(expected_epoch), owner, String(ttl_ms), String(ttl_ms + EPOCH_OUTLIVES_MS)]
    const reply = await this.#servers.run('claim', record, (redis) =>
      runScript(redis, 'claim', [record, epoch, snapshot, journal], args),
    )
    if (reply === null) return undefined
    const [at, version, last, entries] = reply as [Buffer, Buffer, Buffer | null, Buffer[]]
    return {
      fence: { epoch: Number(at), version: Number(version) },
      snapshot: last === null ? undefined : incoming(last),
      journal: entries.map(incoming),
    }
  }

  async recall(room: string, owner: string, at_epoch: number, ttl_ms: number): Promise<boolean> {
    requireOwner(owner)
    requireTtl(ttl_ms)
    const { record, epoch } = this.#keys(room)
    const args = [String(at_epoch), owner, String(ttl_ms), String(ttl_ms + EPOCH_OUTLIVES_MS)]
    const reply = await this.#servers.run('recall', record, (redis) =>
      runScript(redis, 'recall', [record, epoch], args),
    )
    return reply === 1
  }

  commit(room: string, fence: Fence, entry: Uint8Array, ttl_ms: number): Promise<boolean> {
    return this.#fenced('commit', room, fence, ttl_ms, [outgoing(entry)])
  }

  snapshot(room: string, fence: Fence, snapshot: Uint8Array, ttl_ms: number): Promise<boolean> {
    return this.#fenced('snapshot', room, fence, ttl_ms, [outgoing(snapshot)])
  }

  release(room: string, fence: Fence, options: { forget: boolean; ttl_ms: number }): Promise<boolean> {
    return this.#fenced('release', room, fence, options.ttl_ms, [options.forget ? '1' : '0'])
  }

  refresh(room: string, fence: Fence, ttl_ms: number): Promise<boolean> {
    return this.#fenced('refresh', room, fence, ttl_ms, [])
  }

  async #fenced(
    operation: 'commit' | 'snapshot' | 'release' | 'refresh',
    room: string,
    fence: Fence,
    ttl_ms: number,
    payload: readonly (string | Buffer)[],
  ): Promise<boolean> {
    requireTtl(ttl_ms)
    const { record, epoch, snapshot, journal } = this.#keys(room)
    const lifetimes = [String(ttl_ms), String(ttl_ms + EPOCH_OUTLIVES_MS)]
    const args = [String(fence.epoch), String(fence.version), ...lifetimes, ...payload]
    const reply = await this.#servers.run(operation, record, (redis) =>
      runScript(redis, operation, [record, epoch, snapshot, journal], args),
    )
    return reply === 1
  }

  #keys(room: string) {
    const stem = `${this.#prefix}{room:${room}}`
    return {
      record: `${stem}:record`,
      epoch: `${stem}:epoch`,
      snapshot: `${stem}:snapshot`,
      journal: `${stem}:journal`,
    }
  }
}
