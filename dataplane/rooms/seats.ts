import type { Subprotocol } from '../../shared/protocol/messages.ts'
import type { Member } from './definition.ts'
import type { Seat } from './seat.ts'

/** Everybody in one room, in the order they joined; knows which edges and which codecs its updates are for. */
export class Seats {
  readonly #seats = new Map<string, Seat>()
  readonly #sessions = new Map<string, Seat>()
  /** How many attached members each edge has, and each codec. Only what is above 0 is here. */
  readonly #edges = new Map<string, number>()
  readonly #codecs = new Map<Subprotocol, number>()
  #members: readonly Member[] | undefined

  get size(): number {
    return this.#seats.size
  }

  /** Edges with attached members. */
  get edges(): IterableIterator<string> {
    return this.#edges.keys()
  }

  /** Codecs that attached members speak. */
  get codecs(): IterableIterator<Subprotocol> {
    return this.#codecs.keys()
  }

  get anyAttached(): boolean {
    return this.#edges.size > 0
  }

  /** The same array until somebody comes or goes. */
  get members(): readonly Member[] {
    this.#members ??= Object.freeze([...this.#seats.values()].map((seat) => seat.member))
    return this.#members
  }

  get(member_id: string): Seat | undefined {
    return this.#seats.get(member_id)
  }

  ofSession(session_id: string): Seat | undefined {
    return this.#sessions.get(session_id)
  }

  add(seat: Seat): void {
    this.#seats.set(seat.member.member_id, seat)
    this.#sessions.set(seat.session_id, seat)
    this.#members = undefined
    if (seat.attached) this.#count(seat, 1)
  }

  /** It is a member no more. Updates still go to its edge, until `release`: the departure itself is yet to be delivered. */
  remove(seat: Seat): void {
    this.#seats.delete(seat.member.member_id)
    if (this.#sessions.get(seat.session_id) === seat) this.#sessions.delete(seat.session_id)
    this.#members = undefined
  }

  /** A removed seat's departure is delivered. */
  release(seat: Seat): void {
    if (seat.attached) this.#count(seat, -1)
  }

  /** The session's socket is at `edge` and speaks `codec`. */
  attach(seat: Seat, edge: string, codec: Subprotocol): void {
    if (seat.attached) this.#count(seat, -1)
    seat.edge = edge
    seat.codec = codec
    seat.detached_at = undefined
    this.#count(seat, 1)
  }

  /** The session has no socket since `now`. */
  detach(seat: Seat, now: number): void {
    if (!seat.attached) return
    this.#count(seat, -1)
    seat.detached_at = now
  }

  [Symbol.iterator](): IterableIterator<Seat> {
    return this.#seats.values()
  }

  #count(seat: Seat, by: 1 | -1): void {
    add(this.#edges, seat.edge, by)
    add(this.#codecs, seat.codec, by)
  }
}

function add<K>(counts: Map<K, number>, key: K, by: number): void {
  const count = (counts.get(key) ?? 0) + by
  if (count > 0) counts.set(key, count)
  else counts.delete(key)
}
