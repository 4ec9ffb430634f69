import { Backoff } from '../shared/backoff.ts'
import type { Clock } from '../shared/clock.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import { CLOSE, closeName } from '../shared/protocol/error-codes.ts'
import type { ClientMessage, Limits, ResumePosition } from '../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../shared/protocol/msgpack-client-codec.ts'
import type { Random } from '../shared/random.ts'
import { RateLimit } from '../shared/rate-limit.ts'
import {
  ClientConnection,
  type Encoded,
  platformWebSocket,
  type WebSocketConstructor,
  type Welcome,
} from './connection.ts'
import { closeError, RoomfulError } from './errors.ts'
import type { Report } from './listeners.ts'
import type { ServerClock } from './server-clock.ts'
import type { Credentials } from './tab.ts'
import type { TokenSource } from './token-source.ts'

/** Connection status. `connecting`: not connected yet. `online`: connected. `reconnecting`: the connection was lost. `closed`: final. */
export type ConnectionStatus = 'connecting' | 'online' | 'reconnecting' | 'closed'

/** Time limit from the start of an attempt to the welcome, including the fetch of a token. */
const ATTEMPT_MS = 10_000
const BACKOFF_BASE_MS = 250
const BACKOFF_MAX_MS = 10_000
/** Additional wait of a client that only watches: random between these times, so that the players of a lost node are back first. */
const SPECTATOR_MS = { least: 250, most: 1500 }
/** Minimum duration of a stable connection. After its loss, the backoff starts at the shortest wait again. */
const STABLE_MS = 5000
/** Time limit for the second socket of a move to open, and then for its welcome. */
const MOVE_MS = 5000
/** Time for which other addresses are ignored after a failed move. It doubles after each failure. */
const STAY_MS = 30_000
const LONGEST_STAY_MS = 3_600_000
/** Fraction of the server's limits up to which unreliable messages are sent. The rest is for pings, and for frames that arrive closer together than they were sent. */
const UNRELIABLE_SHARE = 0.8
/** Maximum number of unreliable messages that are kept during a move. */
const MAX_HELD = 64

interface SessionParts {
  readonly url: string
  readonly reconnect: boolean
  /** Time limit of the first connection in milliseconds, retries included. */
  readonly connectTimeoutMs: number
  /** Hosts to which the server may move the session, in addition to the host of `url`. Undefined: it may not move the session at all. */
  readonly rerouteHosts: readonly string[] | undefined
  readonly WebSocket: WebSocketConstructor | undefined
  readonly tokens: TokenSource
  /** Returns the credentials of an earlier page's session of the token's player, if there is one. */
  readonly restore: (token: string) => Promise<Credentials | undefined>
  readonly serverClock: ServerClock
  readonly clock: Clock
  readonly random: Random
  readonly report: Report
}

/** Lowest close code that an application may use. Libraries and platforms use lower codes. */
const FIRST_APPLICATION_CODE = 4000

/** Callbacks of a session. */
interface SessionHandlers {
  /** The server has accepted the connection. `moved`: it replaces a connection that was not lost, as the server requested. */
  welcome(moved: boolean): void
  message(message: DecodedMessage): void
  /** The connection is lost, or is being replaced. The session sends nothing until the next welcome. */
  lost(): void
  /** The session is lost, with all its seats. The client starts a new one. */
  forgotten(error: RoomfulError): void
  /** Returns the positions of the client in its rooms. */
  positions(): ResumePosition[]
  /** True if the client has seats, and watches in all of them. */
  onlyWatches(): boolean
  /** The status has changed. After `closed` no callback is called. `error`: reason of a loss or a close. Undefined: the client closed it. */
  status(status: ConnectionStatus, error?: RoomfulError): void
}

/** The client's session on the server. It outlasts connections: the client resumes after a loss, with backoff, and moves when the server asks. */
export class ClientSession {
  readonly #parts: SessionParts
  readonly #handlers: SessionHandlers
  readonly #backoff: Backoff
  /** The server's message rate. Reliable messages count too; unreliable messages beyond the rate are dropped. */
  #rate: RateLimit | undefined
  /** Encodes messages with no state of a connection, so that any connection can send them. */
  readonly #codec = new MsgpackClientCodec()
  #status: ConnectionStatus = 'connecting'
  readonly #right = new ResumeRight()
  #connection: ClientConnection | undefined
  /** True after the hello of this connection was sent. */
  #greeted = false
  /** True after the welcome of this connection. Only then may messages be sent. */
  #ready = false
  /** Requested move, until its welcome. `url` undefined: to the client's configured address. */
  #move: { readonly url: string | undefined } | undefined
  /** The second socket of a move, until its hello. */
  #next: ClientConnection | undefined
  /** The previous connection of a move, from the new hello until it has closed. No message arrives on it. */
  #before: ClientConnection | undefined
  /** Unreliable messages that wait for the welcome of a move. */
  #held: Encoded[] = []
  /** End of the time in which other addresses are ignored after a failed move, in milliseconds of the monotonic clock. */
  #staysUntil = 0
  #failedMoves = 0
  #Socket: WebSocketConstructor | undefined
  #limits: Limits | undefined
  /** Current attempt to connect: a new object for each, to recognize late answers to an abandoned attempt. */
  #attempt: object | undefined
  #helloSentAt = 0
  #welcomedAt = 0
  #lastError: RoomfulError | undefined
  /** Cancels the only timer: deadline of an attempt, wait for the next attempt, or wait for a move. */
  #cancelTimer = () => {}
  #cancelConnectTimeout = () => {}

  constructor(parts: SessionParts, handlers: SessionHandlers) {
    this.#parts = parts
    this.#handlers = handlers
    this.#backoff = new Backoff(parts.random, BACKOFF_BASE_MS, BACKOFF_MAX_MS)
  }

  get status(): ConnectionStatus {
    return this.#status
  }

  /** Credentials for a resume. Undefined: there is no session. */
  get credentials(): Credentials | undefined {
    return this.#right.credentials
  }

  /** Makes the first connection. */
  open(): void {
    const { url, clock, connectTimeoutMs } = this.#parts
    this.#cancelConnectTimeout = clock.schedule(connectTimeoutMs, () => {
      const last = this.#lastError
      const text = `No connection to ${url} within ${connectTimeoutMs} ms.${last ? ` ${last.message}` : ''}`
      this.close(new RoomfulError('connection_failed', text, { retryable: true, cause: last }))
    })
    void this.#dial()
  }

  /**
   * Sends a message, or drops it if the client is not online. The server reads no faster than its limits allow. Throws a RoomfulError
   * (payload_too_large).
   */
  send(message: ClientMessage): void {
    if (this.#ready) this.sendEncoded(this.encode(message))
  }

  /** Same as `send`, for a message from `encode`. */
  sendEncoded(payload: Encoded): void {
    if (!this.#ready) return
    this.#connection?.write(payload)
    this.#rate?.charge(1)
  }

  /** Returns the bytes of a message, which are valid in every session. Throws a RoomfulError (payload_too_large). */
  encode(message: ClientMessage): Encoded {
    return this.#fitting(this.#codec.encode(message) as Encoded)
  }

  /** Sends a message, or drops it if the client is not online or at the server's limit. Throws a RoomfulError (payload_too_large). */
  trySend(message: ClientMessage): void {
    if (this.#status !== 'online') return
    const payload = this.encode(message)
    if (this.#ready) this.#writeUnreliable(payload)
    else if (this.#held.length < MAX_HELD) this.#held.push(payload)
  }

  /** Starts the next attempt to connect immediately, because the network is back. */
  hurry(): void {
    if (this.#status === 'reconnecting' && !this.#attempt) void this.#dial()
  }

  /** The page is hidden or closed. Closes the connection without a goodbye, and connects again only after `goOn`. */
  suspend(): void {
    const { status } = this
    if (status === 'connecting' || status === 'closed') return
    this.#drop()
    if (status === 'online') this.#setStatus('reconnecting')
  }

  /** The page is shown again. `credentials`: those that the last page with the session has stored. Undefined: the session has ended. */
  goOn(credentials: Credentials | undefined): void {
    if (credentials?.resume_token !== this.credentials?.resume_token)
      this.#forget(closeError(CLOSE.session_taken_over, ''), credentials)
    this.hurry()
  }

  /** Says goodbye and closes the session. `error`: reason, unless the caller closed it. */
  close(error?: RoomfulError): void {
    if (this.#status === 'closed') return
    // After the hello the server may have the session.
    if (this.#greeted) {
      // In the middle of a move, the server reads nothing more on the first connection.
      if (!this.#ready && this.#next) this.#changeOver()
      this.#connection?.send({ t: 'goodbye' })
    }
    this.#drop()
    this.#cancelConnectTimeout()
    this.#setStatus('closed', error)
  }

  #writeUnreliable(payload: Encoded): void {
    if (this.#rate?.take()) this.#connection?.write(payload)
  }

  #fitting(payload: Encoded): Encoded {
    const limit = this.#limits?.max_message_bytes ?? Number.POSITIVE_INFINITY
    if (payload.length <= limit) return payload
    throw new RoomfulError(
      'payload_too_large',
      `The message has ${payload.length} bytes; ${limit} are allowed.`,
    )
  }

  async #dial(): Promise<void> {
    const attempt = {}
    this.#attempt = attempt
    this.#expectWelcome(ATTEMPT_MS)
    try {
      const token = await this.#tokenForHello()
      this.#Socket ??= this.#parts.WebSocket ?? (await platformWebSocket())
      if (this.#attempt === attempt) this.#connection = this.#connect(this.#Socket, this.#parts.url, token)
    } catch (error) {
      if (this.#attempt === attempt)
        this.#lost(
          error instanceof RoomfulError ? error : failure(String(error), { retryable: false, cause: error }),
        )
    }
  }

  /** Returns the token for a hello. Undefined: the resume of a session that this page knows needs none. */
  async #tokenForHello(): Promise<string | undefined> {
    const { tokens, restore } = this.#parts
    if (this.#right.ownSession) return undefined
    const token = await tokens.next()
    const restored = this.credentials ? undefined : await restore(token)
    // Even if this attempt was abandoned: the seats of the earlier page are restored, so the next attempt must resume their session.
    if (restored && !this.credentials && !this.#isClosed()) this.#right.replace(restored, true)
    return token
  }

  /** Opens a connection. It sends a hello when it is open. */
  #connect(Socket: WebSocketConstructor, url: string, token?: string): ClientConnection {
    const ended = (error: RoomfulError): void => {
      if (connection === this.#next && this.#ready) this.#notMoved()
      else if (connection === this.#before) this.#before = undefined
      else this.#lost(error)
    }
    const connection: ClientConnection = new ClientConnection(Socket, url, this.#parts.clock, {
      opened: () => (connection === this.#next ? this.#leave() : this.#sayHello(token)),
      received: (message) => this.#receive(message, token),
      closed: (code, reason) => ended(this.#closeError(code, reason)),
      silent: () => ended(new RoomfulError('connection_lost', 'The server is silent.', { retryable: true })),
      broken: (cause) => ended(this.#unreadable(cause)),
    })
    return connection
  }

  #unreadable(cause: unknown): RoomfulError {
    const text = `Unreadable frame: ${cause}`
    const error = new RoomfulError('protocol_error', text, { retryable: true, cause })
    this.#parts.report(error)
    return error
  }

  #sayHello(token: string | undefined): void {
    this.#helloSentAt = this.#parts.clock.monotonic()
    this.#greeted = true
    const { projectId: project_id } = this.#parts.tokens
    const features = ['layers']
    if (!this.credentials) {
      this.#connection?.send({ t: 'hello', project_id, token: token!, features })
      return
    }
    this.#right.asked()
    const resume = { ...this.credentials, rooms: this.#handlers.positions() }
    this.#connection?.send({ t: 'hello', project_id, resume, features })
  }

  #receive(message: DecodedMessage, token: string | undefined): void {
    if (message.t === 'welcome') this.#welcome(message, token)
    else if (message.t === 'pong') this.#parts.serverClock.pong(message.at, message.server_time)
    else if (message.t === 'token') void this.#parts.tokens.requested()
    else if (message.t === 'move') this.#planMove(message.in_ms, message.url)
    else if (message.t === 'moved') this.#changeOver()
    else this.#handlers.message(message)
  }

  #welcome(welcome: Welcome, token: string | undefined): void {
    const { clock, serverClock, tokens } = this.#parts
    const connection = this.#connection!
    const moved = this.#status === 'online'
    const resumed = this.credentials !== undefined && welcome.resumed
    if (this.credentials && !resumed) this.#forget(closeError(CLOSE.resume_failed, ''))
    // A callback may have closed the client.
    if (this.#connection !== connection) return
    this.#cancelTimer()
    this.#cancelConnectTimeout()
    this.#right.replace({ session_id: welcome.session_id, resume_token: welcome.resume_token })
    this.#limits = welcome.limits
    if (this.#move?.url !== undefined) this.#failedMoves = 0
    this.#move = undefined
    this.#welcomedAt = clock.monotonic()
    serverClock.welcome(this.#helloSentAt, welcome.server_time)
    tokens.start((fresh) => connection.send({ t: 'token', token: fresh }))
    if (resumed && token !== undefined) connection.send({ t: 'token', token })
    connection.start(welcome)
    const { messages_per_second: messagesPerSecond, message_burst: messageBurst } = welcome.limits
    const perSecond = messagesPerSecond * UNRELIABLE_SHARE
    const burst = Math.max(1, messageBurst * UNRELIABLE_SHARE)
    // The used part of the rate stays used, because the server may be the same.
    this.#rate = new RateLimit(clock, { perSecond, burst }, this.#rate?.left)
    this.#status = 'online'
    this.#ready = true
    this.#handlers.welcome(moved)
    for (const payload of this.#held.splice(0)) this.#writeUnreliable(payload)
    if (!moved && this.#connection === connection) this.#handlers.status('online')
  }

  /** The server requests a move. */
  #planMove(inMs: number, url: string | undefined): void {
    if (!this.#ready || this.#move || (url !== undefined && !this.#mayMove(url))) return
    this.#move = { url }
    this.#setTimer(inMs, () => this.#openNext())
  }

  #mayMove(address: string): boolean {
    const { clock, url, rerouteHosts } = this.#parts
    return (
      rerouteHosts !== undefined &&
      mayGoTo(address, url, rerouteHosts) &&
      clock.monotonic() >= this.#staysUntil
    )
  }

  /** A move to another address has failed. */
  #stay(): void {
    const stayMs = Math.min(LONGEST_STAY_MS, STAY_MS * 2 ** this.#failedMoves++)
    this.#staysUntil = this.#parts.clock.monotonic() + stayMs
  }

  #openNext(): void {
    this.#setTimer(MOVE_MS, () => this.#notMoved())
    try {
      this.#next = this.#connect(this.#Socket!, this.#move?.url ?? this.#parts.url)
    } catch {
      // The constructor throws for an address that a page may not open, such as ws: on a page with https:.
      this.#notMoved()
    }
  }

  /** The second socket does not open, so the first stays in use. If the node drains, the client tries again. */
  #notMoved(): void {
    this.#dropNext()
    if (this.#move?.url === undefined) this.#setTimer(this.#backoff.next(), () => this.#openNext())
    else {
      this.#move = undefined
      this.#stay()
    }
  }

  #dropNext(): void {
    this.#cancelTimer()
    this.#next?.close()
    this.#next = undefined
  }

  /** The second socket is open. The client sends nothing more on the first connection, and reads it up to `moved`. */
  #leave(): void {
    const { tokens } = this.#parts
    this.#connection!.send({ t: 'move' })
    this.#connection!.rest()
    tokens.stop()
    this.#ready = false
    this.#expectWelcome(MOVE_MS)
  }

  /** Nothing more arrives on the first connection: resumes on the second one. */
  #changeOver(): void {
    if (!this.#next) return
    this.#before?.close()
    this.#before = this.#connection
    this.#connection = this.#next
    this.#next = undefined
    this.#handlers.lost()
    this.#expectWelcome(MOVE_MS)
    this.#sayHello(undefined)
  }

  /** The attempt failed, or the connection is lost. Depending on the reason, the client tries again or closes. */
  #lost(why: RoomfulError): void {
    const wasOnline = this.#status === 'online'
    const cause = wasOnline && !this.#ready ? this.#moveFailed(why) : why
    const { clock } = this.#parts
    const error = this.#right.understand(cause)
    if (wasOnline && clock.monotonic() - this.#welcomedAt >= STABLE_MS) this.#backoff.reset()
    this.#lastError = error
    this.#drop()
    if (this.#isClosed()) return
    if (this.#isFinal(error)) {
      this.close(error)
      return
    }
    if (error.code === 'resume_failed' && this.credentials) {
      // The server works, and the next hello starts another session. Earlier failures do not make it less likely to succeed.
      this.#backoff.reset()
      this.#forget(error)
    }
    if (this.#isClosed()) return
    this.#setTimer(this.#backoff.next() + (wasOnline ? this.#patienceMs() : 0), () => void this.#dial())
    if (wasOnline) this.#setStatus('reconnecting', error)
  }

  /** Time for which a client that was online lets others reconnect first, in milliseconds. */
  #patienceMs(): number {
    const { least, most } = SPECTATOR_MS
    return this.#handlers.onlyWatches() ? least + this.#parts.random.float() * (most - least) : 0
  }

  /** Returns a retryable error, whatever the other node answered: the client then asks at its configured address. */
  #moveFailed(cause: RoomfulError): RoomfulError {
    if (this.#move?.url !== undefined) this.#stay()
    const text = `The move to another node failed. ${cause.message}`
    return new RoomfulError('connection_lost', text, { retryable: true, cause })
  }

  /** Returns the reason why a socket closed. For a failed attempt with a code of the platform, the text names the address. */
  #closeError(code: number, reason: string): RoomfulError {
    if (this.#status === 'online' || closeName(code) !== undefined || code >= FIRST_APPLICATION_CODE)
      return closeError(code, reason)
    return failure(`No connection to ${this.#parts.url} (${reason || code}).`)
  }

  /** True if another attempt cannot succeed, or if `reconnect` is false. */
  #isFinal(error: RoomfulError): boolean {
    const { tokens, reconnect } = this.#parts
    if (!error.retryable || !reconnect) return true
    if (error.code === 'token_expired') return !tokens.renewable
    return error.code === 'token_unavailable' && this.#status === 'connecting'
  }

  /** Drops the session, which cannot be resumed. The next hello starts a new one, or resumes that of `credentials`. */
  #forget(error: RoomfulError, credentials?: Credentials): void {
    this.#right.replace(credentials, credentials !== undefined)
    this.#handlers.forgotten(error)
  }

  /** Ends the connection, or the attempt at one. */
  #drop(): void {
    this.#attempt = undefined
    this.#move = undefined
    this.#dropNext()
    this.#parts.tokens.stop()
    this.#before?.close()
    this.#before = undefined
    this.#connection?.close()
    this.#connection = undefined
    this.#greeted = false
    this.#ready = false
    this.#held = []
    if (this.#status !== 'online') return
    this.#status = 'reconnecting'
    this.#handlers.lost()
  }

  /** A method, because TypeScript does not expect that a callback has closed the client. */
  #isClosed(): boolean {
    return this.#status === 'closed'
  }

  #expectWelcome(withinMs: number): void {
    this.#setTimer(withinMs, () => this.#lost(failure(`No welcome came within ${withinMs} ms.`)))
  }

  #setTimer(delayMs: number, callback: () => void): void {
    this.#cancelTimer()
    this.#cancelTimer = this.#parts.clock.schedule(delayMs, callback)
  }

  #setStatus(status: ConnectionStatus, error?: RoomfulError): void {
    this.#status = status
    this.#handlers.status(status, error)
  }
}

const failure = (message: string, options: { retryable?: boolean; cause?: unknown } = {}): RoomfulError =>
  new RoomfulError('connection_failed', message, { retryable: true, ...options })

/** Credentials for resuming a session, and the meaning of a rejected resume. */
class ResumeRight {
  #credentials: Credentials | undefined
  /** True if another page of the tab left the credentials and no resume has succeeded since. */
  #restored = false
  /** Resumes requested since the last welcome. */
  #unanswered = 0

  /** Current credentials. Undefined: the next hello starts a session. */
  get credentials(): Credentials | undefined {
    return this.#credentials
  }

  /** True if this page has used the session and therefore knows its token. */
  get ownSession(): boolean {
    return this.#credentials !== undefined && !this.#restored
  }

  /** Sets the credentials of a welcome, or of another page (`restored`). Undefined: there is no session. */
  replace(credentials: Credentials | undefined, restored = false): void {
    this.#credentials = credentials
    this.#restored = restored
    this.#unanswered = 0
  }

  /** A hello with the credentials is being sent. */
  asked(): void {
    this.#unanswered += 1
  }

  /**
   * This client itself may have caused "taken over by a newer connection": an earlier resume succeeded, but its welcome with the next resume
   * token was lost. Then the session is unreachable, but no other client has it. If the session of another page is rejected, a new session
   * may still be accepted.
   */
  understand(error: RoomfulError): RoomfulError {
    const gone = (text: string) => new RoomfulError('resume_failed', text, { retryable: true, cause: error })
    if (this.#restored && !error.retryable) return gone(error.message)
    if (error.code !== 'session_taken_over' || this.#unanswered < 2) return error
    return gone('The session was resumed, but the answer was lost.')
  }
}

/** Location of a page. Undefined outside a browser. */
const here = (): string | undefined => (typeof location === 'undefined' ? undefined : location.href)

const isSecure = (protocol: string): boolean => protocol === 'wss:' || protocol === 'https:'

/**
 * Returns true if the session may continue at `address`, which would get its resume token. Allowed are the host of `given` (the client's
 * configured address), with any port and path, and `hosts`. A secure connection never moves to an insecure one.
 */
export function mayGoTo(address: string, given: string, hosts: readonly string[]): boolean {
  try {
    const to = new URL(address)
    const from = new URL(given, here())
    const known = to.hostname === from.hostname || hosts.includes(to.hostname)
    return known && (to.protocol === 'wss:' || (to.protocol === 'ws:' && !isSecure(from.protocol)))
  } catch {
    return false
  }
}
