import type { Subprotocol } from '../../shared/protocol/messages.ts'
import type { RefusedRef } from '../traffic.ts'
import { Bucket } from './bucket.ts'
import type { Member, Rate } from './definition.ts'

/** What is known of a seat beyond its life in this process: what an update and a snapshot record of it. */
export interface SeatRecord {
  readonly member: Member
  readonly session_id: string
  /** The ref of the join, which answers the same join sent again. */
  readonly join_ref: number
  /** The node that holds, or last held, the socket. */
  readonly edge: string
  readonly codec: Subprotocol
  /** The highest ref settled: applied, or answered with an error that will not change. */
  readonly last_ref: number
  /** The last of those that were refused, oldest first. */
  readonly refused: readonly RefusedRef[]
}

/** More than a client that stays within its rate can have on its way when a refusal is lost. */
const REFUSED_KEPT = 32

/** A list of refusals with one more; a snapshot may have it already when the update that brings it is read. */
export const withRefusal = (refused: readonly RefusedRef[], refusal: RefusedRef): readonly RefusedRef[] =>
  [...refused.filter(({ ref }) => ref !== refusal.ref), refusal].slice(-REFUSED_KEPT)

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
  /** The last messages that were refused. */
  refused: readonly RefusedRef[]
  /** Whether `last_ref` is to be acked with the next update. */
  ack_due = false
  /** Whether the join was delivered. */
  settled: boolean
  /** Since when the session has no socket, on the monotonic clock. */
  detached_at: number | undefined
  readonly #buckets = new Map<string, Bucket>()

  /** A seat taken now (`detached_at` undefined), or found in the store (`settled`, and detached until its edge says otherwise). */
  constructor(record: SeatRecord, detached_at?: number) {
    this.member = record.member
    this.session_id = record.session_id
    this.join_ref = record.join_ref
    this.edge = record.edge
    this.codec = record.codec
    this.last_ref = record.last_ref
    this.flushed_ref = record.last_ref
    this.committed_ref = record.last_ref
    this.refused = record.refused
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

  /** Whether this member may send one more `type` at monotonic `now`. */
  mayTake(type: string, rate: Required<Rate>, now: number): boolean {
    let bucket = this.#buckets.get(type)
    if (!bucket) {
      bucket = new Bucket(rate, now)
      this.#buckets.set(type, bucket)
    }
    return bucket.take(now)
  }

  /** Rates have changed: every bucket starts anew. */
  forgetRates(): void {
    this.#buckets.clear()
  }

  /** The seat as of the last flush. */
  record(): SeatRecord {
    const { member, session_id, join_ref, edge, codec, flushed_ref, refused } = this
    return { member, session_id, join_ref, edge, codec, last_ref: flushed_ref, refused }
  }
}
