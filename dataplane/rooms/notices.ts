import { timestamp } from '../../shared/clock.ts'
import { newId } from '../../shared/ids.ts'
import type { Json } from '../../shared/json.ts'
import { encodeNotice } from '../notices/notice.ts'
import type { RoomAddress } from '../traffic.ts'
import { roomIdOf } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import type { RoomEnvironment } from './environment.ts'
import { jsonCopy, RoomLogicError, validate } from './failures.ts'
import type { Position } from './journal.ts'
import type { Timer } from './scheduler.ts'

/** Of the JSON text of a notice's data, in UTF-8. */
const MAX_DATA_BYTES = 16 * 1024
/** Interval of the counts while more than half of the notices wait that may wait. */
const COUNT_MS = 1000

/** A notice that a turn has asked for. */
export interface Notice {
  readonly type: string
  readonly data: Json
}

/** Returns the notice that `ctx.notify` was called for. Throws a RoomLogicError that says what would be right. */
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

/** The notices of one room from their turns until they are written, and how many of the room wait to be delivered. */
export class RoomNotices {
  readonly #environment: RoomEnvironment
  readonly #address: RoomAddress
  readonly #timer: Timer
  /** Notices of turns since the last flush. */
  #pending: (Notice & { readonly at: number })[] = []
  /** Number of notices that are not written yet, those of a flush that is under way included. */
  #unwritten = 0
  /** Number of notices in the store at the last count, and of those written since it began. */
  #counted = 0
  #written = 0
  /** The count under way. Another one beside it would take the same notices off `#written`. */
  #counting: Promise<void> | undefined
  #ended = false

  constructor(environment: RoomEnvironment, address: RoomAddress, { notices }: RoomDefinition) {
    this.#environment = environment
    this.#address = address
    this.#timer = environment.scheduler.timer(() => void this.#count())
    // An earlier owner may have left some.
    if (Object.keys(notices).length > 0) void this.#index()
  }

  /** Number of notices that wait to be delivered. It is at most as much too large as were delivered since the last count. */
  get size(): number {
    return this.#counted + this.#written + this.#unwritten
  }

  /** Whether turns since the last flush have notices. */
  get dirty(): boolean {
    return this.#pending.length > 0
  }

  /** A turn with notices has succeeded. */
  push(notices: readonly Notice[]): void {
    const at = this.#environment.clock.now()
    for (const notice of notices) this.#pending.push({ ...notice, at })
    this.#unwritten += notices.length
  }

  /** Returns the notices since the last flush as they are stored. `position`: of the update that is written with them. */
  flush({ epoch, seq }: Position): readonly Uint8Array[] {
    if (!this.dirty) return NONE
    const { projectId: project_id } = this.#address
    const room_id = roomIdOf(this.#address)
    const stored = this.#pending.map(({ type, data, at }) =>
      encodeNotice(newId('ntc', this.#environment.random), {
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

  /** So many notices are written. */
  wrote(number: number): void {
    this.#unwritten -= number
    this.#written += number
    if (this.#isMany && !this.#timer.waiting) this.#countSoon()
    this.#environment.noticeDelivery.deliver(this.#address.name)
  }

  /** Repairs the index of rooms with notices. To be called every few minutes. */
  refresh(): void {
    if (this.size > 0) void this.#index()
  }

  end(): void {
    this.#ended = true
    this.#timer.cancel()
  }

  get #isMany(): boolean {
    return this.size > this.#environment.limits.notices / 2
  }

  #countSoon(): void {
    this.#timer.at(this.#environment.clock.monotonic() + COUNT_MS)
  }

  /** Adds the room to the index again if notices wait: the fail-over of a store may have lost it there. Never rejects. */
  async #index(): Promise<void> {
    await this.#count()
    if (this.#counted === 0) return
    const { notices, noticeDelivery } = this.#environment
    const { name } = this.#address
    // As an owner before the first: this hides no write that is announced.
    await notices.announce(name, { epoch: 0, version: 0 }).then(
      () => noticeDelivery.deliver(name),
      () => {},
    )
  }

  /** Never rejects. */
  #count(): Promise<void> {
    this.#counting ??= this.#recount().finally(() => {
      this.#counting = undefined
    })
    return this.#counting
  }

  async #recount(): Promise<void> {
    const before = this.#written
    try {
      this.#counted = await this.#environment.notices.count(this.#address.name)
      this.#written -= before
    } catch {
      // The store is away. The present number is too large rather than too small.
      if (!this.#ended) this.#countSoon()
      return
    }
    if (this.#isMany && !this.#ended) this.#countSoon()
  }
}

const NONE: readonly never[] = []
