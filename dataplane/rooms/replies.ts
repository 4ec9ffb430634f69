import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Arrival, RoomAddress, ToEdge } from '../traffic.ts'
import type { JoinRequest } from './admissions.ts'
import type { RoomMetrics } from './metrics.ts'
import type { Seat } from './seat.ts'

/** Which member, and which of its requests. */
interface Asker {
  readonly member_id: string
  readonly ref?: number | undefined
}

/** A message to an edge without its address, which is the room's. */
export type Reply = ToEdge extends infer M ? (M extends ToEdge ? Omit<M, 'room' | 'epoch'> : never) : never

/** What a room answers to one member, at once and apart from its stream. */
export class Replies {
  readonly #room: RoomAddress
  readonly #epoch: () => number
  readonly #metrics: RoomMetrics
  readonly #deliver: (edge: string, message: ToEdge) => void

  constructor(
    room: RoomAddress,
    epoch: () => number,
    metrics: RoomMetrics,
    deliver: (edge: string, message: ToEdge) => void,
  ) {
    this.#room = room
    this.#epoch = epoch
    this.#metrics = metrics
    this.#deliver = deliver
  }

  send(edge: string, reply: Reply): void {
    this.#deliver(edge, { room: this.#room, epoch: this.#epoch(), ...reply } as ToEdge)
  }

  /** A request of a seated member failed. */
  error(seat: Seat, code: ErrorCode, message: string, ref: number | undefined): void {
    this.failed(seat.edge, { member_id: seat.member.member_id, ref }, code, message)
  }

  failed(edge: string, { member_id, ref }: Asker, code: ErrorCode, message: string): void {
    this.#metrics.roomErrors.inc({ room_type: this.#room.room_type, code })
    this.send(edge, { kind: 'error', member_id, code, message, ...withRef(ref) })
  }

  /** A join did not take place. */
  refuse({ edge, member_id, ref }: JoinRequest, code: ErrorCode, message: string): void {
    this.#metrics.roomErrors.inc({ room_type: this.#room.room_type, code })
    this.send(edge, { kind: 'refused', member_id, ref, code, message })
  }

  /** Nothing can be done about this now. Who waits for an answer gets one, and may try again; false: no one does, or its edge asks again. */
  turnAway({ message, from }: Arrival, text: string): boolean {
    const { kind } = message
    if (kind === 'join') this.refuse(message, 'room_unavailable', text)
    else if (kind === 'message' && message.ref === undefined)
      this.failed(from, message, 'room_unavailable', text)
    else if (kind === 'leave' && message.ref !== undefined)
      this.failed(from, message, 'room_unavailable', text)
    else return false
    return true
  }

  /** The member holds no seat. */
  noSeat(edge: string, { member_id, ref }: Asker): void {
    this.send(edge, { kind: 'no_seat', member_id, ...withRef(ref) })
  }
}

const withRef = (ref: number | undefined): { ref?: number } => (ref === undefined ? {} : { ref })
