import { sleep } from '../../shared/clock.ts'
import { idPattern } from '../../shared/ids.ts'
import type { ClientMessage, ResumePosition } from '../../shared/protocol/messages.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import { ProjectCounts } from '../metrics.ts'
import { hasPlace } from '../shares.ts'
import { roomAddress } from '../traffic.ts'
import { type RateLevel, whileConnected } from './budget.ts'
import type { Connection } from './connection.ts'
import type { GatewayContext } from './context.ts'
import type { Edge } from './edge.ts'
import type { Players } from './players.ts'
import { principalOf } from './principal.ts'
import { type Rejection, tryAgain } from './refusals.ts'
import { checkResumeToken, isResumeToken, newResumeToken, type ResumeRight } from './resume-token.ts'
import { arrivedAt, Session } from './session.ts'
import {
  newSessionId,
  type QuotaSet,
  quotaSets,
  type SessionRecord,
  type SessionStore,
  type StoredSession,
} from './session-store.ts'
import { ENDED_BY_OPERATOR, RECORD_SPARE_MS, SESSIONS_REWRITTEN_MS, type Sessions } from './sessions.ts'

/** Maximum time between the takeover of a session and its `welcome`. */
export const WELCOME_WITHIN_MS = 3000
/** Time for a client to receive `welcome`, before a client with the previous token is let in. */
const CONFIRM_SPARE_MS = 2000
/** Number of attempts to take a session while its record changes. */
const TAKE_ATTEMPTS = 5
/** Time between two checks of a waiting claimant. */
const CLAIMANT_CHECK_MS = 100
const SESSION_ID = idPattern('ses')

/** A client that wants to resume a session. */
interface Claimant {
  readonly connection: Connection
  readonly projectId: string
  readonly sessionId: string
  readonly resumeToken: string
}

/** A session for which it is unknown whether the latest resume has reached its client. */
interface Undecided {
  readonly undecided: StoredSession
}

/** A session that this node has taken. */
interface TakenSession extends StoredSession {
  /** Its remaining rate. Undefined: the full rate. */
  readonly pace: RateLevel | undefined
  /** The node that had the session before. */
  readonly fromNode: string
  readonly resumeToken: string
  readonly at: number
}

/** A session that has moved to this node. */
interface Resumed extends TakenSession {
  readonly session: Session
}

/** Number of attempts to make room for a new session. */
const ROOM_ATTEMPTS = 3
/** Quota of a token without sub, as a multiple of a player's: many players may share such a token. */
const TOKEN_SHARE = 100

export type Hello = Extract<ClientMessage, { t: 'hello' }>
type Resume = Extract<Hello, { resume: unknown }>['resume']

/** An admitted client. */
export interface Admitted {
  readonly session: Session
  /** Token for the next resume. */
  readonly resumeToken: string
  /** A time before the session was taken or created, on the monotonic clock. */
  readonly at: number
  /** The span of the session's previous handshake. Undefined: the session is new, or the handshake was not traced. */
  readonly traceBefore?: string | undefined
  /** The client's position in each room. Undefined: the session is new. */
  readonly positions: readonly ResumePosition[] | undefined
}

/** Maximum number of sessions of a player or token. */
interface Quota {
  readonly of: 'token' | 'player (sub)'
  readonly max: number
  /** Store sets with the places of the sessions. */
  readonly sets: readonly QuotaSet[]
}

/** Checks of tokens (`Authenticator`). */
interface Tokens {
  check(projectId: string, token: string, hello: Connection): Promise<TokenClaims | Rejection>
  checkKey(claims: TokenClaims): Promise<Rejection | undefined>
  revoked(claims: TokenClaims): Rejection | undefined
}

/**
 * Decides who gets a session. A valid token gets a new session within the quota of its player. A resume token gets its existing session,
 * whichever node has it.
 */
export class Handshake {
  readonly #context: GatewayContext
  readonly #tokens: Tokens
  readonly #edge: Edge
  readonly #store: SessionStore
  readonly #sessions: Sessions
  readonly #players: Players
  /** Sessions with a waiting claimant at this node, at most one each. Its connection counts as one without a session. */
  readonly #waiting = new Set<string>()
  /** Number of handshakes that are getting a session. */
  #arriving = 0
  /** The same for new sessions, by project. */
  readonly #newOfProject = new ProjectCounts()

  constructor(
    context: GatewayContext,
    tokens: Tokens,
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
  }

  /** Gives the connection a session, or returns the reason for a rejection. Undefined: the connection has closed, so no answer is needed. */
  greet(connection: Connection, hello: Hello): Promise<Admitted | Rejection | undefined> {
    return 'token' in hello
      ? this.#start(connection, hello.project_id, hello.token)
      : this.#resume(connection, hello.project_id, hello.resume)
  }

  /** Ends a session, whichever node has it. Returns false if the project has no such session. Rejects with `StoreUnavailable`. */
  async endSession(projectId: string, sessionId: string): Promise<boolean> {
    for (;;) {
      const stored = await this.#store.load(sessionId)
      if (stored?.record.claims.project_id !== projectId) return false
      let session = this.#sessions.find(sessionId)
      if (!session) {
        const taken = await this.#take(stored)
        if (!taken) continue
        session = this.#moveIn(taken, { ended: true })
      }
      const { connection } = session
      // A room ignores 'session_ended' from an edge that does not serve the member yet. Here the previous edge may still serve it.
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
    const claims = await this.#tokens.check(projectId, token, connection)
    if (!connection.open) return undefined
    if ('close' in claims) return claims
    const closed = this.#closed(projectId, { isNew: true })
    if (closed) return closed
    const { resume_token: resumeToken, right } = newResumeToken(random)
    const at = clock.monotonic()
    const opened = await this.#countArrival(
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
    // A session that resumes at its own node needs no additional capacity.
    const closed = this.#sessions.find(sessionId) ? undefined : this.#closed(projectId)
    if (closed) return closed
    const taken = await this.#countArrival(() =>
      this.#takeOver({ connection, projectId, sessionId, resumeToken }),
    )
    if (!taken || 'close' in taken) return taken
    const { session } = taken
    if (session.token.expiredMs > options.sessionResumeTtl * 1000) {
      this.#sessions.end(session, 'session_ended')
      return { close: 'resume_failed', reason: 'the token expired too long ago: start a new session' }
    }
    session.connect(connection)
    if (session.token.expiredMs >= 0) session.token.extend(options.handshakeMs)
    return this.#admit(connection, { ...taken, traceBefore: taken.record.trace, positions: rooms })
  }

  /** The last check before a client is admitted: key, player and connection may have changed during the store's write. */
  #admit(connection: Connection, admitted: Admitted): Admitted | Rejection | undefined {
    const { session, positions } = admitted
    const rejection = this.#tokens.revoked(session.claims) ?? session.rejection
    if (rejection) {
      this.#sessions.end(session, 'session_ended')
      return rejection
    }
    this.#edge.expelBanned(session)
    if (connection.open) return admitted
    // The client of a new session without `welcome` does not know the session. A resumed one can be resumed again.
    if (positions && !connection.goodbye) this.#sessions.suspend(session)
    else this.#sessions.end(session, 'left')
    return undefined
  }

  /**
   * Reason why this node accepts no session of a project. Undefined: it does. `MAX_SESSIONS_PER_PROJECT` is for new sessions only: when a
   * node drains, its sessions move to the others.
   */
  #closed(projectId: string, { isNew = false } = {}): Rejection | undefined {
    const { cluster, options, metrics } = this.#context
    const { maxSessions: max, maxSessionsPerProject: maxOfProject, projectShare: share } = options
    if (cluster.cordoned) return CORDONED
    const ofProject = this.#sessions.ofProject(projectId) + this.#newOfProject.of(projectId)
    if (!hasPlace({ max, share }, this.#sessions.size + this.#arriving, ofProject)) return FULL
    if (!isNew || maxOfProject === 0 || ofProject < maxOfProject) return undefined
    metrics.projectSessionsRefused.inc()
    return tryAgain(`this node has ${maxOfProject} sessions of this project already`)
  }

  /**
   * Counts a session that is arriving, until `work` calls `arrived` because `Sessions` counts it. `projectId`: the project of a new
   * session. Returns a rejection if the store does not answer.
   */
  async #countArrival<T>(
    work: (arrived: () => void) => Promise<T>,
    projectId?: string,
  ): Promise<T | Rejection> {
    const count = (change: 1 | -1): void => {
      this.#arriving += change
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
   * Creates a new session. It counts in the quota of its player (`sub`) in the whole cluster, or of its token if that names no player. If the quota
   * is used up, the session replaces the oldest one without a connection. If the oldest 32 are all connected, it is refused. A refusal costs
   * reading these 32 and two attempts for each set (at most 16 sets), however many sessions there are.
   */
  async #open(
    connection: Connection,
    claims: TokenClaims,
    right: ResumeRight,
    arrived: () => void,
  ): Promise<Session | Rejection> {
    const { clock, random, budgets } = this.#context
    const openIn = async ({ set, max }: Partial<QuotaSet> = {}): Promise<Session | undefined> => {
      const sessionId = newSessionId(random, set)
      const place = set === undefined ? undefined : { set, came_at: clock.now() }
      const budget = budgets.ofSession(claims, sessionId)
      const start = { sessionId, claims, right, budget, place, from: connection.from }
      const session = new Session(this.#context, start)
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
      if (!(await this.#freePlace(sets))) break
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

  /** Removes places of ended sessions, or ends the oldest session without a connection. Returns false if no place became free. */
  async #freePlace(sets: readonly QuotaSet[]): Promise<boolean> {
    const { cluster, metrics } = this.#context
    const oldest = await this.#store.oldest(sets)
    const found = await this.#store.loadAll(oldest.map(({ session_id: sessionId }) => sessionId))
    // A place is taken and released together with the record: without a record, the session has ended.
    const over = oldest.filter((_, index) => found[index] === undefined)
    await Promise.all(over.map(({ session_id: sessionId, place }) => this.#store.leave(sessionId, place)))
    if (over.length > 0) return true
    for (const stored of found) {
      if (!stored?.record.place) continue
      if (!stored.record.detached && !(await cluster.nodes.isDead(stored.record.node_id))) continue
      const taken = await this.#take(stored)
      if (!taken) continue
      this.#sessions.end(this.#moveIn(taken), 'session_ended')
      metrics.sessionsEvicted.inc()
      await this.#store.leave(stored.record.session_id, stored.record.place)
      return true
    }
    return false
  }

  /**
   * Moves a session to this node if the claimant has its resume token and its key is valid. One write takes the session and sets the next token.
   * It names the version of the record that was read, so only one of several claimants with the same token succeeds. Undefined: the claimant
   * has disconnected, and nothing has changed. Rejects with `StoreUnavailable`.
   *
   * A resume can fail after that write and before the client receives `welcome`. The client then tries again with its token, which is now used.
   * Therefore a used token is refused only when the client of the later resume is known to have its `welcome`. It becomes valid again if that
   * client is lost before.
   */
  async #takeOver(claimant: Claimant): Promise<Resumed | Rejection | undefined> {
    for (let attempt = 0; attempt < TAKE_ATTEMPTS; attempt++) {
      const found = (attempt === 0 && this.#known(claimant)) || (await this.#find(claimant))
      if (!found || 'close' in found) return found
      const refused = await this.#tokens.checkKey(found.record.claims)
      if (refused) return refused
      if (!claimant.connection.wanted) return undefined
      const resumed = await this.#players.during(found.record.claims, {
        write: () => this.#take(found, claimant.resumeToken),
        arrive: (taken) => taken && { ...taken, session: this.#moveIn(taken, { claimant }) },
        undo: (arrived) => arrived && this.#sessions.suspend(arrived.session),
      })
      if (resumed) return resumed
    }
    return BUSY
  }

  /**
   * Returns the session without a read, if this node has it and the claimant has its latest token. If another node has taken the session since,
   * the write of the takeover fails.
   */
  #known({ projectId, sessionId, resumeToken }: Claimant): StoredSession | undefined {
    const written = this.#sessions.written(sessionId)
    if (written?.record.claims.project_id !== projectId) return undefined
    return checkResumeToken(written.record.right, resumeToken) === 'current' ? written : undefined
  }

  /** Returns the session if the claimant may have it. Waits while that is undecided. */
  async #find(claimant: Claimant): Promise<StoredSession | Rejection | undefined> {
    const { metrics } = this.#context
    const { sessionId, resumeToken } = claimant
    if (!SESSION_ID.test(sessionId) || !isResumeToken(resumeToken)) return UNKNOWN
    if (!claimant.connection.wanted) return undefined
    const seen = await this.#look(claimant)
    if (!('undecided' in seen)) return seen
    if (this.#waiting.has(sessionId)) {
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
   * Reads the session, and checks the claimant's token. If the store may have lost the record of a session that is at this node, it is written again
   * and read again.
   */
  async #look({
    projectId,
    sessionId,
    resumeToken,
  }: Claimant): Promise<StoredSession | Rejection | Undecided> {
    const { nodeId, cluster } = this.#context
    const unknown = async () =>
      (await cluster.nodes.storeIsBehind(SESSIONS_REWRITTEN_MS)) ? BEHIND : UNKNOWN
    let found = (await this.#store.load(sessionId)) ?? (await this.#loadAgain(sessionId))
    if (!found) return unknown()
    if (found.record.claims.project_id !== projectId) return UNKNOWN
    let verdict = checkResumeToken(found.record.right, resumeToken)
    if (verdict === 'wrong' && found.record.node_id !== nodeId) {
      // After a loss of the store's data, an earlier holder may have written an outdated record.
      found = (await this.#loadAgain(sessionId)) ?? found
      verdict = checkResumeToken(found.record.right, resumeToken)
    }
    if (verdict === 'wrong') return unknown()
    if (verdict === 'current') return found
    const { right, detached, node_id: holder } = found.record
    if (right.confirmed) return USED
    return detached || cluster.nodes.isGone(holder) ? found : { undecided: found }
  }

  /** Writes and reads again a session of this node whose record the store has lost. */
  async #loadAgain(sessionId: string): Promise<StoredSession | undefined> {
    const session = this.#sessions.find(sessionId)
    return session && (await this.#sessions.save(session)) ? this.#store.load(sessionId) : undefined
  }

  /** Reads a session at growing intervals, until it is decided or the time for its client to confirm has passed. */
  async #waitFor(claimant: Claimant, first: StoredSession): Promise<StoredSession | Rejection | undefined> {
    const { clock, cluster } = this.#context
    // Longest time in which a client may lack the token that its resume has sent.
    const withoutTokenMs = WELCOME_WITHIN_MS + CONFIRM_SPARE_MS
    const begunAt = clock.monotonic()
    let { node_id: holder, right } = first.record
    let until = begunAt + withoutTokenMs
    let readAt = begunAt
    for (;;) {
      await sleep(clock, CLAIMANT_CHECK_MS)
      if (!claimant.connection.wanted) return undefined
      const now = clock.monotonic()
      if (now < readAt && now < until && !cluster.nodes.isGone(holder)) continue
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
   * Takes a session for this node. `usedToken`: the client's resume token; undefined if an operator or a quota ends the session. Returns
   * undefined if the record has changed since it was read.
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
      // Life of the record if it is not written again.
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
   * Creates the session from its record, and removes it from the node that had it. A session that resumes at its own node is created again too, so
   * that there is one way to resume. `claimant`: the client; undefined if an operator or a quota ends the session. `ended`: an operator ends it;
   * the client gets the close code from its previous node.
   */
  #moveIn(
    { record, version, fromNode, pace }: TakenSession,
    { claimant, ended = false }: { readonly claimant?: Claimant; readonly ended?: boolean } = {},
  ): Session {
    const { nodeId, metrics, budgets, cluster } = this.#context
    const { session_id: sessionId, claims, right, place, seats, rerouting } = record
    const here = this.#sessions.find(sessionId)
    if (here) this.#sessions.drop(here)
    if (fromNode !== nodeId) cluster.notifyTaken(fromNode, sessionId, ended)
    const budget = here?.budget ?? budgets.ofSession(claims, sessionId, pace)
    const session = new Session(
      this.#context,
      { sessionId, claims, right, budget, place, from: claimant?.connection.from },
      record.ended,
      here?.codes,
    )
    const arrived = rerouting && arrivedAt(nodeId, rerouting)
    session.rerouting = arrived ?? rerouting
    if (arrived) metrics.reroutes.inc({ outcome: arrived.failures === 0 ? 'arrived' : 'elsewhere' })
    this.#sessions.add(session, version)
    for (const { member_id: memberId, room_type: roomType, key, join_request: joinRequest } of seats)
      this.#edge.restore(session, roomAddress(claims.project_id, roomType, key), memberId, joinRequest)
    return session
  }
}

const FULL = tryAgain('this node has reached its maximum number of sessions')
const CORDONED = tryAgain('this node accepts no new sessions')
const UNAVAILABLE = tryAgain('the store does not answer')
const BEHIND = tryAgain('the store has restarted without data, and sessions are being written again')
const WAITED_FOR = tryAgain('this resume token was used, and its successor may not have arrived yet')
const BUSY = tryAgain('the session is changing')
const UNKNOWN: Rejection = {
  close: 'resume_failed',
  reason: 'there is no such session, or this is not its resume token',
}
const USED: Rejection = {
  close: 'session_taken_over',
  reason: 'this resume token was used already: a newer connection has the session',
}
