import { type Clock, timestamp } from '../../../shared/clock.ts'
import { newId } from '../../../shared/ids.ts'
import type { Json } from '../../../shared/json.ts'
import type { Random } from '../../../shared/random.ts'
import type { Fence } from '../../../shared/store/port.ts'
import type { Additions } from '../../room/additions.ts'
import type { ClaimedRoom } from '../../room/core.ts'
import type { RoomDefinition } from '../../room/definition.ts'
import { jsonCopy, RoomLogicError, validate } from '../../room/failures.ts'
import type { Position } from '../../room/journal.ts'
import type { RoomMetrics } from '../../room/metrics.ts'
import type { RoomAddress } from '../../traffic.ts'
import { roomIdOf } from '../../traffic.ts'
import { encodeNotice } from './notice.ts'
import type { NoticeQueue } from './queue.ts'

/** Maximum bytes of the JSON text of a notice's data, in UTF-8. */
const MAX_DATA_BYTES = 16 * 1024
/** Maximum number of notices of a room that wait for delivery. */
const MAX_WAITING = 1000
/** Stored notices are kept for this long, and at most this many, because the store may lose them. */
const KEPT_MS = 30_000
const MAX_KEPT = 1000

/** A notice that a turn has requested. */
interface Notice {
  readonly type: string
  readonly data: Json
}

function noticeOf({ notices }: RoomDefinition, type: string, data: unknown): Notice {
  if (!Object.hasOwn(notices, type)) {
    const names = Object.keys(notices).join(', ') || 'none'
    throw new RoomLogicError(
      `ctx.notify names the notice ${JSON.stringify(type)}, which is not among the room's notices: there are ${names}`,
    )
  }
  const what = `the data of the notice ${JSON.stringify(type)}`
  const valid = validate(notices[type]!, data)
  if (!valid.ok) throw new RoomLogicError(`${what}: ${valid.message}`)
  const copy = jsonCopy(valid.value, what)
  const bytes = Buffer.byteLength(JSON.stringify(copy))
  if (bytes > MAX_DATA_BYTES)
    throw new RoomLogicError(`${what} has ${bytes} bytes of JSON; limit: ${MAX_DATA_BYTES}`)
  return { type, data: copy }
}

/** Dependencies of the notices of a room. */
interface NoticeNeeds {
  readonly clock: Clock
  readonly random: Random
  readonly metrics: RoomMetrics
  readonly notices: {
    /** Opens the queue of a room of this node, for its claim under `fence`. `mayAct`: whether this node is certainly its owner now. */
    open(room: string, fence: Fence, mayAct: () => boolean): NoticeQueue
  }
}

/** The notices of one room until they are written, and those that wait for delivery. */
export class RoomNotices implements Additions {
  readonly #needs: NoticeNeeds
  readonly #address: RoomAddress
  readonly #queue: NoticeQueue
  /** Notices of turns since the last flush. */
  #pending: (Notice & { readonly at: number })[] = []
  /** Notices of earlier turns that are not known to be stored. */
  readonly #unwritten = new Set<Uint8Array>()
  /** Notices that were stored recently, with the time of that (monotonic clock). */
  #stored: { readonly at: number; readonly notice: Uint8Array }[] = []

  constructor(
    { address, definition: { notices }, fence }: ClaimedRoom,
    mayAct: () => boolean,
    needs: NoticeNeeds,
  ) {
    this.#needs = needs
    this.#address = address
    this.#queue = needs.notices.open(address.name, fence, mayAct)
    if (Object.keys(notices).length > 0) this.#queue.recover()
  }

  of(definition: RoomDefinition, type: string, data: unknown, earlier: number): Notice {
    const notice = noticeOf(definition, type, data)
    // The number can be too large.
    const waiting = this.#queue.size + this.#unwritten.size + this.#pending.length + earlier
    if (waiting < MAX_WAITING) return notice
    this.#needs.metrics.limitsReached.inc({ room_type: definition.type, limit: 'notices' })
    throw new RoomLogicError(
      `ctx.notify: limit reached: ${waiting} waiting notices per room: the backend at NOTIFY_URL does not accept them`,
    )
  }

  /** True if turns since the last flush have notices. */
  get dirty(): boolean {
    return this.#pending.length > 0
  }

  /** A turn with notices has succeeded. */
  push(notices: readonly Notice[]): void {
    const at = this.#needs.clock.now()
    for (const notice of notices) this.#pending.push({ ...notice, at })
  }

  /** Returns the notices since the last flush, encoded for the store. They are written with the update at this position. */
  flush({ epoch, seq }: Position): readonly Uint8Array[] {
    const { projectId: project_id } = this.#address
    const room_id = roomIdOf(this.#address)
    const flushed = this.#pending.map(({ type, data, at }) =>
      encodeNotice(newId('ntc', this.#needs.random), {
        type,
        project_id,
        room_id,
        epoch,
        seq,
        at: timestamp(at),
        data,
      }),
    )
    this.#pending = []
    for (const notice of flushed) this.#unwritten.add(notice)
    return flushed
  }

  /**
   * Puts the room into the index, so that it has every stored notice. Returns those of `flushed` that are not stored yet. A whole room is
   * written with recently stored notices too: a long outage does not expire them, and the store keeps each notice once.
   */
  async prepare(fence: Fence, flushed?: readonly Uint8Array[]): Promise<readonly Uint8Array[]> {
    const added = flushed
      ? flushed.filter((notice) => this.#unwritten.has(notice))
      : [...this.#stored.map(({ notice }) => notice), ...this.#unwritten]
    if (added.length > 0) await this.#queue.announce(fence)
    return added
  }

  /** These notices are stored, some of them perhaps again. */
  wrote(notices: readonly Uint8Array[]): void {
    const fresh = notices.filter((notice) => this.#unwritten.delete(notice))
    if (fresh.length > 0) {
      this.#queue.push(fresh)
      const at = this.#needs.clock.monotonic()
      const kept = this.#stored.filter((earlier) => earlier.at >= at - KEPT_MS)
      this.#stored = [...kept, ...fresh.map((notice) => ({ at, notice }))].slice(-MAX_KEPT)
    }
    if (fresh.length < notices.length) this.#queue.recover()
  }

  /** Repairs the index of rooms with notices. Called every few minutes. */
  refresh(): void {
    this.#queue.repair()
  }

  end(): void {
    this.#queue.end()
  }
}
