import type { Clock } from '../../shared/clock.ts'
import { newId } from '../../shared/ids.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ClientMessage, ResumePosition } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import { contextOf } from '../../shared/tracing/tracer.ts'
import { type Frames, type RoomAddress, roomName, type ToEdge, type ToOwner } from '../traffic.ts'
import type { Connection } from './connection.ts'
import { Flush } from './flush.ts'
import type { JoinWatch } from './join-watch.ts'
import type { GatewayMetrics } from './metrics.ts'
import { type AttachResult, Seat } from './seat.ts'
import type { Session } from './session.ts'
import { StatePace } from './state-pace.ts'
import type { Reliable, UnackedLimits } from './unacked.ts'

/** What an edge is made of. */
export interface EdgeParts {
  readonly node_id: string
  readonly clock: Clock
  readonly random: Random
  readonly metrics: GatewayMetrics
  readonly joins: JoinWatch
  /** How much each seat may have waiting for its owner to settle. */
  readonly max_unacked_messages: number
  readonly max_unacked_bytes: number
  /** How long a question to an owner may stay without an answer before it is asked again. */
  readonly attach_wait_ms: number
  /** How many bytes of whole states each player may have in a second. */
  readonly state_bytes_per_second: number
  /** How long a join may stay without an answer. */
  readonly join_wait_ms: number
  /** Takes a message to the owner of its room. */
  readonly send: (message: ToOwner) => void
  /**
   * Writes down the seats of a session, before its owner hears of a new one: whichever node the client resumes at must know of it.
   * False: the session is another node's. Rejects when the store does not answer.
   */
  readonly record: (session: Session) => Promise<boolean>
  /** Nobody at this edge is in the room any more. */
  readonly unseated: (room: RoomAddress) => void
}

/** The seats of one room at this edge. */
interface SeatedRoom {
  /** The highest epoch heard of. */
  epoch: number
  /** How large its state was when it came last. */
  state_bytes: number
  readonly seats: Map<string, Seat>
}

/** What a state counts as before one of its room has come. */
const ASSUMED_STATE_BYTES = 64 * 1024

/** Which room, and which ref to answer: what a client asks about. */
type Ask<T extends ClientMessage['t']> = Extract<ClientMessage, { t: T }>
type Answer = Exclude<ToEdge, { kind: 'update' | 'redirect' | 'resend' }>

/**
 * The near end of every room that clients of this node are in: turns what they ask into messages to the rooms' owners, and what owners
 * send into frames for the right connections. The reliable side of the two: it asks again what got no answer, and gives a new owner
 * what the old one has not settled.
 */
export class Edge {
  readonly #parts: EdgeParts
  readonly #joins: JoinWatch
  readonly #rooms = new Map<string, SeatedRoom>()
  /** Seats with an open question to the owner. */
  readonly #asking = new Set<Seat>()
  readonly #unacked: UnackedLimits
  readonly #states: StatePace
  #asks = 0

  constructor(parts: EdgeParts) {
    this.#parts = parts
    this.#unacked = { messages: parts.max_unacked_messages, bytes: parts.max_unacked_bytes }
    this.#joins = parts.joins
    this.#states = new StatePace(parts.clock, parts.state_bytes_per_second, (seat) => this.#askAgain(seat))
  }

  /** Asks for a seat; the answer is `joined` or an error. The caller has seen to it that the session has none in this room. */
  join(session: Session, connection: Connection, room: RoomAddress, { ref, options }: Ask<'join'>): void {
    const { clock, random, node_id } = this.#parts
    const { key: _, ...rest } = options
    const member_id = newId('mem', random)
    const span = this.#joins.begin(session, room)
    const seat = new Seat(session, room, member_id, this.#unacked, clock.monotonic(), {
      kind: 'join',
      room,
      member_id,
      ref,
      edge: node_id,
      turn: session.right.turn,
      codec: connection.codec.subprotocol,
      session_id: session.session_id,
      sub: session.sub,
      principal: session.principal,
      options: rest,
      ...(span.sampled && contextOf(span)),
    })
    seat.join_span = span
    this.#add(seat)
    this.#parts.record(session).then(
      // Taken over by another node: it has the seat now, and asks for nothing.
      (recorded) => recorded && this.#askJoin(seat),
      () => this.#failJoin(seat, 'room_unavailable', 'the store does not answer: try again'),
    )
  }

  /** A seat that the session holds from before it came to this node; it waits for `attach`. */
  restore(session: Session, room: RoomAddress, member_id: string): Seat {
    const seat = new Seat(session, room, member_id, this.#unacked, this.#parts.clock.monotonic())
    this.#add(seat)
    return seat
  }

  /** Gives a seat up at the client's wish; the answer is `left`. */
  leave(seat: Seat, ref: number): void {
    seat.leave_ref = ref
    seat.asked(this.#parts.clock.monotonic())
    this.#asking.add(seat)
    this.#sendLeave(seat)
  }

  /** Gives a seat up without a word to the client. */
  giveUp(seat: Seat, reason: 'left' | 'session_ended'): void {
    const { room, member_id, leave_ref } = seat
    const last = this.#remove(seat)
    // While it is still known where the room is.
    if (leave_ref === undefined) this.#parts.send({ kind: 'leave', room, member_id, reason })
    if (last) this.#parts.unseated(room)
  }

  /**
   * Drops a seat that another edge has now. An owner that has not heard of that one takes the member for detached, and nobody is
   * seated by a join that is still on its way.
   */
  abandon(seat: Seat): void {
    if (seat.phase === 'joining') {
      this.giveUp(seat, 'session_ended')
      return
    }
    const last = this.#remove(seat)
    if (seat.phase !== 'detached') this.#sendDetach(seat)
    if (last) this.#parts.unseated(seat.room)
  }

  /** Drops a seat without a word to anybody. */
  forget(seat: Seat): void {
    if (this.#remove(seat)) this.#parts.unseated(seat.room)
  }

  /** Answers a `leave` that is still under way, so that the client can have a new seat: the owner gets the two in their order. */
  finishLeave(seat: Seat): void {
    this.forget(seat)
    seat.left(seat.leave_ref, undefined)
  }

  message(seat: Seat, { type, data, ref, settled = 0 }: Ask<'message'>, bytes: number): void {
    const { room, member_id } = seat
    seat.learned(settled)
    if (ref === undefined) {
      this.#parts.send({ kind: 'message', room, member_id, type, data, ...seat.settled })
      return
    }
    seat.sent(ref, this.#parts.clock.monotonic())
    this.#sendReliable(seat, { kind: 'message', room, member_id, type, data, ref, ...seat.settled }, bytes)
  }

  /** A message of the client is refused here; its ref is settled by the owner, in its turn, and the answer comes from there. */
  refuse(seat: Seat, code: ErrorCode, message: string, ref: number): void {
    const { room, member_id } = seat
    const refused = { kind: 'refuse', room, member_id, ref, code, message, ...seat.settled } as const
    this.#sendReliable(seat, refused, message.length)
  }

  /** The client has lost track. A seat that is behind or waits for its state gets one anyway. */
  resync(seat: Seat, { have_seq, reason }: Ask<'state.resync'>): void {
    if (seat.phase !== 'live' || seat.resync) return
    seat.resync = { have_seq, reason }
    this.#askState(seat)
  }

  /** The session's socket is gone: its seats stay, except those it was leaving. */
  detach(session: Session): void {
    for (const seat of [...session.seats.values()]) {
      this.#asking.delete(seat)
      this.#states.forget(seat)
      seat.detach()
      if (seat.leave_ref !== undefined) this.forget(seat)
      else this.#sendDetach(seat)
    }
  }

  /** The session has a socket again, and the client has everything up to `position`. `answered` is called once, at the owner's answer. */
  attach(
    seat: Seat,
    connection: Connection,
    position: ResumePosition,
    answered: (result: AttachResult) => void,
  ): void {
    seat.attach(connection, position, ++this.#asks, answered)
    this.#askState(seat)
  }

  /**
   * Something between this edge and the owner of a room may be lost, or the room has another owner: everything that is open is asked
   * again, and every member told what it missed.
   */
  reattach(room: RoomAddress): void {
    const seated = this.#rooms.get(roomName(room))
    for (const seat of seated ? [...seated.seats.values()] : []) this.#reattach(seat)
  }

  /** The client has read what waited for it: its stalled rooms get their state. */
  hasRoom(session: Session): void {
    for (const seat of session.seats.values())
      if (seat.awaitState(this.#parts.clock.monotonic())) this.#askState(seat)
  }

  /** A message from the owner of a room. */
  receive(message: ToEdge): void {
    const room = this.#rooms.get(roomName(message.room))
    if (!room) return
    if (message.kind === 'redirect' || message.kind === 'resend') {
      if (message.epoch === 0 || message.epoch >= room.epoch) this.reattach(message.room)
      return
    }
    // Epoch 0: nobody owns the room, so there is nobody to be older than.
    if (message.epoch !== 0) {
      if (message.epoch < room.epoch) return
      if (message.epoch > room.epoch) this.#newEpoch(room, message.epoch)
    }
    if (message.kind === 'update') {
      this.#update(room, message)
      return
    }
    const seat = room.seats.get(message.member_id)
    if (seat) this.#answer(seat, message)
  }

  /** Asks again where an answer is overdue, and ends joins that nobody answers. To be called about once a second. */
  sweep(): void {
    const now = this.#parts.clock.monotonic()
    for (const seat of this.#asking) {
      if (seat.phase === 'joining' && now - seat.asked_at >= this.#parts.join_wait_ms) this.#overdueJoin(seat)
      else if (now - seat.asked_again_at >= this.#parts.attach_wait_ms) this.#askAgain(seat)
    }
  }

  /** What the seat's open question is, once more. */
  #askAgain(seat: Seat): void {
    seat.asked_again_at = this.#parts.clock.monotonic()
    if (!this.#states.waits(seat)) this.#sendQuestion(seat)
    if (seat.leave_ref !== undefined) this.#sendLeave(seat)
  }

  #sendQuestion(seat: Seat): void {
    const { room, member_id, stalled_at_seq, resync } = seat
    if (seat.phase === 'joining' && seat.join) this.#parts.send(seat.join)
    else if (seat.phase === 'attaching') this.#sendAttach(seat)
    else if (seat.phase === 'resyncing')
      this.#parts.send({ kind: 'resync', room, member_id, have_seq: stalled_at_seq, reason: 'stalled' })
    else if (seat.phase === 'live' && resync) this.#parts.send({ kind: 'resync', room, member_id, ...resync })
  }

  /** Asks what may be answered with a whole state: now, or when the player may have one more. */
  #askState(seat: Seat): void {
    const asked_for = seat.resync !== undefined
    seat.asked_again_at = this.#parts.clock.monotonic()
    this.#asking.add(seat)
    const bytes = this.#rooms.get(roomName(seat.room))?.state_bytes ?? ASSUMED_STATE_BYTES
    if (this.#states.ask(seat, bytes, asked_for)) this.#sendQuestion(seat)
    else this.#parts.metrics.statesDelayed.inc()
  }

  /** The owner has answered a seat with these frames of a whole state, or without any. */
  #stateCame(seat: Seat, states: readonly Frames[]): void {
    const codec = seat.connection?.codec.subprotocol
    let bytes = 0
    for (const frames of states) bytes += (codec && frames[codec]?.length) ?? 0
    const room = this.#rooms.get(roomName(seat.room))
    if (room && bytes > 0) room.state_bytes = bytes
    this.#states.answered(seat, bytes)
  }

  #reattach(seat: Seat): void {
    if (seat.reattach(++this.#asks)) this.#askAttach(seat)
    if (seat.leave_ref !== undefined || (seat.phase === 'joining' && this.#asking.has(seat)))
      this.#askAgain(seat)
  }

  /** Another owner than before: those who are attached to the earlier one are to be attached anew. */
  #newEpoch(room: SeatedRoom, epoch: number): void {
    const known = room.epoch
    room.epoch = epoch
    if (known === 0) return
    for (const seat of room.seats.values())
      if (seat.phase !== 'attaching' && !seat.isAttachedUnder(epoch) && seat.reattach(++this.#asks))
        this.#askAttach(seat)
  }

  #update(room: SeatedRoom, message: Extract<ToEdge, { kind: 'update' }>) {
    const { epoch, seq, patch, rest, personal, joined } = message
    if (patch || rest) {
      const flush = new Flush(seq, patch, rest)
      for (const seat of room.seats.values()) {
        const result = seat.flush(flush, epoch)
        if (result === 'stalled') this.#parts.metrics.slowConsumers.inc({ action: 'stalled' })
        if (result === 'missed') this.#reattach(seat)
      }
    }
    for (const join of joined) {
      const seat = room.seats.get(join.member_id)
      if (seat?.phase !== 'joining') continue
      this.#stateCame(seat, [join.snapshot])
      if (seat.leave_ref === undefined) this.#asking.delete(seat)
      this.#joins.answered(seat, 'joined')
      // The client went while the join was on its way; the word of that may have come before it.
      if (!seat.joined(join, epoch, seq)) this.#sendDetach(seat)
    }
    for (const part of personal) {
      const sent_at = room.seats.get(part.member_id)?.personal(part, epoch)
      if (sent_at !== undefined) this.#parts.metrics.ackDuration.observe(this.#since(sent_at))
    }
  }

  /** What an owner has for one seat. */
  #answer(seat: Seat, message: Answer): void {
    switch (message.kind) {
      case 'state':
        this.#stateCame(seat, [message.state])
        if (seat.leave_ref === undefined) this.#asking.delete(seat)
        seat.state(message.state)
        break
      case 'attached':
        if (message.ask === seat.attaching?.ask) this.#stateCame(seat, message.resumed ? [] : message.frames)
        for (const reliable of seat.attached(message)) this.#parts.send(reliable)
        if (seat.phase !== 'attaching' && seat.leave_ref === undefined) this.#asking.delete(seat)
        break
      case 'no_seat':
        this.#stateCame(seat, [])
        this.forget(seat)
        seat.lost(message.ref)
        break
      case 'refused':
        this.#joins.answered(seat, message.code)
        this.#stateCame(seat, [])
        this.forget(seat)
        seat.fail(message.code, message.message, message.ref)
        // Whoever holds nothing here has nothing to lose, and may find a place elsewhere.
        if (message.code === 'overloaded' && seat.session.seats.size === 0)
          seat.connection?.close('overloaded', message.message)
        break
      case 'error':
        // A leave that failed is over: the client still has the seat, and may ask again.
        if (message.ref !== undefined && message.ref === seat.leave_ref) seat.leave_ref = undefined
        seat.refuse(message.code, message.message, message.ref)
        break
      case 'left':
        this.forget(seat)
        seat.left(message.ref, message.farewell)
    }
  }

  #askJoin(seat: Seat): void {
    // Given up meanwhile.
    if (seat.session.seats.get(seat.room_id) !== seat || !seat.join) return
    this.#askState(seat)
  }

  #overdueJoin(seat: Seat): void {
    if (this.#states.waits(seat))
      this.#failJoin(seat, 'rate_limited', 'too much of whole rooms was asked for: try again later')
    else this.#failJoin(seat, 'room_unavailable', `${seat.room_id} did not answer: try again`)
  }

  #failJoin(seat: Seat, code: ErrorCode, why: string): void {
    if (seat.session.seats.get(seat.room_id) !== seat || !seat.join) return
    const { ref } = seat.join
    this.#joins.answered(seat, code)
    if (this.#asking.has(seat) && !this.#states.waits(seat)) this.giveUp(seat, 'left')
    else this.forget(seat)
    seat.fail(code, why, ref)
  }

  /** An owner that has yet to say where the seat stands is given it then. */
  #sendReliable(seat: Seat, message: Reliable, bytes: number): void {
    const ready = seat.unacked.add(message, bytes)
    if (!ready) {
      this.#parts.metrics.unackedRefused.inc()
      seat.fail('room_unavailable', `${seat.room_id} has to wait: try again`, message.ref)
    } else if (seat.phase !== 'attaching') this.#parts.send(ready)
  }

  /** Asks what a member has missed through no doing of its own: that does not wait, unless the seat does already. */
  #askAttach(seat: Seat): void {
    this.#asking.add(seat)
    seat.asked_again_at = this.#parts.clock.monotonic()
    if (!this.#states.waits(seat)) this.#sendAttach(seat)
  }

  #sendAttach(seat: Seat): void {
    const question = seat.attachQuestion(this.#parts.node_id)
    if (question) this.#parts.send(question)
  }

  #sendDetach({ room, member_id }: Seat): void {
    this.#parts.send({ kind: 'detach', room, member_id })
  }

  #sendLeave({ room, member_id, leave_ref }: Seat): void {
    if (leave_ref !== undefined)
      this.#parts.send({ kind: 'leave', room, member_id, reason: 'left', ref: leave_ref })
  }

  /** True: nobody at this edge is in the room any more. */
  #remove(seat: Seat): boolean {
    this.#asking.delete(seat)
    this.#states.forget(seat)
    this.#joins.abandoned(seat)
    const { seats } = seat.session
    if (seats.get(seat.room_id) === seat) seats.delete(seat.room_id)
    const name = roomName(seat.room)
    const room = this.#rooms.get(name)
    if (!room?.seats.delete(seat.member_id) || room.seats.size > 0) return false
    return this.#rooms.delete(name)
  }

  #add(seat: Seat): void {
    seat.session.seats.set(seat.room_id, seat)
    const name = roomName(seat.room)
    const room = this.#rooms.get(name) ?? { epoch: 0, state_bytes: ASSUMED_STATE_BYTES, seats: new Map() }
    this.#rooms.set(name, room)
    room.seats.set(seat.member_id, seat)
  }

  /** Seconds since a moment of the monotonic clock. */
  #since(moment: number): number {
    return (this.#parts.clock.monotonic() - moment) / 1000
  }
}
