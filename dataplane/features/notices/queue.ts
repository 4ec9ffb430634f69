import type { Fence, Notices } from '../../../shared/store/port.ts'

/** Maximum number of notices of a room that a node keeps in memory. It reads further ones from the store. */
const MAX_KEPT = 32

/** What a queue asks for: `NoticeDelivery`. */
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
  readonly #delivery: Delivery
  /** The oldest notices, if all earlier ones are delivered. */
  #kept: Uint8Array[] = []
  /** Number of notices in the store that follow those. It can be too large. */
  #behind = 0
  /** The notices of earlier owners are not counted yet. */
  #uncounted = false
  #fence: Fence
  #indexed = false
  #ended = false
  #cancel: (() => void) | undefined
  /** The queue waits for a place, or one of its notices is being delivered. */
  busy = false
  /** The backend has accepted the oldest notice, which is still in the store. */
  accepted = false
  /** Number of failed attempts to deliver the oldest notice. */
  failures = 0

  constructor(room: string, fence: Fence, delivery: Delivery) {
    this.room = room
    this.#fence = fence
    this.#delivery = delivery
  }

  /** Number of notices. It can be too large, by those that were written while the store counted them. */
  get size(): number {
    return this.#kept.length + this.#behind
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
    void this.#delivery.recover(this)
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
    return this.#delivery.list(this)
  }

  unlisted(): void {
    this.#indexed = false
  }

  /** Notices are stored. */
  push(notices: readonly Uint8Array[]): void {
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

  /** The oldest notice is no longer in the store. */
  removed(): void {
    this.#kept.shift()
    this.accepted = false
    this.failures = 0
  }
}
