import type { Clock } from '../../shared/clock.ts'
import { newId } from '../../shared/ids.ts'
import type { ClientMessage, Limits, ResumePosition } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import type { Authenticator, Refusal } from './authentication.ts'
import type { Connection } from './connection.ts'
import type { Edge } from './edge.ts'
import type { GatewayMetrics } from './metrics.ts'
import { MessageRateLimiter, PlayerRateLimiters, type RateLevel } from './rate-limits.ts'
import { type TakenSession, type TakeOverParts, take, takeOver } from './resume.ts'
import { Session } from './session.ts'
import { type QuotaBounds, SessionQuota } from './session-quota.ts'
import type { SessionStore } from './session-record.ts'
import { newResumeToken } from './session-record.ts'
import { RECORD_SPARE_MS, type Sessions } from './sessions.ts'

/** How long after its `welcome` a client may take to receive it before a client with the token it used is let in. */
const CONFIRM_SPARE_MS = 3000

type Hello = Extract<ClientMessage, { t: 'hello' }>
type Resume = Extract<Hello, { resume: unknown }>['resume']

/** A client is let in. */
export interface Admission {
  readonly session: Session
  /** For the next resume. */
  readonly resumeToken: string
  /** When the session was taken or made, on the monotonic clock. */
  readonly at: number
  /** The span of the session's handshake before this one; undefined for a new session, and where it was not traced. */
  readonly traceBefore?: string | undefined
  /** Where the client stands in its rooms; undefined for a new session. */
  readonly positions: readonly ResumePosition[] | undefined
}

/** What a handshake needs. */
export interface HandshakeParts extends QuotaBounds {
  readonly nodeId: string
  readonly clock: Clock
  readonly random: Random
  readonly tokens: Authenticator
  readonly edge: Edge
  readonly store: SessionStore
  readonly sessions: Sessions
  readonly limits: Limits
  readonly metrics: GatewayMetrics
  readonly maxResumeWaits: number
  /** 0: as many as come. */
  readonly maxSessions: number
  /** How long a resumed session with an expired token may take to send a fresh one. */
  readonly handshakeMs: number
  readonly sessionResumeTtl: number
  /** How long `welcome` may wait for the rooms of a session. */
  readonly attachWaitMs: number
  /** Whether a node is known to have ended. */
  readonly nodeGone: (nodeId: string) => boolean
  /** Whether the lease of a node has run out. Rejects with `StoreUnavailable`. */
  readonly nodeDead: (nodeId: string) => Promise<boolean>
  /** Whether the store has lost records that nodes are about to write again. */
  readonly storeIsBehind: () => Promise<boolean>
  /** Tells another node that one of its sessions is here now. */
  readonly tellTaken: (nodeId: string, sessionId: string) => void
}

/** Decides who gets a session: a new one for a good token, an old one for its resume token. */
export class Handshake {
  readonly #parts: HandshakeParts
  readonly #takeOver: TakeOverParts
  readonly #quota: SessionQuota
  readonly #playerRateLimiters: PlayerRateLimiters
  /** Sessions that are on their way in. */
  #coming = 0

  constructor(parts: HandshakeParts) {
    this.#parts = parts
    this.#takeOver = {
      ...parts,
      ttlMs: parts.sessionResumeTtl * 1000 + RECORD_SPARE_MS,
      patienceMs: parts.attachWaitMs + CONFIRM_SPARE_MS,
      waiting: new Set(),
      rewrite: (sessionId) => parts.sessions.rewrite(sessionId),
    }
    this.#quota = new SessionQuota({
      ...parts,
      evict: async (stored) => {
        const taken = await take(this.#takeOver, stored)
        if (taken) parts.sessions.end(this.#moveIn(taken), 'session_ended')
        return taken !== undefined
      },
    })
    this.#playerRateLimiters = new PlayerRateLimiters(parts.clock, parts.limits)
  }

  /** Binds a session to the connection, or says why not. Undefined: the connection closed meanwhile, and there is nothing to answer. */
  greet(connection: Connection, hello: Hello): Promise<Admission | Refusal | undefined> {
    return 'token' in hello
      ? this.#start(connection, hello.project_id, hello.token)
      : this.#resume(connection, hello.project_id, hello.resume)
  }

  async #start(
    connection: Connection,
    projectId: string,
    token: string,
  ): Promise<Admission | Refusal | undefined> {
    const { clock, random, tokens, sessions } = this.#parts
    const claims = await tokens.check(projectId, token)
    if (!connection.open) return undefined
    if ('close' in claims) return claims
    if (this.#full) return FULL
    const { resume_token: resumeToken, right } = newResumeToken(random)
    const sessionId = newId('ses', random)
    const rateLimiter = this.#rateLimiterOf(claims)
    const at = clock.monotonic()
    const opened = await this.#comeIn(async () => {
      const place = await this.#quota.enter(sessionId, claims)
      if (place && 'close' in place) return place
      const session = new Session({ sessionId, claims, right, rateLimiter, place, clock })
      session.connect(connection)
      await sessions.open(session)
      return session
    })
    if ('close' in opened) return opened
    return this.#admit(connection, { session: opened, resumeToken, at, positions: undefined })
  }

  async #resume(
    connection: Connection,
    projectId: string,
    { session_id: sessionId, resume_token: resumeToken, rooms }: Resume,
  ): Promise<Admission | Refusal | undefined> {
    // A session that comes back to its own node takes no more room than it has.
    if (this.#full && !this.#parts.sessions.find(sessionId)) return FULL
    const open = (): boolean => connection.open
    const taken = await this.#comeIn(() =>
      takeOver(this.#takeOver, { projectId, sessionId, resumeToken, open }),
    )
    if (!taken || 'close' in taken) return taken
    const session = this.#moveIn(taken)
    if (session.expiredMs > this.#parts.sessionResumeTtl * 1000) {
      this.#parts.sessions.end(session, 'session_ended')
      return { close: 'token_expired', reason: 'the token expired too long ago: start a new session' }
    }
    session.connect(connection)
    if (session.expiredMs >= 0) session.allowFreshToken(this.#parts.handshakeMs)
    return this.#admit(connection, { session, ...taken, traceBefore: taken.record.trace, positions: rooms })
  }

  /**
   * The session as its record says, in place of what any node still has of it. A session that comes back to its own node is made again,
   * too, so that there is one way to resume.
   */
  #moveIn({ record, version, fromNode, pace: level }: TakenSession): Session {
    const { nodeId, clock, edge, sessions, tellTaken } = this.#parts
    const { session_id: sessionId, claims, right, place, seats } = record
    const here = sessions.find(sessionId)
    if (here) sessions.drop(here)
    if (fromNode !== nodeId) tellTaken(fromNode, sessionId)
    const rateLimiter = here?.rateLimiter ?? this.#rateLimiterOf(claims, level)
    const session = new Session({ sessionId, claims, right, rateLimiter, place, clock })
    sessions.add(session, version)
    for (const { member_id: memberId, room_type: roomType, key } of seats)
      edge.restore(session, { projectId: claims.project_id, roomType, key }, memberId)
    return session
  }

  #rateLimiterOf({ project_id: projectId, sub }: TokenClaims, level?: RateLevel): MessageRateLimiter {
    const { clock, limits } = this.#parts
    if (sub === undefined) return new MessageRateLimiter(clock, limits, { level })
    return new MessageRateLimiter(clock, limits, {
      level,
      shared: this.#playerRateLimiters.of(`${projectId}/${sub}`),
    })
  }

  /** The last look before a client is let in: all of this may have changed while the store was writing. */
  #admit(connection: Connection, admission: Admission): Admission | Refusal | undefined {
    const { sessions, tokens } = this.#parts
    const { session, positions } = admission
    const refused = tokens.revoked(session.projectId, session.claims.key_id)
    if (refused) {
      sessions.end(session, 'session_ended')
      return refused
    }
    if (connection.open) return admission
    // No one can know of a session that was never welcome; one that was resumed can be resumed again.
    if (positions) sessions.detach(session)
    else sessions.end(session, 'left')
    return undefined
  }

  get #full(): boolean {
    const { maxSessions, sessions } = this.#parts
    return maxSessions > 0 && sessions.size + this.#coming >= maxSessions
  }

  /** Counts a session that is on its way in; a store that does not answer is a refusal. */
  async #comeIn<T>(work: () => Promise<T>): Promise<T | Refusal> {
    this.#coming += 1
    try {
      return await work()
    } catch (error) {
      if (error instanceof StoreUnavailable) return UNAVAILABLE
      throw error
    } finally {
      this.#coming -= 1
    }
  }
}

const FULL: Refusal = { close: 'overloaded', reason: 'this node has as many sessions as it takes: try again' }
const UNAVAILABLE: Refusal = {
  close: 'overloaded',
  reason: 'sessions cannot be written down at the moment: try again',
}
