import { randomToken } from '../../ids.ts'
import type { Random } from '../../random.ts'
import type { ListedRoom, ListingChanges, Listings } from '../port.ts'
import { REMOVED_ROW_MS, requireLimit, requireRoomTtl } from '../rules.ts'
import { callScript, type Servers } from './servers.ts'

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
 * `Listings` in Redis. A list has four keys with one hash tag: `{list:…}` (hash: generation, number of changes), `{list:…}:rows` (hash: rows by room
 * id), `:order` (sorted set: rooms by the number of their last change) and `:expiry` (sorted set: rooms by the time at which their row
 * expires). A row is `<epoch> <version> <value>`, a removed one `<epoch> <version>`. Each operation is one script.
 *
 * A list gets a random generation when it is made. A cursor names it, so a reader notices that the store has lost the list.
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
