import type { Subprotocol } from '../../shared/protocol/messages.ts'
import type { RateLimit } from '../../shared/rate-limit.ts'
import type { Member } from './definition.ts'
import { sharesShrink } from './outcomes.ts'
import type { Seat } from './seat.ts'

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
  get busiest_edge(): string | undefined {
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

  get(member_id: string): Seat | undefined {
    return this.#seats.get(member_id)
  }

  /** Who gets what is addressed to `member_id`: a member, or somebody whose departure is yet to be delivered. */
  recipient(member_id: string): Seat | undefined {
    return this.#seats.get(member_id) ?? this.#parting.get(member_id)
  }

  ofSession(session_id: string): Seat | undefined {
    return this.#sessions.get(session_id)
  }

  add(seat: Seat): void {
    this.#seats.set(seat.member.member_id, seat)
    this.#sessions.set(seat.session_id, seat)
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
    if (this.#sessions.get(seat.session_id) === seat) this.#sessions.delete(seat.session_id)
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
    seat.detached_at = undefined
    seat.missed_after = undefined
    add(this.#edges, edge, 1)
    add(this.#codecs, codec, 1)
  }

  /** The session has no socket since `now`. */
  detach(seat: Seat, now: number): void {
    if (!seat.attached) return
    add(this.#edges, seat.edge, -1)
    seat.detached_at = now
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

const playerOf = ({ member, session_id }: Seat): string =>
  member.sub === null ? `session:${session_id}` : `sub:${member.sub}`

function add<K>(counts: Map<K, number>, key: K, by: number): void {
  const count = (counts.get(key) ?? 0) + by
  if (count > 0) counts.set(key, count)
  else counts.delete(key)
}
