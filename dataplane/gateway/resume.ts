import { sleep } from '../../shared/clock.ts'
import { idPattern } from '../../shared/ids.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { roomAddress } from '../traffic.ts'
import { type Authenticator, type Rejection, tryAgain } from './authentication.ts'
import { type RateLevel, whileConnected } from './budget.ts'
import type { Connection } from './connection.ts'
import type { GatewayContext } from './context.ts'
import type { Edge } from './edge.ts'
import type { Players } from './players.ts'
import { arrivedAt } from './rerouting.ts'
import { Session } from './session.ts'
import {
  checkResumeToken,
  isResumeToken,
  newResumeToken,
  type SessionRecord,
  type SessionStore,
  type StoredSession,
} from './session-record.ts'
import { RECORD_SPARE_MS, SESSIONS_REWRITTEN_MS, type Sessions } from './sessions.ts'

/** How long after its session was taken a client may get its `welcome`. */
export const WELCOME_WITHIN_MS = 3000
/** How long after that a client may take to receive it before a client with the token it used is let in. */
const CONFIRM_SPARE_MS = 2000
/** How often a session is tried to be taken while its record changes. */
const TAKE_ATTEMPTS = 5
/** How often a claimant that waits is looked after. */
const CLAIMANT_CHECK_MS = 100
const SESSION_ID = idPattern('ses')

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

/** A session that was taken for this node. */
interface TakenSession extends StoredSession {
  /** What it may still send; undefined: as much as a new one. */
  readonly pace: RateLevel | undefined
  /** The node that had it before. */
  readonly fromNode: string
  readonly resumeToken: string
  readonly at: number
}

/** A session that is at this node from now on. */
interface Resumed extends TakenSession {
  readonly session: Session
}

/** Decides who gets an old session, wherever it is, and brings it to this node. */
export class Resumption {
  readonly #context: GatewayContext
  readonly #tokens: Pick<Authenticator, 'checkKey'>
  readonly #edge: Edge
  readonly #store: SessionStore
  readonly #sessions: Sessions
  readonly #players: Players
  /** Sessions that some claimant at this node waits for: one each, so that waiting costs no more however many claim. */
  readonly #waiting = new Set<string>()

  constructor(
    context: GatewayContext,
    tokens: Pick<Authenticator, 'checkKey'>,
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

  /**
   * Brings a session to this node, wherever it was, if the claimant has its resume token and its key still stands. The write that does
   * it also puts the next token in force, and is made over the record as it was read: of several claimants with the same token one gets
   * the session. Undefined: the claimant has gone, and nothing has happened. Rejects with `StoreUnavailable`.
   *
   * A resume can fail between that write and the client's receiving `welcome`; the client then comes back with the token it has, which
   * is used. So a used token is refused only once the client of the later resume is known to have its `welcome`, and good again when
   * that client is lost before.
   */
  async takeOver(claimant: Claimant): Promise<Resumed | Rejection | undefined> {
    for (let attempt = 0; attempt < TAKE_ATTEMPTS; attempt++) {
      const found = await this.#find(claimant)
      if (!found || 'close' in found) return found
      const refused = await this.#tokens.checkKey(found.record.claims)
      if (refused) return refused
      if (!claimant.connection.wanted) return undefined
      const resumed = await this.#players.during(found.record.claims, {
        write: () => this.take(found, claimant.resumeToken),
        arrive: (taken) => taken && { ...taken, session: this.moveIn(taken) },
        undo: (arrived) => arrived && this.#sessions.suspend(arrived.session),
      })
      if (resumed) return resumed
    }
    return BUSY
  }

  /** The session, when the claimant may have it; waits while that is not decided. */
  async #find(claimant: Claimant): Promise<StoredSession | Rejection | undefined> {
    const { options, metrics } = this.#context
    const { sessionId, resumeToken } = claimant
    if (!SESSION_ID.test(sessionId) || !isResumeToken(resumeToken)) return UNKNOWN
    if (!claimant.connection.wanted) return undefined
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
    const unknown = async () => ((await storeIsBehind(SESSIONS_REWRITTEN_MS)) ? BEHIND : UNKNOWN)
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
    const { clock, nodeGone } = this.#context
    // For so long a client may be without the token that it was sent at its resume.
    const withoutTokenMs = WELCOME_WITHIN_MS + CONFIRM_SPARE_MS
    const begunAt = clock.monotonic()
    let { node_id: holder, right } = first.record
    let until = begunAt + withoutTokenMs
    let readAt = begunAt
    for (;;) {
      await sleep(clock, CLAIMANT_CHECK_MS)
      if (!claimant.connection.wanted) return undefined
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
  async take(
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
   * too, so that there is one way to resume. `ended`: an operator ends it, which its client learns from the node that it left.
   */
  moveIn({ record, version, fromNode, pace }: TakenSession, ended = false): Session {
    const { nodeId, clock, metrics, budgets, tellTaken } = this.#context
    const { session_id: sessionId, claims, right, place, seats, rerouting } = record
    const here = this.#sessions.find(sessionId)
    if (here) this.#sessions.drop(here)
    if (fromNode !== nodeId) tellTaken(fromNode, sessionId, ended)
    const budget = here?.budget ?? budgets.ofSession(claims, sessionId, pace)
    const session = new Session(clock, { sessionId, claims, right, budget, place }, record.ended, here?.codes)
    const arrived = rerouting && arrivedAt(nodeId, rerouting)
    session.rerouting = arrived ?? rerouting
    if (arrived) metrics.reroutes.inc({ outcome: arrived.failures === 0 ? 'arrived' : 'elsewhere' })
    this.#sessions.add(session, version)
    for (const { member_id: memberId, room_type: roomType, key, join_request: joinRequest } of seats)
      this.#edge.restore(session, roomAddress(claims.project_id, roomType, key), memberId, joinRequest)
    return session
  }
}

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
