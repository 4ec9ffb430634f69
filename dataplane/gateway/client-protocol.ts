import { timestamp } from '../../shared/clock.ts'
import { nodeName } from '../../shared/ids.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import {
  CLOSE,
  CLOSE_MEANINGS,
  type CloseName,
  closeAdvice,
  type ErrorCode,
  type InvalidMessage,
} from '../../shared/protocol/error-codes.ts'
import type { ClientMessage, ResumePosition } from '../../shared/protocol/messages.ts'
import type { Slices } from '../../shared/slices.ts'
import { isNameable } from '../../shared/tokens.ts'
import { contextOf, noSpan, type Span } from '../../shared/tracing/tracer.ts'
import { frame } from '../frame.ts'
import { type RoomAddress, roomAddress, roomIdOf } from '../traffic.ts'
import type { Authenticator } from './authentication.ts'
import { COST } from './budget.ts'
import { Connection, type ConnectionListener, type ErrorAbout, type ServerSocket } from './connection.ts'
import type { GatewayContext } from './context.ts'
import type { Edge } from './edge.ts'
import type { FindingRequest, RoomFinder, RoomFinding } from './finding.ts'
import { type Admitted, type Handshake, type Hello, WELCOME_WITHIN_MS } from './handshake.ts'
import { countHandshake, type HandshakeResult } from './metrics.ts'
import type { Flusher } from './outbox.ts'
import type { Players } from './players.ts'
import type { ErrorAnswer, Rejection } from './refusals.ts'
import type { PendingConnection } from './server.ts'
import type { Session } from './session.ts'
import type { Sessions } from './sessions.ts'
import { type AttachResult, LOST, leftMessage, type Subscription } from './subscription.ts'

/** Error text for players whose joins, or messages of a type, are refused for some time. */
const BLOCKED = 'the last requests of this kind did not return, so they are refused for a while'
/** Time after which a request that waits is looked at again. */
const WAIT_MS = 1000

/** Points that a message costs in addition to its share of the session's rate. */
const POINTS: Readonly<Partial<Record<ClientMessage['t'], number>>> = {
  join: COST.join,
  rooms: COST.query,
  find: COST.query,
  token: COST.hello,
}

/** Messages that wait while the session exceeds its rate, although no answer is due. */
const PATIENT: ReadonlySet<string | undefined> = new Set<ClientMessage['t']>(['token', 'move', 'goodbye'])

/** Messages that a fresh token in front of them may allow. They wait until it is checked. */
const NEED_TOKEN: ReadonlySet<string | undefined> = new Set<ClientMessage['t']>([
  'join',
  'rooms',
  'find',
  'token',
])

/** Time in which a client that moves has to resume. Then its old connection counts as lost. */
const MOVE_MS = 15_000

/** Time after a resume in which a client may repeat a join whose `joined` was lost. Its seat is kept until then. */
const JOIN_AGAIN_MS = 5000

/** True for a message whose client waits for an answer. */
const isAnswered = (message: LaterMessage | InvalidMessage): boolean =>
  message.t === 'state.resync' ||
  ('ref' in message && message.ref !== undefined) ||
  ('request_id' in message && message.request_id !== undefined)

/** True if the session of a subscription may send the request. An open leave may fail: the client then still waits for the state. */
const isFor = (subscription: Subscription, { t }: LaterMessage): boolean =>
  subscription.inUse || (t === 'state.resync' && subscription.leaveRequest !== undefined)

type LaterMessage = Exclude<ClientMessage, Hello>
type Join = Extract<ClientMessage, { t: 'join' }>

/** Dependencies that all clients of a gateway share. */
export interface ClientProtocolContext extends GatewayContext {
  readonly finding: RoomFinding
  readonly handshake: Handshake
  /** Queue of hellos. */
  readonly handshakes: Slices
  readonly tokens: Authenticator
  readonly sessions: Sessions
  readonly players: Players
  readonly edge: Edge
  readonly flusher: Flusher
  /** Called when the connection has ended. */
  readonly over: (client: ClientProtocol) => void
}

/** The protocol with one client, from `hello` to the end of its connection. It admits each message and forwards it to its handler. */
export class ClientProtocol implements ConnectionListener {
  // The fields that each message needs come first, as in `Connection`.
  readonly connection: Connection
  readonly #context: ClientProtocolContext
  #session: Session | undefined
  /** Subscription of the last request that named a room, and the room's id as that request had it. */
  #subscription: Subscription | undefined
  #roomId: string | undefined
  /** True once the client is known to have its resume token. */
  #isConfirmed = false
  /** True since a message had to wait for the budget, until the budget has recovered. */
  #behind = false
  /** Resolves when the `hello` or the fresh token that is being checked is answered. Undefined: none is being checked. */
  #checking: Promise<void> | undefined
  /** For requests for rooms: see `PendingConnection.source`. */
  readonly #source: string
  /** Undefined until the first request for rooms. */
  #finder: RoomFinder | undefined
  /** Set until there is a session. */
  #pending: PendingConnection | undefined
  /** Stops the wait for `hello`, or after `move` for the resume on another connection. */
  #stopWaiting: (() => void) | undefined
  #span: Span = noSpan
  #isRenewing = false

  /** The socket counts as `pending` until it has a session. */
  constructor(context: ClientProtocolContext, ws: ServerSocket, codec: Codec, pending: PendingConnection) {
    const { clock, options, flusher } = context
    this.#context = context
    this.#pending = pending
    this.connection = new Connection(context, ws, pending, codec, flusher, this)
    this.#source = pending.source
    const refuse = (): void => this.refuse('handshake_timeout', `no hello within ${options.handshakeMs} ms`)
    // In two halves: a process that was suspended for the whole time reads the queued `hello` before the second half is over.
    this.#stopWaiting = clock.schedule(options.handshakeMs / 2, () => {
      this.#stopWaiting = clock.schedule(options.handshakeMs / 2, refuse)
    })
  }

  message(message: ClientMessage, bytes: number): boolean {
    const session = this.#session
    if (message.t === 'hello') this.#hello(message)
    else if (session) {
      if (!this.#isConfirmed) this.#confirm(session)
      return this.#request(session, message, bytes)
    } else if (!this.#checking)
      this.refuse('protocol_error', `the first message must be hello, not ${message.t}`)
    else if (message.t === 'goodbye') this.connection.goodbye = true
    else if (!this.connection.ending) {
      this.connection.holdUntil(this.#checking)
      return false
    }
    return true
  }

  invalid(problem: InvalidMessage): boolean {
    const session = this.#session
    const verdict = session && this.#admit(session, problem, 0)
    if (!session) this.refuse('protocol_error', problem.message)
    else if (verdict === 'pass') this.#refuseRequest(session, problem, 'invalid_message', problem.message)
    return verdict !== 'wait'
  }

  failed(error: unknown): void {
    this.#context.log.error({ err: error, session_id: this.#session?.sessionId }, 'handling a message failed')
    this.connection.close('overloaded', 'the service failed to handle the message: try again')
  }

  controlFrame(): boolean {
    if (this.#session) {
      // The control frame is already read and cannot wait, so its player may owe for it.
      if (this.#session.budget.spendOwing()) return true
      this.#refuse(this.#session, 'control_frame', 1)
      return false
    }
    if (this.#pending?.controlFrame()) return true
    this.refuse('rate_limited', 'pings and pongs before welcome come faster than 1/s')
    return false
  }

  ponged(): void {
    if (this.#session && !this.#isConfirmed) this.#confirm(this.#session)
  }

  /**
   * The client has its resume token. A message after `welcome` proves this. A pong proves it less well, because a browser answers pings
   * before its page has read `welcome`. Therefore only the regular pings count, the first of them 6 seconds after the start.
   */
  #confirm(session: Session): void {
    this.#isConfirmed = true
    if (session.confirm()) this.#context.sessions.saveLater(session)
  }

  hasRoom(): void {
    if (this.#session) this.#context.edge.hasRoom(this.#session)
    this.#finder?.hasRoom()
  }

  closed(name: CloseName | 'lost'): void {
    const { sessions, log, over } = this.#context
    const session = this.#session
    this.#stopTimeout()
    this.#endSpan(name)
    over(this)
    if (!session) return
    this.#finder?.stop()
    log.debug({ session_id: session.sessionId, close: name }, 'connection closed')
    // Otherwise the session is on another connection or at another node.
    if (session.connection !== this.connection) return
    // `goodbye` may still have been queued.
    if (this.connection.goodbye) sessions.end(session, 'left')
    else sessions.detach(session)
  }

  /** Ends a connection that has no session. */
  refuse(name: CloseName, reason: string): void {
    if (!this.connection.open) return
    this.#count(name)
    this.#context.log.debug({ close: name, reason }, 'handshake refused')
    this.connection.close(name, reason)
  }

  #hello(hello: Hello): void {
    if (this.#checking || this.#session) {
      const reason = 'a second hello: one connection is one session'
      if (this.#session) this.connection.close('protocol_error', reason)
      else this.refuse('protocol_error', reason)
      return
    }
    this.#pending?.greeted()
    this.#stopTimeout()
    if ('token' in hello && this.#context.load.overloaded) {
      // Refused before its token costs CPU. Resumes are accepted.
      this.#context.metrics.newcomersRefused.inc()
      this.refuse('overloaded', 'this node is overloaded: try again')
      return
    }
    // Other players may wait for a client that resumes.
    const urgent = 'resume' in hello
    this.#check(
      this.#context.handshakes.run(() => (this.connection.wanted ? this.#greet(hello) : undefined), {
        urgent,
      }),
    )
  }

  #stopTimeout(): void {
    this.#stopWaiting?.()
    this.#stopWaiting = undefined
  }

  /** Messages behind the `hello` or the fresh token may have to wait until `answer` resolves. */
  #check(answer: Promise<void>): void {
    this.#checking = answer
      .catch((error: unknown) => this.failed(error))
      .finally(() => {
        this.#checking = undefined
      })
  }

  /** Returns false if the request has to wait. */
  #request(session: Session, request: LaterMessage, bytes: number): boolean {
    const subscription = 'room_id' in request ? this.#subscriptionOf(session, request.room_id) : undefined
    const suspicion = this.#suspicion(session, request, subscription)
    if (!this.connection.ending && suspicion === 'wait') {
      this.connection.throttle(WAIT_MS)
      return false
    }
    const verdict = this.#admit(session, request, POINTS[request.t] ?? 0)
    if (verdict === 'pass') this.#handle(session, request, subscription, bytes, suspicion === 'refuse')
    return verdict !== 'wait'
  }

  /** Returns the session's subscription to a room. Mostly it is that of the last request, which saves the reads of a map. */
  #subscriptionOf(session: Session, roomId: string): Subscription | undefined {
    if (roomId !== this.#roomId || this.#subscription?.removed !== false) {
      this.#roomId = roomId
      this.#subscription = session.subscriptions.get(roomId)
    }
    return this.#subscription
  }

  /**
   * `subscription`: of the room that the request names. `isBlocked`: the message, or the join, is refused, because others of its kind did
   * not return.
   */
  #handle(
    session: Session,
    request: LaterMessage,
    subscription: Subscription | undefined,
    bytes: number,
    isBlocked: boolean,
  ): void {
    const { edge, clock } = this.#context
    if (request.t === 'goodbye') this.#end(session)
    else if (request.t === 'move') this.#move()
    // A second token waits until the first is checked, so that the last token sent is the one in force.
    else if (request.t === 'token') {
      session.token.fresh = request.token
      this.#check(this.#renew(session))
    } else if (request.t === 'join') this.#join(session, request, isBlocked)
    else if (request.t === 'rooms' || request.t === 'find' || request.t === 'rooms.end')
      this.#find(session, request)
    else if (request.t === 'ping')
      this.connection.answer({ t: 'pong', at: request.at, server_time: timestamp(clock.now()) })
    else if (!subscription || !isFor(subscription, request))
      this.#refuseRequest(session, request, 'not_in_room', `the session is not in ${request.room_id}`)
    else {
      subscription.joinRequest = undefined
      if (request.t === 'message' && isBlocked)
        this.#refuseRequest(session, request, 'room_logic_failed', BLOCKED)
      else if (request.t === 'message') edge.message(subscription, request, bytes)
      else if (request.t === 'leave') edge.leave(subscription, request.request_id)
      else edge.resync(subscription, request.reason)
    }
  }

  #find(session: Session, request: FindingRequest): void {
    this.#finder ??= this.#context.finding.of(this.connection, this.#source)
    this.#finder.handle(session, request)
  }

  #move(): void {
    this.connection.moved()
    this.#stopWaiting = this.#context.clock.schedule(MOVE_MS, () => this.connection.terminate())
  }

  #end(session: Session): void {
    this.#context.sessions.end(session, 'left')
    this.connection.close('normal', CLOSE_MEANINGS.normal)
  }

  /** Returns what becomes of a message or a join, after others of its kind did not return. Other requests pass. */
  #suspicion({ sender }: Session, request: LaterMessage, subscription: Subscription | undefined) {
    const { suspects } = this.#context
    if (request.t === 'join') return suspects.verdict(sender, request.room_type)
    if (request.t !== 'message' || !subscription) return 'pass'
    return suspects.verdict(sender, subscription.room.roomType, request.type)
  }

  /**
   * Refuses a request without handling it. If it is a reliable message to a room that the session is in, the room's owner acknowledges it in
   * order, and the answer comes from there.
   */
  #refuseRequest(
    session: Session,
    request: ErrorAbout & { readonly t?: string | undefined },
    code: ErrorCode,
    message: string,
  ): void {
    const { t, ref, room_id: roomId } = request
    const subscription =
      t === 'message' && roomId !== undefined ? session.subscriptions.get(roomId) : undefined
    // An open leave may fail. The sequence of refs then continues.
    const counts = subscription?.inUse || subscription?.leaveRequest !== undefined
    if (subscription && counts && ref !== undefined)
      this.#context.edge.refuse(subscription, code, message, ref)
    else this.connection.sendError(code, message, request)
  }

  #join(session: Session, request: Join, isBlocked: boolean): void {
    const { edge, finding } = this.#context
    const { request_id: requestId, room_type: roomType, options, watch } = request
    const room = roomAddress(session.projectId, roomType, options.key ?? 'default')
    const roomId = roomIdOf(room)
    // A spectator does not take the seat that was promised to its player.
    if (!watch) finding.joins(session, roomId)
    const unlisted = session.subscriptions.get(roomId)
    if (unlisted?.phase === 'detached') {
      if (unlisted.joinRequest === requestId && session.allows(roomType, roomId)) {
        edge.joinAgain(unlisted, this.connection, session, request)
        return
      }
      edge.endSubscription(unlisted, 'left')
    }
    const subscription = session.subscriptions.get(roomId)
    const refused = this.#joinRejection(session, room, isBlocked)
    if (refused) {
      edge.refuseJoin(session, room, refused.code)
      this.connection.sendError(refused.code, refused.message, { request_id: requestId, room_id: roomId })
      return
    }
    if (subscription) edge.finishLeave(subscription)
    edge.join(session, this.connection, room, request)
  }

  /** Returns the reason why a session may not join a room. Undefined: it may. */
  #joinRejection(session: Session, room: RoomAddress, isBlocked: boolean): ErrorAnswer | undefined {
    const { roomType, key } = room
    const roomId = roomIdOf(room)
    // A colon separates type and key in a room id, so no room type contains one.
    if (roomType.includes(':'))
      return { code: 'unknown_room_type', message: `there is no room type "${roomType}"` }
    if (!isNameable(key))
      return {
        code: 'invalid_options',
        message: `the key of a room must not be ${key}, which no path can name`,
      }
    if (!session.allows(roomType, roomId))
      return { code: 'forbidden', message: `the token does not allow ${roomId}` }
    const banned = session.bannedFrom(roomType)
    if (banned !== undefined) return { code: 'banned', message: banned }
    const subscription = session.subscriptions.get(roomId)
    if (subscription && subscription.leaveRequest === undefined)
      return { code: 'already_joined', message: `the session is in ${roomId}, or joining it, already` }
    const { max_rooms: max } = this.#context.options.limits
    if (!subscription && session.subscriptions.size >= max)
      return { code: 'too_many_rooms', message: `a session may be in ${max} rooms: leave one first` }
    const tooManyGuests = subscription ? undefined : this.#context.edge.tooManyGuests(session, roomType)
    if (tooManyGuests) return tooManyGuests
    if (isBlocked) return { code: 'room_logic_failed', message: BLOCKED }
    return undefined
  }

  async #greet(hello: Hello): Promise<void> {
    const answer = await this.#context.handshake.greet(this.connection, hello)
    if (!answer) return
    this.#span = this.#beginSpan(hello, answer)
    if ('close' in answer) {
      this.refuse(answer.close, answer.reason)
      return
    }
    if (!this.connection.open) {
      // The connection closed after the session was admitted, and before this code ran.
      this.#endSpan('lost')
      if (this.connection.goodbye) this.#context.sessions.end(answer.session, 'left')
      else this.#context.sessions.detach(answer.session)
      return
    }
    this.#session = answer.session
    this.#session.features = hello.features ?? []
    this.#pending?.done()
    this.#pending = undefined
    answer.session.trace = contextOf(this.#span)
    this.#welcomeClient(answer)
    if (this.connection.goodbye) this.#end(answer.session)
  }

  /**
   * Attaches the subscriptions of a session that resumes: the owner of each room sends the missed updates. The client lists the rooms that it
   * keeps. The session leaves the other rooms, and those that its token no longer allows. A seat whose `joined` may be lost waits
   * `JOIN_AGAIN_MS` for a repeated join.
   */
  #resumeRooms(session: Session, positions: readonly ResumePosition[]): void {
    const { connection } = this
    const { edge, metrics } = this.#context
    const listed = new Map(positions.map((position) => [position.room_id, position]))
    const unlisted = [...session.subscriptions.values()].filter(({ roomId }) => !listed.has(roomId))
    for (const subscription of unlisted)
      if (subscription.joinRequest === undefined) edge.endSubscription(subscription, 'left')
      else this.#leaveUnlessAsked(session, subscription)
    session.ended.keep(listed)
    for (const [roomId, position] of listed) {
      const held = session.subscriptions.get(roomId)
      const subscription = held && session.allows(held.room.roomType, roomId) ? held : undefined
      const answered = (result: AttachResult): void => metrics.roomResumes.inc({ result })
      if (subscription) edge.attach(subscription, connection, position, answered)
      else {
        answered('lost')
        if (held) edge.endSubscription(held, 'session_ended')
        connection.send(leftMessage(roomId, session.ended.get(roomId)?.farewell ?? LOST))
      }
    }
  }

  /** Leaves a room that the client has not listed, unless it repeats the join. It may not have received `joined`. */
  #leaveUnlessAsked(session: Session, subscription: Subscription): void {
    const { clock, edge } = this.#context
    clock.schedule(JOIN_AGAIN_MS, () => {
      const isLeft = session.subscriptions.get(subscription.roomId) === subscription
      if (isLeft && subscription.phase === 'detached' && session.connection)
        edge.endSubscription(subscription, 'left')
    })
  }

  #welcomeClient({ session, resumeToken, at, positions }: Admitted): void {
    const { nodeId, clock, options, log } = this.#context
    const resumed = positions !== undefined
    if (resumed && clock.monotonic() - at > WELCOME_WITHIN_MS) {
      // The process was suspended. Another node may have taken over, and let in another client with the same resume token.
      this.connection.close('overloaded', 'the resume took too long: try again')
      return
    }
    const { codec, outbox } = this.connection
    const welcome = codec.encode({
      t: 'welcome',
      session_id: session.sessionId,
      resume_token: resumeToken,
      resumed,
      resume_ttl_seconds: options.sessionResumeTtl,
      heartbeat_seconds: options.heartbeatSeconds,
      node_id: nodeName(nodeId),
      server_time: timestamp(clock.now()),
      limits: options.limits,
    })
    outbox.open(frame(welcome, codec.binary))
    this.#count(resumed ? 'resumed' : 'welcome')
    log.debug({ session_id: session.sessionId, resumed }, 'session connected')
    this.#requestToken(session)
    if (resumed) this.#resumeRooms(session, positions)
  }

  /** To be called once a second. */
  sweep(): void {
    this.connection.beat(this.#context.options.heartbeatSeconds)
    const session = this.#session
    if (!session || session.connection !== this.connection) return
    const { token } = session
    if (token.overdue)
      this.connection.close('token_expired', 'the token has expired, and no fresh one has arrived')
    else if (token.fresh === undefined) this.#requestToken(session)
    else if (!this.#checking && !this.#isRenewing)
      this.#renew(session).catch((error: unknown) => this.failed(error))
  }

  /** Asks the client for a fresh token, if it is time. */
  #requestToken({ token }: Session): void {
    const within = token.request()
    if (within !== undefined) this.connection.send({ t: 'token', within_seconds: within })
  }

  /** Checks the fresh token of a session. If that is not possible at the moment, `sweep` repeats it. */
  async #renew(session: Session): Promise<void> {
    const token = session.token.fresh!
    this.#isRenewing = true
    const claims = await this.#context.tokens.check(session.projectId, token).finally(() => {
      this.#isRenewing = false
    })
    // The client may have sent another token until now.
    if (session.token.fresh !== token || ('close' in claims && claims.close === 'overloaded')) return
    session.token.fresh = undefined
    const refuse = (reason: string): void => this.connection.sendError('invalid_token', reason)
    if ('close' in claims) return refuse(claims.reason)
    if ((claims.sub ?? null) !== session.sub) return refuse('the token is for another sub')
    // Closes the connection of a player who is banned.
    await this.#context.players.read(session.known)
    const rejection = session.known?.rejection(claims)
    if (rejection) refuse(rejection.reason)
    else {
      const before = JSON.stringify(session.data)
      const rooms = JSON.stringify(session.claims.rooms)
      session.renew(claims)
      if (JSON.stringify(claims.rooms) !== rooms) this.#finder?.renewed(session)
      if (JSON.stringify(session.data) !== before) this.#context.edge.renew(session)
      this.#context.sessions.saveLater(session)
    }
  }

  /**
   * Pays for one more message. If the player cannot pay, the message waits with everything behind it, and the client's socket is not read. If
   * the session exceeds its rate, only `PATIENT` messages and those whose client waits for an answer wait. All others are refused. The
   * messages in front of a close cannot wait.
   */
  #admit(
    session: Session,
    message: LaterMessage | InvalidMessage,
    points: number,
  ): 'pass' | 'refused' | 'wait' {
    const { budget } = session
    const { dropped, ending: mustPass } = this.connection
    if (this.#checking && NEED_TOKEN.has(message.t) && !mustPass) {
      this.#behind = true
      this.connection.holdUntil(this.#checking)
      return 'wait'
    }
    const payment = budget.spend(points, 1 + dropped)
    // Without points, the dropped messages are paid together with the message that waits.
    if (payment !== 'empty' || mustPass) this.connection.dropped = 0
    if (payment === 'paid') {
      if (this.#behind) this.#behind = budget.waitMs > 0
      return 'pass'
    }
    const waits = this.#behind || PATIENT.has(message.t) || isAnswered(message)
    if (!waits && payment === 'over_rate') {
      if (this.#refuse(session, 'session', 1 + dropped))
        this.#refuseRequest(session, message, 'rate_limited', this.#limitText())
      return 'refused'
    }
    if (mustPass) {
      budget.charge(points, 1 + dropped)
      return 'pass'
    }
    this.#behind = true
    if (payment === 'over_rate' && dropped > 0) this.#refuse(session, 'session', dropped)
    this.connection.throttle(budget.waitMs)
    return 'wait'
  }

  /** Counts refused messages. Returns false if the tolerance is used up and the connection was closed. */
  #refuse(session: Session, by: 'session' | 'control_frame', count: number): boolean {
    this.#context.metrics.rateLimited.inc({ by })
    const isTolerated = session.budget.refuse(count)
    if (isTolerated) this.connection.throttle(session.budget.waitMs)
    else this.connection.close('rate_limited', this.#limitText())
    return isTolerated
  }

  #limitText(): string {
    const { messages_per_second: messagesPerSecond, message_burst: messageBurst } =
      this.#context.options.limits
    return `more than ${messagesPerSecond} messages a second, or a burst of more than ${messageBurst}`
  }

  #count(result: HandshakeResult): void {
    const seconds = (this.#context.clock.monotonic() - this.connection.openedAt) / 1000
    countHandshake(this.#context.metrics, result, seconds)
    this.#endSpan(result)
  }

  /**
   * Starts the span of a decided handshake, with the time at which the socket was accepted. A new session continues the trace in which its
   * token was issued. The span starts this late because the claims of a token count only after their verification. A resume starts a new
   * trace that is linked to the previous one: otherwise a trace would become as long as its session. A refusal also starts a new trace.
   */
  #beginSpan(hello: Hello, answer: Admitted | Rejection): Span {
    const { openedAt, codec } = this.connection
    const resume = 'resume' in hello
    const attributes = {
      'network.protocol.name': 'websocket',
      'roomful.subprotocol': codec.subprotocol,
      'roomful.resume': resume,
    }
    const begin = { kind: 'server', beganAt: openedAt } as const
    const { tracer } = this.#context
    if ('close' in answer) {
      const code = CLOSE[answer.close]
      const span = tracer.span('handshake', {
        ...begin,
        attributes: { ...attributes, 'roomful.close_code': code },
      })
      // An error that a simple retry can cure is the service's own failure.
      if (closeAdvice(code) === 'resume') span.fail(answer.close)
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

  /** Ends the span of the handshake, if it is still open. */
  #endSpan(result: HandshakeResult | 'lost'): void {
    this.#span.set({ 'roomful.result': result })
    this.#span.end()
    this.#span = noSpan
  }
}
