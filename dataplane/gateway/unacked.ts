import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ToOwner } from '../traffic.ts'

/** A message whose ref the owner is to settle. */
export type Reliable = Extract<ToOwner, { kind: 'message' | 'refuse' }> & { readonly ref: number }

/** How much of one subscription may wait to be settled. */
export interface UnackedLimits {
  readonly messages: number
  /** Of the frames they came in; one message may always wait. */
  readonly bytes: number
}

interface Kept {
  readonly message: Reliable
  readonly bytes: number
}

/**
 * The reliable messages of one subscription that its owner has not settled yet, in the order of their refs. The way to an owner may lose some,
 * and an owner may die with them: the next owner is given them again. Each names the one before it, so that none is ever
 * skipped; and those that there was no room for, so that no ack ever stands for one of them.
 */
export class Unacked {
  readonly #limits: UnackedLimits
  #kept: Kept[] = []
  #bytes = 0
  /** The highest ref that the owner said is settled. */
  #settled = 0
  /** The highest ref that there was no room for. */
  #turnedAway = 0

  constructor(limits: UnackedLimits) {
    this.#limits = limits
  }

  /**
   * Keeps a message that came in a frame of so many bytes, and returns it with what its owner is to know of those before it. One that
   * was sent before is not kept again. Undefined: there is no room for it, or there was none when it came first.
   */
  add(message: Reliable, bytes: number): Reliable | undefined {
    const { ref } = message
    const last = this.#kept.at(-1)?.message.ref ?? this.#settled
    if (ref > last) {
      const full = this.#kept.length >= this.#limits.messages
      const large = this.#kept.length > 0 && this.#bytes + bytes > this.#limits.bytes
      if (full || large || ref <= this.#turnedAway) {
        this.#turnedAway = Math.max(ref, this.#turnedAway)
        return undefined
      }
    }
    const before = this.#kept.findLast((kept) => kept.message.ref < ref)
    const ready = this.#behind(message, before?.message.ref ?? this.#settled)
    if (ref > last) {
      this.#kept.push({ message: ready, bytes })
      this.#bytes += bytes
    }
    return ready
  }

  /** Whether nothing waits. */
  get empty(): boolean {
    return this.#kept.length === 0
  }

  /** Everything up to `ref` is settled. */
  settle(ref: number): void {
    this.#settled = Math.max(this.#settled, ref)
    let settled = 0
    while (settled < this.#kept.length && this.#kept[settled]!.message.ref <= ref) settled++
    this.#drop(0, settled)
  }

  /**
   * The owner has refused this one, which is not settled before an ack covers it: an owner may end before it has written its refusal down. So
   * the next owner is told of the refusal in the message's place, since the client may not know of it either.
   */
  refused(ref: number, code: ErrorCode, text: string): void {
    const index = this.#kept.findIndex(({ message }) => message.ref === ref)
    const kept = this.#kept[index]
    if (!kept) return
    if (code === 'outcome_unknown') this.#drop(index, 1)
    if (code === 'outcome_unknown' || kept.message.kind === 'refuse') return
    const { room, member_id: memberId, after, skipped, settled } = kept.message
    const message: Reliable = {
      kind: 'refuse',
      room,
      member_id: memberId,
      ref,
      code,
      message: text,
      after,
      skipped,
      settled,
    }
    this.#kept[index] = { message, bytes: text.length }
    this.#bytes += text.length - kept.bytes
  }

  /** An owner has settled everything up to `settled`: returns what it is to be given again. */
  again(settled: number): readonly Reliable[] {
    this.settle(settled)
    // A room that lost its last second may have settled less than its earlier owner had.
    this.#settled = settled
    let before = settled
    this.#kept = this.#kept.map(({ message, bytes }) => {
      const ready = this.#behind(message, before)
      before = message.ref
      return { message: ready, bytes }
    })
    // A copy: an owner in this process answers while the list is being sent.
    return this.#kept.map(({ message }) => message)
  }

  /** Forgets everything: the client sends again what it needs. */
  clear(): void {
    this.#drop(0, this.#kept.length)
    this.#turnedAway = 0
  }

  #drop(from: number, count: number): void {
    for (const { bytes } of this.#kept.splice(from, count)) this.#bytes -= bytes
  }

  #behind(message: Reliable, after: number): Reliable {
    const { room, member_id: memberId, ref, settled } = message
    const turnedAway = this.#turnedAway < ref && this.#turnedAway > this.#settled
    const before = after > 0 ? after : undefined
    const skipped = turnedAway ? this.#turnedAway : undefined
    // Written out, as there is one for every reliable message: spreads take more time than all else here.
    if (message.kind === 'message') {
      const { kind, type, data } = message
      return { kind, room, member_id: memberId, type, data, ref, after: before, skipped, settled }
    }
    const { kind, code, message: text } = message
    return { kind, room, member_id: memberId, code, message: text, ref, after: before, skipped, settled }
  }
}
