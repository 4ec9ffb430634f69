import { MAX } from '../../shared/protocol/messages.ts'
import type { Acknowledgement, Outcome } from '../traffic.ts'
import { MAX_REPLY_BYTES } from './failures.ts'
import type { OutcomeLimits } from './limits.ts'
import type { OutcomesRecord } from './member.ts'

/** Up to this many members each have all bytes of the limit. In a larger room, the members share the bytes that this many would have. */
const MEMBERS_IN_FULL = 32

/** Number of members that the bytes are divided among: the next power of two, so that the share changes rarely. */
const sharers = (members: number): number => Math.max(MEMBERS_IN_FULL, 2 ** Math.ceil(Math.log2(members)))

/** True if the share of each member gets smaller with the last of `members`. */
export const sharesShrink = (members: number): boolean => sharers(members) > sharers(members - 1)

/**
 * Accepts each reliable message of one member once and in order. The refs are 1, 2, 3 …. Refusals and replies are kept until the client
 * confirms them, so that an ack never hides a refusal, and no message is answered in two ways. If a client never confirms, the oldest are
 * forgotten.
 */
export class Deduplicator {
  readonly #limits: OutcomeLimits
  /** By ref, ascending. */
  readonly #outcomes: Outcome[] = []
  #bytes = 0
  /** Number of replies among them. */
  #replies = 0
  /** Highest ref up to which the client knows all outcomes. */
  #known = 0
  /** Highest ref that was applied or refused. */
  #last: number
  /** Highest ref whose outcome was forgotten, and which the client may not know. 0: none. */
  #forgotten: number
  /** `#last` as of the last flush that acks it. */
  #flushed: number
  /** Highest ref whose update is delivered, and committed if the room type is durable. */
  #committed: number
  /** `#last` when the edge was asked to send the messages after it again. */
  #missedAfter: number | undefined

  constructor(limits: OutcomeLimits, last: number, { outcomes, forgotten }: OutcomesRecord) {
    this.#limits = limits
    this.#last = last
    this.#flushed = last
    this.#committed = last
    this.#forgotten = forgotten
    for (const outcome of outcomes) this.keep(outcome)
  }

  /**
   * Messages with the refs from `from` through `through` arrive. `new`: at least the last was not accepted before; all of them are now.
   * `duplicate`: all were accepted before. `gap`: an earlier message was lost, and the edge has to send it again first.
   */
  accept(from: number, through = from): 'new' | 'duplicate' | 'gap' {
    if (through <= this.#last) return 'duplicate'
    if (from > this.#last + 1) return 'gap'
    this.#last = through
    return 'new'
  }

  /** An earlier message was lost. Returns true if its edge should send it again: once for each gap of a socket. */
  misses(): boolean {
    if (this.#missedAfter === this.#last) return false
    this.#missedAfter = this.#last
    return true
  }

  /** The lowest ref that was neither applied nor refused. */
  get next(): number {
    return this.#last + 1
  }

  /** The member has another socket, whose edge is asked again. */
  reattached(): void {
    this.#missedAfter = undefined
  }

  /** A flush acks all messages so far. Returns the ack, and the outcomes since the flush before. */
  flush(): { readonly ref: number; readonly forgotten: number; readonly outcomes: readonly Outcome[] } {
    const outcomes = this.#between(this.#flushed, this.#last)
    this.#flushed = this.#last
    return { ref: this.#last, forgotten: this.#forgotten, outcomes }
  }

  /** The update that acks `ref` is delivered, and committed if the room type is durable. */
  commit(ref: number): void {
    this.#committed = ref
  }

  /**
   * The edge cannot send messages up to `through` again: an earlier owner has handled them, and their effects were lost with it. Returns
   * true if this owner had not handled some of them.
   */
  skip(through: number): boolean {
    if (through <= this.#last) return false
    this.#last = through
    this.#forget(through)
    return true
  }

  /** Keeps the outcome of a message, whose ref is higher than all before. `members`: number of members of the room. */
  keep(outcome: Outcome, members = 1): void {
    this.#outcomes.push(outcome)
    this.#bytes += size(outcome)
    if ('reply' in outcome) this.#replies++
    this.share(members)
  }

  /**
   * Number of replies, with one more, that are not committed, or that a confirming client may not know. Their bytes and those of refusals
   * count too: as `MAX.requests` replies if they fill the share of one of `members`.
   */
  repliesWithNext(members: number): number {
    const known = this.#known === 0 ? this.#committed : this.#known
    const limit = this.#share(members)
    let bytes = this.#bytes + MAX_REPLY_BYTES
    let replies = this.#replies + 1
    for (const outcome of this.#outcomes) {
      const fits = replies <= MAX.requests && bytes <= limit
      if (fits || outcome.ref > known) return Math.max(replies, Math.ceil((bytes / limit) * MAX.requests))
      bytes -= size(outcome)
      if ('reply' in outcome) replies--
    }
    return replies
  }

  /** The room has `members` members: forgets the oldest outcomes beyond the share of one of them. */
  share(members: number): void {
    const { messages } = this.#limits
    const bytes = this.#share(members)
    while (this.#outcomes.length > messages || this.#bytes > bytes || this.#replies > MAX.requests)
      this.#forget(this.#drop())
  }

  #share(members: number): number {
    return (MEMBERS_IN_FULL / sharers(members)) * this.#limits.bytes
  }

  /** The outcomes of refs up to this one are no longer known. */
  #forget(ref: number): void {
    if (ref > this.#known) this.#forgotten = Math.max(this.#forgotten, ref)
  }

  /** The client knows all outcomes up to `ref`. A higher ref than the last one does not count. */
  known(ref: number): void {
    this.#known = Math.max(this.#known, Math.min(ref, this.#last))
    if (this.#forgotten <= this.#known) this.#forgotten = 0
    while (this.#outcomes.length > 0 && this.#outcomes[0]!.ref <= this.#known) this.#drop()
  }

  /** The acknowledgement of all committed refs, with their outcomes. */
  get committed(): Acknowledgement {
    return this.#acknowledgement(0, this.#committed)
  }

  /** The acknowledgement of refs that no flush has acked, with their outcomes. */
  get unflushed(): Acknowledgement {
    return this.#acknowledgement(this.#flushed, this.#last)
  }

  /** Returns the acknowledgement of refs above `after` up to `ack`. */
  #acknowledgement(after: number, ack: number): Acknowledgement {
    const outcomes = this.#between(after, ack)
    const forgotten = Math.min(this.#forgotten, ack)
    return { ack, ...(outcomes.length > 0 && { outcomes }), ...(forgotten > after && { forgotten }) }
  }

  /** Returns the outcomes of refs above `after` up to `last`. */
  #between(after: number, last: number): readonly Outcome[] {
    return this.#outcomes.length === 0 ? NONE : this.#outcomes.slice(this.#above(after), this.#above(last))
  }

  /** Returns what a record contains as of the last flush. */
  record(): OutcomesRecord & { readonly lastRef: number } {
    return {
      lastRef: this.#flushed,
      outcomes: this.#between(0, this.#flushed),
      forgotten: Math.min(this.#forgotten, this.#flushed),
    }
  }

  /** Drops the oldest outcome, and returns its ref. */
  #drop(): number {
    const oldest = this.#outcomes.shift()!
    this.#bytes -= size(oldest)
    if ('reply' in oldest) this.#replies--
    return oldest.ref
  }

  /** Returns the index of the first outcome with a higher ref. */
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

/** Approximate bytes of an outcome in a record. */
const size = (outcome: Outcome): number =>
  16 +
  ('code' in outcome
    ? outcome.code.length + Buffer.byteLength(outcome.message)
    : Buffer.byteLength(JSON.stringify(outcome.reply)))
