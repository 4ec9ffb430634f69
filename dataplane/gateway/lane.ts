import type { Frame } from '../frame.ts'
import type { Outbox } from './outbox.ts'

/** A subscription that can be in a lane. */
export interface LaneMember {
  /** Undefined: it is in none. The lane sets it, as `place`. */
  lane: Lane | undefined
  /** Index in the lane. */
  place: number
  /** It has left the lane, and has everything up to the update `seq`. */
  leftLane(seq: number): void
}

/** The connection of a subscription. */
interface LaneConnection {
  readonly outbox: Outbox
  /** The subscription that entered a lane last. It leaves when the next frames are about another room. */
  inLane: LaneMember | undefined
}

/**
 * The subscriptions of one room and codec that are in step: each is live and has everything up to `seq`, and the last frames on its
 * connection were about this room. They get an update without a look at each of them: in a process with many clients, the objects of a
 * client are in no cache, and to read them costs more than to decide anything.
 */
export class Lane {
  /** The last update that all of them have. */
  #seq = 0
  readonly #apart: Set<LaneMember>
  readonly #members: LaneMember[] = []
  /** In the same order. */
  readonly #outboxes: Outbox[] = []

  /** `apart`: the subscriptions of the room that are in no lane. */
  constructor(apart: Set<LaneMember>) {
    this.#apart = apart
  }

  /** Adds a subscription that has just got the update `seq`, unless the others have another one. */
  add(member: LaneMember, connection: LaneConnection, seq: number): void {
    if (this.#members.length === 0) this.#seq = seq
    else if (this.#seq !== seq) return
    connection.inLane = member
    member.lane = this
    member.place = this.#members.push(member) - 1
    this.#outboxes.push(connection.outbox)
    this.#apart.delete(member)
  }

  /** Removes a subscription. `seq`: the last update that it has. */
  remove(member: LaneMember, seq = this.#seq): void {
    const { place } = member
    const last = this.#members.pop()!
    const lastOutbox = this.#outboxes.pop()!
    if (last !== member) {
      last.place = place
      this.#members[place] = last
      this.#outboxes[place] = lastOutbox
    }
    member.lane = undefined
    member.leftLane(seq)
    this.#apart.add(member)
  }

  /** Removes all subscriptions. */
  clear(): void {
    for (let i = this.#members.length - 1; i >= 0; i--) this.remove(this.#members[i]!)
  }

  /**
   * Sends the update `seq` to all of them. Those with anything queued leave the lane without it, and all if they lack an earlier update.
   * `alone`: nothing follows for any of them in this turn.
   */
  flush(frame: Frame, seq: number, alone: boolean): void {
    if (seq !== this.#seq + 1) {
      this.clear()
      return
    }
    this.#seq = seq
    // From the end: if one leaves, the last one takes its place.
    for (let i = this.#outboxes.length - 1; i >= 0; i--) {
      const outbox = this.#outboxes[i]!
      if (!outbox.idle) this.remove(this.#members[i]!, seq - 1)
      else if (alone) outbox.write(frame)
      else outbox.push(frame)
    }
  }
}
