import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Match } from '../../shared/protocol/messages.ts'
import { type Nowhere, refusalOf } from '../place.ts'
import type {
  Arrival,
  EdgeLayers,
  Farewell,
  JoinedMember,
  JoinRequest,
  PersonalPart,
  RoomAddress,
  ToEdge,
} from '../traffic.ts'
import type { Departures } from './departures.ts'
import type { RoomMetrics } from './metrics.ts'
import type { UpdateFrames } from './room-frames.ts'

/** A message to an edge, without the address and the epoch of the room. */
type Reply = ToEdge extends infer M ? (M extends ToEdge ? Omit<M, 'room' | 'epoch'> : never) : never

/** The path to edges. */
export interface ReplyNeeds {
  readonly metrics: RoomMetrics
  /** Seats that rooms of this node have ended. */
  readonly departures: Departures
  readonly cluster: {
    readonly router: {
      /** Sends a message to an edge. */
      deliver(edge: string, message: ToEdge): void
    }
  }
}

/** Sends messages of one room to edges, under the room's present epoch. */
export class Replies {
  readonly #room: RoomAddress
  readonly #at: { readonly epoch: number }
  readonly #needs: ReplyNeeds
  readonly #durable: true | undefined

  /** `at`: has the epoch of the room at present. `durable`: acks wait for the commit of their update. */
  constructor(room: RoomAddress, at: { readonly epoch: number }, needs: ReplyNeeds, durable?: true) {
    this.#room = room
    this.#at = at
    this.#needs = needs
    this.#durable = durable
  }

  /** Sends one edge its part of a flush. */
  update(
    edge: string,
    seq: number,
    frames: UpdateFrames | undefined,
    personal: readonly PersonalPart[],
    joined: readonly JoinedMember[],
    {
      layers,
      leaving,
    }: { readonly layers?: EdgeLayers | undefined; readonly leaving?: readonly string[] | undefined } = {},
  ): void {
    this.#needs.cluster.router.deliver(edge, {
      room: this.#room,
      epoch: this.#at.epoch,
      kind: 'update',
      seq,
      durable: this.#durable,
      patch: frames?.patch,
      rest: frames?.rest,
      layers,
      personal,
      joined,
      leaving,
    })
  }

  send(edge: string, reply: Reply): void {
    this.#needs.cluster.router.deliver(edge, {
      room: this.#room,
      epoch: this.#at.epoch,
      ...reply,
    } as ToEdge)
  }

  /** A message without a ref, or a request of an operator, has failed. */
  failed(edge: string, memberId: string, code: ErrorCode, message: string): void {
    this.countError(code)
    this.send(edge, { kind: 'error', member_id: memberId, code, message })
  }

  /** A join was refused. */
  refuse(
    { edge, member_id: memberId, request_id: requestId }: JoinRequest,
    code: ErrorCode,
    message: string,
    match?: Match,
  ): void {
    this.countError(code)
    this.send(edge, { kind: 'refused', member_id: memberId, request_id: requestId, code, message, match })
  }

  /** Refuses a message that the room cannot handle. Returns false if such a message has no answer: its edge sends it again. */
  turnAway(arrival: Arrival, place: Nowhere): boolean {
    const answer = refusalOf(arrival, place, this.#at.epoch)
    if (answer) this.answer(arrival.from, answer)
    return answer !== undefined
  }

  /** Sends an answer, and counts its error. */
  readonly answer = (edge: string, answer: ToEdge): void => {
    if ('code' in answer) this.countError(answer.code)
    this.#needs.cluster.router.deliver(edge, answer)
  }

  countError(code: ErrorCode): void {
    this.#needs.metrics.roomErrors.inc({ room_type: this.#room.roomType, code })
  }

  /** The room has ended the seat of a member. The node remembers it, for a session that is moving to another edge. */
  part(edge: string, subscriptionId: string, farewell: Farewell): void {
    // A client that left a room does not ask for that seat again.
    if (farewell.reason !== 'left') this.#needs.departures.add(subscriptionId, farewell, edge)
    this.left(edge, subscriptionId, farewell)
  }

  /** Sends the end of a seat. */
  left(edge: string, subscriptionId: string, farewell: Farewell): void {
    this.send(edge, { kind: 'left', member_id: subscriptionId, farewell })
  }

  /** True if the room has sent the end of this seat to an edge. */
  hasParted(edge: string, memberId: string): boolean {
    return this.#needs.departures.of(memberId)?.edge === edge
  }

  /** Answers a session that has no seat in the room: with the end of its seat, if this node remembers it. */
  noSeat(edge: string, memberId: string): void {
    const departure = this.#needs.departures.of(memberId)
    if (departure) this.left(edge, memberId, departure.farewell)
    else this.send(edge, { kind: 'no_seat', member_id: memberId })
  }
}
