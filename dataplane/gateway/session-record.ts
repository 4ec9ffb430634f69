import { hash, timingSafeEqual } from 'node:crypto'
import { newId, randomToken } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'
import { hashTag, type Records, type Write } from '../../shared/store/port.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import { type Farewell, type RoomAddress, roomAddress } from '../traffic.ts'
import type { RateLevel } from './rate-limits.ts'

/** The place of a session among those that count together. */
export interface QuotaPlace {
  /** See `quotaSets`. */
  readonly set: string
  /** Milliseconds since 1970. */
  readonly came_at: number
}

/** What is known of a session's way to the node of its rooms, wherever the session is. */
export interface Rerouting {
  /** When it was told last: milliseconds since 1970. */
  readonly at: number
  /** How often in a row it did not get there. */
  readonly failures: number
  /** The node it was sent to, while it may be on its way. */
  readonly to?: string
}

/** A seat of a session. */
export interface SeatRecord {
  readonly room_type: string
  readonly key: string
  readonly member_id: string
  /** The request id of its join, until the client is known to have the answer. */
  readonly join_request?: number
}

/** A seat that its room has ended. */
export interface EndedSeat {
  readonly room: RoomAddress
  readonly farewell: Farewell
}

/** What any node needs to go on with a session. */
export interface SessionRecord {
  readonly session_id: string
  readonly claims: TokenClaims
  /** The node that holds the session's socket, or held it last. */
  readonly node_id: string
  readonly right: ResumeRight
  /** Every subscription the session may have. Some may be gone: their rooms say so. */
  readonly seats: readonly SeatRecord[]
  /** Seats that rooms have ended. The client may not know. */
  readonly ended: readonly EndedSeat[]
  /** When the connection, or the last one, came: milliseconds since 1970. */
  readonly connected_at: number
  /** Whether the socket is lost. */
  readonly detached: boolean
  /** What the session may still send. While it is connected that is its client's, and next to nothing is left for another node. */
  readonly pace?: RateLevel
  /** Absent where sessions have no bound. */
  readonly place?: QuotaPlace
  /** The span of its last handshake (W3C `traceparent`), where that was traced. */
  readonly trace?: string
  /** Absent where it was never told to go to another node. */
  readonly rerouting?: Rerouting
}

/** The first byte: what the rest is written as. */
const FORMAT = 3
const FORMAT_BYTE = String.fromCharCode(FORMAT)

/** A record as it is written: by position, since there is one for every client, and it is written often. */
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
  ...seats: [roomType: string, key: string, seat: string | PositionalEnd, joinRequest?: number][],
]

/** How a room has ended a seat. */
type PositionalEnd = [epoch: number, seq: number, reason: Farewell['reason'], message: string | 0]

/** A record as bytes: the number of its format, then JSON. */
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
  for (const { room, farewell } of record.ended) {
    const { epoch, seq, reason, message = 0 } = farewell
    positional.push([room.roomType, room.key, [epoch, seq, reason, message]])
  }
  return Buffer.from(FORMAT_BYTE + JSON.stringify(positional))
}

/** The record in these bytes; undefined where they are damaged, or of another format: a version of roomful that this one cannot go on from. */
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
      else {
        const [epoch, seq, reason, message] = seat
        const farewell = { epoch, seq, reason, ...(message && { message }) }
        ended.push({ room: roomAddress(claims.project_id, roomType, key), farewell })
      }
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

/** A record as the store has it. */
export interface StoredSession {
  readonly record: SessionRecord
  /** What a write over it has to name. */
  readonly version: number
}

/** How long a set of places lasts when no one comes; no token is good for longer. */
const SET_TTL_MS = 86_400_000
/** How many places are looked at when there is none for a newcomer. */
const LOOKED_AT = 32
/** Later than every time there will be, with as many digits. */
const MAX_TIME = 9_999_999_999_999

/**
 * The records of all sessions of the cluster. Every write names the version it replaces, so that of several nodes which want the same
 * session one gets it. Methods reject with `StoreUnavailable`; whether a write took place is unknown then.
 */
export class SessionStore {
  readonly #records: Records

  constructor(records: Records) {
    this.#records = records
  }

  /** Undefined: there is no such session (any more). */
  async load(sessionId: string): Promise<StoredSession | undefined> {
    const [stored] = await this.loadAll([sessionId])
    return stored
  }

  /** As `load`, in the order asked. */
  async loadAll(sessionIds: readonly string[]): Promise<(StoredSession | undefined)[]> {
    const found = await this.#records.read(sessionIds.map(sessionKey))
    return found.map((stored) => {
      const record = stored && decodeSession(stored.value)
      return record && { record, version: stored.version }
    })
  }

  /** Writes over `version` (0: only when there is no record); the record then has the next one. False: another version stands. */
  save(record: SessionRecord, version: number, ttlMs: number): Promise<boolean> {
    const put = sessionKey(record.session_id)
    return this.#records.write([{ put, value: encodeSession(record), ifVersion: version, ttlMs }])
  }

  /** Writes the first record of a session, which takes its place with it. False: there are `max` in the set already, or there is a record. */
  create(record: SessionRecord, max: number, ttlMs: number): Promise<boolean> {
    const { session_id: sessionId, place } = record
    const put = { put: sessionKey(sessionId), value: encodeSession(record), ifVersion: 0, ttlMs }
    if (!place) return this.#records.write([put])
    const add = memberOf(sessionId, place)
    return this.#records.write([put, { index: place.set, add, ifFewerThan: max, ttlMs: SET_TTL_MS }])
  }

  /** Removes the record of `version`, and its place with it. False: another version stands, or none. */
  remove(sessionId: string, version: number, place: QuotaPlace | undefined): Promise<boolean> {
    const writes: Write[] = [{ remove: sessionKey(sessionId), ifVersion: version }]
    if (place) writes.push({ index: place.set, drop: memberOf(sessionId, place) })
    return this.#records.write(writes)
  }

  async leave(sessionId: string, place: QuotaPlace): Promise<void> {
    await this.#records.write([{ index: place.set, drop: memberOf(sessionId, place) }])
  }

  /** Those that have been in each of these sets for longest, the oldest first. */
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

/** A set is read from its largest member on, so the oldest has the largest. */
const memberOf = (sessionId: string, { came_at: cameAt }: QuotaPlace): string =>
  `${MAX_TIME - Math.floor(cameAt)}/${sessionId}`

/** How many characters of a session's id say in which slot its record lies: where the set is that has its place, so that one write does both. */
const SLOT_LENGTH = 4

/** For so many sessions one set is enough; there are this many sets at most. */
const SESSIONS_PER_SET = 64
const MAX_SETS = 16

/** Some of the places of sessions that count together. */
export interface QuotaSet {
  /** Its name in the store. */
  readonly set: string
  /** How many sessions may have their places there. */
  readonly max: number
}

/**
 * The sets of the sessions that count together for `who`, of which there may be `max` (1 or more). A session lies in the slot of its set;
 * where many count together they have several, so that no one server of a Redis Cluster holds them all.
 */
export function quotaSets(who: string, max: number): readonly QuotaSet[] {
  const name = hash('sha256', who, 'base64url')
  const count = Math.min(MAX_SETS, Math.ceil(max / SESSIONS_PER_SET))
  return Array.from({ length: count }, (_, i) => ({
    set: `quota:{${name.slice(2 * i, 2 * i + SLOT_LENGTH)}}${name}`,
    max: Math.floor((max + i) / count),
  }))
}

/** A new session's id; `set`: where it is to have its place. */
export const newSessionId = (random: Random, set: string | undefined): string =>
  newId('ses', random) + (set === undefined ? '' : hashTag(set))

/** Where the record of a session lies. */
export const sessionKey = (sessionId: string): string =>
  `session:{${sessionId.slice(-SLOT_LENGTH)}}${sessionId}`

/** 192 random bits. */
const LENGTH = 32

/**
 * Who may resume a session. Only hashes are kept (SHA-256, base64url), of the token in force and of the one it replaced, so that a
 * second use can be told from a guess. No two rights of a session have the same `token`: it also tells whose record one is.
 */
export interface ResumeRight {
  readonly token: string
  /** Null until the first resume. */
  readonly used: string | null
  /** How often the session was resumed. */
  readonly turn: number
  /** Whether the client is known to have the token in force. Until it is, it may have to come back with the used one. */
  readonly confirmed: boolean
}

/**
 * A first token, or one in place of `resumeToken`, which is used with that; `resumes`: how often the session is resumed with that. The client
 * gets the token, and the session has the right.
 */
export function newResumeToken(
  random: Random,
  resumeToken?: string,
  resumes = 0,
): { readonly resume_token: string; readonly right: ResumeRight } {
  const next = randomToken(random, LENGTH)
  const used = resumeToken === undefined ? null : hash('sha256', resumeToken, 'base64url')
  // Without its first token a client knows of no session: there is nothing to come back to.
  const confirmed = resumeToken === undefined
  return {
    resume_token: next,
    right: { token: hash('sha256', next, 'base64url'), used, turn: resumes, confirmed },
  }
}

/** Whether a text may be a resume token at all. */
export const isResumeToken = (text: string): boolean => text.length === LENGTH && /^[\w-]+$/.test(text)

/** What `resumeToken` is: good for one resume, used already, or wrong. Takes the same time whatever it is compared with. */
export function checkResumeToken(
  { token, used }: Pick<ResumeRight, 'token' | 'used'>,
  resumeToken: string,
): 'current' | 'used' | 'wrong' {
  const given = hashOf(resumeToken)
  if (matches(given, token)) return 'current'
  return used !== null && matches(given, used) ? 'used' : 'wrong'
}

const hashOf = (token: string): Buffer => hash('sha256', token, 'buffer')

const matches = (given: Buffer, hash: string): boolean => {
  const known = Buffer.from(hash, 'base64url')
  return known.length === given.length && timingSafeEqual(given, known)
}
