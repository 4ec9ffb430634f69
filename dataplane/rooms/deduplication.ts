import { MAX } from '../../shared/protocol/messages.ts'
import type { Outcome, Reliability } from '../traffic.ts'
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

/** What a reliable message says of itself and of those before it; one that is not reliable has no ref. */
type Sent = Omit<Reliability, 'ref'> & { readonly ref?: number }

/**
 * Lets each reliable message of one member be handled at most once and in order. A ref is settled once it is applied or refused; what
 * arrives with a settled ref is a duplicate, and is answered by how the first one ended: a refusal or a reply that is kept here, otherwise
 * it was applied. Both are kept until the client has said that it knows of them, so that no ack ever passes for a refusal, and no message
 * is answered in two ways. Those of a client that never says so are forgotten, the oldest first.
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
  /** Since the last attach: up to which ref outcomes were forgotten that its client may not know, and the last ref that came. */
  #unanswered = 0
  #answered = 0

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

  /** The highest ref of which it is not known any more how it ended. */
  get forgotten(): number {
    return this.#forgotten
  }

  /**
   * Whether an ack may go out. It would stand for every ref before it, so refs of which it is forgotten whether they were refused are
   * to be answered by themselves before: they come again in their order, if their client still asks.
   */
  get ackable(): boolean {
    return this.#unanswered <= this.#known
  }

  /** The edge may have missed answers: what is open comes again. */
  expectRepeats(): void {
    this.#unanswered = this.#forgotten
    this.#answered = 0
  }

  /**
   * A message arrives. `new`: it is to be handled, and its ref is settled from here on; so is whatever has no ref. `duplicate`: its ref
   * was settled before. `gap`: one before it was lost on the way, which the edge has to send again first.
   */
  accept({ ref, after = 0, skipped = 0, settled = 0 }: Sent): 'new' | 'duplicate' | 'gap' {
    const fresh = ref !== undefined && ref > this.#last
    const gap = ref !== undefined && (!this.#comes(ref, after) || (fresh && after > this.#last))
    if (fresh && !gap) {
      this.#last = ref
      this.#forget(skipped)
    }
    this.known(settled)
    if (gap) return 'gap'
    return ref === undefined || fresh ? 'new' : 'duplicate'
  }

  /** False: while `after`, the one behind which `ref` comes, is to be answered by itself, it was lost on the way. */
  #comes(ref: number, after: number): boolean {
    if (this.ackable) return true
    if (after > this.#answered) return false
    this.#answered = Math.max(ref, this.#answered)
    if (ref > this.#unanswered) this.#unanswered = 0
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

  /** Nothing is known of refs up to this one, but for the outcomes that are kept. */
  #forget(ref: number): void {
    this.#forgotten = Math.max(this.#forgotten, ref)
  }

  /** The client knows every outcome up to `ref`; it cannot know what has not come. */
  known(ref: number): void {
    const known = Math.min(ref, this.#last)
    this.#known = Math.max(this.#known, known)
    while (this.#outcomes.length > 0 && this.#outcomes[0]!.ref <= known) this.#drop()
  }

  /** How a settled message ended; `unknown`: it may have been refused, or answered. */
  of(ref: number): Outcome | 'applied' | 'unknown' {
    const found = this.#outcomes[this.#above(ref - 1)]
    if (found?.ref === ref) return found
    return ref > this.#known && ref <= this.#forgotten ? 'unknown' : 'applied'
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
