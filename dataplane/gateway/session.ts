import type { Clock } from '../../shared/clock.ts'
import type { Limits } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import type { Connection } from './connection.ts'
import { RateLimit } from './rate-limit.ts'
import { type ErrorMessage, Refusals } from './refusals.ts'
import { ResumeToken } from './resume-token.ts'
import type { Seat } from './seat.ts'

/** How many seconds' worth of messages beyond the limit end the connection. */
const PATIENCE_SECONDS = 10

/** One client's identity, with its seats, across reconnects. */
export class Session {
  readonly session_id: string
  readonly project_id: string
  readonly resume_token: ResumeToken
  /** Seats by room id; also those being joined or left. */
  readonly seats = new Map<string, Seat>()
  readonly #refusals = new Refusals()
  readonly #clock: Clock
  readonly #rate: RateLimit
  readonly #patience: RateLimit
  #claims: TokenClaims
  #expires_at: number
  #token_due: number | undefined
  #connection: Connection | undefined
  #connected_at: number
  #detached_at: number

  constructor(session_id: string, claims: TokenClaims, limits: Limits, clock: Clock, random: Random) {
    this.session_id = session_id
    this.project_id = claims.project_id
    this.resume_token = new ResumeToken(random)
    this.#clock = clock
    this.#rate = new RateLimit(clock, limits.messages_per_second, limits.message_burst)
    this.#patience = new RateLimit(
      clock,
      limits.messages_per_second / PATIENCE_SECONDS,
      limits.messages_per_second * PATIENCE_SECONDS,
    )
    this.#claims = claims
    this.#expires_at = Date.parse(claims.expires_at)
    this.#connected_at = clock.now()
    this.#detached_at = clock.monotonic()
  }

  /** The claims of the token in force. */
  get claims(): TokenClaims {
    return this.#claims
  }

  /** The player's id, null when the token carries none. */
  get sub(): string | null {
    return this.#claims.sub ?? null
  }

  /** The live connection, if there is one. */
  get connection(): Connection | undefined {
    return this.#connection
  }

  /** When the connection, or the last one, came: milliseconds since 1970. */
  get connected_at(): number {
    return this.#connected_at
  }

  /** Rooms the session is in: neither still joining nor leaving. */
  get room_ids(): string[] {
    return [...this.seats.values()].filter((seat) => seat.taken).map((seat) => seat.room_id)
  }

  /** The session is on this connection from now on. */
  connect(connection: Connection): void {
    this.#connection = connection
    this.#connected_at = this.#clock.now()
  }

  /** The session has no connection any more. */
  disconnect(): void {
    this.#connection = undefined
    this.#token_due = undefined
    this.#detached_at = this.#clock.monotonic()
  }

  /** How long the session has been without a connection, in milliseconds; 0 while it has one. */
  get detached_ms(): number {
    return this.#connection ? 0 : this.#clock.monotonic() - this.#detached_at
  }

  /** A fresh token is in force. */
  renew(claims: TokenClaims): void {
    this.#claims = claims
    this.#expires_at = Date.parse(claims.expires_at)
    this.#token_due = undefined
  }

  /** How long ago the token expired, in milliseconds; 0 or less: it has not. */
  get expired_ms(): number {
    return this.#clock.now() - this.#expires_at
  }

  /** Lets a session with an expired token stay for `ms` more, so that the client can send a fresh one. */
  allowFreshToken(ms: number): void {
    this.#token_due = this.#clock.monotonic() + ms
  }

  /** Whether the token has expired and no fresh one is being waited for. */
  get overdue(): boolean {
    if (this.expired_ms < 0) return false
    return this.#token_due === undefined || this.#clock.monotonic() >= this.#token_due
  }

  /** Refuses a message, whose ref is in the error if it has one; a session without a connection hears of it when it is back. */
  refuse(error: ErrorMessage): void {
    if (error.ref !== undefined) this.#refusals.add(error)
    this.#connection?.send(error)
  }

  /** Tells a resumed client again what was refused lately. */
  refuseAgain(): void {
    for (const error of this.#refusals) this.#connection?.send(error)
  }

  /** Whether one more message may pass; `too_many`: this has gone on for so long that the connection should end. */
  admit(): 'pass' | 'reject' | 'too_many' {
    if (this.#rate.take()) return 'pass'
    return this.#patience.take() ? 'reject' : 'too_many'
  }

  /** Whether the token lets its bearer into a room. */
  allows(room_type: string, room_id: string): boolean {
    const { rooms } = this.#claims
    return rooms === undefined || rooms.includes(room_type) || rooms.includes(room_id)
  }
}
