import { createHash } from 'node:crypto'
import {
  type Claim,
  type CountedRoom,
  type DueRoom,
  type DueTimes,
  duePart,
  ENDED_ROOM_MS,
  EPOCH_OUTLIVES_MS,
  type Fence,
  type Notices,
  type Opening,
  type Quarantine,
  type Release,
  type Reservation,
  type RoomOwner,
  type RoomQuota,
  type RoomRecords,
  requireLimit,
  requireOwner,
  requireRoomTtl,
  requireTtl,
  type StoredRoom,
} from '../port.ts'
import { runScript } from './clients.ts'
import { incoming, outgoing } from './connection.ts'
import { callScript, type Servers } from './servers.ts'

type InspectReply = [
  epoch: Buffer,
  version: Buffer,
  owner: Buffer,
  state_version?: Buffer | null,
  recalled?: number | null,
]

type ClaimReply = [
  at: Buffer,
  version: Buffer,
  snapshot: Buffer | null,
  journal: Buffer[],
  outcomes: Buffer | null,
  idleMs: Buffer | null,
]

/**
 * `RoomRecords` in Redis. A room has four keys with one hash tag: `{room:…}:record` (hash: epoch, version, owner), `:epoch` (string, see
 * `EPOCH_OUTLIVES_MS`), `:snapshot` (string) and `:journal` (list). The quarantine has three more: `:quarantine` (hash: epoch, owner,
 * reason, at), `:quarantine:snapshot` and `:quarantine:journal`. Outcomes of requests to ended rooms are in `:outcomes` (string). Each
 * operation is one script.
 *
 * A project's rooms are counted in `{rooms:<project>}`, in another slot, so a refresh or an end of a room needs another command there. A
 * refresh does not wait for it. An end is counted before it takes place, because otherwise it could uncount a room that was created again.
 * The lasting rooms of one principal are counted in the same slot, in `:of:<hash>`. The record of each room has that hash, so that every
 * owner counts it for the same account. The next refresh repairs a missed count, or the count expires.
 */
export class RedisRooms implements RoomRecords {
  readonly #servers: Pick<Servers, 'run' | 'away'>
  readonly #prefix: string

  constructor(servers: Pick<Servers, 'run' | 'away'>, prefix: string) {
    this.#servers = servers
    this.#prefix = prefix
  }

  async inspect(room: string): Promise<RoomOwner | undefined> {
    const { record, epoch } = this.#keys(room)
    const reply = await callScript(this.#servers, 'inspect', [record, epoch], [])
    return reply === null ? undefined : ownerIn(reply as InspectReply)
  }

  async reserve(room: string, principal: string, quota: RoomQuota, ttlMs: number): Promise<Reservation> {
    requireTtl(ttlMs)
    const { rooms, roomId } = this.#projectOf(room)
    const made = `${rooms}:made:${accountOf(principal)}`
    const limits = [quota.maxRooms, quota.perMinute, quota.maxLasting]
    const args = [roomId, String(ttlMs), ...limits.map(String)]
    const reply = await callScript(
      this.#servers,
      'reserve',
      [rooms, made, lastingOf(rooms, accountOf(principal))],
      args,
    )
    return String(reply) as Reservation
  }

  async claim(room: string, owner: string, expectedEpoch: number, ttlMs: number): Promise<Claim | undefined> {
    const [keys, args] = this.#claiming(room, owner, ttlMs)
    const reply = await callScript(this.#servers, 'claim', keys, [String(expectedEpoch), ...args])
    return reply === null ? undefined : claimIn(reply as ClaimReply)
  }

  async open(
    room: string,
    { owner, ttlMs, stateVersion, creator }: Opening,
    mayClaim: () => boolean,
  ): Promise<Claim | RoomOwner | undefined> {
    const [keys, args] = this.#claiming(room, owner, ttlMs)
    const account = creator === undefined ? '' : accountOf(creator)
    const latest = String(Math.min(stateVersion, Number.MAX_SAFE_INTEGER))
    const servers = this.#servers
    const reply = await servers.run('open', keys[0]!, (redis) => {
      // Decided when the command is sent, and for each repetition: a command that has waited for the connection may reach a server without
      // its data.
      const may = !servers.away && mayClaim() ? '1' : ''
      return runScript(redis, 'open', keys, [may, ...args, account, latest])
    })
    if (reply === null) return undefined
    const [first] = reply as [InspectReply] | ClaimReply
    return Array.isArray(first) ? ownerIn(first) : claimIn(reply as ClaimReply)
  }

  /** Keys and arguments of `make_owner` in owner.lua, except ARGV[1]. */
  #claiming(room: string, owner: string, ttlMs: number): [keys: string[], args: string[]] {
    requireOwner(owner)
    requireTtl(ttlMs)
    const { record, epoch, snapshot, journal, outcomes } = this.#keys(room)
    const lifetimes = [String(ttlMs), String(ttlMs + EPOCH_OUTLIVES_MS)]
    return [
      [record, epoch, snapshot, journal, outcomes],
      [owner, ...lifetimes],
    ]
  }

  async read(room: string): Promise<StoredRoom> {
    const { snapshot, journal, outcomes } = this.#keys(room)
    const reply = await callScript(this.#servers, 'read_room', [snapshot, journal, outcomes], [])
    const [last, entries, left] = reply as [Buffer | null, Buffer[], Buffer | null]
    return {
      snapshot: last === null ? undefined : incoming(last),
      journal: entries.map(incoming),
      outcomes: left === null ? undefined : incoming(left),
    }
  }

  async recall(room: string, owner: string, atEpoch: number, ttlMs: number): Promise<boolean> {
    requireOwner(owner)
    requireTtl(ttlMs)
    const { record, epoch } = this.#keys(room)
    const args = [String(atEpoch), owner, String(ttlMs), String(ttlMs + EPOCH_OUTLIVES_MS)]
    const reply = await callScript(this.#servers, 'recall', [record, epoch], args)
    return reply === 1
  }

  async commit(
    room: string,
    fence: Fence,
    entry: Uint8Array,
    ttlMs: number,
    notices: readonly Uint8Array[] = [],
  ): Promise<boolean> {
    return (await this.#fenced('commit', room, fence, ttlMs, [outgoing(entry)], notices)) !== 0
  }

  async snapshot(
    room: string,
    fence: Fence,
    snapshot: Uint8Array,
    ttlMs: number,
    stateVersion = 1,
    notices: readonly Uint8Array[] = [],
  ): Promise<boolean> {
    const version = stateVersion === 1 ? '' : String(stateVersion)
    return (await this.#fenced('snapshot', room, fence, ttlMs, [outgoing(snapshot), version], notices)) !== 0
  }

  async release(
    room: string,
    fence: Fence,
    { forget, ttlMs, lasting, notices = [], outcomes }: Release,
  ): Promise<boolean> {
    const ended = forget ? String(Math.min(ENDED_ROOM_MS, ttlMs ?? ENDED_ROOM_MS)) : ''
    if (outcomes) requireTtl(outcomes.ttlMs)
    if (forget) await this.#uncount(room)
    const left = outcomes ? [outgoing(outcomes.value), String(outcomes.ttlMs)] : ['', '']
    const payload = [ended, ...left]
    const account = await this.#fenced('release', room, fence, ttlMs, payload, notices)
    if (account === 0) return false
    if (forget) this.#uncountLasting(room, account)
    else if (ttlMs !== undefined) this.#count(room, ttlMs, account, lasting)
    return true
  }

  async refresh(room: string, fence: Fence, ttlMs: number, lasting?: boolean): Promise<boolean> {
    const account = await this.#fenced('refresh', room, fence, ttlMs, [])
    if (account === 0) return false
    this.#count(room, ttlMs, account, lasting)
    return true
  }

  async counted(
    projectId: string,
    { after, limit }: { readonly after?: CountedRoom; readonly limit: number },
  ): Promise<CountedRoom[]> {
    requireLimit(limit)
    const key = `${this.#prefix}{rooms:${projectId}}`
    const from = after ? scoreOf(after.until) : '-inf'
    const last = after && Buffer.from(after.roomId)
    const rooms: CountedRoom[] = []
    // Rooms with the score of `after` come first. Those up to its name were already returned.
    for (let offset = 0; rooms.length < limit; offset += limit) {
      const found = await this.#servers.run('counted', key, (redis) =>
        redis.zrangeBuffer(key, from, '+inf', 'BYSCORE', 'LIMIT', offset, limit, 'WITHSCORES'),
      )
      for (let at = 0; at < found.length; at += 2) {
        const name = found[at]!
        const until = Number(found[at + 1]!.toString().replace('inf', 'Infinity'))
        if (!last || until > after.until || Buffer.compare(name, last) > 0)
          rooms.push({ roomId: name.toString(), until })
      }
      if (found.length < 2 * limit) break
    }
    return rooms.slice(0, limit)
  }

  #count(room: string, ttlMs: number, account: string, lasting = false): void {
    const { rooms, roomId } = this.#projectOf(room)
    const keys = account === '' ? [rooms] : [rooms, lastingOf(rooms, account)]
    const args = [roomId, lifetime(ttlMs), lasting ? '1' : '']
    callScript(this.#servers, 'count', keys, args).catch(() => undefined) // The next refresh counts it again.
  }

  /** Runs before the release. If that is fenced, the next refresh counts the room again. Never rejects. */
  async #uncount(room: string): Promise<void> {
    const { rooms, roomId } = this.#projectOf(room)
    const removing = this.#servers.run('uncount', rooms, (redis) => redis.zrem(rooms, roomId))
    await removing.catch(() => undefined) // The count expires.
  }

  /** The room has ended. */
  #uncountLasting(room: string, account: string): void {
    if (account === '') return
    const { rooms, roomId } = this.#projectOf(room)
    const key = lastingOf(rooms, account)
    const removing = this.#servers.run('uncount', key, (redis) => redis.zrem(key, roomId))
    removing.catch(() => undefined) // The count expires.
  }

  /** Returns the key that counts the rooms of the project of `room`, and the room's name in it. */
  #projectOf(room: string): { readonly rooms: string; readonly roomId: string } {
    const slash = room.indexOf('/')
    return { rooms: `${this.#prefix}{rooms:${room.slice(0, slash)}}`, roomId: room.slice(slash + 1) }
  }

  async quarantine(room: string, fence: Fence, { reason, ttlMs }: Quarantine): Promise<boolean> {
    requireTtl(ttlMs)
    const { record, epoch, snapshot, journal, aside } = this.#keys(room)
    const lifetimes = [String(EPOCH_OUTLIVES_MS), String(ttlMs)]
    const args = [String(fence.epoch), String(fence.version), ...lifetimes, reason]
    await this.#uncount(room)
    const reply = await callScript(
      this.#servers,
      'quarantine',
      [record, epoch, snapshot, journal, ...aside],
      args,
    )
    if (reply === 0) return false
    this.#uncountLasting(room, String(reply))
    return true
  }

  /**
   * Resolves with 0 if fenced. Otherwise a release or a refresh resolves with the account of the room's creator, which is empty if unknown.
   */
  async #fenced(
    operation: 'commit' | 'snapshot' | 'release' | 'refresh',
    room: string,
    fence: Fence,
    ttlMs: number | undefined,
    payload: readonly (string | Buffer)[],
    notices: readonly Uint8Array[] = [],
  ): Promise<string | 0> {
    if (ttlMs !== undefined) requireRoomTtl(ttlMs)
    const { record, epoch, snapshot, journal, outcomes } = this.#keys(room)
    const keys = [record, epoch, snapshot, journal]
    if (operation === 'release') keys.push(noticesKey(this.#prefix, room), outcomes)
    else if (notices.length > 0) keys.push(noticesKey(this.#prefix, room))
    const lifetimes =
      ttlMs === undefined ? ['0', '0'] : [lifetime(ttlMs), lifetime(ttlMs + EPOCH_OUTLIVES_MS)]
    const args = [
      String(fence.epoch),
      String(fence.version),
      ...lifetimes,
      ...payload,
      ...notices.map(outgoing),
    ]
    const reply = await callScript(this.#servers, operation, keys, args)
    return reply === 0 ? 0 : String(reply)
  }

  #keys(room: string) {
    const stem = `${this.#prefix}{room:${room}}`
    return {
      record: `${stem}:record`,
      epoch: `${stem}:epoch`,
      snapshot: `${stem}:snapshot`,
      journal: `${stem}:journal`,
      aside: [`${stem}:quarantine`, `${stem}:quarantine:snapshot`, `${stem}:quarantine:journal`],
      outcomes: `${stem}:outcomes`,
    }
  }
}

function ownerIn([at, version, owner, stateVersion, recalled]: InspectReply): RoomOwner {
  return {
    epoch: Number(at),
    version: Number(version),
    owner: owner.toString() || null,
    ...(stateVersion?.length && { stateVersion: Number(stateVersion) }),
    ...(recalled && { recalled: true }),
  }
}

function claimIn([at, version, last, entries, left, idle]: ClaimReply): Claim {
  return {
    fence: { epoch: Number(at), version: Number(version) },
    snapshot: last === null ? undefined : incoming(last),
    journal: entries.map(incoming),
    ...(left !== null && { outcomes: incoming(left) }),
    ...(idle !== null && { idleMs: Number(idle) }),
  }
}

/** Returns the account of a principal. It is a hash, so that its length is bounded and no key contains a player's id. */
const accountOf = (principal: string): string =>
  createHash('sha256').update(principal).digest('base64url').slice(0, 22)

/** Returns the key that counts the lasting rooms of an account, in the slot of its project. */
const lastingOf = (rooms: string, account: string): string => `${rooms}:of:${account}`

const scoreOf = (until: number): string => (until === Number.POSITIVE_INFINITY ? '+inf' : String(until))

/** Returns the lifetime as an argument of scripts: an integer of milliseconds. Empty: no expiry. */
const lifetime = (ttlMs: number): string => (ttlMs === Number.POSITIVE_INFINITY ? '' : String(ttlMs))

/** Returns the key of a room's notices, in the slot of its record: a sorted set in the order of the turns. */
const noticesKey = (prefix: string, room: string): string => `${prefix}{room:${room}}:notices`

/**
 * `DueTimes` in Redis. Each part has a sorted set of rooms by their time, `<stem><part>}:due`, and a hash with the fences under which the
 * times were set, `:fences`. Each operation is one script.
 */
export class RedisDueTimes implements DueTimes {
  protected readonly servers: Pick<Servers, 'run'>
  readonly #stem: string

  /** `stem`: the keys up to the part, with an open hash tag, such as `{room_wakeups:`. */
  constructor(servers: Pick<Servers, 'run'>, stem: string) {
    this.servers = servers
    this.#stem = stem
  }

  async set(room: string, { epoch, version }: Fence, at: number | undefined): Promise<void> {
    const args = [room, String(epoch), String(version), at === undefined ? '' : String(at)]
    await callScript(this.servers, 'set_due', this.keys(duePart(room)), args)
  }

  async take(part: number, { limit, againMs }: { limit: number; againMs: number }): Promise<DueRoom[]> {
    const reply = await callScript(this.servers, 'take_due', this.keys(part), [
      String(limit),
      String(againMs),
    ])
    return (reply as [room: Buffer, epoch: Buffer, version: Buffer][]).map(([room, epoch, version]) => ({
      room: room.toString(),
      fence: { epoch: Number(epoch), version: Number(version) },
    }))
  }

  protected keys(part: number): [due: string, fences: string] {
    const stem = `${this.#stem}${part}}`
    return [`${stem}:due`, `${stem}:fences`]
  }
}

/** `Notices` in Redis. The keys of the index begin with `{room_notices:`. */
export class RedisNotices extends RedisDueTimes implements Notices {
  readonly #prefix: string

  constructor(servers: Pick<Servers, 'run'>, prefix: string) {
    super(servers, `${prefix}{room_notices:`)
    this.#prefix = prefix
  }

  async oldest(room: string, limit: number): Promise<Uint8Array[]> {
    requireLimit(limit)
    const key = noticesKey(this.#prefix, room)
    const notices = await this.servers.run('oldest_notices', key, (redis) =>
      redis.zrangeBuffer(key, '0', String(limit - 1)),
    )
    return notices.map(incoming)
  }

  count(room: string): Promise<number> {
    const key = noticesKey(this.#prefix, room)
    return this.servers.run('count_notices', key, (redis) => redis.zcard(key))
  }

  async remove(room: string, notice: Uint8Array): Promise<void> {
    const key = noticesKey(this.#prefix, room)
    await this.servers.run('remove_notice', key, (redis) => redis.zrem(key, outgoing(notice)))
  }

  rooms(part: number, limit: number, skip = 0): Promise<string[]> {
    requireLimit(limit)
    const [due] = this.keys(part)
    return this.servers.run('rooms_with_notices', due, (redis) =>
      redis.zrange(due, String(skip), String(skip + limit - 1)),
    )
  }

  async drop(room: string): Promise<void> {
    const key = noticesKey(this.#prefix, room)
    await this.servers.run('drop_notices', key, (redis) => redis.del(key))
    // If a node finds the room in the index before that, the node removes it.
    const [due, fences] = this.keys(duePart(room))
    await this.servers.run('drop_noticed', fences, (redis) => redis.hdel(fences, room))
    await this.servers.run('drop_noticed', due, (redis) => redis.zrem(due, room))
  }
}
