import type { Clock } from '../../shared/clock.ts'
import { newId } from '../../shared/ids.ts'
import type { ClientMessage, Limits, ResumePosition } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import type { Connection } from './connection.ts'
import { Session } from './session.ts'
import type { Sessions } from './sessions.ts'
import type { Refusal, TokenCheck } from './token-check.ts'

type Hello = Extract<ClientMessage, { t: 'hello' }>

/** Somebody is let in. */
export interface Admission {
  readonly session: Session
  /** Where the client stands in its rooms; undefined for a new session. */
  readonly positions: readonly ResumePosition[] | undefined
}

/** What a handshake needs. */
export interface HandshakeParts {
  readonly clock: Clock
  readonly random: Random
  readonly tokens: TokenCheck
  readonly sessions: Sessions
  readonly limits: Limits
  /** How long a resumed session with an expired token may take to send a fresh one. */
  readonly handshake_ms: number
  readonly resume_ttl_seconds: number
}

/** Decides who gets a session: a new one for a good token, an old one for its resume token. */
export class Handshake {
  readonly #parts: HandshakeParts

  constructor(parts: HandshakeParts) {
    this.#parts = parts
  }

  /** Binds a session to the connection, or says why not. Undefined: the connection closed meanwhile, and nothing has happened. */
  greet(connection: Connection, hello: Hello): Promise<Admission | Refusal | undefined> {
    return 'token' in hello
      ? this.#start(connection, hello.project_id, hello.token)
      : this.#resume(connection, hello.project_id, hello.resume)
  }

  async #start(
    connection: Connection,
    project_id: string,
    token: string,
  ): Promise<Admission | Refusal | undefined> {
    const { clock, random, tokens, sessions, limits } = this.#parts
    const claims = await tokens.check(project_id, token)
    if (!connection.open) return undefined
    if ('close' in claims) return claims
    const session = new Session(newId('ses', random), claims, limits, clock, random)
    sessions.add(session)
    session.connect(connection)
    return { session, positions: undefined }
  }

  async #resume(
    connection: Connection,
    project_id: string,
    { session_id, resume_token, rooms }: Extract<Hello, { resume: unknown }>['resume'],
  ): Promise<Admission | Refusal | undefined> {
    const found = this.#find(project_id, session_id, resume_token)
    if ('close' in found) return found
    const refused = await this.#parts.tokens.checkKey(project_id, found.claims.key_id)
    if (!connection.open) return undefined
    if (refused) return refused
    // The session may have been resumed, or have ended, while the key was being checked. From here on nothing is awaited.
    const session = this.#find(project_id, session_id, resume_token)
    if ('close' in session) return session
    return this.#takeOver(session, connection, rooms)
  }

  #find(project_id: string, session_id: string, resume_token: string): Session | Refusal {
    const session = this.#parts.sessions.find(session_id)
    if (!session || session.project_id !== project_id || !this.#resumable(session)) return UNKNOWN
    const check = session.resume_token.check(resume_token)
    if (check === 'used') return USED
    return check === 'current' ? session : UNKNOWN
  }

  #resumable(session: Session): boolean {
    return session.detached_ms <= this.#parts.resume_ttl_seconds * 1000
  }

  #takeOver(
    session: Session,
    connection: Connection,
    positions: readonly ResumePosition[],
  ): Admission | Refusal {
    const { sessions, handshake_ms, resume_ttl_seconds } = this.#parts
    const before = session.connection
    if (before) sessions.detach(session)
    before?.close('session_taken_over', 'a newer connection resumed this session')
    if (session.expired_ms > resume_ttl_seconds * 1000) {
      sessions.end(session, 'session_ended')
      return { close: 'token_expired', reason: 'the token expired too long ago: start a new session' }
    }
    session.connect(connection)
    if (session.expired_ms >= 0) session.allowFreshToken(handshake_ms)
    return { session, positions }
  }
}

const UNKNOWN: Refusal = {
  close: 'resume_failed',
  reason: 'there is no such session, or this is not its resume token',
}
const USED: Refusal = {
  close: 'session_taken_over',
  reason: 'this resume token was used already: a newer connection has the session',
}
