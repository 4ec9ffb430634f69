import type { ToOwner } from '../traffic.ts'

/** A message whose ref the owner is to settle. */
export type Reliable = Extract<ToOwner, { kind: 'message' | 'refuse' }> & { readonly ref: number }

/** As many as the SDK lets wait: more than a client that stays within its rate says until the lease of a hanging owner has run out. */
const MOST = 1024

/**
 * The reliable messages of one seat that its owner has not settled yet, in the order of their refs. The way to an owner may lose some,
 * and an owner may die with them: whoever is owner then is given them again. Each names the one before it, so that none is ever
 * skipped.
 */
export class Unacked {
  #messages: Reliable[] = []
  /** The highest ref that the owner said is settled. */
  #settled = 0

  /** Whether no more can be kept. */
  get full(): boolean {
    return this.#messages.length >= MOST
  }

  /** Keeps a message, and returns it with the ref of the one before it. One that was sent before is not kept again. */
  add(message: Reliable): Reliable {
    const before = this.#messages.findLast(({ ref }) => ref < message.ref)
    const ready = behind(message, before?.ref ?? this.#settled)
    const last = this.#messages.at(-1)?.ref ?? this.#settled
    if (message.ref > last) this.#messages.push(ready)
    return ready
  }

  /** Everything up to `ref` is settled. */
  settle(ref: number): void {
    this.#settled = Math.max(this.#settled, ref)
    let settled = 0
    while (settled < this.#messages.length && this.#messages[settled]!.ref <= ref) settled++
    if (settled > 0) this.#messages.splice(0, settled)
  }

  /** This one was refused. */
  refused(ref: number): void {
    const index = this.#messages.findIndex((message) => message.ref === ref)
    if (index >= 0) this.#messages.splice(index, 1)
  }

  /** An owner has settled everything up to `settled`: returns what it is to be given again. */
  again(settled: number): readonly Reliable[] {
    this.settle(settled)
    // A room that lost its last second may have settled less than its earlier owner had.
    this.#settled = settled
    let before = settled
    this.#messages = this.#messages.map((message) => {
      const ready = behind(message, before)
      before = message.ref
      return ready
    })
    // A copy: an owner in this process answers while the list is being sent.
    return [...this.#messages]
  }

  /** Forgets everything: the client sends again what it needs. */
  clear(): void {
    this.#messages = []
  }
}

function behind(message: Reliable, after: number): Reliable {
  const { after: _, ...rest } = message
  return after > 0 ? { ...rest, after } : rest
}
