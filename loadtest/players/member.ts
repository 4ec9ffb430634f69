import type { Room } from '../../client/index.ts'
import type { LoadRoom } from '../rooms/load.ts'
import type { Tally } from './tally.ts'

/** Time around a reconnect, a move of the room or a full state in which acks may arrive later than the update they belong to. */
const DISTURBANCE_MS = 1000
/**
 * When a node lost a bus message, it asks the owner again. The missed updates and one ack for all of them leave in the same write. After
 * this time all of them have been read, even if they came in several chunks.
 */
const SAME_WRITE_MS = 100

/** A message that the state shows as applied, and whose ack did not arrive before a later update. */
interface Shown {
  readonly n: number
  readonly seq: number
  readonly at: number
}

/**
 * Checks that each message of one member is acked right after the update that shows it. A message without an ack at the next update has
 * lost its ack, although a later ack would cover it: acks are cumulative. After a resume, or after a move of the room, one ack stands for
 * all missed updates. `disturbed` reports such moments, and messages near them are not checked.
 *
 * Calls are in the order of the wire. Times are milliseconds of a monotonic clock.
 */
export class AckCheck {
  readonly #lost: (text: string) => void
  /** Numbers of the messages without an ack, by ref. */
  readonly #unacked = new Map<number, number>()
  #shown: Shown | undefined
  /** Violations, unless a disturbance follows. */
  #suspicions: Shown[] = []
  /** All messages up to this number are acked or already suspected. */
  #done = 0
  #disturbedAt = Number.NEGATIVE_INFINITY

  /** Calls `lost` for each lost ack. */
  constructor(lost: (text: string) => void) {
    this.#lost = lost
  }

  /** Message number `n` was sent for the first time. */
  sent(ref: number, n: number): void {
    this.#unacked.set(ref, n)
  }

  /** This ref and all before it are acked. */
  acked(ref: number): void {
    for (const [each, n] of this.#unacked) {
      if (each > ref) break
      this.#unacked.delete(each)
      this.#done = Math.max(this.#done, n)
    }
    if (this.#shown && this.#done >= this.#shown.n) this.#shown = undefined
  }

  /** A message of the room's stream arrives. Its `seq` may be that of the message before: events follow the patch of their flush. */
  update(seq: number, at: number): void {
    if (!this.#shown || seq === this.#shown.seq || at - this.#shown.at < SAME_WRITE_MS) return
    if (this.#shown.at - this.#disturbedAt > DISTURBANCE_MS) this.#suspicions.push(this.#shown)
    this.#done = this.#shown.n
    this.#shown = undefined
  }

  /** After the update `seq` the state shows all messages up to `n` as applied. */
  shown(n: number, seq: number, at: number): void {
    if (n > this.#done) this.#shown ??= { n, seq, at }
  }

  disturbed(at: number): void {
    this.#disturbedAt = at
    this.#shown = undefined
    this.#suspicions = this.#suspicions.filter((suspicion) => at - suspicion.at > DISTURBANCE_MS)
  }

  /** Returns true if a missing ack is certainly lost. */
  isCertain(now: number): boolean {
    return now - this.#disturbedAt > DISTURBANCE_MS
  }

  /** Reports the suspicions that no disturbance can explain any more. It is called about once a second. */
  review(now: number): void {
    const isRipe = ({ at }: Shown): boolean => now - at > DISTURBANCE_MS
    for (const { n, seq } of this.#suspicions.filter(isRipe))
      this.#lost(
        `message ${n} was in the state at seq ${seq}, but its ack had not come before a later update`,
      )
    this.#suspicions = this.#suspicions.filter((each) => !isRipe(each))
  }
}

/** A client as one member of one room: its messages, and how many of them the room has applied. */
export class Member {
  readonly acks: AckCheck
  /** Reliable messages that the SDK accepted. */
  sent = 0
  acked = 0
  /** Messages with an error as their answer. */
  refused = 0
  readonly #room: Room<LoadRoom>
  readonly #tally: Tally
  readonly #name: string
  readonly #counted: boolean
  #id: string | undefined
  #twice = 0
  #epoch = 0
  #seq = 0
  /** Number of the last event. Undefined: the next event may have any number. */
  #lastEvent: number | undefined
  #reported = { lost: 0, missing: 0 }

  /** `name`: name of the client, for examples. `counted`: the room counts applied messages, and the client keeps its state. */
  constructor(room: Room<LoadRoom>, name: string, tally: Tally, counted: boolean) {
    this.#room = room
    this.#counted = counted
    this.#tally = tally
    this.#name = `${name} in ${room.id}`
    this.acks = new AckCheck((text) => tally.violated('lostAck', `${this.#name}: ${text}`))
    if (counted && room.status === 'joined') this.#lastEvent = room.state.milestones
    this.#takeId()
  }

  /** True if the client has lost this membership with its session, and has joined again or is about to. */
  get gone(): boolean {
    this.#takeId()
    const { status, memberId } = this.#room
    if (status === 'left') return true
    return this.#id !== undefined && (status === 'rejoining' || memberId !== this.#id)
  }

  /** The `seq` of the last update. Undefined before the first. */
  get seq(): number | undefined {
    return this.#epoch === 0 ? undefined : this.#seq
  }

  /** A message of the room's stream has arrived. `full`: it contains the whole state. */
  update(full: boolean, epoch: number, seq: number, at: number): void {
    if (full || (this.#epoch !== 0 && epoch !== this.#epoch)) this.disturbed(at)
    // After a join, acks may also be late for a moment. Events may not.
    else if (this.#epoch === 0) this.acks.disturbed(at)
    this.#epoch = epoch
    this.#seq = seq
    this.acks.update(seq, at)
  }

  /** An event has arrived. Events are numbered without gaps, except where a full state or a resume replaces missed updates. */
  event(number: number): void {
    this.#eventsUntil(number - 1)
    this.#lastEvent = number
  }

  /** The connection was lost or is back, the room has moved, a full state arrived, or the client did not read. */
  disturbed(at: number): void {
    this.acks.disturbed(at)
    this.#lastEvent = undefined
  }

  stateChanged(at: number): void {
    const applied = this.#applied
    if (!applied) return
    this.acks.shown(applied.last, this.#seq, at)
    const twice = applied.count - applied.last
    if (twice <= this.#twice) return
    const text = `${this.#name}: ${applied.count} messages were applied up to number ${applied.last}`
    this.#tally.violated('twice', text, twice - this.#twice)
    this.#twice = twice
  }

  /** True when every message has an answer, and the state shows as many as were acked. */
  get isComplete(): boolean {
    return this.#open === 0 && this.#missing <= 0
  }

  /** Messages without an answer, except those with a lost ack: it is unknown whether they were applied. */
  get unanswered(): number {
    return this.#open - this.#reported.lost
  }

  /** Reports what is wrong so far. A client that is not `reachable` cannot receive its acks. */
  judge(now: number, reachable: boolean): void {
    this.acks.review(Number.POSITIVE_INFINITY)
    if (this.#counted && this.isComplete) this.#eventsUntil(this.#room.state.milestones)
    const missing = Math.max(0, this.#missing)
    const lost = reachable && this.acks.isCertain(now) ? this.#unacked : 0
    if (lost > this.#reported.lost) {
      const text = `${this.#name}: ${lost} of ${this.sent} messages were ${this.#counted ? 'applied, but ' : ''}never acked`
      this.#tally.violated('lostAck', text, lost - this.#reported.lost)
    }
    if (missing > this.#reported.missing) {
      const text = `${this.#name}: ${this.acked} messages were acked, the state shows ${this.acked - missing}`
      this.#tally.violated('unapplied', text, missing - this.#reported.missing)
    }
    this.#reported = { lost: Math.max(lost, this.#reported.lost), missing }
  }

  /** All events up to this number have happened. */
  #eventsUntil(number: number): void {
    const last = this.#lastEvent
    if (last === undefined || number <= last) return
    const text = `${this.#name}: event ${number} has happened, but event ${last} was the last to arrive`
    this.#tally.violated('lostEvent', text, number - last)
    this.#lastEvent = number
  }

  get #open(): number {
    return this.sent - this.acked - this.refused
  }

  /** Number of applied messages without an answer. A room that does not count is assumed to have applied every message. */
  get #unacked(): number {
    if (this.#room.status !== 'joined') return 0
    const applied = this.#counted ? Math.max(0, -this.#missing) : this.#open
    return Math.min(this.#open, applied)
  }

  /** Number of acked messages that the state does not show. */
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
