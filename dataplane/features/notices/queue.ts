import type { Fence, Notices } from '../../../shared/store/port.ts'

/** Maximum number of notices of a room that a node keeps in memory. It reads further ones from the store. */
const MAX_KEPT = 32

/** The part of `NoticeDelivery` that a queue calls. */
interface Delivery {
  recover(queue: NoticeQueue): Promise<void>
  list(queue: NoticeQueue): Promise<void>
  ready(queue: NoticeQueue): void
  leave(queue: NoticeQueue): Promise<void>
}

/** Stored notices of a room of this node that the backend has not accepted, oldest first. */
export class NoticeQueue {
  /** `project/type:key`. */
  readonly room: string
  /** Whether this node is certainly the owner of the room now. */
  readonly mayAct: () => boolean
  readonly #delivery: Delivery
  /** The oldest notices, if all earlier ones are delivered. */
  #kept: Uint8Array[] = []
  /** Number of notices in the store that follow those. It can be too large. */
  #behind = 0
  /** The notices of earlier owners are not counted yet. */
  #uncounted = false
  /** Notices are announced, and may be written at any moment. */
  #announced = false
  #fence: Fence
  #indexed = false
  #ended = false
  #cancel: (() => void) | undefined
  /** The queue waits for a place, or one of its notices is being delivered. */
  busy = false
  /** A notice that the backend has accepted, and which is still in the store. */
  accepted: Uint8Array | undefined
  /** Number of failed attempts to deliver the oldest notice. */
  failures = 0

  constructor(room: string, fence: Fence, mayAct: () => boolean, delivery: Delivery) {
    this.room = room
    this.#fence = fence
    this.mayAct = mayAct
    this.#delivery = delivery
  }

  /** Number of notices. It can be too large, by those that were written while the store counted them. */
  get size(): number {
    return this.#kept.length + this.#behind
  }

  /** True if the store certainly has no notice of the room. */
  get isEmpty(): boolean {
    return this.size === 0 && !this.#uncounted && !this.#announced
  }

  /** Fence under which this node sets the room's time in the index. */
  get fence(): Fence {
    return this.#fence
  }

  /** The index has the room. */
  get indexed(): boolean {
    return this.#indexed
  }

  /** This node no longer owns the room. */
  get ended(): boolean {
    return this.#ended
  }

  /** The store may have other notices than this queue: those of an earlier owner, or notices that were written again. Reads them. */
  recover(): void {
    this.#kept = []
    this.#behind = 0
    this.#uncounted = true
    this.#announced = false
    void this.#delivery.recover(this)
  }

  /** True until `counted` is called. */
  get uncounted(): boolean {
    return this.#uncounted
  }

  counted(number: number): void {
    this.#uncounted = false
    this.#behind += number
    this.#indexed ||= number > 0
  }

  /** Notices are about to be written under `fence`. Rejects with `StoreUnavailable`. */
  announce(fence: Fence): Promise<void> {
    this.#fence = fence
    this.#indexed = true
    this.#announced = true
    return this.#delivery.list(this)
  }

  unlisted(): void {
    this.#indexed = false
  }

  /** Notices are stored. */
  push(notices: readonly Uint8Array[]): void {
    this.#announced = false
    for (const notice of notices)
      if (this.#behind === 0 && !this.#uncounted && this.#kept.length < MAX_KEPT) this.#kept.push(notice)
      else this.#behind++
    if (this.#ended) void this.#delivery.leave(this)
    // A failed attempt has its time.
    else if (this.failures === 0 && !this.#uncounted) this.#delivery.ready(this)
  }

  /** A fail-over of the store may have lost the room in the index. */
  repair(): void {
    if (this.size > 0) this.#delivery.list(this).catch(() => undefined)
  }

  /** The room is no longer here. */
  end(): void {
    if (this.#ended) return
    this.#ended = true
    this.#cancel?.()
    void this.#delivery.leave(this)
  }

  /** Something happens later, in place of what was to happen later. `cancel`: prevents it. */
  later(cancel: () => void): void {
    this.#cancel?.()
    this.#cancel = cancel
  }

  /** Returns the oldest notice. Undefined: there is none. Rejects with `StoreUnavailable`. */
  async next(notices: Pick<Notices, 'oldest'>): Promise<Uint8Array | undefined> {
    if (this.#kept.length === 0 && this.#behind > 0) {
      const before = this.#behind
      this.#kept = await notices.oldest(this.room, MAX_KEPT)
      // Notices that are pushed meanwhile may be among those that were read.
      const known = this.#kept.length < MAX_KEPT ? before : Math.min(this.#kept.length, before - 1)
      this.#behind = Math.max(0, this.#behind - known)
    }
    return this.#kept[0]
  }

  /** A notice is no longer in the store. `recover` may have dropped it from this queue. */
  removed(notice: Uint8Array): void {
    if (this.#kept[0] === notice) this.#kept.shift()
    this.accepted = undefined
    this.failures = 0
  }
}
