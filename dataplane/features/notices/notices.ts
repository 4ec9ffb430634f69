import { type Clock, timestamp } from '../../../shared/clock.ts'
import { newId } from '../../../shared/ids.ts'
import type { Json } from '../../../shared/json.ts'
import type { Random } from '../../../shared/random.ts'
import type { Fence } from '../../../shared/store/port.ts'
import type { RoomDefinition } from '../../room/definition.ts'
import { jsonCopy, RoomLogicError, validate } from '../../room/failures.ts'
import type { Position } from '../../room/journal.ts'
import type { RoomLimits } from '../../room/limits.ts'
import { PacedWork, type Scheduler } from '../../room/scheduler.ts'
import type { RoomAddress } from '../../traffic.ts'
import { roomIdOf } from '../../traffic.ts'
import { encodeNotice } from './notice.ts'

/** Maximum bytes of the JSON text of a notice's data, in UTF-8. */
const MAX_DATA_BYTES = 16 * 1024
/** Interval of the counts while more than half of the allowed notices wait. */
const COUNT_MS = 1000

/** A notice that a turn has requested. */
export interface Notice {
  readonly type: string
  readonly data: Json
}

/** Returns the notice for a call of `ctx.notify`. Throws a RoomLogicError that names the right form. */
export function noticeOf({ notices }: RoomDefinition, type: string, data: unknown): Notice {
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
    throw new RoomLogicError(`${what} has ${bytes} bytes of JSON; it may have ${MAX_DATA_BYTES}`)
  return { type, data: copy }
}

/** Dependencies of the notices of a room. */
export interface NoticeNeeds {
  readonly clock: Clock
  readonly random: Random
  readonly limits: RoomLimits
  readonly scheduler: Scheduler
  readonly notices: {
    announce(room: string, fence: Fence): Promise<void>
    count(room: string): Promise<number>
  }
  /** Delivery of written notices to the backend. */
  readonly noticeDelivery: { deliver(room: string): void }
}

/** The notices of one room until they are written, and the number of notices that wait for delivery. */
export class RoomNotices {
  readonly #needs: NoticeNeeds
  readonly #address: RoomAddress
  /** Counts of the waiting notices. Two counts at the same time would subtract the same notices from `#written`. */
  readonly #counts: PacedWork
  /** Notices of turns since the last flush. */
  #pending: (Notice & { readonly at: number })[] = []
  /** Number of notices that are not written yet, including those of a flush in flight. */
  #unwritten = 0
  /** Number of notices in the store at the last count, and number of those written since that count began. */
  #counted = 0
  #written = 0

  constructor(needs: NoticeNeeds, address: RoomAddress, { notices }: RoomDefinition) {
    this.#needs = needs
    this.#address = address
    this.#counts = new PacedWork(needs.scheduler, () => this.#count())
    // An earlier owner may have left notices.
    if (Object.keys(notices).length > 0) void this.#index()
  }

  /** Number of notices that wait for delivery. It can be too large by the number delivered since the last count. */
  get size(): number {
    return this.#counted + this.#written + this.#unwritten
  }

  /** True if turns since the last flush have notices. */
  get dirty(): boolean {
    return this.#pending.length > 0
  }

  /** A turn with notices has succeeded. */
  push(notices: readonly Notice[]): void {
    const at = this.#needs.clock.now()
    for (const notice of notices) this.#pending.push({ ...notice, at })
    this.#unwritten += notices.length
  }

  /** Returns the notices since the last flush, encoded for the store. `position`: the update that is written with them. */
  flush({ epoch, seq }: Position): readonly Uint8Array[] {
    if (!this.dirty) return NONE
    const { projectId: project_id } = this.#address
    const room_id = roomIdOf(this.#address)
    const stored = this.#pending.map(({ type, data, at }) =>
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
    return stored
  }

  /** `number` notices are stored. */
  wrote(number: number): void {
    this.#unwritten -= number
    this.#written += number
    if (this.#isMany) this.#countSoon()
    this.#needs.noticeDelivery.deliver(this.#address.name)
  }

  /** Repairs the index of rooms with notices. Called every few minutes. */
  refresh(): void {
    if (this.size > 0) void this.#index()
  }

  end(): void {
    this.#counts.end()
  }

  get #isMany(): boolean {
    return this.size > this.#needs.limits.notices / 2
  }

  #countSoon(): void {
    this.#counts.by(this.#needs.clock.monotonic() + COUNT_MS)
  }

  /** Adds the room to the index again if notices wait, because a fail-over of the store may have lost the entry. Never rejects. */
  async #index(): Promise<void> {
    this.#counts.start()
    await this.#counts.running
    if (this.#counted === 0) return
    const { notices, noticeDelivery } = this.#needs
    const { name } = this.#address
    // An epoch before the first owner's: it hides no write that is announced.
    await notices.announce(name, { epoch: 0, version: 0 }).then(
      () => noticeDelivery.deliver(name),
      () => {},
    )
  }

  /** Never rejects. */
  async #count(): Promise<void> {
    const before = this.#written
    try {
      this.#counted = await this.#needs.notices.count(this.#address.name)
      this.#written -= before
    } catch {
      // The store is away. The present number is too large rather than too small.
      this.#countSoon()
      return
    }
    if (this.#isMany) this.#countSoon()
  }
}

const NONE: readonly never[] = []
