import { newId } from '../../shared/ids.ts'
import { Quiet } from '../../shared/log.ts'
import { setNewest } from '../../shared/newest.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type {
  ClientMessage,
  ResumePosition,
  ResyncReason,
  Subprotocol,
} from '../../shared/protocol/messages.ts'
import { contextOf, noSpan, type Span } from '../../shared/tracing/tracer.ts'
import { Counts } from '../metrics.ts'
import {
  type Farewell,
  type MemberMessage,
  type RoomAddress,
  refusalCode,
  roomAttributes,
  roomIdOf,
  type StateFrames,
  type ToEdge,
} from '../traffic.ts'
import { RESYNC_COST, stateCost } from './budget.ts'
import type { Connection } from './connection.ts'
import type { GatewayContext } from './context.ts'
import { Lane } from './lane.ts'
import { Refused } from './refusals.ts'
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
  /** The highest epoch that was seen. */
  epoch: number
  /** Size of its latest full state. */
  stateBytes: number
  readonly subscriptions: Map<string, Subscription>
  /** By codec, the subscriptions that get an update together. The others are `apart`. */
  readonly lanes: Map<Codec, Lane>
  readonly apart: Set<Subscription>
}

/** Codes with which a room refuses a join that another room of its type may accept. */
const ELSEWHERE: ReadonlySet<ErrorCode> = new Set(['room_full', 'banned', 'already_joined'])
/** Maximum number of refusals that a session remembers. Older ones are dropped. */
const MAX_REFUSALS = 64

/** A reliable message without an ack for so long may be lost, or its ack may be. The edge then attaches again. */
const ACK_WAIT_MS = 5000

/**
 * Assumed size of a room's state before the first one arrives. It bounds how many rooms of unknown size a player may request at the same time.
 * It is small enough that a session resumes in all its rooms without a wait for the slowest of their owners.
 */
const ASSUMED_STATE_BYTES = 1024 * 1024

const LOCAL_INPUT = { what: 'input', way: 'local' } as const

/** Minimum time between two log lines about the same peer that may be a proxy. */
const FORWARDER_QUIET_MS = 10_000

const STORE_SILENT = 'the store does not answer: try again'

/** A message of a client, by its type. */
type Ask<T extends ClientMessage['t']> = Extract<ClientMessage, { t: T }>
/** A message of an owner to one subscription. */
type Answer = Exclude<ToEdge, { kind: 'update' | 'spectators' | 'redirect' | 'resend' }>

/**
 * The subscriptions of this node's clients. Sends the clients' requests to the owners of the rooms, and the owners' frames to the right
 * connections. The edge is responsible for retries: it repeats unanswered questions, and sends unacknowledged messages to a new owner.
 */
export class Edge {
  readonly #context: GatewayContext
  readonly #record: (session: SubscribedSession) => Promise<boolean>
  readonly #rooms = new Map<string, SubscribedRoom>()
  /** Subscriptions with a question to the owner that is open, or that waits until it may be sent. */
  readonly #asking = new Set<Subscription>()
  /** Subscriptions that may have reliable messages without an ack. */
  readonly #unanswered = new Set<Subscription>()
  readonly #unacked: UnackedLimits
  /** Seats of guests (`Session.guests`), in all rooms and by room type. */
  readonly #guestSeats = new Counts()
  readonly #quiet: Quiet
  #asks = 0

  /**
   * `record` writes the session's subscriptions to its record, before the owner gets the join. A node at which the client resumes reads them
   * there. `record` returns false if another node has the session, and rejects if the store does not answer.
   */
  constructor(context: GatewayContext, record: (session: SubscribedSession) => Promise<boolean>) {
    const { maxUnackedMessages: messages, maxUnackedBytes: bytes } = context.options
    this.#context = context
    this.#record = record
    this.#unacked = { messages, bytes }
    this.#quiet = new Quiet(context.clock, FORWARDER_QUIET_MS)
  }

  /**
   * Sends a join. The answer to the client is `joined` or an error. The session must not have a subscription to this room. `memberId`: id of the
   * seat that an earlier join with the same request id may have.
   */
  join(
    session: Session,
    connection: Connection,
    room: RoomAddress,
    { request_id: requestId, options, rejoin, create, watch }: Ask<'join'>,
    memberId = newId('mem', this.#context.random),
  ): void {
    const { clock, nodeId } = this.#context
    const { key: _, ...rest } = options
    const span = this.#joinSpan(session, room)
    const code = create === false ? session.codes?.get(roomIdOf(room)) : undefined
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
      ...((create === false || watch) && { create: false }),
      ...(watch && { watch }),
      ...(code !== undefined && { code }),
      ...(session.features.includes('layers') && { layers: true }),
      ...(span.sampled && contextOf(span)),
    })
    subscription.joinSpan = span
    session.ended.delete(subscription.roomId)
    this.#add(subscription)
    this.#asking.add(subscription)
    // Before the record is written, so that concurrent joins of the player count for each other.
    this.#pay(subscription)
    this.#record(session).then(
      (recorded) => {
        // Another node may have taken the session over. A client that is gone sends the join again when it is back: the owner would keep a seat
        // for a join that arrives after the client's `detach`.
        subscription.recorded = recorded && this.#asking.has(subscription)
        if (subscription.recorded && subscription.join) this.#askState(subscription)
      },
      () => this.#failJoin(subscription, 'room_unavailable', STORE_SILENT),
    )
  }

  /** Returns the error if the guests with the session's token and address have as many seats at this node as they may. */
  tooManyGuests({ guests, from }: Session, roomType: string): Refused | undefined {
    const { log, options } = this.#context
    if (guests === undefined || !from) return undefined
    const ofType = this.#guestSeats.of(seatsOfType(guests, roomType))
    const inAll = this.#guestSeats.of(guests)
    if (ofType < options.maxGuestSeatsPerRoomType && inAll < options.maxGuestSeats) return undefined
    const taken =
      inAll < options.maxGuestSeats ? `${ofType} seats in rooms of type ${roomType}` : `${inAll} seats`
    const advice = from.isForwarder
      ? 'TRUSTED_PROXIES of the node lacks the address of the proxy that sends x-forwarded-for'
      : 'give each player a token with a sub'
    const suppressed = from.isForwarder ? this.#quiet.pass(from.address) : undefined
    if (suppressed !== undefined)
      log.warn(
        { peer: from.address, seats: inAll, suppressed },
        'guests share the address of a peer that sends x-forwarded-for: if it is your proxy, TRUSTED_PROXIES lacks it',
      )
    return new Refused(
      'too_many_rooms',
      `clients with this token, which has no sub, have ${taken} from one address at this node: ${advice}`,
    )
  }

  /** Counts a join that is refused without a question to the owner. The caller answers the client. */
  refuseJoin(session: Session, room: RoomAddress, code: ErrorCode): void {
    this.#context.metrics.joins.inc({ result: code })
    endJoinSpan(this.#joinSpan(session, room), code)
  }

  /** Adds a subscription of a session that has moved to this node. It waits for `attach`, or for `joinAgain`. */
  restore(session: Session, room: RoomAddress, memberId: string, joinRequest: number | undefined): void {
    const now = this.#context.clock.monotonic()
    const subscription = new Subscription(session, room, memberId, this.#unacked, now)
    subscription.joinRequest = joinRequest
    this.#add(subscription)
  }

  /** The client repeats an unanswered join with the same request id. The new join is for the same seat. */
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

  /** Sends a leave that the client has requested. The answer is `left`. */
  leave(subscription: Subscription, requestId: number): void {
    subscription.leaveRequest = requestId
    subscription.askedAt = this.#context.clock.monotonic()
    this.#asking.add(subscription)
    this.#sendLeave(subscription)
  }

  /**
   * Ends a subscription without a message to the client. It has no request id, so the room cannot refuse it as it can refuse a client's
   * leave.
   */
  endSubscription(subscription: Subscription, reason: 'left' | 'session_ended' | 'kicked'): void {
    const { room, memberId } = subscription
    const last = this.#remove(subscription)
    // Before `forget`, while the router still knows the room's location.
    this.#context.cluster.router.send({ kind: 'leave', room, member_id: memberId, reason })
    if (last) this.#context.cluster.router.forget(room)
  }

  /** Ends the session's seats in rooms from which its player is banned, and its open joins of such rooms. */
  expelBanned(session: Session): void {
    for (const subscription of [...session.subscriptions.values()]) {
      const { room, join } = subscription
      const message = session.bannedFrom(room.roomType)
      if (message === undefined) continue
      if (join) this.#failJoin(subscription, 'banned', message)
      else {
        const farewell: Farewell = { reason: 'kicked', message }
        this.endSubscription(subscription, 'kicked')
        this.#remember(session, room, farewell)
        subscription.left(farewell)
      }
    }
  }

  /**
   * Drops a subscription that another edge has now. If the owner has not heard from that edge, it counts the member as detached, also one whose
   * join is still under way. The other edge then leaves that seat, or its client asks for the seat again.
   */
  abandon(subscription: Subscription): void {
    const last = this.#remove(subscription)
    if (subscription.phase !== 'detached') this.#sendDetach(subscription, true)
    if (last) this.#context.cluster.router.forget(subscription.room)
  }

  /** Drops a subscription without sending a message. */
  forget(subscription: Subscription): void {
    if (this.#remove(subscription)) this.#context.cluster.router.forget(subscription.room)
  }

  /** Ends a subscription with an open leave, so that the client can join again. The owner gets leave and join in this order. */
  finishLeave(subscription: Subscription): void {
    this.endSubscription(subscription, 'left')
    subscription.left()
  }

  message(subscription: Subscription, asked: Ask<'message'>, bytes: number): void {
    const { type, data, ref, settled = 0 } = asked
    if (ref === undefined && this.#isHandledHere(subscription, asked)) return
    const { room, memberId } = subscription
    const message = { kind: 'message', room, member_id: memberId, type, data } as const
    if (ref === undefined) this.#context.cluster.router.send(message)
    else if (this.#isDue(subscription, ref)) {
      if (settled >= ref) {
        const text = `a message to ${subscription.roomId} has ref ${ref} and settled ${settled}, which must be lower`
        subscription.connection?.close('protocol_error', text)
      } else if (subscription.unacked.isFull(bytes)) this.#refuseFull(subscription, ref)
      else this.#sendReliable(subscription, { ...message, ref, settled }, bytes)
      subscription.messageArrived(settled)
    }
  }

  /** Passes a message to the room, if that runs at this node and can act. Otherwise, returns false. */
  #isHandledHere(subscription: Subscription, message: MemberMessage): boolean {
    if (!subscription.seat?.receive(message)) return false
    this.#context.metrics.roomTraffic.inc(LOCAL_INPUT)
    return true
  }

  /** Refuses a message of the client. The owner acknowledges its ref in order, and the answer comes from there. */
  refuse(subscription: Subscription, code: ErrorCode, message: string, ref: number): void {
    if (!this.#isDue(subscription, ref)) return
    if (subscription.unacked.isFull(message.length)) this.#refuseFull(subscription, ref)
    else this.#refuse(subscription, code, message, ref)
    subscription.messageArrived(0)
  }

  /** Refuses a message that exceeds the limits. Such refusals in a row share one entry, so a client cannot fill the memory with them. */
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

  /** True if this ref is due. A lower ref was sent before on this connection, and gets no answer. A higher one closes the connection. */
  #isDue({ due, roomId, connection }: Subscription, ref: number): boolean {
    if (ref > due) connection?.close('protocol_error', `a message to ${roomId} has ref ${ref}; ${due} is due`)
    return ref === due
  }

  /**
   * The client requests a full state. The request stays open until it gets one, its seat ends, or it disconnects: also if an owner does not
   * answer, or answers an attach with the missed updates.
   */
  resync(subscription: Subscription, reason: ResyncReason): void {
    if (subscription.resync) return
    subscription.resync = reason
    if (subscription.phase === 'live') this.#askState(subscription)
  }

  /** The session's token has new `data` for room code. */
  renew(session: Session): void {
    // A join that is under way has the old data. The owner replaces it when this message arrives.
    for (const { room, memberId } of session.subscriptions.values())
      this.#context.cluster.router.send({ kind: 'renew', room, member_id: memberId, data: session.data })
  }

  /**
   * The session has lost its connection. Its subscriptions stay, except those with an open leave. `moves`: the client was asked to move to
   * another node.
   */
  detach(session: Session, moves: boolean): void {
    for (const subscription of [...session.subscriptions.values()]) {
      this.#asking.delete(subscription)
      subscription.detach()
      if (subscription.leaveRequest !== undefined) this.endSubscription(subscription, 'left')
      else this.#sendDetach(subscription, moves)
    }
  }

  /** The session has a connection again, and its client has everything up to `position`. Calls `answered` once, at the owner's answer. */
  attach(
    subscription: Subscription,
    connection: Connection,
    position: ResumePosition,
    answered: (result: AttachResult) => void,
  ): void {
    subscription.attach(connection, position, ++this.#asks, answered)
    this.#askState(subscription)
  }

  /** True if clients of this node have subscriptions to a room (`project/type:key`). */
  subscribes(room: string): boolean {
    return this.#rooms.has(room)
  }

  /**
   * Messages between this edge and the owner of a room may be lost, or the room has another owner. Sends all open questions again, and
   * requests the updates that members may have missed.
   */
  reattach(room: RoomAddress): void {
    const subscribed = this.#rooms.get(room.name)
    for (const subscription of subscribed ? [...subscribed.subscriptions.values()] : [])
      this.#reattach(subscription)
  }

  /** The client has caught up: its stalled subscriptions request their states. */
  hasRoom(session: Session): void {
    for (const subscription of session.subscriptions.values())
      if (subscription.awaitState()) this.#askState(subscription)
  }

  /** Takes a message from the owner of a room. All frames for a client from one turn leave in one write. */
  receive(message: ToEdge): void {
    const room = this.#rooms.get(message.room.name)
    if (!room) return
    if (message.kind === 'redirect' || message.kind === 'resend') {
      if (message.epoch === 0 || message.epoch >= room.epoch) this.reattach(message.room)
      return
    }
    // Epoch 0: the room has no owner, so the message cannot come from an earlier owner.
    if (message.epoch !== 0) {
      if (message.epoch < room.epoch) return
      if (message.epoch > room.epoch) this.#newEpoch(room, message.epoch)
    }
    if (message.kind === 'update') {
      this.#update(room, message)
      return
    }
    if (message.kind === 'spectators') {
      for (const subscription of room.subscriptions.values())
        subscription.unsequenced(message.frames, message.epoch)
      return
    }
    const subscription = room.subscriptions.get(message.member_id)
    if (subscription) this.#answer(subscription, message)
  }

  /** Repeats overdue questions, and ends joins without an answer. To be called about once a second. */
  sweep(): void {
    const now = this.#context.clock.monotonic()
    for (const subscription of this.#unanswered) {
      if (subscription.unacked.empty) this.#unanswered.delete(subscription)
      else if (subscription.phase === 'live' && subscription.isUnansweredSince(now - ACK_WAIT_MS))
        this.#reattach(subscription)
    }
    for (const subscription of this.#asking) {
      if (subscription.phase === 'joining' && now - subscription.madeAt >= this.#context.options.joinWaitMs)
        this.#failJoin(
          subscription,
          'room_unavailable',
          subscription.recorded ? `${subscription.roomId} did not answer: try again` : STORE_SILENT,
        )
      else if (subscription.unpaid || now - subscription.askedAt >= this.#context.options.attachWaitMs)
        this.#askAgain(subscription)
    }
  }

  /** Sends the open question of a subscription again, unless its player still cannot pay for the answer. */
  #askAgain(subscription: Subscription): void {
    subscription.askedAt = this.#context.clock.monotonic()
    if (!subscription.unpaid || this.#pay(subscription)) this.#sendQuestion(subscription)
    if (subscription.leaveRequest !== undefined) this.#sendLeave(subscription)
  }

  #sendQuestion(subscription: Subscription): void {
    const question = subscription.question(this.#context.nodeId)
    if (question) this.#context.cluster.router.send(question)
  }

  /** Sends a question whose answer may be a full state: immediately, or at the first `sweep` at which the player can pay for the state. */
  #askState(subscription: Subscription): void {
    subscription.askedAt = this.#context.clock.monotonic()
    this.#asking.add(subscription)
    if (this.#pay(subscription)) this.#sendQuestion(subscription)
    else this.#context.metrics.statesDelayed.inc()
  }

  /** Pays for the state that may be the answer, at the size of the room's latest state. Returns false if the player cannot pay. */
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

  /** The owner has answered with these frames: a full state, missed updates (`missed`), or nothing. Corrects the payment. */
  #stateCame(subscription: Subscription, answer: readonly StateFrames[], missed = false): void {
    const codec = subscription.connection?.codec.subprotocol
    let bytes = 0
    if (codec) for (const frames of answer) bytes += bytesIn(frames, codec)
    const room = this.#rooms.get(subscription.room.name)
    if (room && bytes > 0 && !missed) room.stateBytes = bytes
    const { paid = 0, resync, session } = subscription
    subscription.paid = undefined
    subscription.unpaid = false
    const owed = stateCost(bytes) - paid
    // A resync has a minimum price, however small the state is.
    if (owed > 0 || missed || resync === undefined) session.budget.oweState(owed)
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

  /** Attaches the subscriptions of earlier owners again, because the room has a new owner. */
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
    if (patch) {
      const flush = new FlushFrames(seq, patch, rest, personal.length === 0, layers)
      const leavers = leaving && new Set(leaving)
      const last = leavers && new FlushFrames(seq, patch, undefined, false, layers, true)
      // Members that leave, and those with layers, get other frames.
      const isShared = !leavers && !layers
      for (const [codec, lane] of room.lanes) {
        const frame = isShared ? flush.shared(codec) : undefined
        if (frame) lane.flush(frame, seq, flush.alone)
        else lane.clear()
      }
      for (const subscription of room.apart) {
        const frames = last && leavers.has(subscription.memberId) ? last : flush
        const result = subscription.flush(frames, epoch)
        if (isShared && result === 'sent') this.#enterLane(room, subscription, seq)
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
      // The client disconnected while the join was under way. The owner may have received the detach before the join.
      if (subscription.joined(join, epoch, seq)) this.#findSeat(subscription)
      else this.#sendDetach(subscription, false)
    }
    // One ack of each update is timed, of changing members. Timing each would cost more than the ack, and one is enough of a sample.
    const observed = personal[seq % personal.length]
    for (const part of personal) {
      const sentAt = room.subscriptions.get(part.member_id)?.personal(part, epoch)
      if (sentAt !== undefined && part === observed)
        this.#context.metrics.ackDuration.observe(this.#since(sentAt))
    }
  }

  /** The owner has answered: if it is this node, messages go to it directly until the subscription attaches again. */
  #findSeat(subscription: Subscription): void {
    const { room, memberId } = subscription
    subscription.seat = this.#context.cluster.router.seat(room, memberId)
  }

  /** A subscription has got the flush `seq`: from the next one on, it needs no look. */
  #enterLane({ lanes, apart }: SubscribedRoom, subscription: Subscription, seq: number): void {
    const { connection } = subscription
    if (!connection) return
    const lane = lanes.get(connection.codec) ?? new Lane(apart)
    lanes.set(connection.codec, lane)
    lane.add(subscription, connection.outbox, seq)
  }

  /** An owner has answered: stops the repetition unless another question is open. */
  #answered(subscription: Subscription): void {
    if (subscription.leaveRequest === undefined && !subscription.question(this.#context.nodeId))
      this.#asking.delete(subscription)
  }

  /** Takes an owner's message to one subscription. */
  #answer(subscription: Subscription, message: Answer): void {
    switch (message.kind) {
      case 'state':
        this.#stateCame(subscription, [message.state])
        subscription.state(message)
        this.#answered(subscription)
        break
      case 'attached':
        if (message.ask === subscription.attaching?.ask)
          this.#stateCame(subscription, message.frames, message.resumed)
        if (subscription.attached(message)) {
          this.#findSeat(subscription)
          for (const reliable of subscription.unacked.messages) this.#context.cluster.router.send(reliable)
        }
        if (subscription.phase === 'live' && subscription.resync) this.#askState(subscription)
        this.#answered(subscription)
        break
      case 'refused':
        this.#joinAnswered(subscription, message.code)
        this.#stateCame(subscription, [])
        if (ELSEWHERE.has(message.code)) this.#rememberRefusal(subscription)
        this.forget(subscription)
        subscription.fail(message.code, message.message, message)
        // Close it: a client without subscriptions loses nothing, and may find capacity at another node.
        if (message.code === 'overloaded' && subscription.session.subscriptions.size === 0)
          subscription.connection?.close('overloaded', message.message)
        break
      case 'error':
        // A failed leave is over. The client still has the subscription, and may try again.
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
   * The seat has ended. If the room has ended it, the session's record keeps the reason, for any node at which the client resumes. The client
   * may be disconnected, possibly without this node's knowledge.
   */
  #seatEnded(subscription: Subscription, farewell: Farewell | undefined): void {
    const { session, room, join } = subscription
    this.#stateCame(subscription, [])
    this.forget(subscription)
    if (join) {
      // The join was a repeated one, and its seat had ended. The client does not know the member id, and waits for an answer to the join.
      const ended = farewell ?? LOST
      const refused = ended.reason === 'kicked' ? 'join_refused' : 'room_unavailable'
      const code = refusalCode(ended) ?? refused
      this.#joinAnswered(subscription, code)
      const text = ended.message ?? `the seat in ${subscription.roomId} has ended: ${ended.reason}`
      subscription.fail(code, text, { request_id: join.request_id, match: ended.match })
      return
    }
    if (farewell && farewell.reason !== 'left') this.#remember(session, room, farewell)
    subscription.left(farewell)
  }

  /** Keeps the reason why a seat has ended in the session's record, for a client that is disconnected. */
  #remember(session: SubscribedSession, room: RoomAddress, farewell: Farewell): void {
    session.ended.add({ room, farewell })
    // If the store does not answer, the sweep of the sessions writes the record again.
    this.#record(session).catch(() => {})
  }

  /** Notes that a room has refused a join, for the next `find` of the session. */
  #rememberRefusal({ session, roomId }: Subscription): void {
    session.refusals ??= new Map()
    setNewest(session.refusals, roomId, this.#context.clock.monotonic(), MAX_REFUSALS)
  }

  /** Starts the span of a client's join. The owner's work on the join belongs to it. */
  #joinSpan(session: Session, room: RoomAddress): Span {
    return this.#context.tracer.span('join', {
      kind: 'server',
      parent: session.trace,
      attributes: { ...roomAttributes(room), 'roomful.session_id': session.sessionId },
    })
  }

  /** The client gets the answer to its join. */
  #joinAnswered(subscription: Subscription, result: 'joined' | ErrorCode): void {
    const { metrics } = this.#context
    metrics.joins.inc({ result })
    subscription.session.codes?.delete(subscription.roomId)
    if (result === 'joined') metrics.joinDuration.observe(this.#since(subscription.madeAt))
    endJoinSpan(subscription.joinSpan, result)
    // A subscription lives for hours, and would keep all attributes of the span.
    subscription.joinSpan = noSpan
  }

  #failJoin(subscription: Subscription, code: ErrorCode, why: string): void {
    if (subscription.session.subscriptions.get(subscription.roomId) !== subscription || !subscription.join)
      return
    const { request_id: requestId } = subscription.join
    this.#joinAnswered(subscription, code)
    if (subscription.recorded) this.endSubscription(subscription, 'left')
    else this.forget(subscription)
    subscription.fail(code, why, { request_id: requestId })
  }

  /** Sends a reliable message. An attaching subscription only keeps it, and sends it with the others when the owner has answered. */
  #sendReliable(subscription: Subscription, message: Reliable, bytes: number): void {
    const { unacked, phase } = subscription
    if (!unacked.add(message, bytes, this.#context.clock.monotonic())) return
    this.#unanswered.add(subscription)
    if (phase === 'attaching' || (message.kind === 'message' && this.#isHandledHere(subscription, message)))
      return
    this.#context.cluster.router.send(message)
  }

  /** Requests the updates that a member has missed. It pays for them when they arrive. An earlier question that is unpaid still waits. */
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

  /** Returns true if no client of this edge is in the room any more. */
  #remove(subscription: Subscription): boolean {
    subscription.removed = true
    this.#asking.delete(subscription)
    this.#unanswered.delete(subscription)
    subscription.joinSpan.set({ 'roomful.result': 'abandoned' })
    subscription.joinSpan.end()
    const { subscriptions } = subscription.session
    if (subscriptions.get(subscription.roomId) === subscription) subscriptions.delete(subscription.roomId)
    const name = subscription.room.name
    const room = this.#rooms.get(name)
    if (!room?.subscriptions.delete(subscription.memberId)) return false
    this.#countGuest(subscription, -1)
    subscription.lane?.remove(subscription)
    room.apart.delete(subscription)
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
      lanes: new Map(),
      apart: new Set(),
    }
    this.#rooms.set(name, room)
    room.subscriptions.set(subscription.memberId, subscription)
    this.#countGuest(subscription, 1)
    room.apart.add(subscription)
  }

  #countGuest({ session: { guests }, room }: Subscription, change: 1 | -1): void {
    if (guests === undefined) return
    this.#guestSeats.add(guests, change)
    this.#guestSeats.add(seatsOfType(guests, room.roomType), change)
  }

  /** Seconds since a moment of the monotonic clock. */
  #since(moment: number): number {
    return (this.#context.clock.monotonic() - moment) / 1000
  }
}

const bytesIn = ({ patch, layers = [], rest }: StateFrames, codec: Subprotocol): number =>
  [patch, rest, ...layers.map(({ change }) => change)].reduce(
    (bytes, frames) => bytes + (frames?.[codec]?.length ?? 0),
    0,
  )

const seatsOfType = (guests: string, roomType: string): string => `${guests} ${roomType}`

/** Failures of the service. All other codes are due to the client or the room. */
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
