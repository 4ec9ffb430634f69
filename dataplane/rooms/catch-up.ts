import type { Json } from '../../shared/json.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import type { Frame } from '../frame.ts'
import type { Frames } from '../traffic.ts'
import type { Member } from './definition.ts'
import type { Delivery } from './delivery.ts'
import type { RoomFrames } from './frames.ts'
import type { JournalFormat } from './journal.ts'
import type { Position, Ring } from './ring.ts'
import type { Seat } from './seat.ts'

/** What members know, or may know at any moment. */
export interface Delivered {
  readonly seq: number
  readonly checksum: number
  readonly state: Json
  readonly members: readonly Member[]
}

/** What catching up is done with. */
export interface CatchUpParts {
  readonly room_id: string
  readonly frames: RoomFrames
  readonly format: JournalFormat
  readonly ring: Ring
  readonly delivery: Delivery
  readonly epoch: () => number
  /** What is caught up with. */
  readonly delivered: () => Delivered
}

/** Brings single members to where the room is: those who were away, have lost something, or did not hear an answer. */
export class CatchUp {
  readonly #parts: CatchUpParts
  readonly #resyncs = new Map<Subprotocol, Frame>()

  constructor(parts: CatchUpParts) {
    this.#parts = parts
  }

  /** A flush is delivered: from now on that is what is caught up with. */
  moveOn(): void {
    this.#resyncs.clear()
  }

  /** A `state.resync` frame of what is delivered: encoded once for everyone who asks before the next flush. */
  resync(subprotocol: Subprotocol): Frame {
    const { frames, delivered } = this.#parts
    let frame = this.#resyncs.get(subprotocol)
    if (!frame) {
      frame = frames.resync(this.#at(), delivered().members, subprotocol)
      this.#resyncs.set(subprotocol, frame)
    }
    return frame
  }

  /** What a member at `position` has missed; undefined when that is not known any more. */
  replay(seat: Seat, position: Position): readonly Frames[] | undefined {
    const { ring, epoch, frames, format } = this.#parts
    return ring.replay(position, epoch(), seat.member.member_id, seat.codec, frames, format)
  }

  /** Acks once more what was acked before. */
  ackAgain(seat: Seat): void {
    const { delivery, epoch, delivered } = this.#parts
    const { member_id } = seat.member
    delivery.alone(seat, epoch(), delivered().seq, { member_id, events: [], ack: seat.committed_ref })
  }

  /** Answers a join once more. */
  joinAgain(seat: Seat): void {
    const { delivery, epoch, delivered, frames } = this.#parts
    const { member_id } = seat.member
    const ack =
      seat.committed_ref > 0 && seat.ackable ? { member_id, events: [], ack: seat.committed_ref } : undefined
    delivery.alone(seat, epoch(), delivered().seq, ack, {
      member_id,
      ref: seat.join_ref,
      members: delivered().members,
      snapshot: { [seat.codec]: frames.snapshot(this.#at(), seat.codec) },
    })
  }

  #at() {
    const { room_id, epoch, delivered } = this.#parts
    const { seq, checksum, state } = delivered()
    return { room_id, epoch: epoch(), seq, checksum, state }
  }
}
