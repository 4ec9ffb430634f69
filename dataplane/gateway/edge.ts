import type { Clock } from '../../shared/clock.ts'
import { newId } from '../../shared/ids.ts'
import type { ClientMessage, ResumePosition } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import { type RoomAddress, roomName, type ToEdge, type ToOwner } from '../traffic.ts'
import type { Connection } from './connection.ts'
import { Flush } from './flush.ts'
import type { GatewayMetrics } from './metrics.ts'
import { type AttachResult, Seat } from './seat.ts'
import type { Session } from './session.ts'

/** What an edge is made of. */
export interface EdgeParts {
  readonly node_id: string
  readonly clock: Clock
  readonly random: Random
  readonly metrics: GatewayMetrics
  /** How long an attach or resync may stay without an answer before it is asked again. */
  readonly attach_wait_ms: number
  /** How long a join may stay without an answer. */
  readonly join_wait_ms: number
  /** Takes a message to the owner of its room. */
  readonly send: (message: ToOwner) => void
}

/** The seats of one room at this edge. */
interface SeatedRoom {
  epoch: number
  readonly seats: Map<string, Seat>
}

/** Which room, and which ref to answer: what a client asks about. */
type Ask<T extends ClientMessage['t']> = Extract<ClientMessage, { t: T }>

/**
 * The near end of every room that clients of this node are in: turns what they ask into messages to the rooms' owners, and what owners
 * send into frames for the right connections.
 */
export class Edge {
  readonly #parts: EdgeParts
  readonly #rooms = new Map<string, SeatedRoom>()
  /** Seats with an open question to the owner. */
  readonly #asking = new Set<Seat>()

  constructor(parts: EdgeParts) {
    this.#parts = parts
  }

  /** Asks for a seat; the answer is `joined` or an error. The caller has seen to it that the session has none in this room. */
  join(session: Session, connection: Connection, room: RoomAddress, { ref, options }: Ask<'join'>): void {
    const { clock, random, node_id } = this.#parts
    const seat = new Seat(session, room, newId('mem', random), ref, clock.monotonic())
    session.seats.set(seat.room_id, seat)
    this.#roomOf(room).seats.set(seat.member_id, seat)
    this.#asking.add(seat)
    const { key: _, ...rest } = options
    this.#parts.send({
      kind: 'join',
      room,
      member_id: seat.member_id,
      ref,
      edge: node_id,
      codec: connection.codec.subprotocol,
      session_id: session.session_id,
      sub: session.sub,
      options: rest,
    })
  }

  /** Gives a seat up at the client's wish; the answer is `left`. */
  leave(seat: Seat, ref: number): void {
    seat.leave_ref = ref
    this.#parts.send({ kind: 'leave', room: seat.room, member_id: seat.member_id, reason: 'left', ref })
  }

  /** Gives a seat up without a word to the client. */
  giveUp(seat: Seat, reason: 'left' | 'session_ended'): void {
    this.#remove(seat)
    if (seat.leave_ref === undefined)
      this.#parts.send({ kind: 'leave', room: seat.room, member_id: seat.member_id, reason })
  }

  /** Answers a `leave` that is still under way, so that the client can have a new seat: the owner gets the two in their order. */
  finishLeave(seat: Seat): void {
    this.#remove(seat)
    seat.left(seat.leave_ref, undefined)
  }

  message(seat: Seat, { type, data, ref }: Ask<'message'>): void {
    const { room, member_id } = seat
    if (ref === undefined) {
      this.#parts.send({ kind: 'message', room, member_id, type, data })
      return
    }
    seat.sent(ref, this.#parts.clock.monotonic())
    this.#parts.send({ kind: 'message', room, member_id, type, data, ref })
  }

  /** The client has lost track. A seat that is behind or waits for its state gets one anyway. */
  resync(seat: Seat, { have_seq, reason }: Ask<'state.resync'>): void {
    if (seat.phase !== 'live') return
    this.#parts.send({ kind: 'resync', room: seat.room, member_id: seat.member_id, have_seq, reason })
  }

  /** The session's socket is gone: its seats stay, except those it was leaving. */
  detach(session: Session): void {
    for (const seat of [...session.seats.values()]) {
      this.#asking.delete(seat)
      seat.detach()
      if (seat.leave_ref !== undefined) this.#remove(seat)
      else this.#parts.send({ kind: 'detach', room: seat.room, member_id: seat.member_id })
    }
  }

  /** The session has a socket again, and the client has everything up to `position`. `answered` is called once, at the owner's answer. */
  attach(
    seat: Seat,
    connection: Connection,
    position: ResumePosition,
    answered: (result: AttachResult) => void,
  ): void {
    seat.attach(connection, { position, answered }, this.#parts.clock.monotonic())
    this.#asking.add(seat)
    this.#sendAttach(seat, connection, position)
  }

  /** The client has read what waited for it: its stalled rooms get their state. */
  hasRoom(session: Session): void {
    for (const seat of session.seats.values()) {
      if (!seat.awaitState(this.#parts.clock.monotonic())) continue
      this.#asking.add(seat)
      this.#sendStalled(seat)
    }
  }

  /** A message from the owner of a room. */
  receive(message: ToEdge): void {
    const room = this.#rooms.get(roomName(message.room))
    if (!room) return
    // Epoch 0: nobody owns the room, so there is nobody to be older than.
    if (message.epoch !== 0) {
      if (message.epoch < room.epoch) return
      room.epoch = message.epoch
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
    for (const seat of this.#asking) {
      const waited = this.#parts.clock.monotonic() - seat.asked_at
      if (seat.phase === 'joining' && waited >= this.#parts.join_wait_ms) this.#failJoin(seat)
      if (waited < this.#parts.attach_wait_ms) continue
      if (seat.phase === 'attaching' && seat.connection && seat.position) {
        seat.reattach(this.#parts.clock.monotonic())
        this.#sendAttach(seat, seat.connection, seat.position)
      }
      if (seat.phase === 'resyncing') {
        seat.asked_at = this.#parts.clock.monotonic()
        this.#sendStalled(seat)
      }
    }
  }

  #update(room: SeatedRoom, { seq, patch, rest, personal, joined }: Extract<ToEdge, { kind: 'update' }>) {
    if (patch || rest) {
      const flush = new Flush(seq, patch, rest)
      for (const seat of room.seats.values()) if (seat.flush(flush)) this.#parts.metrics.stalled()
    }
    for (const join of joined) {
      const seat = room.seats.get(join.member_id)
      if (seat?.phase !== 'joining') continue
      this.#asking.delete(seat)
      this.#parts.metrics.join('joined', this.#since(seat.asked_at))
      seat.joined(join)
    }
    for (const part of personal) {
      const sent_at = room.seats.get(part.member_id)?.personal(part)
      if (sent_at !== undefined) this.#parts.metrics.acked(this.#since(sent_at))
    }
  }

  /** What an owner has for one seat. */
  #answer(seat: Seat, message: Exclude<ToEdge, { kind: 'update' }>): void {
    switch (message.kind) {
      case 'state':
        this.#asking.delete(seat)
        seat.state(message.state)
        break
      case 'attached':
        seat.attached(message.resumed, message.frames, message.ack)
        if (seat.phase !== 'attaching') this.#asking.delete(seat)
        break
      case 'no_seat':
        this.#remove(seat)
        seat.lost(message.ref)
        break
      case 'refused':
        this.#remove(seat)
        this.#parts.metrics.join(message.code, this.#since(seat.asked_at))
        seat.fail(message.code, message.message, message.ref)
        break
      case 'error':
        // A leave that failed is over: the client still has the seat, and may ask again.
        if (message.ref !== undefined && message.ref === seat.leave_ref) seat.leave_ref = undefined
        seat.refuse(message.code, message.message, message.ref)
        break
      case 'left':
        this.#remove(seat)
        seat.left(message.ref, message.farewell)
    }
  }

  #failJoin(seat: Seat): void {
    this.giveUp(seat, 'left')
    this.#parts.metrics.join('room_unavailable', this.#since(seat.asked_at))
    seat.fail('room_unavailable', `${seat.room_id} did not answer: try again`, seat.join_ref)
  }

  #sendAttach(seat: Seat, { codec }: Connection, { epoch, seq }: ResumePosition): void {
    this.#parts.send({
      kind: 'attach',
      room: seat.room,
      member_id: seat.member_id,
      edge: this.#parts.node_id,
      codec: codec.subprotocol,
      session_id: seat.session.session_id,
      epoch,
      seq,
    })
  }

  #sendStalled(seat: Seat): void {
    const { room, member_id, stalled_at_seq } = seat
    this.#parts.send({ kind: 'resync', room, member_id, have_seq: stalled_at_seq, reason: 'stalled' })
  }

  #roomOf(room: RoomAddress): SeatedRoom {
    const name = roomName(room)
    let seated = this.#rooms.get(name)
    if (!seated) {
      seated = { epoch: 0, seats: new Map() }
      this.#rooms.set(name, seated)
    }
    return seated
  }

  #remove(seat: Seat): void {
    this.#asking.delete(seat)
    const { seats } = seat.session
    if (seats.get(seat.room_id) === seat) seats.delete(seat.room_id)
    const name = roomName(seat.room)
    const room = this.#rooms.get(name)
    room?.seats.delete(seat.member_id)
    if (room?.seats.size === 0) this.#rooms.delete(name)
  }

  /** Seconds since a moment of the monotonic clock. */
  #since(moment: number): number {
    return (this.#parts.clock.monotonic() - moment) / 1000
  }
}
