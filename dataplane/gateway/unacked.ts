import type { RefusedRange, ReliableMessage } from '../traffic.ts'

/** A message whose ref the owner is to settle, or a range of refused ones. */
export type Reliable = ReliableMessage | RefusedRange

/** How much of one subscription may wait to be settled. */
export interface UnackedLimits {
  readonly messages: number
  /** Of the frames they came in; one message may always wait. */
  readonly bytes: number
}

interface Kept {
  message: Reliable
  readonly bytes: number
}

/**
 * The reliable messages of one subscription that its owner has not settled yet: their refs are contiguous. The way to an owner may lose some,
 * and an owner may die with them: the next owner is given them again.
 */
export class Unacked {
  readonly #limits: UnackedLimits
  #kept: Kept[] = []
  #bytes = 0
  #settled = 0
  #last = 0

  constructor(limits: UnackedLimits) {
    this.#limits = limits
  }

  /** The highest ref that is settled: what is kept begins behind it. */
  get settled(): number {
    return this.#settled
  }

  /** The highest ref that came. */
  get last(): number {
    return this.#last
  }

  /** Whether nothing waits. */
  get empty(): boolean {
    return this.#kept.length === 0
  }

  /** True: there is no room for one more message of so many bytes. The edge refuses it. */
  isFull(bytes: number): boolean {
    const { length } = this.#kept
    return length >= this.#limits.messages || (length > 0 && this.#bytes + bytes > this.#limits.bytes)
  }

  /** Keeps the message with the next ref, unless it is settled. Refusals with the same code and text in a row take one place. */
  add(message: Reliable, bytes: number): void {
    this.#last = throughOf(message)
    if (this.#last <= this.#settled) return
    const before = this.#kept.at(-1)
    const joined = before && join(before.message, message)
    if (joined) before.message = joined
    else {
      this.#kept.push({ message, bytes })
      this.#bytes += bytes
    }
  }

  /** The owner has settled everything up to `ref`. */
  settle(ref: number): void {
    if (ref <= this.#settled) return
    this.#settled = ref
    let settled = 0
    while (settled < this.#kept.length && throughOf(this.#kept[settled]!.message) <= ref) settled++
    for (const { bytes } of this.#kept.splice(0, settled)) this.#bytes -= bytes
  }

  /** What an owner is to be given again. A copy: an owner in this process answers while the list is being sent. */
  get messages(): readonly Reliable[] {
    return this.#kept.map(({ message }) => message)
  }

  /** The client comes back, and sends everything above `settled` again. */
  restart(settled: number): void {
    this.#kept = []
    this.#bytes = 0
    this.#settled = settled
    this.#last = settled
  }
}

const throughOf = (message: Reliable): number => (message.kind === 'message' ? message.ref : message.through)

/** One refusal for two in a row; undefined: they differ. */
function join(before: Reliable, next: Reliable): RefusedRange | undefined {
  const same =
    before.kind === 'refuse' &&
    next.kind === 'refuse' &&
    before.code === next.code &&
    before.message === next.message
  return same ? { ...before, through: next.through } : undefined
}
