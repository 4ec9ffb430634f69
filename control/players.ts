import { timestamp } from '../shared/clock.ts'
import type { JsonObject } from '../shared/json.ts'
import { publishKeyNews } from '../shared/key-news.ts'
import { type Ban, decodePlayer, type PlayerRecord, playerKey } from '../shared/players.ts'
import type { Write } from '../shared/store/port.ts'
import { REVOCATION_KEPT_MS } from '../shared/tokens.ts'
import { encode, type PageRequest, type Plan, type RecordsEnvironment, removeFromIndex } from './records.ts'

/** A ban in answers of the API. */
interface BanView {
  readonly until: string | null
  readonly room_types: readonly string[] | null
  readonly reason: string | null
}

/** The record of a player in answers of the API. */
interface PlayerView {
  readonly project_id: string
  readonly sub: string
  readonly revoked_at: string | null
  readonly ban: BanView | null
  readonly data: JsonObject | null
}

/** Index of the bans of a project, latest end first. Ended bans come last. */
const bansOf = (projectId: string): string => `{control}:bans:${projectId}`
/** Index of a project's players with data. */
const dataOf = (projectId: string): string => `{control}:player-data:${projectId}`

/** Value in the index for a ban without an end. */
const NEVER = 999_999_999_999_999
/** Number of ended bans that each new ban removes from the index. */
const PURGED = 2

/** Returns the prefix of index members for bans that end at this time. */
const endingAt = (ms: number): string => String(ms).padStart(15, '0')
const banMember = (sub: string, { until }: Ban): string => `${endingAt(until ?? NEVER)}:${sub}`
const dataMember = (sub: string): string => `:${sub}`
const subOf = (member: string): string => member.slice(member.indexOf(':') + 1)

/** Records of players: revocations, bans and data. Control writes them, and every node reads them. */
export class Players {
  readonly #env: Pick<RecordsEnvironment, 'records' | 'bus' | 'clock'>

  constructor(env: Pick<RecordsEnvironment, 'records' | 'bus' | 'clock'>) {
    this.#env = env
  }

  /** Plans a write that replaces a player's record by the result of `change` at the time `now`. */
  async draft(
    projectId: string,
    sub: string,
    change: (record: PlayerRecord, now: number) => PlayerRecord,
  ): Promise<Plan<PlayerView>> {
    const now = this.#env.clock.now()
    const key = playerKey(projectId, sub)
    const bans = bansOf(projectId)
    const data = dataOf(projectId)
    const [[stored], ended] = await Promise.all([
      this.#env.records.read([key]),
      this.#env.records.page(bans, { before: endingAt(now), limit: PURGED }),
    ])
    const before = decodePlayer(stored)
    const after = change(current(before, now), now)
    const ifVersion = stored?.version ?? 0
    const writes: Write[] = ended.map((member) => ({ index: bans, drop: member }))
    const endsAt = endOf(after)
    if (endsAt === undefined) {
      if (stored) writes.push({ remove: key, ifVersion })
    } else {
      const value = encode(after)
      const ttl = Number.isFinite(endsAt) ? { ttlMs: Math.max(1, Math.ceil(endsAt - now)) } : {}
      writes.push({ put: key, value, ifVersion, ...ttl })
    }
    if (before.ban) writes.push({ index: bans, drop: banMember(sub, before.ban) })
    if (after.ban) writes.push({ index: bans, add: banMember(sub, after.ban) })
    if (before.data) writes.push({ index: data, drop: dataMember(sub) })
    if (after.data) writes.push({ index: data, add: dataMember(sub) })
    return { writes, answer: viewOf(projectId, sub, after) }
  }

  /** Notifies every node that the record of a player has changed. */
  async announce(projectId: string, sub: string): Promise<void> {
    await publishKeyNews(this.#env.bus, { project_id: projectId, sub })
  }

  /** Returns one page of a project's bans, latest end first. `next` continues the list. Undefined: there are no more. */
  async bans(
    projectId: string,
    { limit, before }: PageRequest,
  ): Promise<{
    readonly bans: readonly ({ readonly sub: string } & BanView)[]
    readonly next: string | undefined
  }> {
    const request = { limit: limit + 1, ...(before !== undefined && { before }) }
    const members = await this.#env.records.page(bansOf(projectId), request)
    const now = this.#env.clock.now()
    const listed = members.filter((member) => member > endingAt(now))
    const subs = listed.slice(0, limit).map(subOf)
    const found = await this.#env.records.read(subs.map((sub) => playerKey(projectId, sub)))
    const bans = subs.flatMap((sub, at) => {
      const { ban } = current(decodePlayer(found[at]), now)
      return ban ? [{ sub, ...banView(ban) }] : []
    })
    return { bans, next: listed.length > limit ? listed[limit - 1] : undefined }
  }

  /** Removes the records of a project's bans and data. Records with only a revocation expire within 48 hours. */
  async removeAll(projectId: string): Promise<void> {
    for (const index of [bansOf(projectId), dataOf(projectId)])
      await removeFromIndex(
        this.#env.records,
        index,
        () => true,
        (sub) => playerKey(projectId, sub),
      )
  }
}

/** Returns a record without its ended parts. */
function current({ revoked_at: revokedAt, ban, ...rest }: PlayerRecord, now: number): PlayerRecord {
  return {
    ...rest,
    ...(revokedAt !== undefined && revokedAt + REVOCATION_KEPT_MS > now && { revoked_at: revokedAt }),
    ...(ban && (ban.until ?? NEVER) > now && { ban }),
  }
}

/** Returns the latest end of a record's parts, in milliseconds since 1970 or Infinity. Undefined: the record is empty. */
function endOf({ revoked_at: revokedAt, ban, data }: PlayerRecord): number | undefined {
  const ends = [
    ...(revokedAt === undefined ? [] : [revokedAt + REVOCATION_KEPT_MS]),
    ...(ban ? [ban.until ?? Number.POSITIVE_INFINITY] : []),
    ...(data ? [Number.POSITIVE_INFINITY] : []),
  ]
  return ends.length === 0 ? undefined : Math.max(...ends)
}

const banView = ({ until, room_types, reason }: Ban): BanView => ({
  until: until === null ? null : timestamp(until),
  room_types,
  reason,
})

const viewOf = (projectId: string, sub: string, { revoked_at: at, ban, data }: PlayerRecord): PlayerView => ({
  project_id: projectId,
  sub,
  revoked_at: at === undefined ? null : timestamp(at),
  ban: ban ? banView(ban) : null,
  data: data ?? null,
})
