import type { Clock } from '../../shared/clock.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'
import type { Member } from './definition.ts'
import { type OutcomeLimits, Outcomes, type OutcomesRecord } from './outcomes.ts'

/** What is known of a seat beyond its life in this process: what an update and a snapshot record of it. */
export interface SeatRecord extends OutcomesRecord {
  readonly member: Member
  readonly session_id: string
  /** The ref of the join, which answers the same join sent again. */
  readonly join_ref: number
  /** The node that holds, or last held, the socket. */
  readonly edge: string
  readonly codec: Subprotocol
  /** The highest ref settled: applied, or answered with an error that will not change. */
  readonly last_ref: number
}

/** One session in one room. */
export class Seat {
  readonly member: Member
  readonly session_id: string
  readonly join_ref: number
  edge: string
  codec: Subprotocol
  /** How often the session had been resumed when `edge` spoke for it first. */
  turn = 0
  last_ref: number
  /** `last_ref` as of the last flush that acks it. */
  flushed_ref: number
  /** The highest ref whose update is delivered (and committed, where the room type is durable). */
  committed_ref: number
  /** `last_ref` when the edge was asked to give again what came after it. */
  missed_after: number | undefined
  readonly outcomes: Outcomes
  /** Whether `last_ref` is to be acked with the next update. */
  ack_due = false
  /** Whether the join was delivered. */
  settled: boolean
  /** Since when the session has no socket, on the monotonic clock. */
  detached_at: number | undefined
  /** What is left of the rate of each message type; the same for all seats of one player, see `Seats.add`. */
  buckets = new Map<string, RateLimit>()
  /** Since the last attach: up to which ref outcomes were forgotten that its client may not know, and the last ref that came. */
  #unanswered = 0
  #answered = 0

  /** A seat taken now (`detached_at` undefined), or found in the store (`settled`, and detached until its edge says otherwise). */
  constructor(record: SeatRecord, limits: OutcomeLimits, detached_at?: number) {
    this.member = record.member
    this.session_id = record.session_id
    this.join_ref = record.join_ref
    this.edge = record.edge
    this.codec = record.codec
    this.last_ref = record.last_ref
    this.flushed_ref = record.last_ref
    this.committed_ref = record.last_ref
    this.outcomes = new Outcomes(limits, record)
    this.settled = detached_at !== undefined
    this.detached_at = detached_at
  }

  get attached(): boolean {
    return this.detached_at === undefined
  }

  /** Whether `edge` speaks for this member: it has the socket, or nobody is known to. */
  isServedBy(edge: string): boolean {
    return !this.attached || this.edge === edge
  }

  /**
   * Whether an ack may go out. It would stand for every ref before it, so refs of which it is forgotten whether they were refused are
   * to be answered by themselves before: they come again in their order, if their client still asks.
   */
  get ackable(): boolean {
    return this.#unanswered <= this.outcomes.settled
  }

  /** Its edge may have missed answers: whatever is open comes again. */
  expectAgain(): void {
    this.#unanswered = this.outcomes.forgotten
    this.#answered = 0
  }

  /** A reliable message comes, behind `after` on its edge. False: while that one is to be answered by itself, it was lost on the way. */
  comes(ref: number, after: number): boolean {
    if (this.ackable) return true
    if (after > this.#answered) return false
    this.#answered = Math.max(ref, this.#answered)
    if (ref > this.#unanswered) this.#unanswered = 0
    return true
  }

  /** The client knows every outcome up to `ref`; it cannot know what has not come. */
  settle(ref: number): void {
    this.outcomes.settle(Math.min(ref, this.last_ref))
  }

  /** Whether this member may send one more `type`. */
  mayTake(type: string, rate: Rate, clock: Clock): boolean {
    let bucket = this.buckets.get(type)
    if (!bucket) {
      bucket = new RateLimit(clock, rate)
      this.buckets.set(type, bucket)
    }
    return bucket.take()
  }

  /** The seat as of the last flush. */
  record(): SeatRecord {
    const { member, session_id, join_ref, edge, codec, flushed_ref, outcomes } = this
    return {
      member,
      session_id,
      join_ref,
      edge,
      codec,
      last_ref: flushed_ref,
      ...outcomes.record(flushed_ref),
    }
  }
}
