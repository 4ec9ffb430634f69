import type { Clock } from '../../shared/clock.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'
import { type OutcomeLimits, Outcomes, type OutcomesRecord, sharesShrink } from './deduplication.ts'
import type { Member } from './definition.ts'

type Buckets = Map<string, RateLimit>

/** Of so many players who left, what they had left of their rates is remembered. */
const DEPARTED_KEPT = 256

/** Everybody in one room, in the order they joined; knows which edges and which codecs its updates are for. */
export class Seats {
  readonly #seats = new Map<string, Seat>()
  /** Removed, but not released. */
  readonly #parting = new Map<string, Seat>()
  readonly #sessions = new Map<string, Seat>()
  /** How many attached members each edge has. Only what is above 0 is here. */
  readonly #edges = new Map<string, number>()
  /** How many members speak each codec, those without a socket included: they will want to be told what they missed. */
  readonly #codecs = new Map<Subprotocol, number>()
  /** What is left of their rates, by player, or session where no player is named. */
  readonly #buckets = new Map<string, { readonly buckets: Buckets; seats: number }>()
  /** The same of those who left, the latest last: whoever comes back goes on with it. */
  readonly #departed = new Map<string, Buckets>()
  #members: readonly Member[] | undefined

  get size(): number {
    return this.#seats.size
  }

  /** Whether there is nobody to tell anything, now or at a resume. */
  get nobody(): boolean {
    return this.#codecs.size === 0
  }

  /** Edges with attached members. */
  get edges(): IterableIterator<string> {
    return this.#edges.keys()
  }

  /** Whether some attached member is at `edge`. */
  isAt(edge: string): boolean {
    return this.#edges.has(edge)
  }

  /** The edge with most attached members. */
  get busiestEdge(): string | undefined {
    let busiest: string | undefined
    for (const [edge, members] of this.#edges)
      if (busiest === undefined || members > this.#edges.get(busiest)!) busiest = edge
    return busiest
  }

  /** Codecs that members speak. */
  get codecs(): IterableIterator<Subprotocol> {
    return this.#codecs.keys()
  }

  /** The same array until somebody comes or goes. */
  get members(): readonly Member[] {
    this.#members ??= Object.freeze([...this.#seats.values()].map((seat) => seat.member))
    return this.#members
  }

  get(memberId: string): Seat | undefined {
    return this.#seats.get(memberId)
  }

  /** Who gets what is addressed to `member_id`: a member, or somebody whose departure is yet to be delivered. */
  recipient(memberId: string): Seat | undefined {
    return this.#seats.get(memberId) ?? this.#parting.get(memberId)
  }

  ofSession(sessionId: string): Seat | undefined {
    return this.#sessions.get(sessionId)
  }

  add(seat: Seat): void {
    this.#seats.set(seat.member.member_id, seat)
    this.#sessions.set(seat.sessionId, seat)
    this.#members = undefined
    this.#shareRates(seat)
    // All together they keep no more than before, whenever each of them came.
    if (sharesShrink(this.size)) for (const { outcomes } of this) outcomes.share(this.size)
    if (seat.attached) add(this.#edges, seat.edge, 1)
    add(this.#codecs, seat.codec, 1)
  }

  /** It is a member no more. Updates still go to its edge, until `release`: the departure itself is yet to be delivered. */
  remove(seat: Seat): void {
    this.#seats.delete(seat.member.member_id)
    this.#parting.set(seat.member.member_id, seat)
    if (this.#sessions.get(seat.sessionId) === seat) this.#sessions.delete(seat.sessionId)
    this.#members = undefined
    this.#keepRates(seat)
  }

  /** Rates have changed: every bucket starts anew. */
  forgetRates(): void {
    for (const { buckets } of this.#buckets.values()) buckets.clear()
    this.#departed.clear()
  }

  /** A removed seat's departure is delivered. */
  release(seat: Seat): void {
    this.#parting.delete(seat.member.member_id)
    if (seat.attached) add(this.#edges, seat.edge, -1)
    add(this.#codecs, seat.codec, -1)
  }

  /** The session's socket is at `edge` and speaks `codec`. */
  attach(seat: Seat, edge: string, codec: Subprotocol): void {
    if (seat.attached) add(this.#edges, seat.edge, -1)
    add(this.#codecs, seat.codec, -1)
    seat.edge = edge
    seat.codec = codec
    seat.detachedAt = undefined
    seat.missedAfter = undefined
    add(this.#edges, edge, 1)
    add(this.#codecs, codec, 1)
  }

  /** The session has no socket since `now`. */
  detach(seat: Seat, now: number): void {
    if (!seat.attached) return
    add(this.#edges, seat.edge, -1)
    seat.detachedAt = now
  }

  /** All seats of one player have the same buckets, and so has one that is taken again. */
  #shareRates(seat: Seat): void {
    const who = playerOf(seat)
    const shared = this.#buckets.get(who) ?? { buckets: this.#departed.get(who) ?? seat.buckets, seats: 0 }
    this.#departed.delete(who)
    this.#buckets.set(who, shared)
    shared.seats += 1
    seat.buckets = shared.buckets
  }

  #keepRates(seat: Seat): void {
    const who = playerOf(seat)
    const shared = this.#buckets.get(who)
    if (!shared || --shared.seats > 0) return
    this.#buckets.delete(who)
    if (shared.buckets.size === 0) return
    this.#departed.set(who, shared.buckets)
    const [oldest] = this.#departed.keys()
    if (this.#departed.size > DEPARTED_KEPT && oldest !== undefined) this.#departed.delete(oldest)
  }

  [Symbol.iterator](): IterableIterator<Seat> {
    return this.#seats.values()
  }
}

const playerOf = ({ member, sessionId }: Seat): string =>
  member.sub === null ? `session:${sessionId}` : `sub:${member.sub}`

function add<K>(counts: Map<K, number>, key: K, by: number): void {
  const count = (counts.get(key) ?? 0) + by
  if (count > 0) counts.set(key, count)
  else counts.delete(key)
}

/** What is known of a seat beyond its life in this process: what an update and a snapshot record of it. */
export interface SeatRecord extends OutcomesRecord {
  readonly member: Member
  readonly sessionId: string
  /** The ref of the join, which answers the same join sent again. */
  readonly joinRef: number
  /** The node that holds, or last held, the socket. */
  readonly edge: string
  readonly codec: Subprotocol
  /** The highest ref settled: applied, or answered with an error that will not change. */
  readonly lastRef: number
}

/** One session in one room. */
export class Seat {
  readonly member: Member
  readonly sessionId: string
  readonly joinRef: number
  edge: string
  codec: Subprotocol
  /** How often the session had been resumed when `edge` spoke for it first. */
  turn = 0
  lastRef: number
  /** `lastRef` as of the last flush that acks it. */
  flushedRef: number
  /** The highest ref whose update is delivered (and committed, where the room type is durable). */
  committedRef: number
  /** `lastRef` when the edge was asked to give again what came after it. */
  missedAfter: number | undefined
  readonly outcomes: Outcomes
  /** Whether `lastRef` is to be acked with the next update. */
  ackDue = false
  /** Whether the join was delivered. */
  settled: boolean
  /** Since when the session has no socket, on the monotonic clock. */
  detachedAt: number | undefined
  /** What is left of the rate of each message type; the same for all seats of one player, see `Seats.add`. */
  buckets = new Map<string, RateLimit>()
  /** Since the last attach: up to which ref outcomes were forgotten that its client may not know, and the last ref that came. */
  #unanswered = 0
  #answered = 0

  /** A seat taken now (`detachedAt` undefined), or found in the store (`settled`, and detached until its edge says otherwise). */
  constructor(record: SeatRecord, limits: OutcomeLimits, detachedAt?: number) {
    this.member = record.member
    this.sessionId = record.sessionId
    this.joinRef = record.joinRef
    this.edge = record.edge
    this.codec = record.codec
    this.lastRef = record.lastRef
    this.flushedRef = record.lastRef
    this.committedRef = record.lastRef
    this.outcomes = new Outcomes(limits, record)
    this.settled = detachedAt !== undefined
    this.detachedAt = detachedAt
  }

  get attached(): boolean {
    return this.detachedAt === undefined
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
    this.outcomes.settle(Math.min(ref, this.lastRef))
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
    const { member, sessionId, joinRef, edge, codec, flushedRef, outcomes } = this
    return {
      member,
      sessionId,
      joinRef,
      edge,
      codec,
      lastRef: flushedRef,
      ...outcomes.record(flushedRef),
    }
  }
}
