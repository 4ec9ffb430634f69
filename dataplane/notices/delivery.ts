import { sleep } from '../../shared/clock.ts'
import { Quiet } from '../../shared/log.ts'
import { NOTICE_PARTS, noticePart, StoreUnavailable, type TakenNotices } from '../../shared/store/port.ts'
import { roomNamed } from '../traffic.ts'
import type { DeadLetters } from './dead-letters.ts'
import {
  attemptOf,
  decodeNotice,
  type NoticeBody,
  type NoticeEnvironment,
  type StoredNotice,
} from './notice.ts'

/** Maximum number of rooms for which this node delivers at a time. */
const MAX_ROOMS = 64
/** Lifetime of the lease of a room. It is longer than an attempt, and renewed before each. */
const LEASE_MS = 15_000
/** Interval in which nodes look for rooms whose node has died. */
const LOOK_MS = 5000
const FIRST_RETRY_MS = 1000
const LONGEST_RETRY_MS = 300_000
/** Number of quick reads for a write that a room has announced, and the time between them. A longer wait counts as a failure. */
const LOOKS = 10
const LOOK_AGAIN_MS = 50
/** The longest delay while an announced write is awaited: it comes within milliseconds, or never. */
const LONGEST_WAIT_MS = 10_000
/** A notice that is older is not tried again. */
const MAX_AGE_MS = 86_400_000
/** A reason for failed attempts is logged at most so often. */
const QUIET_MS = 10_000
/** How long `stop` waits for answers of the backend. */
const STOP_MS = 2000

/**
 * Delivers notices to the backend, for rooms that this node leases one by one from the index in the store. While it has the lease, no other
 * node delivers for the room: so there is one request at a time, in the order of the room.
 */
export class NoticeDelivery {
  readonly #env: NoticeEnvironment
  readonly #deadLetters: Pick<DeadLetters, 'add'>
  /** Parts of the index that are being read. True: again afterwards. */
  readonly #looks = new Map<number, boolean>()
  /** Deliveries that are under way. */
  readonly #active = new Set<Promise<void>>()
  /** Rooms with an attempt that is under way or has failed here: the time of the notice, and the monotonic time until which this node reports it. */
  readonly #waiting = new Map<string, { readonly at: number; readonly until: number }>()
  readonly #quiet: Quiet
  readonly #stopping = new AbortController()
  #cancelLook: (() => void) | undefined
  #stopped = false

  constructor(env: NoticeEnvironment, deadLetters: Pick<DeadLetters, 'add'>) {
    this.#env = env
    this.#deadLetters = deadLetters
    this.#quiet = new Quiet(env.clock, QUIET_MS)
    env.metrics.noticeOldest.read(() => this.#oldestMs / 1000)
  }

  /** Begins to look for rooms with notices. */
  start(): void {
    const { clock, random } = this.#env
    if (this.#stopped) return
    for (const [room, { until }] of this.#waiting) if (until < clock.monotonic()) this.#waiting.delete(room)
    for (let part = 0; part < NOTICE_PARTS; part++) this.#look(part)
    this.#cancelLook = clock.schedule(LOOK_MS * (0.5 + random.float() / 2), () => this.start())
  }

  /** Notices of a room (`project/type:key`) were written: delivers them unless another node does. */
  deliver(room: string): void {
    this.#look(noticePart(room))
  }

  /** Ends the deliveries. Attempts under way get two seconds; another node repeats those that have no answer by then. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#cancelLook?.()
    const cancel = this.#env.clock.schedule(STOP_MS, () => this.#stopping.abort())
    await Promise.all(this.#active)
    cancel()
  }

  get #oldestMs(): number {
    const { clock } = this.#env
    let oldest = clock.now()
    for (const { at } of this.#waiting.values()) oldest = Math.min(oldest, at)
    return clock.now() - oldest
  }

  /** Leases the rooms of a part that are due. */
  #look(part: number): void {
    if (this.#looks.has(part)) {
      this.#looks.set(part, true)
      return
    }
    this.#looks.set(part, false)
    void this.#take(part).finally(() => {
      const again = this.#looks.get(part)
      this.#looks.delete(part)
      if (again) this.#look(part)
    })
  }

  /** Never rejects. */
  async #take(part: number): Promise<void> {
    const { store, log } = this.#env
    const limit = Math.ceil((MAX_ROOMS - this.#active.size) / NOTICE_PARTS)
    if (this.#stopped || limit <= 0) return
    try {
      const taken = await store.notices.take(part, { limit, leaseMs: LEASE_MS })
      for (const room of taken) this.#begin(room)
      if (taken.length === limit) this.#looks.set(part, true)
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) log.error({ err: error }, 'rooms with notices not found')
    }
  }

  #begin(taken: TakenNotices): void {
    const delivery = this.#deliverAll(taken)
      .catch((error: unknown) => {
        // The lease expires, and then any node continues.
        if (!(error instanceof StoreUnavailable))
          this.#env.log.error({ err: error, room: taken.room }, 'notices not delivered')
      })
      .finally(() => {
        const wasFull = this.#active.size >= MAX_ROOMS
        this.#active.delete(delivery)
        if (wasFull) for (let part = 0; part < NOTICE_PARTS; part++) this.#look(part)
      })
    this.#active.add(delivery)
  }

  /** Delivers the notices of a room in their order, until there is none or an attempt fails. */
  async #deliverAll(leased: TakenNotices): Promise<void> {
    const { notices } = this.#env.store
    const { room } = leased
    let taken: TakenNotices | undefined = leased
    let looks = 0
    while (taken) {
      const bytes = await notices.oldest(room)
      if (!bytes) {
        this.#waiting.delete(room)
        if (taken.failures === 0 && looks++ < LOOKS && !this.#stopped && !(await this.#isWritten(taken))) {
          await sleep(this.#env.clock, LOOK_AGAIN_MS)
          continue
        }
        await this.#leave(taken)
        return
      }
      if (this.#stopped) break
      const isOver = await this.#deliverOne(taken, decodeNotice(bytes))
      if (isOver === 'aborted') break
      if (isOver === 'failed') {
        await this.#retryLater(taken, LONGEST_RETRY_MS)
        return
      }
      await notices.remove(room, bytes)
      looks = 0
      this.#waiting.delete(room)
      taken = await notices.putOff(taken, LEASE_MS, 0)
    }
    // Another node need not wait for the end of the lease.
    if (taken) await notices.putOff(taken, 0, taken.failures)
  }

  /** The room has no notices. It leaves the index, unless its owner may still write some that it has announced. */
  async #leave(taken: TakenNotices): Promise<void> {
    const { notices } = this.#env.store
    const { room } = taken
    if (!(await this.#isWritten(taken))) {
      await this.#retryLater(taken, LONGEST_WAIT_MS)
      return
    }
    // The write may have come between the two answers.
    if (!(await notices.oldest(room)) && (await notices.done(taken))) return
    await notices.putOff(taken, 0, 0)
    this.deliver(room)
  }

  /** The owner has written what it had announced when the room was leased, or has lost the room. */
  async #isWritten({ room, fence }: TakenNotices): Promise<boolean> {
    const record = await this.#env.store.rooms.inspect(room)
    return !record?.owner || record.epoch !== fence.epoch || record.version > fence.version
  }

  async #retryLater(taken: TakenNotices, longestMs: number): Promise<void> {
    const { store, clock } = this.#env
    const { room, failures } = taken
    const delayMs = retryDelay(failures, longestMs)
    if (await store.notices.putOff(taken, delayMs, failures + 1))
      clock.schedule(delayMs, () => this.deliver(room))
  }

  async #deliverOne(
    { room, failures }: TakenNotices,
    notice: StoredNotice,
  ): Promise<'over' | 'failed' | 'aborted'> {
    const { clock, log, metrics, post } = this.#env
    const body: NoticeBody = JSON.parse(notice.body)
    const at = Date.parse(body.at)
    const isLast = clock.now() - at >= MAX_AGE_MS
    const untilMs = retryDelay(failures, LONGEST_RETRY_MS) + LEASE_MS
    this.#waiting.set(room, { at, until: clock.monotonic() + untilMs })
    const { signal } = this.#stopping
    const attempt = await attemptOf(post, notice, signal)
    if (signal.aborted && attempt.is === 'failed') return 'aborted'
    if (attempt.is === 'delivered') {
      metrics.noticeAttempts.inc({ result: 'delivered' })
      metrics.noticeAge.observe(Math.max(0, clock.now() - at) / 1000)
      return 'over'
    }
    const isDead = attempt.is === 'rejected' || isLast
    metrics.noticeAttempts.inc({ result: isDead ? 'dead' : 'failed' })
    const fields = { room, notice: notice.id, reason: attempt.reason }
    if (!isDead) {
      const suppressed = this.#quiet.pass(attempt.reason)
      if (suppressed !== undefined) log.warn({ ...fields, suppressed }, 'notice not accepted')
      return 'failed'
    }
    await this.#deadLetters.add(roomNamed(room).projectId, notice, attempt.reason)
    log.warn(fields, 'notice moved to the dead letters')
    return 'over'
  }
}

/** Milliseconds until the next attempt, after so many earlier failures. */
const retryDelay = (failures: number, longestMs: number): number =>
  Math.min(longestMs, FIRST_RETRY_MS * 2 ** Math.min(failures, 20))
