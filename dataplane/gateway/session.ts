import type { Clock } from '../../shared/clock.ts'
import type { JsonObject } from '../../shared/json.ts'
import type { Random } from '../../shared/random.ts'
import { covers, type TokenClaims } from '../../shared/tokens.ts'
import type { TraceContext } from '../../shared/tracing/tracer.ts'
import { playerOf, type Sender } from '../traffic.ts'
import { type SessionBudget, whileConnected } from './budget.ts'
import type { ClientAddress, Connection } from './connection.ts'
import { type EndedSeat, EndedSeats } from './ended-seats.ts'
import type { Player } from './players.ts'
import { clientsOf, principalOf, withoutTrace } from './principal.ts'
import type { Rejection } from './refusals.ts'
import type { ResumeRight } from './resume-token.ts'
import type { QuotaPlace, Rerouting, SessionRecord } from './session-store.ts'
import type { SubscribedSession, Subscription } from './subscription.ts'
import { TokenLife } from './token-life.ts'

/** A session at the time of its handshake. */
interface SessionStart {
  readonly sessionId: string
  readonly claims: TokenClaims
  readonly right: ResumeRight
  readonly budget: SessionBudget
  readonly place: QuotaPlace | undefined
  readonly from: ClientAddress | undefined
}

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
  readonly ended: EndedSeats
  codes: Map<string, string> | undefined
  refusals: Map<string, number> | undefined
  /** Address of its client. Undefined: unknown. */
  readonly from: ClientAddress | undefined
  /** Name of the clients with its token and address. Undefined: the token names its player, or the address is unknown. */
  readonly guests: string | undefined
  /** Sender of its messages. Made once for each connection, because every message is checked. */
  sender: Sender
  /** Features that the client named in `hello`. */
  features: readonly string[] = []
  /** Undefined: the session was never asked to move to another node. */
  rerouting: Rerouting | undefined
  /** The player's record from control. Undefined: the token names no player, or the session is not registered at this node yet. */
  known: Player | undefined
  /** The span of the handshake that brought the session here: parent of the client's requests. */
  trace: TraceContext | undefined
  /** Life of its token. */
  readonly token: TokenLife
  readonly #clock: Clock
  #right: ResumeRight
  #claims: TokenClaims
  #connection: Connection | undefined
  #connectedAt: number
  #detachedAt: number

  constructor(
    { clock, random }: { readonly clock: Clock; readonly random: Random },
    { sessionId, claims, right, budget, place, from }: SessionStart,
    ended: readonly EndedSeat[] = [],
    codes?: Map<string, string>,
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
    this.token = new TokenLife(clock, random, claims)
    this.#connectedAt = clock.now()
    this.#detachedAt = clock.monotonic()
    this.ended = new EndedSeats(ended)
    this.sender = this.#newSender()
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

  /** Ids of the rooms that the session is in, without those that it is joining or leaving. */
  get roomIds(): string[] {
    return [...this.subscriptions.values()]
      .filter((subscription) => subscription.taken)
      .map((subscription) => subscription.roomId)
  }

  connect(connection: Connection): void {
    this.#connection = connection
    this.#connectedAt = this.#clock.now()
    this.sender = this.#newSender()
  }

  /** The session has started when it came to its quota. If sessions are not limited, it counts from its connection. */
  #newSender(): Sender {
    const { projectId, sub, sessionId, place } = this
    return { projectId, principal: playerOf(sub, sessionId), since: place?.came_at ?? this.#connectedAt }
  }

  disconnect(): void {
    this.#connection = undefined
    this.#detachedAt = this.#clock.monotonic()
  }

  /** Time without a connection, in milliseconds; 0 while connected. */
  get detachedMs(): number {
    return this.#connection ? 0 : this.#clock.monotonic() - this.#detachedAt
  }

  renew(claims: TokenClaims): void {
    this.#claims = claims
    this.token.renew(claims)
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

  /** Text for the player if it is banned from a room type. */
  bannedFrom(roomType: string): string | undefined {
    return this.known?.bannedFrom(roomType)
  }

  /** True if the token allows a room. */
  allows(roomType: string, roomId: string): boolean {
    return covers(this.#claims.rooms, roomType, roomId)
  }
}

/** Returns the new value when a session has resumed at `nodeId`. Undefined: no move was pending. */
export function arrivedAt(nodeId: string, { at, failures, to }: Rerouting): Rerouting | undefined {
  if (to === undefined) return undefined
  return { at, failures: to === nodeId ? 0 : failures + 1 }
}
