import { newId } from '../../shared/ids.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ClientMessage, ResumePosition, ResyncReason } from '../../shared/protocol/messages.ts'
import { contextOf, noSpan, type Span } from '../../shared/tracing/tracer.ts'
import {
  type Farewell,
  type Frames,
  type RoomAddress,
  roomAttributes,
  roomIdOf,
  type ToEdge,
} from '../traffic.ts'
import { RESYNC_COST, stateCost } from './budget.ts'
import type { Connection } from './connection.ts'
import type { GatewayContext } from './context.ts'
import type { Session } from './session.ts'
import {
  type AttachResult,
  FlushFrames,
  LOST,
  type Reliable,
  type SubscribedSession,
  Subscription,
  type UnackedLimits,
} from './subscription.ts'

/** The subscriptions of one room at this edge. */
interface SubscribedRoom {
  /** The highest epoch heard of. */
  epoch: number
  /** How large its state was when it came last. */
  stateBytes: number
  readonly subscriptions: Map<string, Subscription>
  /** The same as a list, which is quicker to go through; undefined: someone has come or gone since it was made. */
  list: readonly Subscription[] | undefined
}

/** A reliable message without an ack for so long may be lost, or its ack, in a way that no one has noticed. */
const ACK_WAIT_MS = 5000

/**
 * What a state counts as before one of its room has come. It bounds how many rooms of unknown size a player may request at the same time. A session
 * that resumes in all the rooms it may have should not wait for the slowest of their owners.
 */
const ASSUMED_STATE_BYTES = 1024 * 1024

/** A message of a client, by its type. */
type Ask<T extends ClientMessage['t']> = Extract<ClientMessage, { t: T }>
/** What an owner has for one subscription. */
type Answer = Exclude<ToEdge, { kind: 'update' | 'redirect' | 'resend' }>

/**
 * The near end of every room that clients of this node are in: turns what they ask into messages to the rooms' owners, and what owners
 * send into frames for the right connections. The reliable side of the two: it asks again what got no answer, and gives a new owner
 * what the old one has not settled.
 */
export class Edge {
  readonly #context: GatewayContext
  readonly #record: (session: SubscribedSession) => Promise<boolean>
  readonly #rooms = new Map<string, SubscribedRoom>()
  /** Subscriptions with an open question to the owner. */
  readonly #asking = new Set<Subscription>()
  /** Subscriptions that may have reliable messages without an ack. */
  readonly #unanswered = new Set<Subscription>()
  readonly #unacked: UnackedLimits
  #asks = 0

  /**
   * `record` writes down the subscriptions of a session, before its owner hears of a new one: whichever node the client resumes at must know
   * of it. False: the session is another node's. Rejects when the store does not answer.
   */
  constructor(context: GatewayContext, record: (session: SubscribedSession) => Promise<boolean>) {
    const { maxUnackedMessages: messages, maxUnackedBytes: bytes } = context.options
    this.#context = context
    this.#record = record
    this.#unacked = { messages, bytes }
  }

  /**
   * Asks for a subscription; the answer is `joined` or an error. The caller has seen to it that the session has none in this room. `memberId`: of the
   * seat that the session may have by an earlier question with the same request id.
   */
  join(
    session: Session,
    connection: Connection,
    room: RoomAddress,
    { request_id: requestId, options, rejoin, create }: Ask<'join'>,
    memberId = newId('mem', this.#context.random),
  ): void {
    const { clock, nodeId } = this.#context
    const { key: _, ...rest } = options
    const span = this.#joinSpan(session, room)
    const code = create === false ? session.codes.get(roomIdOf(room)) : undefined
    const subscription = new Subscription(session, room, memberId, this.#unacked, clock.monotonic(), {
      kind: 'join',
      room,
      member_id: memberId,
      request_id: requestId,
      edge: nodeId,
      turn: session.right.turn,
      codec: connection.codec.subprotocol,
      session_id: session.sessionId,
      sub: session.sub,
      data: session.data,
      principal: session.principal,
      options: rest,
      ...(rejoin && { rejoin }),
      ...(create === false && { create }),
      ...(code !== undefined && { code }),
      ...(session.features.has('layers') && { layers: true }),
      ...(span.sampled && contextOf(span)),
    })
    subscription.joinSpan = span
    session.ended.delete(subscription.roomId)
    this.#add(subscription)
    // Now, so that of several joins each counts for the next.
    this.#pay(subscription)
    this.#record(session).then(
      // Taken over by another node: it has the subscription now, and asks for nothing.
      (recorded) => recorded && this.#askJoin(subscription),
      () => this.#failJoin(subscription, 'room_unavailable', 'the store does not answer: try again'),
    )
  }

  /** A join is refused without a question to the room's owner; the client is told by the caller. */
  refuseJoin(session: Session, room: RoomAddress, code: ErrorCode): void {
    this.#context.metrics.joins.inc({ result: code })
    endJoinSpan(this.#joinSpan(session, room), code)
  }

  /** A subscription that the session holds from before it came to this node; it waits for `attach`, or for `joinAgain`. */
  restore(session: Session, room: RoomAddress, memberId: string, joinRequest: number | undefined): void {
    const now = this.#context.clock.monotonic()
    const subscription = new Subscription(session, room, memberId, this.#unacked, now)
    subscription.joinRequest = joinRequest
    this.#add(subscription)
  }

  /** The client has no answer to the join of a subscription, and asks with the same request id: the answer is about the same seat. */
  joinAgain(
    subscription: Subscription,
    connection: Connection,
    session: Session,
    request: Ask<'join'>,
  ): void {
    const { room, memberId } = subscription
    this.#remove(subscription)
    this.join(session, connection, room, request, memberId)
  }

  /** Gives a subscription up at the client's wish; the answer is its own `member` `left`. */
  leave(subscription: Subscription, requestId: number): void {
    subscription.leaveRequest = requestId
    subscription.askedAt = this.#context.clock.monotonic()
    this.#asking.add(subscription)
    this.#sendLeave(subscription)
  }

  /**
   * Gives a subscription up without a message to the client. The room may refuse a leave that is under way, but never this one, which has no
   * request id.
   */
  giveUp(subscription: Subscription, reason: 'left' | 'session_ended' | 'kicked'): void {
    const { room, memberId } = subscription
    const last = this.#remove(subscription)
    // While it is still known where the room is.
    this.#context.cluster.router.send({ kind: 'leave', room, member_id: memberId, reason })
    if (last) this.#context.cluster.router.forget(room)
  }

  /** Ends the seats of a session in rooms that its player is banned from, and its joins of such rooms. */
  expelBanned(session: Session): void {
    for (const subscription of [...session.subscriptions.values()]) {
      const { room, join } = subscription
      const message = session.bannedFrom(room.roomType)
      if (message === undefined) continue
      if (join) this.#failJoin(subscription, 'banned', message)
      else {
        const farewell: Farewell = { ...LOST, reason: 'kicked', message }
        this.giveUp(subscription, 'kicked')
        this.#remember(session, room, farewell)
        subscription.left(farewell)
      }
    }
  }

  /**
   * Drops a subscription that another edge has now. An owner that has not heard of that one takes the member for detached, also one whose join is
   * still on its way: the other edge leaves that seat, or its client asks for it again.
   */
  abandon(subscription: Subscription): void {
    const last = this.#remove(subscription)
    if (subscription.phase !== 'detached') this.#sendDetach(subscription, true)
    if (last) this.#context.cluster.router.forget(subscription.room)
  }

  /** Drops a subscription without a message to anyone. */
  forget(subscription: Subscription): void {
    if (this.#remove(subscription)) this.#context.cluster.router.forget(subscription.room)
  }

  /** Answers a `leave` that is still under way, so that the client can have a new subscription: the owner gets the two in their order. */
  finishLeave(subscription: Subscription): void {
    this.giveUp(subscription, 'left')
    subscription.left()
  }

  message(subscription: Subscription, { type, data, ref, settled = 0 }: Ask<'message'>, bytes: number): void {
    const message = {
      kind: 'message',
      room: subscription.room,
      member_id: subscription.memberId,
      type,
      data,
    } as const
    if (ref === undefined) this.#context.cluster.router.send(message)
    else if (this.#isDue(subscription, ref)) {
      if (settled >= ref) {
        const text = `a message to ${subscription.roomId} has ref ${ref} and settled ${settled}, which must be lower`
        subscription.connection?.close('protocol_error', text)
      } else if (subscription.unacked.isFull(bytes)) this.#refuseFull(subscription, ref)
      else this.#sendReliable(subscription, { ...message, ref, settled }, bytes)
      subscription.came(settled)
    }
  }

  /** A message of the client is refused here; its ref is settled by the owner, in its turn, and the answer comes from there. */
  refuse(subscription: Subscription, code: ErrorCode, message: string, ref: number): void {
    if (!this.#isDue(subscription, ref)) return
    if (subscription.unacked.isFull(message.length)) this.#refuseFull(subscription, ref)
    else this.#refuse(subscription, code, message, ref)
    subscription.came(0)
  }

  /** Refuses a message that there is no room for. All of them in a row take one place, so that a client cannot fill the memory with refusals. */
  #refuseFull(subscription: Subscription, ref: number): void {
    this.#context.metrics.unackedRefused.inc()
    this.#refuse(subscription, 'room_unavailable', `${subscription.roomId} has to wait: try again`, ref)
  }

  #refuse(subscription: Subscription, code: ErrorCode, message: string, ref: number): void {
    const { room, memberId } = subscription
    const refused = {
      kind: 'refuse',
      room,
      member_id: memberId,
      from: ref,
      through: ref,
      code,
      message,
    } as const
    this.#sendReliable(subscription, refused, message.length)
  }

  /** Whether a ref is the one that is due. One that came before on this connection gets no answer; one that skips another ends the connection. */
  #isDue({ due, roomId, connection }: Subscription, ref: number): boolean {
    if (ref > due) connection?.close('protocol_error', `a message to ${roomId} has ref ${ref}; ${due} is due`)
    return ref === due
  }

  /** The client has lost track. A subscription that is behind or waits for its state gets one anyway. */
  resync(subscription: Subscription, reason: ResyncReason): void {
    if (subscription.phase !== 'live' || subscription.resync) return
    subscription.resync = reason
    this.#askState(subscription)
  }

  /** The session has other data for room code. */
  renew(session: Session): void {
    // What is on its way has the old data, which the owner replaces then.
    for (const { room, memberId } of session.subscriptions.values())
      this.#context.cluster.router.send({ kind: 'renew', room, member_id: memberId, data: session.data })
  }

  /**
   * The session's socket is gone: its subscriptions stay, except those it was leaving. `moves`: its client was asked to go on at another
   * node.
   */
  detach(session: Session, moves: boolean): void {
    for (const subscription of [...session.subscriptions.values()]) {
      this.#asking.delete(subscription)
      subscription.detach()
      if (subscription.leaveRequest !== undefined) this.giveUp(subscription, 'left')
      else this.#sendDetach(subscription, moves)
    }
  }

  /** The session has a socket again, and the client has everything up to `position`. `answered` is called once, at the owner's answer. */
  attach(
    subscription: Subscription,
    connection: Connection,
    position: ResumePosition,
    answered: (result: AttachResult) => void,
  ): void {
    subscription.attach(connection, position, ++this.#asks, answered)
    this.#askState(subscription)
  }

  /** Whether it has subscriptions to a room (`project/type:key`). */
  subscribes(room: string): boolean {
    return this.#rooms.has(room)
  }

  /**
   * Something between this edge and the owner of a room may be lost, or the room has another owner: everything that is open is asked
   * again, and every member told what it missed.
   */
  reattach(room: RoomAddress): void {
    const subscribed = this.#rooms.get(room.name)
    for (const subscription of subscribed ? [...subscribed.subscriptions.values()] : [])
      this.#reattach(subscription)
  }

  /** The client has read what waited for it: its stalled rooms get their state. */
  hasRoom(session: Session): void {
    for (const subscription of session.subscriptions.values())
      if (subscription.awaitState()) this.#askState(subscription)
  }

  /** A message from the owner of a room. All frames of one turn for a client leave in one write. */
  receive(message: ToEdge): void {
    const room = this.#rooms.get(message.room.name)
    if (!room) return
    if (message.kind === 'redirect' || message.kind === 'resend') {
      if (message.epoch === 0 || message.epoch >= room.epoch) this.reattach(message.room)
      return
    }
    // Epoch 0: the room has no owner, so there is no one to be older than.
    if (message.epoch !== 0) {
      if (message.epoch < room.epoch) return
      if (message.epoch > room.epoch) this.#newEpoch(room, message.epoch)
    }
    if (message.kind === 'update') {
      this.#update(room, message)
      return
    }
    const subscription = room.subscriptions.get(message.member_id)
    if (subscription) this.#answer(subscription, message)
  }

  /** Asks again where an answer or an ack is overdue, and ends joins that no one answers. To be called about once a second. */
  sweep(): void {
    const now = this.#context.clock.monotonic()
    for (const subscription of this.#unanswered) {
      if (subscription.unacked.empty) this.#unanswered.delete(subscription)
      else if (subscription.phase === 'live' && subscription.isUnansweredSince(now - ACK_WAIT_MS))
        this.#reattach(subscription)
    }
    for (const subscription of this.#asking) {
      if (subscription.phase === 'joining' && now - subscription.madeAt >= this.#context.options.joinWaitMs)
        this.#failJoin(subscription, 'room_unavailable', `${subscription.roomId} did not answer: try again`)
      else if (subscription.unpaid || now - subscription.askedAt >= this.#context.options.attachWaitMs)
        this.#askAgain(subscription)
    }
  }

  /** What the subscription's open question is, once more; unless its player still cannot pay for it. */
  #askAgain(subscription: Subscription): void {
    subscription.askedAt = this.#context.clock.monotonic()
    if (!subscription.unpaid || this.#pay(subscription)) this.#sendQuestion(subscription)
    if (subscription.leaveRequest !== undefined) this.#sendLeave(subscription)
  }

  #sendQuestion(subscription: Subscription): void {
    const question = subscription.question(this.#context.nodeId)
    if (question) this.#context.cluster.router.send(question)
  }

  /** Asks what may be answered with a full state: now, or at the next `sweep` at which the player can pay for it. */
  #askState(subscription: Subscription): void {
    subscription.askedAt = this.#context.clock.monotonic()
    this.#asking.add(subscription)
    if (this.#pay(subscription)) this.#sendQuestion(subscription)
    else this.#context.metrics.statesDelayed.inc()
  }

  /** Pays for the state that a question may be answered with, as large as the last one of its room. False: the player has nothing left. */
  #pay(subscription: Subscription): boolean {
    if (subscription.paid === undefined) {
      const paid = subscription.session.budget.payState(this.#expectedCost(subscription))
      subscription.unpaid = paid === 0
      if (paid > 0) subscription.paid = paid
    }
    return !subscription.unpaid
  }

  #expectedCost({ room, resync }: Subscription): number {
    const cost = stateCost(this.#rooms.get(room.name)?.stateBytes ?? ASSUMED_STATE_BYTES)
    return resync === undefined ? cost : Math.max(cost, RESYNC_COST)
  }

  /** The owner has answered a subscription with these frames: of a whole state, of missed updates (`missed`), or none. */
  #stateCame(subscription: Subscription, answer: readonly Frames[], missed = false): void {
    const codec = subscription.connection?.codec.subprotocol
    let bytes = 0
    for (const frames of answer) bytes += (codec && frames[codec]?.length) ?? 0
    const room = this.#rooms.get(subscription.room.name)
    if (room && bytes > 0 && !missed) room.stateBytes = bytes
    const { paid = 0, resync, session } = subscription
    subscription.paid = undefined
    subscription.unpaid = false
    const owed = stateCost(bytes) - paid
    // Also a small state costs what a resync costs at least.
    if (owed > 0 || resync === undefined) session.budget.oweState(owed)
    if (owed >= 0) return
    for (const other of session.subscriptions.values())
      if (other.unpaid && this.#asking.has(other)) this.#askAgain(other)
  }

  #reattach(subscription: Subscription): void {
    if (subscription.reattach(++this.#asks)) this.#askAttach(subscription)
    else if (
      subscription.leaveRequest !== undefined ||
      (subscription.phase === 'joining' && this.#asking.has(subscription))
    )
      this.#askAgain(subscription)
  }

  /** Another owner than before: those who are attached to the earlier one are to be attached again. */
  #newEpoch(room: SubscribedRoom, epoch: number): void {
    const known = room.epoch
    room.epoch = epoch
    if (known === 0) return
    for (const subscription of room.subscriptions.values())
      if (
        subscription.phase !== 'attaching' &&
        !subscription.isAttachedUnder(epoch) &&
        subscription.reattach(++this.#asks)
      )
        this.#askAttach(subscription)
  }

  #update(room: SubscribedRoom, message: Extract<ToEdge, { kind: 'update' }>) {
    const { epoch, seq, patch, rest, layers, personal, joined, leaving } = message
    if (patch || rest) {
      const flush = new FlushFrames(seq, patch, rest, personal.length === 0, layers)
      const leavers = leaving && new Set(leaving)
      const last = leavers && new FlushFrames(seq, patch, undefined, false, layers, true)
      room.list ??= [...room.subscriptions.values()]
      for (const subscription of room.list) {
        const frames = last && leavers.has(subscription.memberId) ? last : flush
        const result = subscription.flush(frames, epoch)
        if (result === 'stalled') this.#context.metrics.slowConsumers.inc({ action: 'stalled' })
        if (result === 'missed') this.#reattach(subscription)
      }
    }
    for (const join of joined) {
      const subscription = room.subscriptions.get(join.member_id)
      if (subscription?.phase !== 'joining') continue
      this.#stateCame(subscription, [join.snapshot])
      if (subscription.leaveRequest === undefined) this.#asking.delete(subscription)
      this.#joinAnswered(subscription, 'joined')
      // The client went while the join was on its way; the word of that may have come before it.
      if (!subscription.joined(join, epoch, seq)) this.#sendDetach(subscription, false)
    }
    // The time of one ack of an update is observed, of another member each time: that is enough of a sample, and costs more than the ack.
    const observed = personal[seq % personal.length]
    for (const part of personal) {
      const sentAt = room.subscriptions.get(part.member_id)?.personal(part, epoch)
      if (sentAt !== undefined && part === observed)
        this.#context.metrics.ackDuration.observe(this.#since(sentAt))
    }
  }

  /** What an owner has for one subscription. */
  #answer(subscription: Subscription, message: Answer): void {
    switch (message.kind) {
      case 'state':
        this.#stateCame(subscription, [message.state])
        if (subscription.leaveRequest === undefined) this.#asking.delete(subscription)
        subscription.state(message.state)
        break
      case 'attached':
        if (message.ask === subscription.attaching?.ask)
          this.#stateCame(subscription, message.frames, message.resumed)
        if (subscription.attached(message))
          for (const reliable of subscription.unacked.messages) this.#context.cluster.router.send(reliable)
        if (subscription.phase !== 'attaching' && subscription.leaveRequest === undefined)
          this.#asking.delete(subscription)
        break
      case 'refused':
        this.#joinAnswered(subscription, message.code)
        this.#stateCame(subscription, [])
        this.forget(subscription)
        subscription.fail(message.code, message.message, { request_id: message.request_id })
        // A client that holds nothing here has nothing to lose, and may find a place elsewhere.
        if (message.code === 'overloaded' && subscription.session.subscriptions.size === 0)
          subscription.connection?.close('overloaded', message.message)
        break
      case 'error':
        // A leave that failed is over: the client still has the subscription, and may ask again.
        if (message.request_id !== undefined && message.request_id === subscription.leaveRequest)
          subscription.leaveRequest = undefined
        subscription.fail(message.code, message.message, { request_id: message.request_id })
        break
      case 'no_seat':
        this.#seatEnded(subscription, undefined)
        break
      case 'left':
        this.#seatEnded(subscription, message.farewell)
    }
  }

  /**
   * A seat has ended. If the room has ended it, the session remembers why, wherever it is resumed: its client may be without a connection, and
   * one that has a connection may have lost it already.
   */
  #seatEnded(subscription: Subscription, farewell: Farewell | undefined): void {
    const { session, room, join } = subscription
    this.#stateCame(subscription, [])
    this.forget(subscription)
    if (join) {
      // The join came again. Its client knows no member id, and waits for an answer.
      const code = farewell?.reason === 'kicked' ? 'join_refused' : 'room_unavailable'
      this.#joinAnswered(subscription, code)
      const text = farewell?.message ?? `the seat in ${subscription.roomId} has ended: ${farewell?.reason}`
      subscription.fail(code, text, { request_id: join.request_id })
      return
    }
    if (farewell && farewell.reason !== 'left') this.#remember(session, room, farewell)
    subscription.left(farewell)
  }

  /** Writes down why a seat has ended, for a client that has lost its connection. */
  #remember(session: SubscribedSession, room: RoomAddress, farewell: Farewell): void {
    session.ended.add({ room, farewell })
    // What the store does not answer is written again by the sweep of the sessions.
    this.#record(session).catch(() => {})
  }

  /** A client asks for a subscription; what the owner does about it belongs to this span. */
  #joinSpan(session: Session, room: RoomAddress): Span {
    return this.#context.tracer.span('join', {
      kind: 'server',
      parent: session.trace,
      attributes: { ...roomAttributes(room), 'roomful.session_id': session.sessionId },
    })
  }

  /** The client has the answer to its join. */
  #joinAnswered(subscription: Subscription, result: 'joined' | ErrorCode): void {
    const { metrics } = this.#context
    metrics.joins.inc({ result })
    subscription.session.codes.delete(subscription.roomId)
    if (result === 'joined') metrics.joinDuration.observe(this.#since(subscription.madeAt))
    endJoinSpan(subscription.joinSpan, result)
    // A subscription lives for hours, and would keep all that the span was told.
    subscription.joinSpan = noSpan
  }

  #askJoin(subscription: Subscription): void {
    // Given up meanwhile.
    if (subscription.session.subscriptions.get(subscription.roomId) !== subscription || !subscription.join)
      return
    this.#askState(subscription)
  }

  #failJoin(subscription: Subscription, code: ErrorCode, why: string): void {
    if (subscription.session.subscriptions.get(subscription.roomId) !== subscription || !subscription.join)
      return
    const { request_id: requestId } = subscription.join
    this.#joinAnswered(subscription, code)
    if (this.#asking.has(subscription)) this.giveUp(subscription, 'left')
    else this.forget(subscription)
    subscription.fail(code, why, { request_id: requestId })
  }

  /** An owner that has yet to say where the subscription stands is given it then. */
  #sendReliable(subscription: Subscription, message: Reliable, bytes: number): void {
    const { unacked, phase } = subscription
    unacked.add(message, bytes)
    // It came again after a resume, and its owner has settled it.
    if (unacked.last <= unacked.settled) return
    subscription.sent(unacked.last, this.#context.clock.monotonic())
    this.#unanswered.add(subscription)
    if (phase !== 'attaching') this.#context.cluster.router.send(message)
  }

  /** Asks what a member has missed through no doing of its own: that is paid with the answer, unless the subscription waits to pay already. */
  #askAttach(subscription: Subscription): void {
    this.#asking.add(subscription)
    this.#askAgain(subscription)
  }

  #sendDetach({ room, memberId }: Subscription, moves: boolean): void {
    this.#context.cluster.router.send({ kind: 'detach', room, member_id: memberId, moves })
  }

  #sendLeave({ room, memberId, leaveRequest }: Subscription): void {
    if (leaveRequest !== undefined)
      this.#context.cluster.router.send({
        kind: 'leave',
        room,
        member_id: memberId,
        reason: 'left',
        request_id: leaveRequest,
      })
  }

  /** True: no one at this edge is in the room any more. */
  #remove(subscription: Subscription): boolean {
    this.#asking.delete(subscription)
    this.#unanswered.delete(subscription)
    subscription.joinSpan.set({ 'roomful.result': 'abandoned' })
    subscription.joinSpan.end()
    const { subscriptions } = subscription.session
    if (subscriptions.get(subscription.roomId) === subscription) subscriptions.delete(subscription.roomId)
    const name = subscription.room.name
    const room = this.#rooms.get(name)
    if (!room?.subscriptions.delete(subscription.memberId)) return false
    room.list = undefined
    if (room.subscriptions.size > 0) return false
    return this.#rooms.delete(name)
  }

  #add(subscription: Subscription): void {
    subscription.session.subscriptions.set(subscription.roomId, subscription)
    const name = subscription.room.name
    const room = this.#rooms.get(name) ?? {
      epoch: 0,
      stateBytes: ASSUMED_STATE_BYTES,
      subscriptions: new Map(),
      list: undefined,
    }
    this.#rooms.set(name, room)
    room.subscriptions.set(subscription.memberId, subscription)
    room.list = undefined
  }

  /** Seconds since a moment of the monotonic clock. */
  #since(moment: number): number {
    return (this.#context.clock.monotonic() - moment) / 1000
  }
}

/** The service's own failures; the others tell of what a client may not, or of a full room. */
const FAILURES: ReadonlySet<string> = new Set<ErrorCode>([
  'room_unavailable',
  'overloaded',
  'room_logic_failed',
])

function endJoinSpan(span: Span, result: 'joined' | ErrorCode): void {
  span.set({ 'roomful.result': result })
  if (FAILURES.has(result)) span.fail(result)
  span.end()
}
