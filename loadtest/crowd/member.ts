import type { Room } from '../../client/index.ts'
import type { LoadRoom } from '../rooms/load.ts'
import { AckWitness } from './ack-witness.ts'
import { EventWitness } from './event-witness.ts'
import type { Book } from './findings.ts'
import type { Seen } from './seen.ts'

/** One client as one member of one room: what it has said there, and what the room says it has applied of that. */
export class Member {
  readonly witness: AckWitness
  readonly #events: EventWitness
  /** Reliable messages handed to the SDK. */
  said = 0
  acked = 0
  /** Told that they were not applied. */
  refused = 0
  readonly #room: Room<LoadRoom>
  readonly #book: Book
  readonly #name: string
  #id: string | undefined
  readonly #counted: boolean
  #twice = 0
  #epoch = 0
  #seq = 0
  /** What is written down already. */
  #judged = { lost: 0, missing: 0 }

  /** `name`: who this is, for whoever reads about it. `counted`: the room is one that counts what it applies. */
  constructor(room: Room<LoadRoom>, name: string, book: Book, counted: boolean) {
    this.#room = room
    this.#counted = counted
    this.#book = book
    this.#name = `${name} in ${room.id}`
    this.witness = new AckWitness((text) => book.note('lost_ack', `${this.#name}: ${text}`))
    this.#events = new EventWitness((text, times) => book.note('lost_event', `${this.#name}: ${text}`, times))
    if (counted && room.status === 'joined') this.#events.came(room.state.milestones)
    this.#takeId()
  }

  /** Whether the client is not this member any more, since its session was lost and it has joined anew, or is about to. */
  get gone(): boolean {
    this.#takeId()
    const { status, memberId } = this.#room
    if (status === 'left') return true
    return this.#id !== undefined && (status === 'rejoining' || memberId !== this.#id)
  }

  /** How far it has seen its room; undefined: nothing has come since it joined. */
  get seen(): Seen | undefined {
    return this.#epoch === 0 ? undefined : { room_id: this.#room.id, epoch: this.#epoch, seq: this.#seq }
  }

  /** An update of the room arrives, with its own epoch and `seq`. `whole`: it replaces all before. */
  update(whole: boolean, epoch: number, seq: number, at: number): void {
    if (whole || (this.#epoch !== 0 && epoch !== this.#epoch)) this.disturbed(at)
    // For a moment after a join acks may come later, too; events may not.
    else if (this.#epoch === 0) this.witness.disturbed(at)
    this.#epoch = epoch
    this.#seq = seq
    this.witness.update(seq)
  }

  /** The event of this number arrives. */
  event(number: number): void {
    this.#events.came(number)
  }

  /** A connection was lost or is back, the room has moved, a whole state came, or the client did not read. */
  disturbed(at: number): void {
    this.witness.disturbed(at)
    this.#events.disturbed()
  }

  /** The state has changed. */
  look(at: number): void {
    const applied = this.#applied
    if (!applied) return
    this.witness.shown(applied.last, this.#seq, at)
    const twice = applied.count - applied.last
    if (twice <= this.#twice) return
    const text = `${this.#name}: ${applied.count} messages were applied up to number ${applied.last}`
    this.#book.note('twice', text, twice - this.#twice)
    this.#twice = twice
  }

  /** Whether everything said is settled, and the state shows as much as was acked. */
  get settled(): boolean {
    return this.acked + this.refused === this.said && this.#missing <= 0
  }

  /** Messages that have had no answer, lost acks aside: nobody knows whether they were applied. */
  get unanswered(): number {
    return this.#open - this.#judged.lost
  }

  /** Writes down what has happened and may not. `reachable`: the client is connected; one that is not cannot be told anything. */
  judge(now: number, reachable: boolean): void {
    this.witness.review(Number.POSITIVE_INFINITY)
    if (this.#counted && this.settled) this.#events.shown(this.#room.state.milestones)
    const missing = Math.max(0, this.#missing)
    const lost = reachable && this.witness.quiet(now) ? this.#unacked : 0
    if (lost > this.#judged.lost) {
      const text = `${this.#name}: ${lost} of ${this.said} messages were ${this.#counted ? 'applied, but ' : ''}never acked`
      this.#book.note('lost_ack', text, lost - this.#judged.lost)
    }
    if (missing > this.#judged.missing) {
      const text = `${this.#name}: ${this.acked} messages were acked, the state shows ${this.acked - missing}`
      this.#book.note('unapplied', text, missing - this.#judged.missing)
    }
    this.#judged = { lost: Math.max(lost, this.#judged.lost), missing }
  }

  get #open(): number {
    return this.said - this.acked - this.refused
  }

  /** How many messages have no answer though they were applied. A room that counts nothing is taken to have applied what it was sent. */
  get #unacked(): number {
    if (this.#room.status !== 'joined') return 0
    const applied = this.#counted ? Math.max(0, -this.#missing) : this.#open
    return Math.min(this.#open, applied)
  }

  /** How many acked messages the state does not show. */
  get #missing(): number {
    return this.#counted ? this.acked - (this.#applied?.count ?? 0) : 0
  }

  get #applied() {
    return this.#id === undefined || !this.#counted ? undefined : this.#room.state.players[this.#id]
  }

  #takeId(): void {
    if (this.#id === undefined && this.#room.status === 'joined') this.#id = this.#room.memberId
  }
}
