import type { Json } from '../../shared/json.ts'
import type { Codec, RoomEncoder } from '../../shared/protocol/codec.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { MemberInfo, ServerMessage, StateAt, Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, frame, joinFrames } from '../frame.ts'
import {
  type Arrival,
  type Frames,
  type JoinedSeat,
  type JoinRequest,
  type PersonalPart,
  type RoomAddress,
  roomIdOf,
  type ToEdge,
} from '../traffic.ts'
import type { Member } from './definition.ts'
import type { Membership, Memberships } from './memberships.ts'
import type { RoomMetrics } from './metrics.ts'
import type { Flush, PendingLeave, Position, RoomEvent, Update } from './update.ts'

/** What members know, or may know at any moment. */
export interface Delivered {
  readonly seq: number
  readonly checksum: number
  readonly state: Json
  readonly members: readonly Member[]
}

/** What a delivery goes through. */
export interface DeliveryParts {
  readonly room: RoomAddress
  readonly memberships: Memberships
  readonly frames: RoomFrames
  /** Under which the room speaks now. */
  readonly epoch: () => number
  readonly deliver: (edge: string, message: ToEdge) => void
}

const NONE: readonly never[] = []

/**
 * Takes flushes to the edges: everything shared is encoded once, and only members who have something of their own cost anything. Knows
 * what was delivered last, for members who missed it.
 */
export class Delivery {
  readonly #parts: DeliveryParts
  readonly #roomId: string
  /** `state.resync` of what is delivered. */
  readonly #resyncs = new Map<Subprotocol, Frame>()
  #delivered: Delivered

  constructor(parts: DeliveryParts, delivered: Delivered) {
    this.#parts = parts
    this.#roomId = roomIdOf(parts.room)
    this.#delivered = delivered
  }

  /** What members know of the room. */
  get delivered(): Delivered {
    return this.#delivered
  }

  /** Sends one flush; returns the frames it was encoded to, for members who miss them. */
  flush(flush: Flush): UpdateFrames | undefined {
    const encoded = this.#send(flush)
    const { update, state, members } = flush
    if (update.visible) {
      this.#delivered = { seq: update.seq, checksum: update.checksum, state, members }
      this.#resyncs.clear()
    }
    return encoded
  }

  #send(flush: Flush): UpdateFrames | undefined {
    const { room, memberships, frames, deliver } = this.#parts
    const { update } = flush
    const { epoch } = update
    for (const leave of flush.leaves) this.#part(leave, update)
    const personal = this.#personal(flush)
    if (!update.visible) {
      for (const [edge, parts] of personal)
        deliver(edge, { ...this.#silent(epoch, update.seq), personal: parts })
      return undefined
    }
    if (memberships.unwatched) return undefined
    // In this order: what the patch announces is in the snapshot.
    const encoded = frames.update(update, memberships.codecs)
    const joined = this.#joined(flush)
    for (const edge of memberships.edges)
      deliver(edge, {
        room,
        epoch,
        kind: 'update',
        seq: update.seq,
        patch: encoded.patch,
        rest: encoded.rest,
        personal: personal.get(edge) ?? NONE,
        joined: joined.get(edge) ?? NONE,
      })
    return encoded
  }

  /** A `state.resync` frame of what is delivered: encoded once for everyone who asks before the next flush. */
  resync(subprotocol: Subprotocol): Frame {
    let frame = this.#resyncs.get(subprotocol)
    if (!frame) {
      frame = this.#parts.frames.resync(this.#stateAt(), this.#delivered.members.map(memberInfo), subprotocol)
      this.#resyncs.set(subprotocol, frame)
    }
    return frame
  }

  /** Acks once more what was acked before. */
  repeatAck(membership: Membership): void {
    const { id: memberId } = membership.member
    const ack = { member_id: memberId, events: [], ack: membership.committedRef }
    this.#sendAlone(membership, this.#parts.epoch(), this.#delivered.seq, ack)
  }

  /** Answers a join once more. */
  repeatJoin(membership: Membership): void {
    const { epoch, frames } = this.#parts
    const { member, codec, committedRef, joinRef } = membership
    const { id: memberId } = member
    const ack =
      committedRef > 0 && membership.refs.ackable
        ? { member_id: memberId, events: [], ack: committedRef }
        : undefined
    this.#sendAlone(membership, epoch(), this.#delivered.seq, ack, {
      member_id: memberId,
      ref: joinRef,
      members: this.#delivered.members.map(memberInfo),
      snapshot: { [codec]: frames.snapshot(this.#stateAt(), codec) },
    })
  }

  #stateAt() {
    const { seq, checksum, state } = this.#delivered
    return { room_id: this.#roomId, epoch: this.#parts.epoch(), seq, checksum, state }
  }

  /** Sends one member alone what is no news to the others: an ack, or the answer to its join once more. */
  #sendAlone(
    membership: Membership,
    epoch: number,
    seq: number,
    personal: PersonalPart | undefined,
    joined?: JoinedSeat,
  ): void {
    this.#parts.deliver(membership.edge, {
      ...this.#silent(epoch, seq),
      personal: personal ? [personal] : NONE,
      joined: joined ? [joined] : NONE,
    })
  }

  /** A member who leaves gets what was for it until then, its ack, and `room.left`; not the rest of the flush. */
  #part({ membership, reason, ref, endEvent, unseen }: PendingLeave, update: Update): void {
    const { room, memberships, frames, deliver } = this.#parts
    const { epoch } = update
    const { id: memberId, sub } = membership.member
    memberships.release(membership)
    // Its edge has forgotten it already, or never knew it as a member.
    if (reason === 'session_ended') return
    if (unseen && ref === undefined) {
      const message =
        reason === 'kicked' ? 'the room removed you as you joined' : 'the room ended as you joined'
      deliver(membership.edge, {
        room,
        epoch,
        kind: 'refused',
        member_id: memberId,
        ref: membership.joinRef,
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
    const acked = membership.ackDue && membership.refs.ackable
    if (membership.attached && (events.length > 0 || acked)) {
      const ack = acked ? { ack: membership.refs.last } : {}
      this.#sendAlone(membership, epoch, update.seq, { member_id: memberId, events, ...ack })
    }
    deliver(membership.edge, {
      room,
      epoch,
      kind: 'left',
      member_id: memberId,
      ...(ref === undefined
        ? {
            farewell: {
              t: 'room.left',
              room_id: this.#roomId,
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
    const { memberships, frames } = this.#parts
    const events = new Map<Membership, EventMessage[]>()
    const give = (membership: Membership, event: EventMessage) => {
      const given = events.get(membership)
      if (!given) events.set(membership, [event])
      else if (given.at(-1) !== event) given.push(event)
    }
    update.events.forEach((event, index) => {
      // Newcomers get no shared frames of the flush they come with, so its later events are theirs personally.
      if (!event.to && joins.length === 0) return
      const message = frames.event(update, event)
      for (const { membership, firstEvent } of joins)
        if (index >= firstEvent && (!event.to || event.to.includes(membership.member.id)))
          give(membership, message)
      for (const memberId of event.to ?? NONE) {
        const membership = memberships.recipient(memberId)
        if (membership?.settled) give(membership, message)
      }
    })
    const parts = new Map<string, PersonalPart[]>()
    const add = (membership: Membership, part: PersonalPart) => {
      if (!membership.attached) return
      const atEdge = parts.get(membership.edge)
      if (atEdge) atEdge.push(part)
      else parts.set(membership.edge, [part])
    }
    acked.forEach((membership, i) => {
      const memberId = membership.member.id
      const own = events.get(membership)
      if (membership.refs.ackable)
        add(membership, { member_id: memberId, events: own ?? NONE, ack: update.acks[i]!.ref })
      else if (own) add(membership, { member_id: memberId, events: own })
      events.delete(membership)
    })
    for (const [membership, own] of events) add(membership, { member_id: membership.member.id, events: own })
    return parts
  }

  /** By edge, who comes with this flush, each with its snapshot. */
  #joined({ update, state, members, joins }: Flush): Map<string, JoinedSeat[]> {
    const byEdge = new Map<string, JoinedSeat[]>()
    if (joins.length === 0) return byEdge
    const { frames } = this.#parts
    const { epoch, seq, checksum } = update
    const at = { room_id: this.#roomId, epoch, seq, checksum, state }
    const snapshot: { [codec in Subprotocol]?: Frame } = {}
    const infos = members.map(memberInfo)
    for (const { membership } of joins) {
      snapshot[membership.codec] ??= frames.snapshot(at, membership.codec)
      const joined = {
        member_id: membership.member.id,
        ref: membership.joinRef,
        members: infos,
        snapshot: snapshot as Frames,
      }
      const atEdge = byEdge.get(membership.edge)
      if (atEdge) atEdge.push(joined)
      else byEdge.set(membership.edge, [joined])
    }
    return byEdge
  }

  /** An update without news for everyone. */
  #silent(epoch: number, seq: number) {
    const { room } = this.#parts
    return {
      room,
      epoch,
      kind: 'update',
      seq,
      patch: undefined,
      rest: undefined,
      personal: NONE,
      joined: NONE,
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
  error(membership: Membership, code: ErrorCode, message: string, ref: number | undefined): void {
    this.failed(membership.edge, { member_id: membership.member.id, ref }, code, message)
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
  refuseUnavailable({ message, from }: Arrival, text: string): boolean {
    const { kind } = message
    if (kind === 'join') this.refuse(message, 'room_unavailable', text)
    else if (kind === 'message' && message.ref === undefined)
      this.failed(from, message, 'room_unavailable', text)
    else if (kind === 'leave' && message.ref !== undefined)
      this.failed(from, message, 'room_unavailable', text)
    else return false
    return true
  }

  /** The session is no member. */
  noSeat(edge: string, { member_id: memberId, ref }: Asker): void {
    this.send(edge, { kind: 'no_seat', member_id: memberId, ...withRef(ref) })
  }
}

const withRef = (ref: number | undefined): { ref?: number } => (ref === undefined ? {} : { ref })

/** Every codec a node speaks. */
export type Codecs = ReadonlyMap<Subprotocol, Codec>

/** The `event` messages of the protocol. */
export type EventMessage = Extract<ServerMessage, { t: 'event' }>

/** An update's frames for everyone, in each codec it was encoded for. */
export interface UpdateFrames {
  readonly patch: Frames
  /** Events and presence; undefined when there are none for everyone. */
  readonly rest: Frames | undefined
}

/** A member as clients are told of it. */
const memberInfo = ({ id, sub }: Member): MemberInfo => ({ member_id: id, sub })

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

  /** A visible update for everyone. To be called once for each, in the order of their seq. */
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

  /** Events and presence for everyone; undefined when there are none. */
  rest(update: Update, subprotocol: Subprotocol): Frame | undefined {
    const { epoch, seq, events, left, joined } = update
    const at = { room_id: this.#roomId, epoch, seq }
    const frames: Frame[] = []
    for (const event of events)
      if (!event.to) frames.push(this.message(this.event(update, event), subprotocol))
    for (const { member, reason } of left)
      frames.push(this.message({ t: 'room.left', ...at, ...memberInfo(member), reason }, subprotocol))
    for (const { member } of joined)
      frames.push(this.message({ t: 'room.joined', ...at, ...memberInfo(member) }, subprotocol))
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
