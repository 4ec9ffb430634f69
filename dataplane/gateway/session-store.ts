import { hash } from 'node:crypto'
import { newId } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'
import { hashTag, type Records, type Write } from '../../shared/store/port.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import { type Farewell, roomAddress } from '../traffic.ts'
import type { RateLevel } from './budget.ts'
import type { EndedSeat } from './ended-seats.ts'
import type { ResumeRight } from './resume-token.ts'

/** The place of a session in a quota. */
export interface QuotaPlace {
  /** Name of its set; see `quotaSets`. */
  readonly set: string
  /** Milliseconds since 1970. */
  readonly came_at: number
}

/** Move of a session to the node of its rooms. It is part of the session's record. */
export interface Rerouting {
  /** Time of the latest `move` message, in milliseconds since 1970. */
  readonly at: number
  /** Number of consecutive moves that ended at another node. */
  readonly failures: number
  /** Target node of the pending move. */
  readonly to?: string
}

/** A seat of a session. */
interface SeatRecord {
  readonly room_type: string
  readonly key: string
  readonly member_id: string
  /** Request id of its join, until the client is known to have the answer. */
  readonly join_request?: number
}

/** The stored form of a session, from which any node can continue it. */
export interface SessionRecord {
  readonly session_id: string
  readonly claims: TokenClaims
  /** The node that has the session's connection, or had its latest one. */
  readonly node_id: string
  readonly right: ResumeRight
  /** All subscriptions that the session may have. Some seats may have ended; their rooms report it when the session attaches. */
  readonly seats: readonly SeatRecord[]
  /** Seats that rooms have ended. The client may not know. */
  readonly ended: readonly EndedSeat[]
  /** Start of the current or latest connection, in milliseconds since 1970. */
  readonly connected_at: number
  /** True if the connection is lost. */
  readonly detached: boolean
  /** Remaining rate. For a connected session almost none, because its client may be using it. */
  readonly pace?: RateLevel
  /** Absent: sessions are not limited. */
  readonly place?: QuotaPlace
  /** The span of the latest handshake (W3C `traceparent`), if it was traced. */
  readonly trace?: string
  /** Absent: the session was never asked to move. */
  readonly rerouting?: Rerouting
}

/** First byte of a record: version of its format. */
const FORMAT = 4
const FORMAT_BYTE = String.fromCharCode(FORMAT)

/** Stored form of a record: an array instead of an object, because there is one record per client, and it is written often. */
type Positional = [
  sessionId: string,
  claims: TokenClaims,
  nodeId: string,
  right: [token: string, used: string | null, turn: number, confirmed: 0 | 1],
  connectedAt: number,
  detached: 0 | 1,
  pace: [rate: number, patience: number, at: number] | 0,
  place: [set: string, cameAt: number] | 0,
  trace: string | 0,
  rerouting: [at: number, failures: number, to: string | 0] | 0,
  ...seats: [roomType: string, key: string, seat: string | Farewell, joinRequest?: number][],
]

/** Encodes a record: the byte of its format, then JSON. */
export function encodeSession({ right, pace, place, rerouting, ...record }: SessionRecord): Uint8Array {
  const positional: Positional = [
    record.session_id,
    record.claims,
    record.node_id,
    [right.token, right.used, right.turn, right.confirmed ? 1 : 0],
    record.connected_at,
    record.detached ? 1 : 0,
    pace ? [pace.rate, pace.patience, pace.at] : 0,
    place ? [place.set, place.came_at] : 0,
    record.trace ?? 0,
    rerouting ? [rerouting.at, rerouting.failures, rerouting.to ?? 0] : 0,
  ]
  for (const { room_type: roomType, key, member_id: memberId, join_request: joinRequest } of record.seats)
    positional.push(
      joinRequest === undefined ? [roomType, key, memberId] : [roomType, key, memberId, joinRequest],
    )
  for (const { room, farewell } of record.ended) positional.push([room.roomType, room.key, farewell])
  return Buffer.from(FORMAT_BYTE + JSON.stringify(positional))
}

/** Decodes a record. Undefined: the bytes are damaged, or have the format of another version of roomful. */
export function decodeSession(bytes: Uint8Array): SessionRecord | undefined {
  if (bytes[0] !== FORMAT) return undefined
  try {
    const [sessionId, claims, nodeId, right, connectedAt, detached, pace, place, trace, rerouting, ...seats] =
      JSON.parse(new TextDecoder().decode(bytes.subarray(1))) as Positional
    const held: SeatRecord[] = []
    const ended: EndedSeat[] = []
    for (const [roomType, key, seat, joinRequest] of seats)
      if (typeof seat === 'string')
        held.push({
          room_type: roomType,
          key,
          member_id: seat,
          ...(joinRequest !== undefined && { join_request: joinRequest }),
        })
      else ended.push({ room: roomAddress(claims.project_id, roomType, key), farewell: seat })
    return {
      session_id: sessionId,
      claims,
      node_id: nodeId,
      right: { token: right[0], used: right[1], turn: right[2], confirmed: right[3] === 1 },
      seats: held,
      ended,
      connected_at: connectedAt,
      detached: detached === 1,
      ...(pace && { pace: { rate: pace[0], patience: pace[1], at: pace[2] } }),
      ...(place && { place: { set: place[0], came_at: place[1] } }),
      ...(trace && { trace }),
      ...(rerouting && { rerouting: reroutingOf(rerouting) }),
    }
  } catch {
    return undefined
  }
}

const reroutingOf = ([at, failures, to]: readonly [number, number, string | 0]): Rerouting => ({
  at,
  failures,
  ...(to && { to }),
})

/** A record in the store. */
export interface StoredSession {
  readonly record: SessionRecord
  /** Version that the next write must name. */
  readonly version: number
}

/** Life of a set after its last write. No token is valid for longer. */
const SET_TTL_MS = 86_400_000
/** Number of places that are examined when a quota is used up. */
const LOOKED_AT = 32
/** Larger than every timestamp, with the same number of digits. */
const MAX_TIME = 9_999_999_999_999

/**
 * The records of all sessions of the cluster. Each write names the version that it replaces, so that only one of several nodes gets a session.
 * Methods reject with `StoreUnavailable`. It is then unknown whether the write took place.
 */
export class SessionStore {
  readonly #records: Records

  constructor(records: Records) {
    this.#records = records
  }

  /** Undefined: the session does not exist (any more). */
  async load(sessionId: string): Promise<StoredSession | undefined> {
    const [stored] = await this.loadAll([sessionId])
    return stored
  }

  /** `load` for several sessions, in the given order. */
  async loadAll(sessionIds: readonly string[]): Promise<(StoredSession | undefined)[]> {
    const found = await this.#records.read(sessionIds.map(sessionKey))
    return found.map((stored) => {
      const record = stored && decodeSession(stored.value)
      return record && { record, version: stored.version }
    })
  }

  /** Replaces the record of `version` (0: creates it); the new version is one higher. Returns false if the stored version is another. */
  save(record: SessionRecord, version: number, ttlMs: number): Promise<boolean> {
    const put = sessionKey(record.session_id)
    return this.#records.write([{ put, value: encodeSession(record), ifVersion: version, ttlMs }])
  }

  /** Writes the first record of a session, and takes its place. Returns false if the set already has `max` places, or the record exists. */
  create(record: SessionRecord, max: number, ttlMs: number): Promise<boolean> {
    const { session_id: sessionId, place } = record
    const put = { put: sessionKey(sessionId), value: encodeSession(record), ifVersion: 0, ttlMs }
    if (!place) return this.#records.write([put])
    const add = memberOf(sessionId, place)
    return this.#records.write([put, { index: place.set, add, ifFewerThan: max, ttlMs: SET_TTL_MS }])
  }

  /** Removes the record of `version`, and its place. Returns false if the stored version is another, or there is no record. */
  remove(sessionId: string, version: number, place: QuotaPlace | undefined): Promise<boolean> {
    const writes: Write[] = [{ remove: sessionKey(sessionId), ifVersion: version }]
    if (place) writes.push({ index: place.set, drop: memberOf(sessionId, place) })
    return this.#records.write(writes)
  }

  async leave(sessionId: string, place: QuotaPlace): Promise<void> {
    await this.#records.write([{ index: place.set, drop: memberOf(sessionId, place) }])
  }

  /** The oldest places in these sets, oldest first. */
  async oldest(
    sets: readonly QuotaSet[],
  ): Promise<{ readonly session_id: string; readonly place: QuotaPlace }[]> {
    const limit = Math.ceil(LOOKED_AT / sets.length)
    const pages = await Promise.all(
      sets.map(async ({ set }) =>
        (await this.#records.page(set, { limit })).map((member) => {
          const [left = '', sessionId = ''] = member.split('/')
          return { session_id: sessionId, place: { set, came_at: MAX_TIME - Number(left) } }
        }),
      ),
    )
    return pages.flat().sort((one, other) => one.place.came_at - other.place.came_at)
  }
}

/** A set is read in descending order, so older places have larger names. */
const memberOf = (sessionId: string, { came_at: cameAt }: QuotaPlace): string =>
  `${MAX_TIME - Math.floor(cameAt)}/${sessionId}`

/** Number of characters of a session id that determine its slot in the store. Its place is in the same slot, so that one write does both. */
const SLOT_LENGTH = 4

/** Number of sessions for which one set is enough, and the maximum number of sets. */
const SESSIONS_PER_SET = 64
const MAX_SETS = 16

/** Part of the places of a quota. */
export interface QuotaSet {
  /** Its name in the store. */
  readonly set: string
  /** Maximum number of places in this set. */
  readonly max: number
}

/**
 * Returns the sets of the quota of `who`, with `max` places in total (1 or more). A session is in the slot of its set. A large quota has several
 * sets, so that they spread over the servers of a Redis Cluster.
 */
export function quotaSets(who: string, max: number): readonly QuotaSet[] {
  const name = hash('sha256', who, 'base64url')
  const count = Math.min(MAX_SETS, Math.ceil(max / SESSIONS_PER_SET))
  return Array.from({ length: count }, (_, i) => ({
    set: `quota:{${name.slice(2 * i, 2 * i + SLOT_LENGTH)}}${name}`,
    max: Math.floor((max + i) / count),
  }))
}

/** Returns the id of a new session. `set`: the set with its place. */
export const newSessionId = (random: Random, set: string | undefined): string =>
  newId('ses', random) + (set === undefined ? '' : hashTag(set))

/** Returns the store key of a session's record. */
export const sessionKey = (sessionId: string): string =>
  `session:{${sessionId.slice(-SLOT_LENGTH)}}${sessionId}`
