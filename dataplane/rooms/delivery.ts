import type { Codec, RoomEncoder } from '../../shared/protocol/codec.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { MemberInfo, ServerMessage, StateAt, Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, frame, joinFrames } from '../frame.ts'
import type {
  Arrival,
  Frames,
  JoinedSeat,
  JoinRequest,
  PersonalPart,
  RoomAddress,
  ToEdge,
} from '../traffic.ts'
import type { Seat, Seats } from './memberships.ts'
import type { RoomMetrics } from './metrics.ts'
import type { Flush, Parting, Position, RoomEvent, Update } from './update.ts'

/** What a delivery goes through. */
export interface DeliveryParts {
  readonly room: RoomAddress
  readonly roomId: string
  readonly seats: Seats
  readonly frames: RoomFrames
  readonly deliver: (edge: string, message: ToEdge) => void
}

const NOBODY: readonly never[] = []

/** Takes flushes to the edges: everything shared is encoded once, and only members who have something of their own cost anything. */
export class Delivery {
  readonly #parts: DeliveryParts

  constructor(parts: DeliveryParts) {
    this.#parts = parts
  }

  /** Sends one flush; returns the frames it was encoded to, for whoever misses them. */
  flush(flush: Flush): UpdateFrames | undefined {
    const { room, seats, frames, deliver } = this.#parts
    const { update } = flush
    const { epoch } = update
    for (const parting of flush.partings) this.#part(parting, update)
    const personal = this.#personal(flush)
    if (!update.visible) {
      for (const [edge, parts] of personal)
        deliver(edge, { ...this.#silent(epoch, update.seq), personal: parts })
      return undefined
    }
    if (seats.nobody) return undefined
    // In this order: what the patch announces is in the snapshot.
    const encoded = frames.update(update, seats.codecs)
    const joined = this.#joined(flush)
    for (const edge of seats.edges)
      deliver(edge, {
        room,
        epoch,
        kind: 'update',
        seq: update.seq,
        patch: encoded.patch,
        rest: encoded.rest,
        personal: personal.get(edge) ?? NOBODY,
        joined: joined.get(edge) ?? NOBODY,
      })
    return encoded
  }

  /** Tells one member alone something that is no news to the others: an ack, or its seat once more. */
  alone(
    seat: Seat,
    epoch: number,
    seq: number,
    personal: PersonalPart | undefined,
    joined?: JoinedSeat,
  ): void {
    this.#parts.deliver(seat.edge, {
      ...this.#silent(epoch, seq),
      personal: personal ? [personal] : NOBODY,
      joined: joined ? [joined] : NOBODY,
    })
  }

  /** Whoever leaves gets what was for it until then, its ack, and the farewell; not the rest of the flush. */
  #part({ seat, reason, ref, endEvent, unseen }: Parting, update: Update): void {
    const { room, roomId, seats, frames, deliver } = this.#parts
    const { epoch } = update
    const { member_id: memberId, sub } = seat.member
    seats.release(seat)
    // Its edge has forgotten it already, or never knew it as a member.
    if (reason === 'session_ended') return
    if (unseen && ref === undefined) {
      const message =
        reason === 'kicked' ? 'the room removed you as you joined' : 'the room ended as you joined'
      deliver(seat.edge, {
        room,
        epoch,
        kind: 'refused',
        member_id: memberId,
        ref: seat.joinRef,
        code: 'join_refused',
        message,
      })
      return
    }
    const events = unseen
      ? []
      : update.events
          .slice(0, endEvent)
          .filter(({ to }) => !to || to.includes(memberId))
          .map((event) => frames.event(update, event))
    const acked = seat.ackDue && seat.ackable
    if (seat.attached && (events.length > 0 || acked)) {
      const ack = acked ? { ack: seat.lastRef } : {}
      this.alone(seat, epoch, update.seq, { member_id: memberId, events, ...ack })
    }
    deliver(seat.edge, {
      room,
      epoch,
      kind: 'left',
      member_id: memberId,
      ...(ref === undefined
        ? {
            farewell: {
              t: 'room.left',
              room_id: roomId,
              epoch,
              seq: update.seq,
              member_id: memberId,
              sub,
              reason,
            },
          }
        : { ref }),
    })
  }

  /** By edge, what members have for themselves. */
  #personal({ update, joins, acked }: Flush): Map<string, PersonalPart[]> {
    const { seats, frames } = this.#parts
    const events = new Map<Seat, EventMessage[]>()
    const give = (seat: Seat, event: EventMessage) => {
      const given = events.get(seat)
      if (!given) events.set(seat, [event])
      else if (given.at(-1) !== event) given.push(event)
    }
    update.events.forEach((event, index) => {
      // Newcomers get no shared frames of the flush they come with, so its later events are theirs personally.
      if (!event.to && joins.length === 0) return
      const message = frames.event(update, event)
      for (const { seat, firstEvent } of joins)
        if (index >= firstEvent && (!event.to || event.to.includes(seat.member.member_id)))
          give(seat, message)
      for (const memberId of event.to ?? NOBODY) {
        const seat = seats.recipient(memberId)
        if (seat?.settled) give(seat, message)
      }
    })
    const parts = new Map<string, PersonalPart[]>()
    const add = (seat: Seat, part: PersonalPart) => {
      if (!seat.attached) return
      const atEdge = parts.get(seat.edge)
      if (atEdge) atEdge.push(part)
      else parts.set(seat.edge, [part])
    }
    acked.forEach((seat, i) => {
      const memberId = seat.member.member_id
      const own = events.get(seat)
      if (seat.ackable) add(seat, { member_id: memberId, events: own ?? NOBODY, ack: update.acks[i]!.ref })
      else if (own) add(seat, { member_id: memberId, events: own })
      events.delete(seat)
    })
    for (const [seat, own] of events) add(seat, { member_id: seat.member.member_id, events: own })
    return parts
  }

  /** By edge, who comes with this flush, each with its snapshot. */
  #joined({ update, state, members, joins }: Flush): Map<string, JoinedSeat[]> {
    const byEdge = new Map<string, JoinedSeat[]>()
    if (joins.length === 0) return byEdge
    const { roomId, frames } = this.#parts
    const { epoch, seq, checksum } = update
    const at = { room_id: roomId, epoch, seq, checksum, state }
    const snapshot: { [codec in Subprotocol]?: Frame } = {}
    for (const { seat } of joins) {
      snapshot[seat.codec] ??= frames.snapshot(at, seat.codec)
      const joined = {
        member_id: seat.member.member_id,
        ref: seat.joinRef,
        members,
        snapshot: snapshot as Frames,
      }
      const atEdge = byEdge.get(seat.edge)
      if (atEdge) atEdge.push(joined)
      else byEdge.set(seat.edge, [joined])
    }
    return byEdge
  }

  /** An update without news for everybody. */
  #silent(epoch: number, seq: number) {
    const { room } = this.#parts
    return {
      room,
      epoch,
      kind: 'update',
      seq,
      patch: undefined,
      rest: undefined,
      personal: NOBODY,
      joined: NOBODY,
    } as const
  }
}

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

  failed(edge: string, { member_id: memberId, ref }: Asker, code: ErrorCode, message: string): void {
    this.#metrics.roomErrors.inc({ room_type: this.#room.roomType, code })
    this.send(edge, { kind: 'error', member_id: memberId, code, message, ...withRef(ref) })
  }

  /** A join did not take place. */
  refuse({ edge, member_id: memberId, ref }: JoinRequest, code: ErrorCode, message: string): void {
    this.#metrics.roomErrors.inc({ room_type: this.#room.roomType, code })
    this.send(edge, { kind: 'refused', member_id: memberId, ref, code, message })
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
  noSeat(edge: string, { member_id: memberId, ref }: Asker): void {
    this.send(edge, { kind: 'no_seat', member_id: memberId, ...withRef(ref) })
  }
}

const withRef = (ref: number | undefined): { ref?: number } => (ref === undefined ? {} : { ref })

/** Every codec a node speaks. */
export type Codecs = ReadonlyMap<Subprotocol, Codec>

/** The `event` messages of the protocol. */
export type EventMessage = Extract<ServerMessage, { t: 'event' }>

/** An update's frames for everybody, in each codec it was encoded for. */
export interface UpdateFrames {
  readonly patch: Frames
  /** Events and presence; undefined when there are none for everybody. */
  readonly rest: Frames | undefined
}

/** One message as a client gets it. */
type Encodable = Parameters<Codec['encode']>[0]

/** Makes the websocket frames of one room: once for all its members. */
export class RoomFrames {
  readonly #roomId: string
  readonly #codecs: Codecs
  readonly #encoders = new Map<Subprotocol, RoomEncoder>()

  constructor(roomId: string, codecs: Codecs) {
    this.#roomId = roomId
    this.#codecs = codecs
  }

  /** A visible update for everybody. To be called once for each, in the order of their seq. */
  update(update: Update, subprotocols: Iterable<Subprotocol>): UpdateFrames {
    const patch: { [codec in Subprotocol]?: Frame } = {}
    let rest: { [codec in Subprotocol]?: Frame } | undefined
    for (const subprotocol of subprotocols) {
      const payload = this.#encoder(subprotocol).patch(this.#at(update), update.delta)
      patch[subprotocol] = frame(payload, this.#codec(subprotocol).binary)
      const others = this.rest(update, subprotocol)
      if (!others) continue
      rest ??= {}
      rest[subprotocol] = others
    }
    return { patch, rest }
  }

  /** The patch of an update that was not encoded for this codec when it happened. */
  replay(update: Update, subprotocol: Subprotocol): Frame {
    const payload = this.#encoder(subprotocol).replay(this.#at(update), update.delta)
    return frame(payload, this.#codec(subprotocol).binary)
  }

  /** Events and presence for everybody; undefined when there are none. */
  rest(update: Update, subprotocol: Subprotocol): Frame | undefined {
    const { epoch, seq, events, left, joined } = update
    const at = { room_id: this.#roomId, epoch, seq }
    const frames: Frame[] = []
    for (const event of events)
      if (!event.to) frames.push(this.message(this.event(update, event), subprotocol))
    for (const { member, reason } of left)
      frames.push(this.message({ t: 'room.left', ...at, ...member, reason }, subprotocol))
    for (const { member } of joined)
      frames.push(this.message({ t: 'room.joined', ...at, ...member }, subprotocol))
    return frames.length > 0 ? joinFrames(frames) : undefined
  }

  event({ epoch, seq }: Position, { name, data }: RoomEvent): EventMessage {
    return { t: 'event', room_id: this.#roomId, epoch, seq, name, data }
  }

  /** One message of its own. */
  message(message: Encodable, subprotocol: Subprotocol): Frame {
    const codec = this.#codec(subprotocol)
    return frame(codec.encode(message), codec.binary)
  }

  snapshot(at: StateAt, subprotocol: Subprotocol): Frame {
    return frame(this.#encoder(subprotocol).snapshot(at), this.#codec(subprotocol).binary)
  }

  resync(at: StateAt, members: readonly MemberInfo[], subprotocol: Subprotocol): Frame {
    return frame(this.#encoder(subprotocol).resync(at, members), this.#codec(subprotocol).binary)
  }

  #at({ epoch, seq, checksum }: Update) {
    return { room_id: this.#roomId, epoch, seq, checksum }
  }

  #codec(subprotocol: Subprotocol): Codec {
    const codec = this.#codecs.get(subprotocol)
    if (!codec)
      throw new Error(`no codec for ${subprotocol}; there are ${[...this.#codecs.keys()].join(', ')}`)
    return codec
  }

  #encoder(subprotocol: Subprotocol): RoomEncoder {
    let encoder = this.#encoders.get(subprotocol)
    if (!encoder) {
      encoder = this.#codec(subprotocol).roomEncoder()
      this.#encoders.set(subprotocol, encoder)
    }
    return encoder
  }
}
