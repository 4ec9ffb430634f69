import { type Clock, sleep } from '../../../shared/clock.ts'
import { Quiet } from '../../../shared/log.ts'
import { NOTICE_PARTS, noticePart, type TakenNotices } from '../../../shared/store/port.ts'
import { DueRooms } from '../../due-rooms.ts'
import { Counts } from '../../metrics.ts'
import { roomNamed } from '../../traffic.ts'
import type { DeadLetters } from './dead-letters.ts'
import {
  attemptOf,
  decodeNotice,
  type NoticeBody,
  type NoticeEnvironment,
  type StoredNotice,
} from './notice.ts'

/** Maximum number of rooms in each part of the index for which this node delivers at the same time. */
const MAX_RUNNING = 16
/** Time since the last notice of a project for which it counts as one that needs places. */
const NEEDS_MS = 60_000
/** Lifetime of the lease of a room. It is longer than an attempt, and renewed before each. */
const LEASE_MS = 15_000
/** Maximum time between two looks for rooms whose node has died. */
const LOOK_MS = 5000
const FIRST_RETRY_MS = 1000
const LONGEST_RETRY_MS = 300_000
/** Maximum time for which `retry-after` of the backend delays an attempt. */
const LONGEST_RETRY_AFTER_MS = 3_600_000
/** Number of quick reads for a write that a room has announced, and the time between them. If the write comes later, that counts as a failure. */
const LOOKS = 10
const LOOK_AGAIN_MS = 50
/** Maximum delay between reads for an announced write. The write comes within milliseconds, or never. */
const LONGEST_WAIT_MS = 10_000
/** Maximum age of a notice for another attempt. */
const MAX_AGE_MS = 86_400_000
/** Minimum time between two log lines about failed attempts with the same reason. */
const QUIET_MS = 10_000
/** Time for which `stop` waits for answers of the backend. */
const STOP_MS = 2000

/**
 * Delivers notices to the backend. A node takes a lease on each room whose notices it delivers. Until the lease ends, no other node delivers for
 * the room. So the backend gets one request of a room at a time, in the order of the room.
 */
export class NoticeDelivery {
  readonly #env: NoticeEnvironment
  readonly #deadLetters: DeadLetters
  readonly #due: DueRooms<TakenNotices>
  /**
   * Rooms whose last attempt here is under way or has failed. `at`: time of the notice. `until`: monotonic time until which this node reports
   * its age.
   */
  readonly #waiting = new Map<string, { readonly at: number; readonly until: number }>()
  readonly #shares: ProjectShares
  readonly #quiet: Quiet
  readonly #stopping = new AbortController()
  #stopped = false

  constructor(env: NoticeEnvironment, deadLetters: DeadLetters) {
    const { clock, random, log, store, metrics, projectShare } = env
    this.#env = env
    this.#deadLetters = deadLetters
    this.#quiet = new Quiet(clock, QUIET_MS)
    this.#shares = new ProjectShares(clock, Math.ceil((MAX_RUNNING * projectShare) / 100))
    this.#due = new DueRooms({
      ...{ clock, random, log },
      everyMs: LOOK_MS,
      parts: NOTICE_PARTS,
      maxRunning: MAX_RUNNING,
      take: (part, limit) => store.notices.take(part, { limit, leaseMs: LEASE_MS }),
      mayBegin: (part, { room }) => this.#shares.mayBegin(part, roomNamed(room).projectId),
      work: async (taken) => {
        const { room } = taken
        const ended = this.#shares.begin(noticePart(room), roomNamed(room).projectId)
        await this.#deliverAll(taken).finally(ended)
      },
    })
    metrics.noticeOldest.read(() => this.#oldestMs / 1000)
  }

  /** Delivers the notices in the store, from now on. */
  start(): void {
    this.#due.start()
    for (let part = 0; part < NOTICE_PARTS; part++) this.#due.look(part)
  }

  /** Notices of a room (`project/type:key`) were written: delivers them unless another node does. */
  deliver(room: string): void {
    this.#shares.needs(roomNamed(room).projectId)
    this.#due.look(noticePart(room))
  }

  /** Ends the deliveries. Attempts under way get 2 s. Another node repeats attempts that have no answer by then. */
  async stop(): Promise<void> {
    this.#stopped = true
    const cancel = this.#env.clock.schedule(STOP_MS, () => this.#stopping.abort())
    await this.#due.stop()
    cancel()
  }

  get #oldestMs(): number {
    const { clock } = this.#env
    let oldest = clock.now()
    for (const { at, until } of this.#waiting.values())
      if (until >= clock.monotonic()) oldest = Math.min(oldest, at)
    return clock.now() - oldest
  }

  /** From now on the age of the notice counts. If another node takes the room after a failure, it counts for `forMs` milliseconds. */
  #reportAge(room: string, at: number, forMs: number): void {
    const now = this.#env.clock.monotonic()
    this.#waiting.delete(room)
    this.#waiting.set(room, { at, until: now + forMs })
    for (const [oldest, { until }] of this.#waiting) {
      if (until >= now) break
      this.#waiting.delete(oldest)
    }
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
      const outcome = await this.#deliverOne(taken, decodeNotice(bytes))
      if (outcome.is === 'aborted') break
      if (outcome.is === 'failed') {
        await this.#retryLater(taken, outcome.delayMs)
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
      await this.#retryLater(taken, retryDelay(taken.failures, LONGEST_WAIT_MS))
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

  async #retryLater(taken: TakenNotices, delayMs: number): Promise<void> {
    const { store, clock } = this.#env
    const { room, failures } = taken
    if (await store.notices.putOff(taken, delayMs, failures + 1))
      clock.schedule(delayMs, () => this.deliver(room))
  }

  async #deliverOne({ room, failures }: TakenNotices, notice: StoredNotice): Promise<Outcome> {
    const { clock, log, metrics, post } = this.#env
    const { projectId } = roomNamed(room)
    const body: NoticeBody = JSON.parse(notice.body)
    const at = Date.parse(body.at)
    const isLast = clock.now() - at >= MAX_AGE_MS
    const backoffMs = retryDelay(failures, LONGEST_RETRY_MS)
    this.#reportAge(room, at, backoffMs + LEASE_MS)
    const { signal } = this.#stopping
    const attempt = await attemptOf(post, { projectId, ...notice }, signal)
    if (signal.aborted && attempt.is === 'failed') return { is: 'aborted' }
    if (attempt.is === 'delivered') {
      metrics.noticeAttempts.inc({ result: 'delivered' })
      metrics.noticeAge.observe(Math.max(0, clock.now() - at) / 1000)
      return { is: 'over' }
    }
    const isDead = attempt.is === 'rejected' || isLast
    metrics.noticeAttempts.inc({ result: isDead ? 'dead' : 'failed' })
    const fields = { room, notice: notice.id, reason: attempt.reason }
    if (!isDead) {
      const delayMs = Math.max(backoffMs, Math.min(attempt.retryAfterMs, LONGEST_RETRY_AFTER_MS))
      this.#reportAge(room, at, delayMs + LEASE_MS)
      const suppressed = this.#quiet.pass(attempt.reason)
      if (suppressed !== undefined) log.warn({ ...fields, suppressed }, 'notice not accepted')
      return { is: 'failed', delayMs }
    }
    await this.#deadLetters.add(projectId, notice, attempt.reason)
    log.warn(fields, 'notice moved to the dead letters')
    return { is: 'over' }
  }
}

/** Result of one attempt. `over`: the notice needs no other one. `failed`: the next one follows after `delayMs` milliseconds. */
type Outcome = { readonly is: 'over' | 'aborted' } | { readonly is: 'failed'; readonly delayMs: number }

/**
 * The places of projects for deliveries. While several projects have notices, each gets at most its share of the places of a part. A backend that
 * does not answer so delays only the notices of its project.
 */
class ProjectShares {
  readonly #clock: Clock
  readonly #max: number
  /** Deliveries under way, by part and project. */
  readonly #running = new Counts()
  /** Monotonic time of the last notice of each project, oldest first. */
  readonly #seen = new Map<string, number>()

  /** `max`: places of a project in a part, if another one has notices. 0: no bound. */
  constructor(clock: Clock, max: number) {
    this.#clock = clock
    this.#max = max
  }

  /** The project has a notice. */
  needs(projectId: string): void {
    const now = this.#clock.monotonic()
    this.#seen.delete(projectId)
    this.#seen.set(projectId, now)
    for (const [oldest, at] of this.#seen) {
      if (now - at < NEEDS_MS) break
      this.#seen.delete(oldest)
    }
  }

  mayBegin(part: number, projectId: string): boolean {
    this.needs(projectId)
    return this.#max === 0 || this.#seen.size === 1 || this.#running.of(`${part} ${projectId}`) < this.#max
  }

  /** A delivery begins. Call the returned function at its end. */
  begin(part: number, projectId: string): () => void {
    const name = `${part} ${projectId}`
    this.#running.add(name, 1)
    return () => this.#running.add(name, -1)
  }
}

/** Milliseconds until the next attempt, after so many earlier failures. */
const retryDelay = (failures: number, longestMs: number): number =>
  Math.min(longestMs, FIRST_RETRY_MS * 2 ** Math.min(failures, 20))
