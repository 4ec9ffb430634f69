import type { Room } from '../../client/index.ts'
import type { FindingsLog } from '../checks.ts'
import type { LoadRoom } from '../rooms/load.ts'

/** How far a client has seen a room. */
export interface Position {
  readonly roomId: string
  readonly epoch: number
  readonly seq: number
}

/** The furthest that any client has seen each room, by its id. Plain data. */
export type Newest = Readonly<Record<string, Position>>

export function newestOf(all: readonly Position[]): Newest {
  const newest: Record<string, Position> = {}
  for (const position of all) {
    const known = newest[position.roomId]
    if (
      !known ||
      position.epoch > known.epoch ||
      (position.epoch === known.epoch && position.seq > known.seq)
    )
      newest[position.roomId] = position
  }
  return newest
}

/**
 * By how many flushes a position is behind the newest; 0: it is not. A room that has moved goes on where it was, and a client that
 * resumed without having missed anything has not heard of the new epoch.
 */
export function behind({ roomId, epoch, seq }: Position, newest: Newest): number {
  const known = newest[roomId]
  return known && epoch <= known.epoch ? Math.max(0, known.seq - seq) : 0
}

/** Around something that interrupts the stream of a room, acks may come later than what they ack. */
const UNSETTLED_MS = 1000

/** A message that the state showed as applied, and whose ack was not there when it should have been. */
interface Suspicion {
  readonly n: number
  readonly seq: number
  readonly at: number
  /** In which read of the socket it was shown. */
  readonly read: number
}

/**
 * Checks that each message of one member in one room is acked when it should be. In a room that shows each message at once, the ack
 * leaves in the same write as the update that shows the message, behind it and before the next update. So an ack that has not come by
 * the end of the read that brought the next update is lost, although a later one would make up for it: acks are cumulative. Only
 * where missed updates are sent again (after a resume, or when the room has moved) one ack stands for all of them; such moments are
 * told with `disturbed`, also shortly afterwards, and nothing near them counts.
 *
 * All calls come in the order of the wire. Times are milliseconds of any monotonic clock.
 */
export class AckCheck {
  readonly #lost: (text: string) => void
  /** By ref, the number of the message. */
  readonly #unacked = new Map<number, number>()
  /** Shown as applied, but not acked; `seq`: of the update that showed it. */
  #shown: Suspicion | undefined
  /** An update behind that one came in the same read; the ack has until the end of it. */
  #followed = false
  #read = 0
  /** What is a violation unless a disturbance comes up. */
  #suspicions: Suspicion[] = []
  #acked = 0
  /** The last message that is suspected: nothing up to it is again. */
  #judged = 0
  #disturbedAt = Number.NEGATIVE_INFINITY

  /** `lost` is called for each. */
  constructor(lost: (text: string) => void) {
    this.#lost = lost
  }

  /** A message was sent, for the first time. */
  sent(ref: number, n: number): void {
    this.#unacked.set(ref, n)
  }

  /** This ref and all before it are acked. */
  acked(ref: number): void {
    for (const [each, n] of this.#unacked) {
      if (each > ref) break
      this.#unacked.delete(each)
      this.#acked = n
    }
    if (this.#shown && this.#acked >= this.#shown.n) this.#settle()
  }

  /** An update arrives. */
  update(seq: number): void {
    if (!this.#shown || seq <= this.#shown.seq) return
    if (this.#shown.read === this.#read) this.#followed = true
    else this.#suspect(this.#shown)
  }

  /** After the update `seq` the state shows everything up to message `n` as applied. */
  shown(n: number, seq: number, at: number): void {
    if (n > Math.max(this.#acked, this.#judged)) this.#shown ??= { n, seq, at, read: this.#read }
  }

  /** What was sent in one piece has been read. */
  read(): void {
    this.#read += 1
    if (this.#followed && this.#shown) this.#suspect(this.#shown)
  }

  /** A connection was lost or is back, the room has moved, a whole state came, or the client did not read. */
  disturbed(at: number): void {
    this.#disturbedAt = at
    this.#settle()
    this.#suspicions = this.#suspicions.filter((suspicion) => at - suspicion.at > UNSETTLED_MS)
  }

  /** Whether an ack that is not there can be nothing but lost. */
  isSettled(now: number): boolean {
    return now - this.#disturbedAt > UNSETTLED_MS
  }

  /** Reports what can be nothing else by now; to be called about once a second. */
  review(now: number): void {
    const ripe = this.#suspicions.filter(({ at }) => now - at > UNSETTLED_MS)
    this.#suspicions = this.#suspicions.filter(({ at }) => now - at <= UNSETTLED_MS)
    for (const { n, seq } of ripe)
      this.#lost(
        `message ${n} was in the state at seq ${seq}, but its ack had not come before the next update`,
      )
  }

  #suspect(suspicion: Suspicion): void {
    this.#judged = suspicion.n
    if (suspicion.at - this.#disturbedAt > UNSETTLED_MS) this.#suspicions.push(suspicion)
    this.#settle()
  }

  #settle(): void {
    this.#shown = undefined
    this.#followed = false
  }
}

/**
 * Checks that every event of one room arrives, by the numbers they carry: from one to the next, one more each time. Where missed updates
 * are made up for (after a resume, when the room has moved, by a whole state) it begins again with the next event.
 */
export class EventCheck {
  readonly #lost: (text: string, times: number) => void
  /** The number of the last event; undefined: the next one may have any. */
  #last: number | undefined

  /** `lost` is called each time, with how many. */
  constructor(lost: (text: string, times: number) => void) {
    this.#lost = lost
  }

  /** An event arrives, or everything up to it came before this check began. */
  came(number: number): void {
    this.shown(number - 1)
    this.#last = number
  }

  /** Everything up to event `number` has happened, and should be here. */
  shown(number: number): void {
    if (this.#last === undefined || number <= this.#last) return
    this.#lost(
      `event ${number} has happened, but event ${this.#last} was the last to arrive`,
      number - this.#last,
    )
    this.#last = number
  }

  /** What is missed from here on is made up for in another way. */
  disturbed(): void {
    this.#last = undefined
  }
}

/** One client as one member of one room: what it has sent there, and what the room says it has applied of that. */
export class Member {
  readonly acks: AckCheck
  readonly #events: EventCheck
  /** Reliable messages handed to the SDK. */
  sent = 0
  acked = 0
  /** Told that they were not applied. */
  refused = 0
  readonly #room: Room<LoadRoom>
  readonly #log: FindingsLog
  readonly #name: string
  #id: string | undefined
  readonly #counted: boolean
  #twice = 0
  #epoch = 0
  #seq = 0
  /** What is reported already. */
  #judged = { lost: 0, missing: 0 }

  /** `name`: of the client, for examples. `counted`: the room counts what it applies, and the client keeps its state. */
  constructor(room: Room<LoadRoom>, name: string, log: FindingsLog, counted: boolean) {
    this.#room = room
    this.#counted = counted
    this.#log = log
    this.#name = `${name} in ${room.id}`
    this.acks = new AckCheck((text) => log.add('lostAck', `${this.#name}: ${text}`))
    this.#events = new EventCheck((text, times) => log.add('lostEvent', `${this.#name}: ${text}`, times))
    if (counted && room.status === 'joined') this.#events.came(room.state.milestones)
    this.#takeId()
  }

  /** Whether the client is not this member any more, since its session was lost and it has joined again, or is about to. */
  get gone(): boolean {
    this.#takeId()
    const { status, memberId } = this.#room
    if (status === 'left') return true
    return this.#id !== undefined && (status === 'rejoining' || memberId !== this.#id)
  }

  /** How far it has seen its room; undefined: nothing has come since it joined. */
  get position(): Position | undefined {
    return this.#epoch === 0 ? undefined : { roomId: this.#room.id, epoch: this.#epoch, seq: this.#seq }
  }

  /** Something of the room's stream arrives, with its own epoch and `seq`. `whole`: it replaces all before. */
  update(whole: boolean, epoch: number, seq: number, at: number): void {
    if (whole || (this.#epoch !== 0 && epoch !== this.#epoch)) this.disturbed(at)
    // For a moment after a join acks may come later, too; events may not.
    else if (this.#epoch === 0) this.acks.disturbed(at)
    this.#epoch = epoch
    this.#seq = seq
    this.acks.update(seq)
  }

  /** The event of this number arrives. */
  event(number: number): void {
    this.#events.came(number)
  }

  /** A connection was lost or is back, the room has moved, a whole state came, or the client did not read. */
  disturbed(at: number): void {
    this.acks.disturbed(at)
    this.#events.disturbed()
  }

  /** The state has changed. */
  stateChanged(at: number): void {
    const applied = this.#applied
    if (!applied) return
    this.acks.shown(applied.last, this.#seq, at)
    const twice = applied.count - applied.last
    if (twice <= this.#twice) return
    const text = `${this.#name}: ${applied.count} messages were applied up to number ${applied.last}`
    this.#log.add('twice', text, twice - this.#twice)
    this.#twice = twice
  }

  /** Whether everything sent is settled, and the state shows as much as was acked. */
  get settled(): boolean {
    return this.acked + this.refused === this.sent && this.#missing <= 0
  }

  /** Messages that have had no answer, lost acks aside: it is not known whether they were applied. */
  get unanswered(): number {
    return this.#open - this.#judged.lost
  }

  /** Reports what is wrong by now. `reachable`: the client is connected; one that is not cannot be told anything. */
  judge(now: number, reachable: boolean): void {
    this.acks.review(Number.POSITIVE_INFINITY)
    if (this.#counted && this.settled) this.#events.shown(this.#room.state.milestones)
    const missing = Math.max(0, this.#missing)
    const lost = reachable && this.acks.isSettled(now) ? this.#unacked : 0
    if (lost > this.#judged.lost) {
      const text = `${this.#name}: ${lost} of ${this.sent} messages were ${this.#counted ? 'applied, but ' : ''}never acked`
      this.#log.add('lostAck', text, lost - this.#judged.lost)
    }
    if (missing > this.#judged.missing) {
      const text = `${this.#name}: ${this.acked} messages were acked, the state shows ${this.acked - missing}`
      this.#log.add('unapplied', text, missing - this.#judged.missing)
    }
    this.#judged = { lost: Math.max(lost, this.#judged.lost), missing }
  }

  get #open(): number {
    return this.sent - this.acked - this.refused
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
