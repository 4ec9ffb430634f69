import { hash } from 'node:crypto'
import type { Clock } from '../../shared/clock.ts'
import type { JsonObject } from '../../shared/json.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import type { TraceContext } from '../../shared/tracing/tracer.ts'
import { roomIdOf } from '../traffic.ts'
import type { Rejection } from './authentication.ts'
import { type SessionBudget, whileConnected } from './budget.ts'
import type { Connection } from './connection.ts'
import type { Player } from './players.ts'
import type { EndedSeat, QuotaPlace, Rerouting, ResumeRight, SessionRecord } from './session-record.ts'
import type { SubscribedSession, Subscription } from './subscription.ts'

/** One client's identity, with its subscriptions, from the handshake that brought it here to the one that takes it elsewhere. */
export class Session implements SubscribedSession {
  readonly sessionId: string
  readonly projectId: string
  /** What its requests are paid from. */
  readonly budget: SessionBudget
  /** Its place among the sessions of its player, where those have a bound. */
  readonly place: QuotaPlace | undefined
  /** Subscriptions by room id; also those being joined or left. */
  readonly subscriptions = new Map<string, Subscription>()
  readonly ended: EndedSeats
  /** By room id, the code that led its client there, until a join of the room is answered. */
  readonly codes: Map<string, string>
  /** What its client understands, by the `hello` of its connection. */
  features: ReadonlySet<string> = new Set()
  /** Undefined: it was never told to go to another node. */
  rerouting: Rerouting | undefined
  /** What control has recorded of its player. Undefined: the token names none, or the session is not at this node yet. */
  known: Player | undefined
  /** The span of the handshake that brought it here, for what the client asks to go on with. */
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
    }: Pick<Session, 'sessionId' | 'claims' | 'right' | 'budget' | 'place'>,
    ended: readonly EndedSeat[] = [],
    codes = new Map<string, string>(),
  ) {
    this.codes = codes
    this.sessionId = sessionId
    this.projectId = claims.project_id
    this.#right = right
    this.budget = budget
    this.place = place
    this.#clock = clock
    this.#claims = claims
    this.#expiresAt = Date.parse(claims.expires_at)
    this.#connectedAt = clock.now()
    this.#detachedAt = clock.monotonic()
    this.ended = new EndedSeats(ended)
  }

  /** Who may resume it. */
  get right(): ResumeRight {
    return this.#right
  }

  /** The client has the resume token in force; false: that was known. */
  confirm(): boolean {
    if (this.#right.confirmed) return false
    this.#right = { ...this.#right, confirmed: true }
    return true
  }

  /** The claims of the token in force. */
  get claims(): TokenClaims {
    return this.#claims
  }

  /** The player's id, null when the token carries none. */
  get sub(): string | null {
    return this.#claims.sub ?? null
  }

  /** The data for room code: that of the player's record, else the claim of the token. Undefined: there is neither. */
  get data(): JsonObject | undefined {
    return this.known?.record.data ?? this.#claims.data
  }

  /** Why its player may not have the session. Undefined: it may. */
  get rejection(): Rejection | undefined {
    return this.known?.rejection(this.#claims)
  }

  /** Whom a node counts by: the player, or where the token names none, the session, since many clients may share such a token. */
  get player(): string {
    return this.sub === null ? this.sessionId : `${this.projectId}/${this.sub}`
  }

  /** Who is held to limits that outlast the session. */
  get principal(): string {
    return principalOf(this.#claims)
  }

  get connection(): Connection | undefined {
    return this.#connection
  }

  /** When the connection, or the last one, came: milliseconds since 1970. */
  get connectedAt(): number {
    return this.#connectedAt
  }

  /** Rooms the session is in: neither still joining nor leaving. */
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

  /** How long the session has been without a connection, in milliseconds; 0 while it has one. */
  get detachedMs(): number {
    return this.#connection ? 0 : this.#clock.monotonic() - this.#detachedAt
  }

  renew(claims: TokenClaims): void {
    this.#claims = claims
    this.#expiresAt = Date.parse(claims.expires_at)
    this.#tokenDue = undefined
  }

  /** How long ago the token expired, in milliseconds; 0 or less: it has not. */
  get expiredMs(): number {
    return this.#clock.now() - this.#expiresAt
  }

  /** Whole seconds for which the token is still valid. */
  get tokenSeconds(): number {
    return Math.max(0, Math.floor(-this.expiredMs / 1000))
  }

  /** Lets a session with an expired token stay for `ms` more, so that the client can send a fresh one. */
  allowFreshToken(ms: number): void {
    this.#tokenDue = this.#clock.monotonic() + ms
  }

  /** Whether the token has expired and no fresh one is being waited for. */
  get overdue(): boolean {
    if (this.expiredMs < 0) return false
    return this.#tokenDue === undefined || this.#clock.monotonic() >= this.#tokenDue
  }

  /** What another node needs to go on with the session; `node_id` is this one. */
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

  /** The text for the player if it is banned from a room type. */
  bannedFrom(roomType: string): string | undefined {
    return this.known?.bannedFrom(roomType)
  }

  /** Whether the token lets its bearer into a room. */
  allows(roomType: string, roomId: string): boolean {
    const { rooms } = this.#claims
    return rooms === undefined || rooms.includes(roomType) || rooms.includes(roomId)
  }
}

/** Maximum number of ended seats that a session remembers: the latest ones. */
const MAX_ENDED = 16

/** Seats of one session that their rooms have ended, until its client is known to know, or joins the room again. */
export class EndedSeats {
  /** By room id, the latest last. */
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

  /** Forgets a seat: the client has another in the room. */
  delete(roomId: string): void {
    this.#seats.delete(roomId)
  }

  /** Forgets all but those in these rooms: the client does not ask for the others. */
  keep(roomIds: ReadonlyMap<string, unknown>): void {
    for (const roomId of this.#seats.keys()) if (!roomIds.has(roomId)) this.#seats.delete(roomId)
  }

  [Symbol.iterator](): IterableIterator<EndedSeat> {
    return this.#seats.values()
  }
}

/**
 * Who is held to limits that outlast a session: the player, or where the token names none, the token. Unique within the project, and the
 * same at every node. Signatures are deterministic: tokens with the same claims are one token, byte for byte.
 */
export function principalOf(claims: TokenClaims): string {
  if (claims.sub !== undefined) return `sub:${claims.sub}`
  const whole = JSON.stringify(withoutTrace(claims))
  return `token:${hash('sha256', whole, 'base64url')}`
}

/** Only the first handshake goes on with the trace of a token; a session is written down often, and may be for days. */
function withoutTrace(claims: TokenClaims): TokenClaims {
  if (claims.traceparent === undefined) return claims
  const { traceparent: _, tracestate: __, ...rest } = claims
  return rest
}
