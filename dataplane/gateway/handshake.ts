import type { ClientMessage, ResumePosition } from '../../shared/protocol/messages.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import { ProjectCounts } from '../metrics.ts'
import { type Authenticator, type Rejection, tryAgain } from './authentication.ts'
import type { Connection } from './connection.ts'
import type { GatewayContext } from './context.ts'
import type { Edge } from './edge.ts'
import type { Players } from './players.ts'
import { PlayerRateLimiters } from './rate-limits.ts'
import { Resumption } from './resume.ts'
import { principalOf, Session } from './session.ts'
import {
  newResumeToken,
  newSessionId,
  type QuotaSet,
  quotaSets,
  type ResumeRight,
  type SessionStore,
} from './session-record.ts'
import { ENDED_BY_OPERATOR, type Sessions } from './sessions.ts'

/** How often a newcomer tries to have room made for it. */
const ROOM_ATTEMPTS = 3
/** A token without sub, which many players share, may have so many times the sessions of a player. */
const TOKEN_SHARE = 100

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
  readonly #players: Players
  readonly #playerRateLimiters: PlayerRateLimiters
  readonly #resumption: Resumption
  /** Sessions that are on their way in. */
  #coming = 0
  /** New sessions that are on their way in. */
  readonly #newOfProject = new ProjectCounts()

  constructor(
    context: GatewayContext,
    tokens: Pick<Authenticator, 'check' | 'checkKey' | 'revoked'>,
    edge: Edge,
    store: SessionStore,
    sessions: Sessions,
    players: Players,
  ) {
    this.#context = context
    this.#tokens = tokens
    this.#edge = edge
    this.#store = store
    this.#sessions = sessions
    this.#players = players
    this.#playerRateLimiters = new PlayerRateLimiters(context.clock, context.options.limits)
    this.#resumption = new Resumption(
      context,
      tokens,
      edge,
      store,
      sessions,
      players,
      this.#playerRateLimiters,
    )
  }

  /** Binds a session to the connection, or says why not. Undefined: the connection closed meanwhile, and there is nothing to answer. */
  greet(connection: Connection, hello: Hello): Promise<Admitted | Rejection | undefined> {
    return 'token' in hello
      ? this.#start(connection, hello.project_id, hello.token)
      : this.#resume(connection, hello.project_id, hello.resume)
  }

  /** Ends a session, whichever node has it. False: the project has no such session. Rejects with `StoreUnavailable`. */
  async endSession(projectId: string, sessionId: string): Promise<boolean> {
    for (;;) {
      const stored = await this.#store.load(sessionId)
      if (stored?.record.claims.project_id !== projectId) return false
      let session = this.#sessions.find(sessionId)
      if (!session) {
        const taken = await this.#resumption.take(stored)
        if (!taken) continue
        session = this.#resumption.moveIn(taken, true)
      }
      const { connection } = session
      // Rooms ignore 'session_ended' from an edge that does not serve the member yet: here the edge before may still be the one.
      this.#sessions.end(session, 'kicked')
      connection?.close('revoked', ENDED_BY_OPERATOR)
      return true
    }
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
    const closed = this.#closed ?? this.#projectFull(projectId)
    if (closed) return closed
    const { resume_token: resumeToken, right } = newResumeToken(random)
    const at = clock.monotonic()
    const opened = await this.#comeIn(
      (arrived) =>
        this.#players.during(claims, {
          write: () => this.#open(connection, claims, right, arrived),
          arrive: (session) => session,
          undo: (session) => 'close' in session || this.#sessions.end(session, 'left'),
        }),
      projectId,
    )
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
    const closed = this.#sessions.find(sessionId) ? undefined : this.#closed
    if (closed) return closed
    const taken = await this.#comeIn(() =>
      this.#resumption.takeOver({ connection, projectId, sessionId, resumeToken }),
    )
    if (!taken || 'close' in taken) return taken
    const { session } = taken
    if (session.expiredMs > options.sessionResumeTtl * 1000) {
      this.#sessions.end(session, 'session_ended')
      return { close: 'resume_failed', reason: 'the token expired too long ago: start a new session' }
    }
    session.connect(connection)
    if (session.expiredMs >= 0) session.allowFreshToken(options.handshakeMs)
    return this.#admit(connection, { ...taken, traceBefore: taken.record.trace, positions: rooms })
  }

  /** The last look before a client is let in: all of this may have changed while the store was writing. */
  #admit(connection: Connection, admitted: Admitted): Admitted | Rejection | undefined {
    const { session, positions } = admitted
    const rejection = this.#tokens.revoked(session.claims) ?? session.rejection
    if (rejection) {
      this.#sessions.end(session, 'session_ended')
      return rejection
    }
    this.#edge.expelBanned(session)
    if (connection.open) return admitted
    // No one can know of a session that was never welcome; one that was resumed can be resumed again.
    if (positions && !connection.goodbye) this.#sessions.suspend(session)
    else this.#sessions.end(session, 'left')
    return undefined
  }

  /** Why this node takes no more sessions; undefined: it does. */
  get #closed(): Rejection | undefined {
    const { cordoned, options } = this.#context
    if (cordoned()) return CORDONED
    const { maxSessions } = options
    return maxSessions > 0 && this.#sessions.size + this.#coming >= maxSessions ? FULL : undefined
  }

  /**
   * Why this node takes no new session of a project; undefined: it does. A session that exists is not refused: when a node drains, its sessions
   * move to the others.
   */
  #projectFull(projectId: string): Rejection | undefined {
    const { options, metrics } = this.#context
    const { maxSessionsPerProject: max } = options
    if (max === 0 || this.#sessions.ofProject(projectId) + this.#newOfProject.of(projectId) < max)
      return undefined
    metrics.projectSessionsRefused.inc()
    return tryAgain(`this node has ${max} sessions of this project already`)
  }

  /**
   * Counts a session that is on its way in, until `work` calls `arrived`: then `Sessions` counts it. `projectId`: it is a new one of this
   * project. A store that does not answer is a refusal.
   */
  async #comeIn<T>(work: (arrived: () => void) => Promise<T>, projectId?: string): Promise<T | Rejection> {
    const count = (change: 1 | -1): void => {
      this.#coming += change
      if (projectId !== undefined) this.#newOfProject.add(projectId, change)
    }
    let isCounted = true
    const arrived = (): void => {
      if (isCounted) count(-1)
      isCounted = false
    }
    count(1)
    try {
      return await work(arrived)
    } catch (error) {
      if (error instanceof StoreUnavailable) return UNAVAILABLE
      throw error
    } finally {
      arrived()
    }
  }

  /**
   * A new session. It counts among those that its player (`sub`) has in the whole cluster; where the token names no player, among those of
   * the token. When there are as many as allowed, it takes the place of the oldest one without a connection, and is refused when all of
   * the oldest 32 are connected. A refusal costs these reads and two looks at each set, 16 at most, however many sessions there are.
   */
  async #open(
    connection: Connection,
    claims: TokenClaims,
    right: ResumeRight,
    arrived: () => void,
  ): Promise<Session | Rejection> {
    const { clock, random } = this.#context
    const rateLimiter = this.#playerRateLimiters.limiterOf(claims)
    const openIn = async ({ set, max }: Partial<QuotaSet> = {}): Promise<Session | undefined> => {
      const sessionId = newSessionId(random, set)
      const place = set === undefined ? undefined : { set, came_at: clock.now() }
      const session = new Session(clock, { sessionId, claims, right, rateLimiter, place })
      session.connect(connection)
      if (!(await this.#sessions.open(session, max ?? 0))) return undefined
      arrived()
      return session
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
    const { maxSessionsPerSub } = this.#context.options
    const { sub, project_id: projectId } = claims
    const max = sub === undefined ? TOKEN_SHARE * maxSessionsPerSub : maxSessionsPerSub
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
      const taken = await this.#resumption.take(stored)
      if (!taken) continue
      this.#sessions.end(this.#resumption.moveIn(taken), 'session_ended')
      metrics.sessionsEvicted.inc()
      await this.#store.leave(stored.record.session_id, stored.record.place)
      return true
    }
    return false
  }
}

const FULL = tryAgain('this node has as many sessions as it takes')
const CORDONED = tryAgain('this node takes no new sessions')
const UNAVAILABLE = tryAgain('sessions cannot be written down at the moment')
