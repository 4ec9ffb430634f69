import { hash, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../shared/clock.ts'
import { newId, randomToken } from '../../shared/ids.ts'
import type { JsonObject } from '../../shared/json.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Random } from '../../shared/random.ts'
import { hashTag, type Records, type Write } from '../../shared/store/port.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import type { TraceContext } from '../../shared/tracing/tracer.ts'
import { covers } from '../features/lists/rows.ts'
import { type Farewell, type RoomAddress, roomAddress, roomIdOf } from '../traffic.ts'
import type { Rejection } from './authentication.ts'
import { type RateLevel, type SessionBudget, whileConnected } from './budget.ts'
import type { ClientAddress, Connection } from './connection.ts'
import type { Player } from './players.ts'
import type { SubscribedSession, Subscription } from './subscription.ts'

/** The identity and the subscriptions of one client at this node, from the handshake here until the session moves to another node or ends. */
export class Session implements SubscribedSession {
  readonly sessionId: string
  readonly projectId: string
  /** Budget from which its requests are paid. */
  readonly budget: SessionBudget
  /** Its place in the quota of its player. Undefined: sessions are not limited. */
  readonly place: QuotaPlace | undefined
  /** Subscriptions by room id, also those that are joining or leaving. */
  readonly subscriptions = new Map<string, Subscription>()
  /** Lists that its client watches, by request id. They end with the connection. */
  readonly watches = new Map<number, Watch>()
  readonly ended: EndedSeats
  /** Codes with which the client found rooms, by room id. Each is deleted when a join of its room is answered. */
  readonly codes: Map<string, string>
  /** Address of its client. Undefined: unknown. */
  readonly from: ClientAddress | undefined
  /** Name of the clients with its token and address. Undefined: the token names its player, or the address is unknown. */
  readonly guests: string | undefined
  /** Features that the client named in `hello`. */
  features: ReadonlySet<string> = new Set()
  /** Undefined: the session was never asked to move to another node. */
  rerouting: Rerouting | undefined
  /** The player's record from control. Undefined: the token names no player, or the session is not registered at this node yet. */
  known: Player | undefined
  /** The span of the handshake that brought the session here: parent of the client's requests. */
  trace: TraceContext | undefined
  readonly #clock: Clock
  #right: ResumeRight
  #claims: TokenClaims
  #expiresAt: number
  #tokenDue: number | undefined
  #connection: Connection | undefined
  #connectedAt: number
  #detachedAt: number

  constructor(
    clock: Clock,
    {
      sessionId,
      claims,
      right,
      budget,
      place,
      from,
    }: Pick<Session, 'sessionId' | 'claims' | 'right' | 'budget' | 'place' | 'from'>,
    ended: readonly EndedSeat[] = [],
    codes = new Map<string, string>(),
  ) {
    this.codes = codes
    this.sessionId = sessionId
    this.projectId = claims.project_id
    this.#right = right
    this.budget = budget
    this.place = place
    this.from = from
    this.guests = claims.sub === undefined && from ? clientsOf(claims, from) : undefined
    this.#clock = clock
    this.#claims = claims
    this.#expiresAt = Date.parse(claims.expires_at)
    this.#connectedAt = clock.now()
    this.#detachedAt = clock.monotonic()
    this.ended = new EndedSeats(ended)
  }

  /** Authorizes the next resume. */
  get right(): ResumeRight {
    return this.#right
  }

  /** Notes that the client has the current resume token. Returns false if that was known. */
  confirm(): boolean {
    if (this.#right.confirmed) return false
    this.#right = { ...this.#right, confirmed: true }
    return true
  }

  /** The claims of the current token. */
  get claims(): TokenClaims {
    return this.#claims
  }

  /** The player's id. Null: the token names no player. */
  get sub(): string | null {
    return this.#claims.sub ?? null
  }

  /** Data for room code: from the player's record, else from the token. Undefined: neither has any. */
  get data(): JsonObject | undefined {
    return this.known?.record.data ?? this.#claims.data
  }

  /** Reason why its player may not have the session. Undefined: it may. */
  get rejection(): Rejection | undefined {
    return this.known?.rejection(this.#claims)
  }

  /** Name by which a node counts players. If the token names none, it is the session id, because many clients may share such a token. */
  get player(): string {
    return this.sub === null ? this.sessionId : `${this.projectId}/${this.sub}`
  }

  /** Name to which limits apply that outlast the session. */
  get principal(): string {
    return principalOf(this.#claims)
  }

  get connection(): Connection | undefined {
    return this.#connection
  }

  /** Start of the current or latest connection, in milliseconds since 1970. */
  get connectedAt(): number {
    return this.#connectedAt
  }

  /** Start of the session, in milliseconds since 1970. If sessions are not limited: start of its connection. */
  get since(): number {
    return this.place?.came_at ?? this.#connectedAt
  }

  /** Ids of the rooms that the session is in, without those that it is joining or leaving. */
  get roomIds(): string[] {
    return [...this.subscriptions.values()]
      .filter((subscription) => subscription.taken)
      .map((subscription) => subscription.roomId)
  }

  connect(connection: Connection): void {
    this.#connection = connection
    this.#connectedAt = this.#clock.now()
  }

  disconnect(): void {
    this.#connection = undefined
    this.#tokenDue = undefined
    this.#detachedAt = this.#clock.monotonic()
  }

  /** Time without a connection, in milliseconds; 0 while connected. */
  get detachedMs(): number {
    return this.#connection ? 0 : this.#clock.monotonic() - this.#detachedAt
  }

  renew(claims: TokenClaims): void {
    this.#claims = claims
    this.#expiresAt = Date.parse(claims.expires_at)
    this.#tokenDue = undefined
  }

  /** Time since the token expired, in milliseconds; 0 or less: it is valid. */
  get expiredMs(): number {
    return this.#clock.now() - this.#expiresAt
  }

  /** Remaining validity of the token in whole seconds. */
  get tokenSeconds(): number {
    return Math.max(0, Math.floor(-this.expiredMs / 1000))
  }

  /** Keeps a session with an expired token for `ms`, so that its client can send a fresh one. */
  allowFreshToken(ms: number): void {
    this.#tokenDue = this.#clock.monotonic() + ms
  }

  /** True if the token has expired and the time for a fresh one has passed. */
  get overdue(): boolean {
    if (this.expiredMs < 0) return false
    return this.#tokenDue === undefined || this.#clock.monotonic() >= this.#tokenDue
  }

  /** The record with which another node can continue the session. Its `node_id` is this node. */
  record(nodeId: string): SessionRecord {
    const seats = [...this.subscriptions.values()].map(
      ({ room: { roomType, key }, memberId, joinRequest }) => ({
        room_type: roomType,
        key,
        member_id: memberId,
        ...(joinRequest !== undefined && { join_request: joinRequest }),
      }),
    )
    return {
      session_id: this.sessionId,
      claims: withoutTrace(this.#claims),
      node_id: nodeId,
      right: this.right,
      seats,
      ended: [...this.ended],
      connected_at: this.#connectedAt,
      detached: this.#connection === undefined,
      pace: this.#connection ? whileConnected(this.budget.level) : this.budget.level,
      ...(this.place && { place: this.place }),
      ...(this.rerouting && { rerouting: this.rerouting }),
      ...(this.trace?.traceparent !== undefined && { trace: this.trace.traceparent }),
    }
  }

  /** Returns the error if the session has `max` rooms, or watches `max` lists. Undefined: it may open one more. */
  tooMany(open: 'subscriptions' | 'watches', max: number): Refused | undefined {
    if (this[open].size < max) return undefined
    const message =
      open === 'watches'
        ? `a session can watch ${max} lists: end a watch first`
        : `a session may be in ${max} rooms: leave one first`
    return new Refused('too_many_rooms', message)
  }

  /** Text for the player if it is banned from a room type. */
  bannedFrom(roomType: string): string | undefined {
    return this.known?.bannedFrom(roomType)
  }

  /** True if the token allows a room. */
  allows(roomType: string, roomId: string): boolean {
    return covers(this.#claims.rooms, roomType, roomId)
  }
}

/** A request that gets an `error`. */
export class Refused extends Error {
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/** A list that a client watches. */
interface Watch {
  /** Sends the list now and after each change. Returns the function that ends the watch. */
  readonly begin: () => () => void
  readonly stop: () => void
}

/** Maximum number of ended seats of a session; older ones are dropped. */
const MAX_ENDED = 16

/** Seats of one session that their rooms have ended. Each is kept until the client is known to know of it, or joins the room again. */
export class EndedSeats {
  /** By room id, oldest first. */
  readonly #seats = new Map<string, EndedSeat>()

  constructor(seats: readonly EndedSeat[] = []) {
    for (const seat of seats) this.add(seat)
  }

  get size(): number {
    return this.#seats.size
  }

  add(seat: EndedSeat): void {
    const roomId = roomIdOf(seat.room)
    this.#seats.delete(roomId)
    this.#seats.set(roomId, seat)
    const [oldest] = this.#seats.keys()
    if (this.#seats.size > MAX_ENDED && oldest !== undefined) this.#seats.delete(oldest)
  }

  get(roomId: string): EndedSeat | undefined {
    return this.#seats.get(roomId)
  }

  /** Drops a seat, because the client has another seat in the room. */
  delete(roomId: string): void {
    this.#seats.delete(roomId)
  }

  /** Drops all seats except those in these rooms. The client no longer uses the other rooms. */
  keep(roomIds: ReadonlyMap<string, unknown>): void {
    for (const roomId of this.#seats.keys()) if (!roomIds.has(roomId)) this.#seats.delete(roomId)
  }

  [Symbol.iterator](): IterableIterator<EndedSeat> {
    return this.#seats.values()
  }
}

/**
 * Name to which limits apply that outlast a session: the player, or the token if it names no player. Unique within the project, and equal at
 * every node. Signatures are deterministic, so tokens with the same claims are the same token, byte for byte.
 */
export function principalOf(claims: TokenClaims): string {
  if (claims.sub !== undefined) return `sub:${claims.sub}`
  const whole = JSON.stringify(withoutTrace(claims))
  return `token:${hash('sha256', whole, 'base64url')}`
}

/** Name by which a node counts clients with a token: of its player, or of the clients with this token and address if it names no player. */
export const clientsOf = (claims: TokenClaims, from: ClientAddress | undefined): string => {
  const principal = `${claims.project_id}/${principalOf(claims)}`
  return claims.sub === undefined && from ? `${principal}@${from.address}` : principal
}

/** Removes the trace: only the first handshake continues it, and a record may be written for days. */
function withoutTrace(claims: TokenClaims): TokenClaims {
  if (claims.traceparent === undefined) return claims
  const { traceparent: _, tracestate: __, ...rest } = claims
  return rest
}

/** The place of a session in a quota. */
interface QuotaPlace {
  /** Name of its set; see `quotaSets`. */
  readonly set: string
  /** Milliseconds since 1970. */
  readonly came_at: number
}

/** Move of a session to the node of its rooms. It is part of the session's record. */
interface Rerouting {
  /** Time of the latest `move` message, in milliseconds since 1970. */
  readonly at: number
  /** Number of consecutive moves that ended at another node. */
  readonly failures: number
  /** Target node of the pending move. */
  readonly to?: string
}

/** Returns the new value when a session has resumed at `nodeId`. Undefined: no move was pending. */
export function arrivedAt(nodeId: string, { at, failures, to }: Rerouting): Rerouting | undefined {
  if (to === undefined) return undefined
  return { at, failures: to === nodeId ? 0 : failures + 1 }
}

/** A seat of a session. */
interface SeatRecord {
  readonly room_type: string
  readonly key: string
  readonly member_id: string
  /** Request id of its join, until the client is known to have the answer. */
  readonly join_request?: number
}

/** A seat that its room has ended. */
interface EndedSeat {
  readonly room: RoomAddress
  readonly farewell: Farewell
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
const FORMAT = 3
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
  ...seats: [roomType: string, key: string, seat: string | PositionalEnd, joinRequest?: number][],
]

/** Stored form of an ended seat. */
type PositionalEnd = [epoch: number, seq: number, reason: Farewell['reason'], message: string | 0]

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
  for (const { room, farewell } of record.ended) {
    const { epoch, seq, reason, message = 0 } = farewell
    positional.push([room.roomType, room.key, [epoch, seq, reason, message]])
  }
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

/** Length of a resume token in characters: 192 random bits. */
const LENGTH = 32

/**
 * Right to resume a session. It has only hashes (SHA-256, base64url): of the current token and of the previous one, which tells a second use
 * from a guess. No two rights of a session have the same `token`, so it also identifies a record's writer.
 */
export interface ResumeRight {
  readonly token: string
  /** Hash of the previous token. Null until the first resume. */
  readonly used: string | null
  /** Number of resumes. */
  readonly turn: number
  /** True if the client is known to have the current token. Until then, it may have to resume with the previous one. */
  readonly confirmed: boolean
}

/**
 * Returns a new token for the client, and the right for the session. `resumeToken`: the token that it replaces; undefined for the first.
 * `resumes`: number of resumes, including this one.
 */
export function newResumeToken(
  random: Random,
  resumeToken?: string,
  resumes = 0,
): { readonly resume_token: string; readonly right: ResumeRight } {
  const next = randomToken(random, LENGTH)
  const used = resumeToken === undefined ? null : hash('sha256', resumeToken, 'base64url')
  // A client without its first token does not know the session, and cannot resume it.
  const confirmed = resumeToken === undefined
  return {
    resume_token: next,
    right: { token: hash('sha256', next, 'base64url'), used, turn: resumes, confirmed },
  }
}

/** True if a text has the form of a resume token. */
export const isResumeToken = (text: string): boolean => text.length === LENGTH && /^[\w-]+$/.test(text)

/** Compares a resume token with a right, in constant time. */
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
