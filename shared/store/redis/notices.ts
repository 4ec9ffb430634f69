import type { Fence, Notices, TakenNotices } from '../port.ts'
import { noticePart, requireLimit, requireTtl } from '../rules.ts'
import { incoming, outgoing } from './connection.ts'
import { callScript, type Servers } from './servers.ts'

/** The key of a room's notices, in the slot of its record: a sorted set in the order of the turns. */
export const noticesKey = (prefix: string, room: string): string => `${prefix}{room:${room}}:notices`

/**
 * `Notices` in Redis: for each part of the index a sorted set of rooms by the time of their next delivery, `{room_notices:<part>}:due`, and a
 * hash `:rooms` with what `TakenNotices` has. Each change of the index is one script.
 */
export class RedisNotices implements Notices {
  readonly #servers: Pick<Servers, 'run'>
  readonly #prefix: string

  constructor(servers: Pick<Servers, 'run'>, prefix: string) {
    this.#servers = servers
    this.#prefix = prefix
  }

  async announce(room: string, { epoch, version }: Fence): Promise<void> {
    const args = [room, String(epoch), String(version)]
    await callScript(this.#servers, 'announce_notices', this.#keys(noticePart(room)), args)
  }

  async take(part: number, { limit, leaseMs }: { limit: number; leaseMs: number }): Promise<TakenNotices[]> {
    requireLimit(limit)
    requireTtl(leaseMs)
    const args = [String(limit), String(leaseMs)]
    const reply = await callScript(this.#servers, 'take_notices', this.#keys(part), args)
    return (reply as Buffer[][]).map(([room, ...numbers]) => {
      const [announced, epoch, version, failures, until] = numbers.map(Number) as [
        announced: number,
        epoch: number,
        version: number,
        failures: number,
        until: number,
      ]
      return { room: room!.toString(), fence: { epoch, version }, announced, failures, until }
    })
  }

  async putOff(taken: TakenNotices, delayMs: number, failures: number): Promise<TakenNotices | undefined> {
    const until = await this.#settle(taken, String(delayMs), failures)
    return until === 0 ? undefined : { ...taken, failures, until }
  }

  async done(taken: TakenNotices): Promise<boolean> {
    return (await this.#settle(taken, '', taken.announced)) !== 0
  }

  async oldest(room: string): Promise<Uint8Array | undefined> {
    const key = noticesKey(this.#prefix, room)
    const [notice] = await this.#servers.run('oldest_notice', key, (redis) =>
      redis.zrangeBuffer(key, '0', '0'),
    )
    return notice && incoming(notice)
  }

  count(room: string): Promise<number> {
    const key = noticesKey(this.#prefix, room)
    return this.#servers.run('count_notices', key, (redis) => redis.zcard(key))
  }

  async remove(room: string, notice: Uint8Array): Promise<void> {
    const key = noticesKey(this.#prefix, room)
    await this.#servers.run('remove_notice', key, (redis) => redis.zrem(key, outgoing(notice)))
  }

  rooms(part: number, limit: number, skip = 0): Promise<string[]> {
    requireLimit(limit)
    const [due] = this.#keys(part)
    return this.#servers.run('rooms_with_notices', due, (redis) =>
      redis.zrange(due, String(skip), String(skip + limit - 1)),
    )
  }

  async drop(room: string): Promise<void> {
    const key = noticesKey(this.#prefix, room)
    await this.#servers.run('drop_notices', key, (redis) => redis.del(key))
    // A node that finds the room in the index until then removes it.
    const [due, rooms] = this.#keys(noticePart(room))
    await this.#servers.run('drop_noticed', rooms, (redis) => redis.hdel(rooms, room))
    await this.#servers.run('drop_noticed', due, (redis) => redis.zrem(due, room))
  }

  async #settle({ room, until }: TakenNotices, delayMs: string, number: number): Promise<number> {
    const keys = this.#keys(noticePart(room))
    const args = [room, String(until), delayMs, String(number)]
    return Number(await callScript(this.#servers, 'settle_notices', keys, args))
  }

  #keys(part: number): [due: string, rooms: string] {
    const stem = `${this.#prefix}{room_notices:${part}}`
    return [`${stem}:due`, `${stem}:rooms`]
  }
}
