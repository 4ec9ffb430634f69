import { type Clock, timestamp } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import { CLOSE, type CloseName } from '../../shared/protocol/close-codes.ts'
import type { InvalidMessage } from '../../shared/protocol/errors.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import { contextOf, noSpan, type Span, type Tracer } from '../../shared/tracing/tracer.ts'
import { frame } from '../frame.ts'
import { nodeName } from '../node-id.ts'
import type { Connection, ConnectionListener } from './connection.ts'
import type { Edge } from './edge.ts'
import type { Admission, Handshake } from './handshake.ts'
import type { PaceVerdict } from './message-pace.ts'
import { countHandshake, type GatewayMetrics, type HandshakeResult } from './metrics.ts'
import type { GatewayOptions } from './options.ts'
import type { PendingConnection } from './pending-connections.ts'
import type { Requests } from './requests.ts'
import { type ResumedRoom, resumeRooms } from './resumption.ts'
import type { Session } from './session.ts'
import type { Sessions } from './sessions.ts'
import type { Refusal, TokenCheck } from './token-check.ts'

/** How many messages may arrive behind `hello` before it is answered, and how many pings and pongs of the websocket before there is a session. */
const MAX_EARLY = 16

/** How many fresh tokens of one client may wait to be checked. */
const MAX_RENEWALS = 4

/** How much longer than for the rooms' answers a resume may take. */
const WELCOME_SPARE_MS = 1000

type Hello = Extract<ClientMessage, { t: 'hello' }>
type LaterMessage = Exclude<ClientMessage, Hello>

/** What every conversation of a gateway shares. */
export interface ConversationParts {
  readonly nodeId: string
  readonly clock: Clock
  readonly log: Logger
  readonly options: GatewayOptions
  readonly metrics: GatewayMetrics
  readonly tracer: Tracer
  readonly handshake: Handshake
  readonly tokens: TokenCheck
  readonly sessions: Sessions
  readonly requests: Requests
  readonly edge: Edge
  readonly over: (conversation: Conversation) => void
}

/** One connection from `hello` to its end: who is at the other end, and what they may say when. */
export class Conversation implements ConnectionListener {
  readonly connection: Connection
  readonly #parts: ConversationParts
  readonly #pending: PendingConnection
  readonly #stopWaiting: () => void
  /** Messages behind a `hello` that is being checked. */
  #early: { readonly message: LaterMessage; readonly bytes: number }[] = []
  #earlyControlFrames = 0
  #greeted = false
  #session: Session | undefined
  #span: Span = noSpan
  #welcome = false
  #renewals = 0
  #renewed: Promise<void> = Promise.resolve()

  /** `connect` makes the connection that reports to this conversation; its socket counts as `pending` until it has a session. */
  constructor(
    parts: ConversationParts,
    pending: PendingConnection,
    connect: (listener: ConnectionListener) => Connection,
  ) {
    this.#parts = parts
    this.#pending = pending
    this.connection = connect(this)
    this.#stopWaiting = parts.clock.schedule(parts.options.handshakeMs, () =>
      this.refuse('handshake_timeout', `no hello within ${parts.options.handshakeMs} ms`),
    )
  }

  message(message: ClientMessage, bytes: number): void {
    if (message.t === 'hello') this.#hello(message)
    else if (this.#session && this.#welcome) this.#request(this.#session, message, bytes)
    else if (this.#greeted) this.#waitForWelcome(message, bytes)
    else this.refuse('protocol_error', `the first message must be hello, not ${message.t}`)
  }

  invalid(problem: InvalidMessage): void {
    if (!this.#session) this.refuse('protocol_error', problem.message)
    else if (this.#admit(this.#session, problem))
      this.#parts.requests.refuse(this.#session, this.connection, problem, 'invalid_message', problem.message)
  }

  failed(error: unknown): void {
    this.#parts.log.error({ err: error, session_id: this.#session?.sessionId }, 'handling a message failed')
    this.connection.close('overloaded', 'the message met a fault of the service: try again')
  }

  controlFrame(): boolean {
    if (this.#session) return this.#withinPace(this.#session, 'control_frame') === 'pass'
    this.#earlyControlFrames += 1
    if (this.#earlyControlFrames <= MAX_EARLY) return true
    this.refuse('rate_limited', `more than ${MAX_EARLY} pings and pongs before welcome`)
    return false
  }

  received(): void {
    if (this.#session?.confirm()) this.#parts.sessions.saveLater(this.#session)
  }

  hasRoom(): void {
    if (this.#session) this.#parts.edge.hasRoom(this.#session)
  }

  closed(name: CloseName | 'lost'): void {
    const { sessions, log, over } = this.#parts
    const session = this.#session
    this.#stopWaiting()
    this.#early = []
    this.#endSpan(name)
    over(this)
    if (!session) return
    log.debug({ session_id: session.sessionId, close: name }, 'connection closed')
    // Otherwise the session is on another connection, or at another node.
    if (session.connection !== this.connection) return
    if (name === 'lost' || !CLOSE[name].endsSession) sessions.detach(session)
    else sessions.end(session, name === 'normal' ? 'left' : 'session_ended')
  }

  /** Ends a connection that has no session. */
  refuse(name: CloseName, reason: string): void {
    if (!this.connection.open) return
    this.#count(name)
    this.#parts.log.debug({ close: name, reason }, 'handshake refused')
    this.connection.close(name, reason)
  }

  #hello(hello: Hello): void {
    if (this.#greeted) {
      this.#protocolError('a second hello: one connection is one session')
      return
    }
    this.#greeted = true
    this.#pending.greeted()
    this.#stopWaiting()
    this.#greet(hello).catch((error: unknown) => this.failed(error))
  }

  #waitForWelcome(message: LaterMessage, bytes: number): void {
    if (this.#early.push({ message, bytes }) > MAX_EARLY)
      this.#protocolError(`more than ${MAX_EARLY} messages before welcome: wait for it`)
  }

  #request(session: Session, message: LaterMessage, bytes: number): void {
    if (!this.#admit(session, message)) return
    if (message.t === 'token') this.#renew(session, message.token)
    else this.#parts.requests.handle(session, this.connection, message, bytes)
  }

  async #greet(hello: Hello): Promise<void> {
    const answer = await this.#parts.handshake.greet(this.connection, hello)
    if (!answer) return
    this.#span = this.#beginSpan(hello, answer)
    if ('close' in answer) {
      this.refuse(answer.close, answer.reason)
      return
    }
    if (!this.connection.open) {
      // Closed in the instant between being let in and hearing of it.
      this.#endSpan('lost')
      this.#parts.sessions.detach(answer.session)
      return
    }
    this.#session = answer.session
    this.#pending.done()
    answer.session.trace = contextOf(this.#span)
    if (!answer.positions) {
      this.#welcomeClient(answer)
      return
    }
    const { edge, clock, metrics, options } = this.#parts
    resumeRooms(
      answer.session,
      this.connection,
      answer.positions,
      { edge, clock, metrics, waitMs: options.attachWaitMs },
      (rooms) => this.#welcomeClient(answer, rooms),
    )
  }

  #welcomeClient({ session, resumeToken, at }: Admission, rooms?: readonly ResumedRoom[]): void {
    if (!this.connection.open) return
    const { nodeId, clock, options, log } = this.#parts
    if (rooms && clock.monotonic() - at > options.attachWaitMs + WELCOME_SPARE_MS) {
      // This process stood still: another node may have given the client up, and let in whoever came with the same resume token.
      this.connection.close('overloaded', 'the resume took too long: try again')
      return
    }
    const { codec, outbox } = this.connection
    const welcome = codec.encode({
      t: 'welcome',
      session_id: session.sessionId,
      resume_token: resumeToken,
      resumed: rooms !== undefined,
      resume_ttl_seconds: options.sessionResumeTtl,
      heartbeat_seconds: options.heartbeatSeconds,
      node_id: nodeName(nodeId),
      server_time: timestamp(clock.now()),
      limits: options.limits,
      ...(rooms ? { rooms: [...rooms] } : {}),
    })
    outbox.open(frame(welcome, codec.binary))
    if (!session.right.confirmed) this.connection.askReceipt()
    this.#count(rooms ? 'resumed' : 'welcome')
    log.debug({ session_id: session.sessionId, resumed: rooms !== undefined }, 'session connected')
    const early = this.#early
    this.#early = []
    this.#welcome = true
    for (const { message, bytes } of early) if (this.connection.open) this.#request(session, message, bytes)
  }

  /** Fresh tokens are checked one after the other, so that the last one sent is the one in force. */
  #renew(session: Session, token: string): void {
    if (this.#renewals >= MAX_RENEWALS) {
      this.connection.sendError('rate_limited', `${MAX_RENEWALS} tokens are being checked already`)
      return
    }
    this.#renewals += 1
    this.#renewed = this.#renewed
      .then(() => this.#check(session, token))
      .catch((error: unknown) => this.failed(error))
      .finally(() => {
        this.#renewals -= 1
      })
  }

  async #check(session: Session, token: string): Promise<void> {
    const claims = await this.#parts.tokens.check(session.projectId, token)
    const refuse = (reason: string): void => this.connection.sendError('invalid_token', reason)
    if ('close' in claims) refuse(claims.reason)
    else if ((claims.sub ?? null) !== session.sub) refuse('the token is for another sub')
    else {
      session.renew(claims)
      this.#parts.sessions.saveLater(session)
    }
  }

  /** Whether the session may send one more message; otherwise the client has been told. */
  #admit(session: Session, message: LaterMessage | InvalidMessage): boolean {
    const verdict = this.#withinPace(session, 'session')
    if (verdict === 'reject')
      this.#parts.requests.refuse(session, this.connection, message, 'rate_limited', this.#limitText())
    return verdict === 'pass'
  }

  /** Counts one more frame of the session; one that sends far too many loses its connection. */
  #withinPace(session: Session, by: 'session' | 'control_frame'): PaceVerdict {
    const verdict = session.pace.admit()
    if (verdict === 'pass') return verdict
    this.#parts.metrics.rateLimited.inc({ by })
    if (verdict === 'too_many') this.connection.close('rate_limited', this.#limitText())
    else this.connection.throttle(session.pace.waitMs)
    return verdict
  }

  #limitText(): string {
    const { messages_per_second: messagesPerSecond, message_burst: messageBurst } = this.#parts.options.limits
    return `more than ${messagesPerSecond} messages a second, or ${messageBurst} at once`
  }

  #protocolError(reason: string): void {
    if (this.#session) this.connection.close('protocol_error', reason)
    else this.refuse('protocol_error', reason)
  }

  #count(result: HandshakeResult): void {
    const seconds = (this.#parts.clock.monotonic() - this.connection.openedAt) / 1000
    countHandshake(this.#parts.metrics, result, seconds)
    this.#endSpan(result)
  }

  /**
   * The span of a handshake that was decided, from the accepted socket on. A new session goes on with the trace that its token was issued
   * in: the claims of a token count only when they were verified, so this is not known any earlier. A resume begins a trace of its own, so
   * that none is as long as a session, linked to the one before; so does a refusal.
   */
  #beginSpan(hello: Hello, answer: Admission | Refusal): Span {
    const { openedAt, codec } = this.connection
    const resume = 'resume' in hello
    const attributes = {
      'network.protocol.name': 'websocket',
      'roomful.subprotocol': codec.subprotocol,
      'roomful.resume': resume,
    }
    const begin = { kind: 'server', beganAt: openedAt } as const
    const { tracer } = this.#parts
    if ('close' in answer) {
      const { code, retry } = CLOSE[answer.close]
      const span = tracer.span('handshake', {
        ...begin,
        attributes: { ...attributes, 'roomful.close_code': code },
      })
      // What the client may simply try again is the fault of the service.
      if (retry === 'resume') span.fail(answer.close)
      return span
    }
    const { session, traceBefore } = answer
    return tracer.span('handshake', {
      ...begin,
      ...(resume ? { links: traceBefore === undefined ? [] : [traceBefore] } : { parent: session.claims }),
      attributes: {
        ...attributes,
        'roomful.session_id': session.sessionId,
        'roomful.project_id': session.projectId,
      },
    })
  }

  /** The handshake is over, if it was not yet. */
  #endSpan(result: HandshakeResult | 'lost'): void {
    this.#span.set({ 'roomful.result': result })
    this.#span.end()
    this.#span = noSpan
  }
}
