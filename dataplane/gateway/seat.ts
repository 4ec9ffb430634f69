import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ResumePosition, ServerMessage } from '../../shared/protocol/messages.ts'
import { type Frame, frame } from '../frame.ts'
import { type Frames, type JoinedSeat, type PersonalPart, type RoomAddress, roomId } from '../traffic.ts'
import type { Connection, DirectMessage } from './connection.ts'
import { errorMessage } from './error-message.ts'
import type { Flush } from './flush.ts'
import { HeldFrames } from './held-frames.ts'
import type { Session } from './session.ts'

/**
 * How far a seat has come:
 * `joining` the owner has not answered; `live` gets every flush; `stalled` the client is behind, so patches are dropped and events held;
 * `resyncing` it has read, and waits for the state that replaces what was dropped; `detached` the session has no socket; `attaching`
 * it has one again, and the owner has not said yet what was missed.
 */
export type SeatPhase = 'joining' | 'live' | 'stalled' | 'resyncing' | 'detached' | 'attaching'

/** How an `attach` ended: what was missed went out as `frames`, a whole state did, or there is no seat. */
export type AttachResult = 'frames' | 'resync' | 'lost'

/** An `attach` that the owner has not answered. */
export interface PendingAttach {
  readonly position: ResumePosition
  readonly answered: (result: AttachResult) => void
}

/** One session in one room, as the edge sees it: decides which of the room's frames its client gets, and when. */
export class Seat {
  readonly session: Session
  readonly room: RoomAddress
  readonly room_id: string
  readonly member_id: string
  /** The ref of the join. */
  readonly join_ref: number
  /** The ref of the `leave` that is under way. */
  leave_ref: number | undefined
  /** When the question that is open was asked (join, attach, resync), on the monotonic clock. */
  asked_at: number
  readonly #held = new HeldFrames()
  #phase: SeatPhase = 'joining'
  #connection: Connection | undefined
  #attach: PendingAttach | undefined
  #attaches = 0
  #stalled_at_seq = 0
  #sample: { readonly ref: number; readonly at: number } | undefined

  /** A seat that `session` asks for over its present connection. */
  constructor(session: Session, room: RoomAddress, member_id: string, join_ref: number, now: number) {
    this.session = session
    this.room = room
    this.room_id = roomId(room)
    this.member_id = member_id
    this.join_ref = join_ref
    this.asked_at = now
    this.#connection = session.connection
  }

  get phase(): SeatPhase {
    return this.#phase
  }

  /** The connection its frames go to; undefined while the session has none. */
  get connection(): Connection | undefined {
    return this.#connection
  }

  /** Whether the session is in the room: the owner has said so, and nobody has asked to leave. */
  get taken(): boolean {
    return this.#phase !== 'joining' && this.leave_ref === undefined
  }

  /** The flush after which patches were dropped. */
  get stalled_at_seq(): number {
    return this.#stalled_at_seq
  }

  /** Where the client stood at the resume, while the owner's answer is open. */
  get position(): ResumePosition | undefined {
    return this.#attach?.position
  }

  /** One flush, for everybody in the room. True when the client turned out to be behind, and the seat stalled. */
  flush(flush: Flush): boolean {
    const connection = this.#connection
    if (!connection || this.#phase === 'joining' || this.#phase === 'attaching') return false
    const codec = connection.codec.subprotocol
    const stalls = this.#phase === 'live' && connection.outbox.congested
    if (this.#phase === 'live' && !stalls) {
      const whole = flush.whole(codec)
      if (whole) connection.outbox.push(whole)
      return false
    }
    if (stalls) {
      this.#phase = 'stalled'
      this.#stalled_at_seq = flush.seq - 1
      connection.outbox.awaitRoom()
    }
    const rest = flush.rest(codec)
    if (rest) this.#held.add(rest, connection.outbox)
    return stalls
  }

  /** What a flush has for this member alone; returns since when the acked message was under way, for a sample of them. */
  personal({ events, ack }: PersonalPart): number | undefined {
    const connection = this.#connection
    if (!connection || this.#phase === 'joining' || this.#phase === 'attaching') return undefined
    const held = this.#phase !== 'live'
    for (const event of events) {
      if (held) this.#held.add(encoded(connection, event), connection.outbox)
      else connection.send(event)
    }
    if (ack === undefined) return undefined
    if (held) this.#held.ack(ack)
    else this.#ack(ack)
    return this.#sampled(ack)
  }

  /** The join took effect. */
  joined({ ref, member_id, members, snapshot }: JoinedSeat): void {
    const connection = this.#connection
    if (this.#phase !== 'joining') return
    if (!connection) {
      this.#phase = 'detached'
      return
    }
    this.#phase = 'live'
    connection.send({ t: 'joined', ref, room_id: this.room_id, member_id, members: [...members] })
    this.#pushState(snapshot)
  }

  /** The client has read: from now on the seat waits for a state. False when it was not stalled. */
  awaitState(now: number): boolean {
    if (this.#phase !== 'stalled') return false
    this.#phase = 'resyncing'
    this.asked_at = now
    return true
  }

  /** The answer to `resync`: replaces everything that was dropped, so what was held follows. */
  state(state: Frames): void {
    // Stalled again: by the time the client has read, this state is old, and a newer one will be asked for.
    if (this.#phase !== 'live' && this.#phase !== 'resyncing') return
    this.#phase = 'live'
    this.#pushState(state)
    this.#releaseHeld()
  }

  /** The session has no socket any more. */
  detach(): void {
    this.#connection = undefined
    this.#attach = undefined
    this.#sample = undefined
    this.#held.drop()
    if (this.#phase !== 'joining') this.#phase = 'detached'
  }

  /** The session has a socket again. Nothing goes out until the owner has said what was missed. */
  attach(connection: Connection, attach: PendingAttach, now: number): void {
    this.#connection = connection
    this.#attach = attach
    this.#attaches += 1
    this.#phase = 'attaching'
    this.asked_at = now
  }

  /** The attach is asked again, because its answer is overdue. */
  reattach(now: number): void {
    this.#attaches = 1
    this.asked_at = now
  }

  /** The answer to `attach`. */
  attached(resumed: boolean, frames: readonly Frames[], ack: number | undefined): void {
    this.#attaches = Math.max(0, this.#attaches - 1)
    // An answer to an earlier attach of a session that has lost its socket again since: the one that counts is to come.
    if (this.#phase !== 'attaching' || this.#attaches > 0) return
    this.#phase = 'live'
    for (const frames_of_one of frames) {
      if (resumed) this.#push(frames_of_one)
      else this.#pushState(frames_of_one)
    }
    if (ack !== undefined) this.#ack(ack)
    this.#answerAttach(resumed ? 'frames' : 'resync')
  }

  /** The owner holds no seat for this member. */
  lost(ref: number | undefined): void {
    this.#held.drop(this.#connection?.outbox)
    if (this.leave_ref !== undefined) this.#send({ t: 'left', ref: this.leave_ref, room_id: this.room_id })
    else this.fail('not_in_room', 'the seat in this room is gone: join again', ref)
    this.#answerAttach('lost')
  }

  /** The seat is given up: because the client asked, or with a farewell. */
  left(ref: number | undefined, farewell: ServerMessage | undefined): void {
    this.#held.drop(this.#connection?.outbox)
    if (ref !== undefined) this.#send({ t: 'left', ref, room_id: this.room_id })
    else if (farewell && isDirect(farewell)) this.#send(farewell)
    this.#answerAttach('lost')
  }

  /** A message was refused; a client without a connection hears of it when it is back. */
  refuse(code: ErrorCode, message: string, ref: number | undefined): void {
    this.session.refuse(errorMessage(code, message, { ref, room_id: this.room_id }))
  }

  /** Tells the client that something about this room failed. */
  fail(code: ErrorCode, message: string, ref: number | undefined): void {
    this.#send(errorMessage(code, message, { ref, room_id: this.room_id }))
  }

  /** A reliable message is on its way; one at a time is timed. */
  sent(ref: number, now: number): void {
    this.#sample ??= { ref, at: now }
  }

  #sampled(ack: number): number | undefined {
    const sample = this.#sample
    if (!sample || ack < sample.ref) return undefined
    this.#sample = undefined
    return sample.at
  }

  #releaseHeld(): void {
    const connection = this.#connection
    if (!connection) return
    const ack = this.#held.release(connection.outbox)
    if (ack !== undefined) this.#ack(ack)
  }

  #answerAttach(result: AttachResult): void {
    const attach = this.#attach
    this.#attach = undefined
    attach?.answered(result)
  }

  #send(message: DirectMessage): void {
    this.#connection?.send(message)
  }

  #ack(ref: number): void {
    this.#send({ t: 'ack', room_id: this.room_id, ref })
  }

  #push(frames: Frames): void {
    const bytes = this.#connection && frames[this.#connection.codec.subprotocol]
    if (bytes) this.#connection?.outbox.push(bytes)
  }

  #pushState(frames: Frames): void {
    const bytes = this.#connection && frames[this.#connection.codec.subprotocol]
    if (bytes) this.#connection?.outbox.pushState(bytes)
  }
}

const encoded = ({ codec }: Connection, message: DirectMessage): Frame =>
  frame(codec.encode(message), codec.binary)

const isDirect = (message: ServerMessage): message is DirectMessage =>
  message.t !== 'state.snapshot' && message.t !== 'state.resync' && message.t !== 'state.patch'
