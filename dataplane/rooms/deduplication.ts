import type { RefusedRef, Reliability } from '../traffic.ts'

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
  /** Messages that were refused, and whose client has not said that it knows; in the order of their refs. */
  readonly refused: readonly RefusedRef[]
  /** The highest ref of which it is not known any more whether it was refused; 0: all is known. */
  readonly forgotten: number
}

/** What a reliable message says of itself and of those before it; one that is not reliable has no ref. */
type Sent = Omit<Reliability, 'ref'> & { readonly ref?: number }

/**
 * Lets each reliable message of one member be handled at most once and in order. A ref is settled once it is applied or refused; what
 * arrives with a settled ref is a duplicate, and is answered by how the first one ended: a refusal that is kept here, otherwise it was
 * applied. A refusal is kept until the client has said that it knows of it, so that no ack ever passes for its answer. Those of a client
 * that never says so are forgotten, the oldest first.
 */
export class Deduplicator {
  readonly #limits: OutcomeLimits
  /** By ref, ascending. */
  readonly #refused: RefusedRef[] = []
  #bytes = 0
  #last: number
  #settled = 0
  #forgotten: number
  /** Since the last attach: up to which ref outcomes were forgotten that its client may not know, and the last ref that came. */
  #unanswered = 0
  #answered = 0

  /** `last`: the highest ref that is settled. */
  constructor(limits: OutcomeLimits, last: number, { refused, forgotten }: OutcomesRecord) {
    this.#limits = limits
    this.#last = last
    this.#forgotten = forgotten
    for (const refusal of refused) this.refuse(refusal)
  }

  /** The highest ref settled: applied, or answered with an error that will not change. */
  get last(): number {
    return this.#last
  }

  /** The highest ref of which it is not known any more whether it was refused. */
  get forgotten(): number {
    return this.#forgotten
  }

  /**
   * Whether an ack may go out. It would stand for every ref before it, so refs of which it is forgotten whether they were refused are
   * to be answered by themselves before: they come again in their order, if their client still asks.
   */
  get ackable(): boolean {
    return this.#unanswered <= this.#settled
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
    this.settle(settled)
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

  /** A message was refused, with a higher ref than all before; `members`: how many the room has. */
  refuse(refusal: RefusedRef, members = 1): void {
    this.#refused.push(refusal)
    this.#bytes += size(refusal)
    this.share(members)
  }

  /** The room has so many members: forgets the oldest of what is too much for one of them. */
  share(members: number): void {
    const { messages } = this.#limits
    const bytes = (MEMBERS_IN_FULL / sharers(members)) * this.#limits.bytes
    while (this.#refused.length > messages || this.#bytes > bytes) this.#forget(this.#drop())
  }

  /** Nothing is known of refs up to this one, but for the refusals that are kept. */
  #forget(ref: number): void {
    this.#forgotten = Math.max(this.#forgotten, ref)
  }

  /** The client knows every outcome up to `ref`; it cannot know what has not come. */
  settle(ref: number): void {
    const known = Math.min(ref, this.#last)
    this.#settled = Math.max(this.#settled, known)
    while (this.#refused.length > 0 && this.#refused[0]!.ref <= known) this.#drop()
  }

  /** How a settled message ended; `unknown`: it may have been refused. */
  of(ref: number): RefusedRef | 'applied' | 'unknown' {
    const found = this.#refused[this.#above(ref - 1)]
    if (found?.ref === ref) return found
    return ref > this.#settled && ref <= this.#forgotten ? 'unknown' : 'applied'
  }

  /** Refusals with a ref above `after` and up to `last`. */
  refusedBetween(after: number, last: number): readonly RefusedRef[] {
    return this.#refused.slice(this.#above(after), this.#above(last))
  }

  /** What a record says as of the ref `last`. */
  record(last: number): OutcomesRecord {
    return { refused: this.refusedBetween(0, last), forgotten: Math.min(this.#forgotten, last) }
  }

  /** Drops the oldest, and returns its ref. */
  #drop(): number {
    const oldest = this.#refused.shift()!
    this.#bytes -= size(oldest)
    return oldest.ref
  }

  /** The index of the first refusal with a higher ref. */
  #above(ref: number): number {
    let low = 0
    for (let high = this.#refused.length; low < high; ) {
      const middle = (low + high) >>> 1
      if (this.#refused[middle]!.ref <= ref) low = middle + 1
      else high = middle
    }
    return low
  }
}

/** About what a refusal takes in a record, in bytes. */
const size = ({ code, message }: RefusedRef): number => 16 + code.length + Buffer.byteLength(message)
