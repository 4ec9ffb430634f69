import type { RefusedRef } from '../traffic.ts'

/** How much of what a client may not know yet is kept for one seat. */
export interface OutcomeLimits {
  readonly messages: number
  readonly bytes: number
}

/** So many seats of a room may have all the bytes there are for a seat; where there are more, they share what these would have. */
const SEATS_IN_FULL = 32

/** How many seats share the bytes where a room has so many: the next power of two, so that what each may have changes seldom. */
const sharers = (seats: number): number => Math.max(SEATS_IN_FULL, 2 ** Math.ceil(Math.log2(seats)))

/** Whether each seat of a room may have less since it has so many, and not one seat less. */
export const sharesShrink = (seats: number): boolean => sharers(seats) > sharers(seats - 1)

/** What the record of a seat has of its outcomes. */
export interface OutcomesRecord {
  /** Messages that were refused, and whose client has not said that it knows; in the order of their refs. */
  readonly refused: readonly RefusedRef[]
  /** The highest ref of which it is not known any more whether it was refused; 0: all is known. */
  readonly forgotten: number
}

/**
 * How the reliable messages of one seat ended: a settled ref that is not here was applied. A refusal is kept until the client has said
 * that it knows of it, so that no ack ever passes for its answer. Those of a client that never says so are forgotten, the oldest first.
 */
export class Outcomes {
  readonly #limits: OutcomeLimits
  /** By ref, ascending. */
  readonly #refused: RefusedRef[] = []
  #bytes = 0
  #settled = 0
  #forgotten: number

  constructor(limits: OutcomeLimits, { refused, forgotten }: OutcomesRecord) {
    this.#limits = limits
    this.#forgotten = forgotten
    for (const refusal of refused) this.refuse(refusal)
  }

  /** The highest ref up to which the client knows every outcome, as far as it has said. */
  get settled(): number {
    return this.#settled
  }

  /** The highest ref of which it is not known any more whether it was refused. */
  get forgotten(): number {
    return this.#forgotten
  }

  /** A message was refused, with a higher ref than all before; `seats`: how many the room has. */
  refuse(refusal: RefusedRef, seats = 1): void {
    this.#refused.push(refusal)
    this.#bytes += size(refusal)
    this.share(seats)
  }

  /** The room has so many seats: forgets the oldest of what is too much for one of them. */
  share(seats: number): void {
    const { messages } = this.#limits
    const bytes = (SEATS_IN_FULL / sharers(seats)) * this.#limits.bytes
    while (this.#refused.length > messages || this.#bytes > bytes) this.forget(this.#drop())
  }

  /** Nothing is known of refs up to this one, but for the refusals that are kept. */
  forget(ref: number): void {
    this.#forgotten = Math.max(this.#forgotten, ref)
  }

  /** The client knows every outcome up to `ref`. */
  settle(ref: number): void {
    this.#settled = Math.max(this.#settled, ref)
    while (this.#refused.length > 0 && this.#refused[0]!.ref <= ref) this.#drop()
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
