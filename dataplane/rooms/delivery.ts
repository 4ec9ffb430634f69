import type { Subprotocol } from '../../shared/protocol/messages.ts'
import type { Frame } from '../frame.ts'
import type { Frames, JoinedSeat, PersonalPart, RoomAddress, ToEdge } from '../traffic.ts'
import type { EventMessage, RoomFrames, UpdateFrames } from './frames.ts'
import type { Flush, Parting } from './pending.ts'
import type { Seat } from './seat.ts'
import type { Seats } from './seats.ts'
import type { Update } from './update.ts'

/** What a delivery goes through. */
export interface DeliveryParts {
  readonly room: RoomAddress
  readonly room_id: string
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
  #part({ seat, reason, ref, end_event, unseen }: Parting, update: Update): void {
    const { room, room_id, seats, frames, deliver } = this.#parts
    const { epoch } = update
    const { member_id, sub } = seat.member
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
        member_id,
        ref: seat.join_ref,
        code: 'join_refused',
        message,
      })
      return
    }
    const events = unseen
      ? []
      : update.events
          .slice(0, end_event)
          .filter(({ to }) => !to || to.includes(member_id))
          .map((event) => frames.event(update, event))
    const acked = seat.ack_due && seat.ackable
    if (seat.attached && (events.length > 0 || acked)) {
      const ack = acked ? { ack: seat.last_ref } : {}
      this.alone(seat, epoch, update.seq, { member_id, events, ...ack })
    }
    deliver(seat.edge, {
      room,
      epoch,
      kind: 'left',
      member_id,
      ...(ref === undefined
        ? {
            farewell: {
              t: 'room.left',
              room_id,
              epoch,
              seq: update.seq,
              member_id,
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
      for (const { seat, first_event } of joins)
        if (index >= first_event && (!event.to || event.to.includes(seat.member.member_id)))
          give(seat, message)
      for (const member_id of event.to ?? NOBODY) {
        const seat = seats.recipient(member_id)
        if (seat?.settled) give(seat, message)
      }
    })
    const parts = new Map<string, PersonalPart[]>()
    const add = (seat: Seat, part: PersonalPart) => {
      if (!seat.attached) return
      const at_edge = parts.get(seat.edge)
      if (at_edge) at_edge.push(part)
      else parts.set(seat.edge, [part])
    }
    acked.forEach((seat, i) => {
      const member_id = seat.member.member_id
      const own = events.get(seat)
      if (seat.ackable) add(seat, { member_id, events: own ?? NOBODY, ack: update.acks[i]!.ref })
      else if (own) add(seat, { member_id, events: own })
      events.delete(seat)
    })
    for (const [seat, own] of events) add(seat, { member_id: seat.member.member_id, events: own })
    return parts
  }

  /** By edge, who comes with this flush, each with its snapshot. */
  #joined({ update, state, members, joins }: Flush): Map<string, JoinedSeat[]> {
    const by_edge = new Map<string, JoinedSeat[]>()
    if (joins.length === 0) return by_edge
    const { room_id, frames } = this.#parts
    const { epoch, seq, checksum } = update
    const at = { room_id, epoch, seq, checksum, state }
    const snapshot: { [codec in Subprotocol]?: Frame } = {}
    for (const { seat } of joins) {
      snapshot[seat.codec] ??= frames.snapshot(at, seat.codec)
      const joined = {
        member_id: seat.member.member_id,
        ref: seat.join_ref,
        members,
        snapshot: snapshot as Frames,
      }
      const at_edge = by_edge.get(seat.edge)
      if (at_edge) at_edge.push(joined)
      else by_edge.set(seat.edge, [joined])
    }
    return by_edge
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
