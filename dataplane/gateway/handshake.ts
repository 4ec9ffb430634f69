import { idPattern } from '../../shared/ids.ts'
import type { ClientMessage, ResumePosition } from '../../shared/protocol/messages.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import { roomAddress } from '../traffic.ts'
import type { Authenticator, Rejection } from './authentication.ts'
import type { Connection } from './connection.ts'
import type { GatewayContext } from './context.ts'
import type { Edge } from './edge.ts'
import { MessageRateLimiter, PlayerRateLimiters, type RateLevel, whileConnected } from './rate-limits.ts'
import { arrivedAt } from './rerouting.ts'
import { principalOf, Session } from './session.ts'
import {
  checkResumeToken,
  isResumeToken,
  newResumeToken,
  newSessionId,
  type QuotaSet,
  quotaSets,
  type ResumeRight,
  type SessionRecord,
  type SessionStore,
  type StoredSession,
} from './session-record.ts'
import { RECORD_SPARE_MS, REWRITTEN_MS, type Sessions } from './sessions.ts'

/** How long after its `welcome` a client may take to receive it before a client with the token it used is let in. */
const CONFIRM_SPARE_MS = 3000
/** How often a session is tried to be taken while its record changes. */
const TAKE_ATTEMPTS = 5
/** How often a claimant that waits is looked after. */
const CLAIMANT_CHECK_MS = 100
/** How often a newcomer tries to have room made for it. */
const ROOM_ATTEMPTS = 3
const SESSION_ID = idPattern('ses')

export type Hello = Extract<ClientMessage, { t: 'hello' }>
type Resume = Extract<Hello, { resume: unknown }>['resume']

/** A client is let in. */
export interface Admitted {
  readonly session: Session
  /** For the next resume. */
  readonly resumeToken: string
  /** When the session was taken or made, on the monotonic clock, at the earliest. */
  readonly at: number
  /** The span of the session's handshake before this one; undefined for a new session, and where it was not traced. */
  readonly traceBefore?: string | undefined
  /** Where the client stands in its rooms; undefined for a new session. */
  readonly positions: readonly ResumePosition[] | undefined
}

/** A client that wants a session back. */
interface Claimant {
  readonly connection: Connection
  readonly projectId: string
  readonly sessionId: string
  readonly resumeToken: string
}

/** A session whose later resume may still arrive, or fail. */
interface Undecided {
  readonly undecided: StoredSession
}

/** A session that this node has from now on. */
interface TakenSession extends StoredSession {
  /** What it may still send; undefined: as much as a new one. */
  readonly pace: RateLevel | undefined
  /** The node that had it before. */
  readonly fromNode: string
  readonly resumeToken: string
  readonly at: number
}

/** How many sessions may count together. */
interface Quota {
  readonly of: 'token' | 'player (sub)'
  readonly max: number
  /** Where in the store they have their places. */
  readonly sets: readonly QuotaSet[]
}

/**
 * Decides who gets a session: a new one for a good token, as long as there are not too many of its player; an old one, wherever it is, for
 * its resume token.
 */
export class Handshake {
  readonly #context: GatewayContext
  readonly #tokens: Pick<Authenticator, 'check' | 'checkKey' | 'revoked'>
  readonly #edge: Edge
  readonly #store: SessionStore
  readonly #sessions: Sessions
  readonly #playerRateLimiters: PlayerRateLimiters
  /** Sessions that some claimant at this node waits for: one each, so that waiting costs no more however many claim. */
  readonly #waiting = new Set<string>()
  /** Sessions that are on their way in. */
  #coming = 0

  constructor(
    context: GatewayContext,
    tokens: Pick<Authenticator, 'check' | 'checkKey' | 'revoked'>,
    edge: Edge,
    store: SessionStore,
    sessions: Sessions,
  ) {
    this.#context = context
    this.#tokens = tokens
    this.#edge = edge
    this.#store = store
    this.#sessions = sessions
    this.#playerRateLimiters = new PlayerRateLimiters(context.clock, context.options.limits)
  }

  /** Binds a session to the connection, or says why not. Undefined: the connection closed meanwhile, and there is nothing to answer. */
  greet(connection: Connection, hello: Hello): Promise<Admitted | Rejection | undefined> {
    return 'token' in hello
      ? this.#start(connection, hello.project_id, hello.token)
      : this.#resume(connection, hello.project_id, hello.resume)
  }

  async #start(
    connection: Connection,
    projectId: string,
    token: string,
  ): Promise<Admitted | Rejection | undefined> {
    const { clock, random } = this.#context
    const claims = await this.#tokens.check(projectId, token)
    if (!connection.open) return undefined
    if ('close' in claims) return claims
    if (this.#full) return FULL
    const { resume_token: resumeToken, right } = newResumeToken(random)
    const at = clock.monotonic()
    const opened = await this.#comeIn(() => this.#open(connection, claims, right))
    if ('close' in opened) return opened
    return this.#admit(connection, { session: opened, resumeToken, at, positions: undefined })
  }

  async #resume(
    connection: Connection,
    projectId: string,
    { session_id: sessionId, resume_token: resumeToken, rooms }: Resume,
  ): Promise<Admitted | Rejection | undefined> {
    const { options } = this.#context
    // A session that comes back to its own node takes no more room than it has.
    if (this.#full && !this.#sessions.find(sessionId)) return FULL
    const taken = await this.#comeIn(() => this.#takeOver({ connection, projectId, sessionId, resumeToken }))
    if (!taken || 'close' in taken) return taken
    const session = this.#moveIn(taken)
    if (session.expiredMs > options.sessionResumeTtl * 1000) {
      this.#sessions.end(session, 'session_ended')
      return { close: 'token_expired', reason: 'the token expired too long ago: start a new session' }
    }
    session.connect(connection)
    if (session.expiredMs >= 0) session.allowFreshToken(options.handshakeMs)
    return this.#admit(connection, { session, ...taken, traceBefore: taken.record.trace, positions: rooms })
  }

  /** The last look before a client is let in: all of this may have changed while the store was writing. */
  #admit(connection: Connection, admitted: Admitted): Admitted | Rejection | undefined {
    const { session, positions } = admitted
    const revoked = this.#tokens.revoked(session.claims)
    if (revoked) {
      this.#sessions.end(session, 'session_ended')
      return revoked
    }
    if (connection.open) return admitted
    // No one can know of a session that was never welcome; one that was resumed can be resumed again.
    if (positions) this.#sessions.detach(session)
    else this.#sessions.end(session, 'left')
    return undefined
  }

  get #full(): boolean {
    const { maxSessions } = this.#context.options
    return maxSessions > 0 && this.#sessions.size + this.#coming >= maxSessions
  }

  /** Counts a session that is on its way in; a store that does not answer is a refusal. */
  async #comeIn<T>(work: () => Promise<T>): Promise<T | Rejection> {
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

  #rateLimiterOf({ project_id: projectId, sub }: TokenClaims, level?: RateLevel): MessageRateLimiter {
    const { clock, options } = this.#context
    const shared =
      sub === undefined ? undefined : { player: `${projectId}/${sub}`, of: this.#playerRateLimiters }
    return new MessageRateLimiter(clock, options.limits, { level, shared })
  }

  /**
   * Takes a session for this node, wherever it was, if the claimant has its resume token and its key still stands. The write that does
   * it also puts the next token in force, and is made over the record as it was read: of several claimants with the same token one gets
   * the session. Undefined: the claimant has gone, and nothing has happened. Rejects with `StoreUnavailable`.
   *
   * A resume can fail between that write and the client's receiving `welcome`; the client then comes back with the token it has, which
   * is used. So a used token is refused only once the client of the later resume is known to have its `welcome`, and good again when
   * that client is lost before.
   */
  async #takeOver(claimant: Claimant): Promise<TakenSession | Rejection | undefined> {
    for (let attempt = 0; attempt < TAKE_ATTEMPTS; attempt++) {
      const found = await this.#find(claimant)
      if (!found || 'close' in found) return found
      const refused = await this.#tokens.checkKey(found.record.claims)
      if (refused) return refused
      if (!claimant.connection.open) return undefined
      const taken = await this.#take(found, claimant.resumeToken)
      if (taken) return taken
    }
    return BUSY
  }

  /** The session, when the claimant may have it; waits while that is not decided. */
  async #find(claimant: Claimant): Promise<StoredSession | Rejection | undefined> {
    const { options, metrics } = this.#context
    const { sessionId, resumeToken } = claimant
    if (!SESSION_ID.test(sessionId) || !isResumeToken(resumeToken)) return UNKNOWN
    if (!claimant.connection.open) return undefined
    const seen = await this.#look(claimant)
    if (!('undecided' in seen)) return seen
    if (this.#waiting.has(sessionId) || this.#waiting.size >= options.maxResumeWaits) {
      metrics.resumeWaitsRefused.inc()
      return WAITED_FOR
    }
    this.#waiting.add(sessionId)
    try {
      return await this.#waitFor(claimant, seen.undecided)
    } finally {
      this.#waiting.delete(sessionId)
    }
  }

  /**
   * Reads the session, and whether the claimant may have it as things stand. Where the store may have lost the record of a session that is here,
   * it is written again and read again.
   */
  async #look({
    projectId,
    sessionId,
    resumeToken,
  }: Claimant): Promise<StoredSession | Rejection | Undecided> {
    const { nodeId, nodeGone, storeIsBehind } = this.#context
    const unknown = async () => ((await storeIsBehind(REWRITTEN_MS)) ? BEHIND : UNKNOWN)
    let found = (await this.#store.load(sessionId)) ?? (await this.#loadAgain(sessionId))
    if (!found) return unknown()
    if (found.record.claims.project_id !== projectId) return UNKNOWN
    let verdict = checkResumeToken(found.record.right, resumeToken)
    if (verdict === 'wrong' && found.record.node_id !== nodeId) {
      // A store that has lost the record may have been told by an earlier holder, who did not know better.
      found = (await this.#loadAgain(sessionId)) ?? found
      verdict = checkResumeToken(found.record.right, resumeToken)
    }
    if (verdict === 'wrong') return unknown()
    if (verdict === 'current') return found
    const { right, detached, node_id: holder } = found.record
    if (right.confirmed) return USED
    return detached || nodeGone(holder) ? found : { undecided: found }
  }

  /** A session that is here, and that the store has lost. */
  async #loadAgain(sessionId: string): Promise<StoredSession | undefined> {
    const session = this.#sessions.find(sessionId)
    return session && (await this.#sessions.save(session)) ? this.#store.load(sessionId) : undefined
  }

  /** Reads a session again, ever less often, until it is decided, or its client has had its time. */
  async #waitFor(claimant: Claimant, first: StoredSession): Promise<StoredSession | Rejection | undefined> {
    const { clock, options, nodeGone } = this.#context
    // For so long a client may be without the token that it was sent at its resume.
    const withoutTokenMs = options.attachWaitMs + CONFIRM_SPARE_MS
    const begunAt = clock.monotonic()
    let { node_id: holder, right } = first.record
    let until = begunAt + withoutTokenMs
    let readAt = begunAt
    for (;;) {
      await new Promise<void>((resolve) => void clock.schedule(CLAIMANT_CHECK_MS, resolve))
      if (!claimant.connection.open) return undefined
      const now = clock.monotonic()
      if (now < readAt && now < until && !nodeGone(holder)) continue
      const seen = await this.#look(claimant)
      if (!('undecided' in seen)) return seen
      const { record } = seen.undecided
      if (record.right.token !== right.token) until = clock.monotonic() + withoutTokenMs
      else if (now >= until) return seen.undecided
      holder = record.node_id
      right = record.right
      readAt = now + (now - begunAt)
    }
  }

  /**
   * Takes a session for this node as it was read; `usedToken`: what a client came with, if one did. Undefined: the record is not the one
   * that was read any more.
   */
  async #take(
    { record: before, version }: StoredSession,
    usedToken?: string,
  ): Promise<TakenSession | undefined> {
    const { nodeId, random, clock, options } = this.#context
    const at = clock.monotonic()
    const { resume_token: resumeToken, right } = newResumeToken(random, usedToken, before.right.turn + 1)
    const { pace } = before
    const record: SessionRecord = {
      ...before,
      node_id: nodeId,
      right,
      detached: false,
      ...(pace && { pace: whileConnected({ ...pace, at: clock.now() }) }),
    }
    const taken = { record, version: version + 1, fromNode: before.node_id, resumeToken, pace, at }
    try {
      // Its life if nothing more is written.
      const ttlMs = options.sessionResumeTtl * 1000 + RECORD_SPARE_MS
      return (await this.#store.save(record, version, ttlMs)) ? taken : undefined
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      const now = await this.#store.load(record.session_id)
      if (now?.record.right.token === right.token) return taken
      throw error
    }
  }

  /**
   * The session as its record says, in place of what any node still has of it. A session that comes back to its own node is made again,
   * too, so that there is one way to resume.
   */
  #moveIn({ record, version, fromNode, pace }: TakenSession): Session {
    const { nodeId, clock, metrics, tellTaken } = this.#context
    const { session_id: sessionId, claims, right, place, seats, rerouting } = record
    const here = this.#sessions.find(sessionId)
    if (here) this.#sessions.drop(here)
    if (fromNode !== nodeId) tellTaken(fromNode, sessionId)
    const rateLimiter = here?.rateLimiter ?? this.#rateLimiterOf(claims, pace)
    const session = new Session(clock, { sessionId, claims, right, rateLimiter, place })
    const arrived = rerouting && arrivedAt(nodeId, rerouting)
    session.rerouting = arrived ?? rerouting
    if (arrived?.failures === 0 && fromNode !== nodeId) session.replacedAt = fromNode
    if (arrived) metrics.reroutes.inc({ outcome: arrived.failures === 0 ? 'arrived' : 'elsewhere' })
    this.#sessions.add(session, version)
    for (const { member_id: memberId, room_type: roomType, key } of seats)
      this.#edge.restore(session, roomAddress(claims.project_id, roomType, key), memberId)
    return session
  }

  /**
   * A new session, which has a place among those of its player (`sub`) in the whole cluster, or where its token names none, of its token. When
   * there are as many as there may be, it takes the place of the one that has been there for longest and has no connection. When all are
   * connected it is refused, or when the oldest 32 are: of each set as many. A refusal costs these reads and two looks at each set, 16 at
   * most, however many sessions there may be.
   */
  async #open(connection: Connection, claims: TokenClaims, right: ResumeRight): Promise<Session | Rejection> {
    const { clock, random } = this.#context
    const rateLimiter = this.#rateLimiterOf(claims)
    const openIn = async ({ set, max }: Partial<QuotaSet> = {}): Promise<Session | undefined> => {
      const sessionId = newSessionId(random, set)
      const place = set === undefined ? undefined : { set, came_at: clock.now() }
      const session = new Session(clock, { sessionId, claims, right, rateLimiter, place })
      session.connect(connection)
      return (await this.#sessions.open(session, max ?? 0)) ? session : undefined
    }
    const quota = this.#quotaOf(claims)
    if (!quota) {
      const session = await openIn()
      if (!session) throw new Error('there is a session with the id that was drawn for a new one')
      return session
    }
    const { sets } = quota
    const first = Math.floor(random.float() * sets.length)
    for (let attempt = 0; attempt < ROOM_ATTEMPTS; attempt++) {
      for (let i = 0; i < sets.length; i++) {
        const session = await openIn(sets[(first + i) % sets.length])
        if (session) return session
      }
      if (!(await this.#makeRoom(sets))) break
    }
    return {
      close: 'rate_limited',
      reason: `there are ${quota.max} sessions of this ${quota.of} already: end one first`,
    }
  }

  #quotaOf(claims: TokenClaims): Quota | undefined {
    const { maxSessionsPerSub, maxSessionsPerToken } = this.#context.options
    const { sub, project_id: projectId } = claims
    const max = sub === undefined ? maxSessionsPerToken : maxSessionsPerSub
    if (max === 0) return undefined
    const sets = quotaSets(`${projectId}/${principalOf(claims)}`, max)
    return { of: sub === undefined ? 'token' : 'player (sub)', max, sets }
  }

  /** Takes those out that are over, or ends the oldest one without a connection. False: there is nothing to be had. */
  async #makeRoom(sets: readonly QuotaSet[]): Promise<boolean> {
    const { nodeDead, metrics } = this.#context
    const oldest = await this.#store.oldest(sets)
    const found = await this.#store.loadAll(oldest.map(({ session_id: sessionId }) => sessionId))
    // A place is taken and left together with the record: where there is none, the session is over.
    const over = oldest.filter((_, index) => found[index] === undefined)
    await Promise.all(over.map(({ session_id: sessionId, place }) => this.#store.leave(sessionId, place)))
    if (over.length > 0) return true
    for (const stored of found) {
      if (!stored?.record.place) continue
      if (!stored.record.detached && !(await nodeDead(stored.record.node_id))) continue
      const taken = await this.#take(stored)
      if (!taken) continue
      this.#sessions.end(this.#moveIn(taken), 'session_ended')
      metrics.sessionsEvicted.inc()
      await this.#store.leave(stored.record.session_id, stored.record.place)
      return true
    }
    return false
  }
}

const tryAgain = (why: string): Rejection => ({ close: 'overloaded', reason: `${why}: try again` })

const FULL = tryAgain('this node has as many sessions as it takes')
const UNAVAILABLE = tryAgain('sessions cannot be written down at the moment')
const BEHIND = tryAgain('the store has just begun without data, and sessions are being written again')
const WAITED_FOR = tryAgain(
  'this resume token was used, and whether its successor arrived is being waited for',
)
const BUSY = tryAgain('the session is changing')
const UNKNOWN: Rejection = {
  close: 'resume_failed',
  reason: 'there is no such session, or this is not its resume token',
}
const USED: Rejection = {
  close: 'session_taken_over',
  reason: 'this resume token was used already: a newer connection has the session',
}
