import type { Frame } from '../frame.ts'
import type { TcpHandle } from './fast-socket.ts'
import type { InStep, Outbox } from './outbox.ts'

/** A subscription that can be in a lane. */
export interface LaneMember extends InStep {
  /** Undefined: it is in none. The lane sets it, as `place`. */
  lane: Lane | undefined
  /** Index in the lane. */
  place: number
  /** It has left the lane, and has everything up to the update `seq`. */
  leftLane(seq: number): void
}

/**
 * The subscriptions of one room and codec that are in step: each is live and has everything up to `seq`, and the last frames on its
 * connection were about this room. They get an update without a look at each of them: in a process with many clients, the objects of a
 * client are in no cache, and to read them costs more than to decide anything. So an outbox tells the lane when something is queued.
 */
export class Lane {
  /** The last update that all of them have. */
  #seq = 0
  readonly #apart: Set<LaneMember>
  readonly #members: LaneMember[] = []
  /** In the same order. */
  readonly #outboxes: Outbox[] = []
  readonly #handles: (TcpHandle | undefined)[] = []
  /** True if a member may have an outbox that is not idle. */
  #mayBeBusy = false
  /** The latest update, until it is sent. */
  #unsent: Frame | undefined

  /** `apart`: the subscriptions of the room that are in no lane. */
  constructor(apart: Set<LaneMember>) {
    this.#apart = apart
  }

  /** Adds a subscription that has just got the update `seq`, unless the others have another one. */
  add(member: LaneMember, outbox: Outbox, seq: number): void {
    if (this.#members.length === 0) this.#seq = seq
    else if (this.#seq !== seq) return
    this.send()
    outbox.inStep = member
    member.lane = this
    member.place = this.#members.push(member) - 1
    this.#outboxes.push(outbox)
    this.#handles.push(outbox.handle)
    this.#apart.delete(member)
    if (!outbox.idle) this.#mayBeBusy = true
  }

  /** Removes a subscription. */
  remove(member: LaneMember): void {
    this.send()
    const { place } = member
    const last = this.#members.pop()!
    const lastOutbox = this.#outboxes.pop()!
    const lastHandle = this.#handles.pop()
    if (last !== member) {
      last.place = place
      this.#members[place] = last
      this.#outboxes[place] = lastOutbox
      this.#handles[place] = lastHandle
    }
    member.lane = undefined
    member.leftLane(this.#seq)
    this.#apart.add(member)
  }

  /** Removes all subscriptions. */
  clear(): void {
    for (let i = this.#members.length - 1; i >= 0; i--) this.remove(this.#members[i]!)
  }

  /** Something will be queued in the outbox of a member, or it will close: the latest update has to be written before. */
  busy(): void {
    this.send()
    this.#mayBeBusy = true
  }

  /**
   * Sends the update `seq` to all of them by the end of this turn. Those with anything queued leave the lane without it, and all if they lack
   * an earlier update. `alone`: nothing follows for any of them in this turn.
   */
  flush(frame: Frame, seq: number, alone: boolean): void {
    this.send()
    if (seq !== this.#seq + 1) {
      this.clear()
      return
    }
    this.#removeBusy()
    this.#seq = seq
    if (!alone) for (const outbox of this.#outboxes) outbox.push(frame)
    else if (this.#outboxes.length > 0) {
      this.#unsent = frame
      this.#outboxes[0]!.flusher.addLane(this)
    }
  }

  /** Sends the latest update, if that was not done yet. */
  send(): void {
    const frame = this.#unsent
    if (!frame) return
    this.#unsent = undefined
    this.#outboxes[0]?.flusher.writeAll(frame, this.#outboxes, this.#handles)
  }

  #removeBusy(): void {
    if (!this.#mayBeBusy) return
    this.#mayBeBusy = false
    // From the end: if one leaves, the last one takes its place.
    for (let i = this.#members.length - 1; i >= 0; i--)
      if (!this.#outboxes[i]!.idle) this.remove(this.#members[i]!)
  }
}
