import { MAX } from '../../shared/protocol/messages.ts'
import type { Outcome, Settled } from '../traffic.ts'
import { MAX_REPLY_BYTES } from './failures.ts'

/** How much of what a client may not know yet is kept for one member. */
export interface OutcomeLimits {
  readonly messages: number
  readonly bytes: number
}

/** So many members of a room may have all the bytes there are for a member; where there are more, they share what these would have. */
const MEMBERS_IN_FULL = 32

/** How many members share the bytes where a room has so many: the next power of two, so that what each may have changes seldom. */
const sharers = (members: number): number => Math.max(MEMBERS_IN_FULL, 2 ** Math.ceil(Math.log2(members)))

/** Whether each member of a room may have less since it has so many, and not one member less. */
export const sharesShrink = (members: number): boolean => sharers(members) > sharers(members - 1)

/** What the record of a membership has of its outcomes. */
export interface OutcomesRecord {
  /** Of messages that were refused or answered, and whose client has not said that it knows; in the order of their refs. */
  readonly outcomes: readonly Outcome[]
  /** The highest ref of which it is not known any more how it ended; 0: all is known. */
  readonly forgotten: number
}

/**
 * Lets each reliable message of one member be handled once and in order: their refs are 1, 2, 3 …. A ref is settled once its message is
 * applied or refused. Refusals and replies are kept until the client has said that it knows of them, so that no ack ever passes for a refusal,
 * and no message is answered in two ways. Those of a client that never says so are forgotten, the oldest first.
 */
export class Deduplicator {
  readonly #limits: OutcomeLimits
  /** By ref, ascending. */
  readonly #outcomes: Outcome[] = []
  #bytes = 0
  /** How many of them are replies. */
  #replies = 0
  #last: number
  /** The highest ref up to which the client knows every outcome. */
  #known = 0
  #forgotten: number

  /** `last`: the highest ref that is settled. */
  constructor(limits: OutcomeLimits, last: number, { outcomes, forgotten }: OutcomesRecord) {
    this.#limits = limits
    this.#last = last
    this.#forgotten = forgotten
    for (const outcome of outcomes) this.keep(outcome)
  }

  /** The highest ref settled: applied, or answered with an error that will not change. */
  get last(): number {
    return this.#last
  }

  /** The highest ref of which it is not known any more how it ended, and whose client may not know it; 0: there is none. */
  get forgotten(): number {
    return this.#forgotten
  }

  /**
   * Messages with the refs from `from` through `through` arrive. `new`: those that were not settled before are from here on. `duplicate`: all
   * were. `gap`: one before them was lost on the way, which the edge has to send again first.
   */
  accept(from: number, through = from): 'new' | 'duplicate' | 'gap' {
    if (through <= this.#last) return 'duplicate'
    if (from > this.#last + 1) return 'gap'
    this.#last = through
    return 'new'
  }

  /**
   * The edge cannot send messages up to `through` again: an earlier owner has settled them, and what it had not written is lost with it. True:
   * some were not settled here.
   */
  skip(through: number): boolean {
    if (through <= this.#last) return false
    this.#last = through
    this.#forget(through)
    return true
  }

  /** A message was refused or answered, with a higher ref than all before; `members`: how many the room has. */
  keep(outcome: Outcome, members = 1): void {
    this.#outcomes.push(outcome)
    this.#bytes += size(outcome)
    if ('reply' in outcome) this.#replies++
    this.share(members)
  }

  /**
   * Whether one more message may be answered: without forgetting a reply that is not committed yet, or that a client which says what it knows
   * may not know. `members`: how many the room has.
   */
  mayReply(committed: number, members: number): boolean {
    const known = this.#known === 0 ? committed : this.#known
    const limit = this.#share(members)
    let bytes = this.#bytes + MAX_REPLY_BYTES
    let replies = this.#replies
    for (const outcome of this.#outcomes) {
      if (replies < MAX.requests && bytes <= limit) break
      if (outcome.ref > known) return false
      bytes -= size(outcome)
      if ('reply' in outcome) replies--
    }
    return true
  }

  /** The room has so many members: forgets the oldest of what is too much for one of them. */
  share(members: number): void {
    const { messages } = this.#limits
    const bytes = this.#share(members)
    while (this.#outcomes.length > messages || this.#bytes > bytes || this.#replies > MAX.requests)
      this.#forget(this.#drop())
  }

  #share(members: number): number {
    return (MEMBERS_IN_FULL / sharers(members)) * this.#limits.bytes
  }

  /** Nothing is known of refs up to this one. */
  #forget(ref: number): void {
    if (ref > this.#known) this.#forgotten = Math.max(this.#forgotten, ref)
  }

  /** The client knows every outcome up to `ref`; it cannot know what has not come. */
  known(ref: number): void {
    this.#known = Math.max(this.#known, Math.min(ref, this.#last))
    if (this.#forgotten <= this.#known) this.#forgotten = 0
    while (this.#outcomes.length > 0 && this.#outcomes[0]!.ref <= this.#known) this.#drop()
  }

  /** What became of refs above `after` and up to `ack`. */
  settled(after: number, ack: number): Settled {
    const outcomes = this.between(after, ack)
    const forgotten = Math.min(this.#forgotten, ack)
    return { ack, ...(outcomes.length > 0 && { outcomes }), ...(forgotten > after && { forgotten }) }
  }

  /** Outcomes of refs above `after` and up to `last`. */
  between(after: number, last: number): readonly Outcome[] {
    return this.#outcomes.length === 0 ? NONE : this.#outcomes.slice(this.#above(after), this.#above(last))
  }

  /** What a record says as of the ref `last`. */
  record(last: number): OutcomesRecord {
    return { outcomes: this.between(0, last), forgotten: Math.min(this.#forgotten, last) }
  }

  /** Drops the oldest, and returns its ref. */
  #drop(): number {
    const oldest = this.#outcomes.shift()!
    this.#bytes -= size(oldest)
    if ('reply' in oldest) this.#replies--
    return oldest.ref
  }

  /** The index of the first outcome with a higher ref. */
  #above(ref: number): number {
    let low = 0
    for (let high = this.#outcomes.length; low < high; ) {
      const middle = (low + high) >>> 1
      if (this.#outcomes[middle]!.ref <= ref) low = middle + 1
      else high = middle
    }
    return low
  }
}

const NONE: readonly never[] = []

/** About what an outcome takes in a record, in bytes. */
const size = (outcome: Outcome): number =>
  16 +
  ('code' in outcome
    ? outcome.code.length + Buffer.byteLength(outcome.message)
    : Buffer.byteLength(JSON.stringify(outcome.reply)))
