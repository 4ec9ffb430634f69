import type { Clock } from '../../../shared/clock.ts'
import { Quiet } from '../../../shared/log.ts'
import {
  DUE_PARTS,
  type DueRoom,
  duePart,
  type Fence,
  type RoomOwner,
  StoreUnavailable,
} from '../../../shared/store/port.ts'
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
import { NoticeQueue } from './queue.ts'

/**
 * Delivery of notices. `notices.ts` collects and bounds those of a room, `room/record.ts` writes them, and `server/notices.ts` checks them in
 * the backend.
 */

/** Maximum number of attempts under way for rooms of this node. For rooms without an owner, it is a quarter of it in each part of the index. */
const MAX_RUNNING = 64
/** Time since the last notice of a project for which it counts as one that needs places. */
const NEEDS_MS = 60_000
/**
 * Time from the last sign of a room's deliverer until another node looks for its notices. It is longer than an attempt.
 */
const LEASE_MS = 15_000
/** Maximum time between two looks for rooms without an owner, and the time until a room is looked at again. */
const LOOK_MS = 5000
/** Time until a room without notices leaves the index. */
const IDLE_MS = 10_000
const FIRST_RETRY_MS = 1000
const LONGEST_RETRY_MS = 300_000
/** Maximum time for which `retry-after` of the backend delays an attempt. */
const LONGEST_RETRY_AFTER_MS = 3_600_000
/** After this many attempts in a row that did not reach the backend, one attempt at a time probes it. */
const UNREACHED = 3
/** Maximum time between two probes of a backend that cannot be reached. */
const LONGEST_PROBE_MS = 15_000
/** Additional delay of a room that has not reached the backend, so that other rooms are the next to probe it. */
const AFTER_OTHERS_MS = 100
/** Maximum age of a notice for another attempt. */
const MAX_AGE_MS = 86_400_000
/** Minimum time between two log lines about failed attempts with the same reason. */
const QUIET_MS = 10_000
/** Time for which `stop` waits for answers of the backend. */
const STOP_MS = 2000

/**
 * Delivers notices to the backend, those of one room in their order and one at a time. The owner of a room delivers its notices, from memory.
 * For rooms without an owner, one node takes each room from an index in the store.
 */
export class NoticeDelivery {
  readonly #env: NoticeEnvironment
  readonly #deadLetters: DeadLetters
  /** Rooms of this node. */
  readonly #owned = new Map<string, NoticeQueue>()
  /** Queues that wait for a place, by project. */
  readonly #ready = new Map<string, NoticeQueue[]>()
  readonly #ownerless: DueRooms<OwnerlessRoom>
  /**
   * Rooms whose last attempt here is under way or has failed. `at`: time of the notice. `until`: monotonic time until which this node reports
   * its age.
   */
  readonly #waiting = new Map<string, { readonly at: number; readonly until: number }>()
  readonly #places: Places
  readonly #breaker: Breaker
  readonly #quiet: Quiet
  readonly #stopping = new AbortController()
  /** Deliveries under way for rooms of this node. */
  readonly #active = new Set<Promise<void>>()
  #stopped = false

  constructor(env: NoticeEnvironment, deadLetters: DeadLetters) {
    const { clock, random, log, metrics, projectShare } = env
    this.#env = env
    this.#deadLetters = deadLetters
    this.#quiet = new Quiet(clock, QUIET_MS)
    this.#breaker = new Breaker(clock)
    this.#places = new Places(clock, Math.ceil((MAX_RUNNING * projectShare) / 100))
    this.#ownerless = new DueRooms({
      ...{ clock, random, log },
      everyMs: LOOK_MS,
      parts: DUE_PARTS,
      maxRunning: MAX_RUNNING / DUE_PARTS,
      take: (part, places) => this.#take(part, places),
      mayBegin: (_part, { room }) => this.#places.mayBegin(roomNamed(room).projectId),
      work: async (due) => {
        const release = this.#places.begin(roomNamed(due.room).projectId)
        await this.#deliverOwnerless(due).finally(release)
      },
    })
    metrics.noticeOldest.read(() => this.#oldestMs / 1000)
  }

  /** Delivers the notices of rooms without an owner, from now on. */
  start(): void {
    this.#ownerless.start()
    for (let part = 0; part < DUE_PARTS; part++) this.#ownerless.look(part)
  }

  /**
   * This node owns a room from now on, and delivers its notices. `fence`: that of its claim. `mayAct`: whether this node is certainly the
   * owner now.
   */
  open(room: string, fence: Fence, mayAct: () => boolean): NoticeQueue {
    const queue = new NoticeQueue(room, { epoch: fence.epoch, version: 0 }, mayAct, this)
    this.#owned.set(room, queue)
    return queue
  }

  /** Puts a room of this node into the index. If the node ends before it has delivered the notices, another one finds the room. */
  list({ room, fence }: NoticeQueue): Promise<void> {
    return this.#setDue(room, fence, LEASE_MS)
  }

  /** Reads how many notices an earlier owner has left. Never rejects. */
  async recover(queue: NoticeQueue): Promise<void> {
    const { clock, store } = this.#env
    try {
      if (queue.uncounted) queue.counted(await store.notices.count(queue.room))
      if (queue.size > 0) await this.list(queue)
      if (queue.indexed) this.ready(queue)
    } catch {
      if (!queue.ended) clock.schedule(FIRST_RETRY_MS, () => void this.recover(queue))
    }
  }

  /** The queue has notices to deliver. */
  ready(queue: NoticeQueue): void {
    if (queue.busy || queue.ended || this.#stopped) return
    queue.busy = true
    const { projectId } = roomNamed(queue.room)
    this.#places.needs(projectId)
    const waiting = this.#ready.get(projectId)
    if (waiting) waiting.push(queue)
    else this.#ready.set(projectId, [queue])
    this.#fill()
  }

  /** This node no longer owns the room. If it has no owner, one of the nodes delivers the remaining notices. Never rejects. */
  async leave(queue: NoticeQueue): Promise<void> {
    const { room, fence } = queue
    if (this.#owned.get(room) === queue) this.#owned.delete(room)
    if (queue.busy || this.#stopped) return
    try {
      // The answer to a write or to the count may be lost. Then the next node that looks removes the room from the index.
      if (!queue.isEmpty) {
        await this.#setDueNow(room, fence)
        this.#ownerless.look(duePart(room))
      } else if (queue.indexed) await this.#env.store.notices.set(room, fence, undefined)
    } catch {
      // The room is due later.
    }
  }

  /** Ends the deliveries. Attempts under way get 2 s. Another node repeats attempts that have no answer by then. */
  async stop(): Promise<void> {
    this.#stopped = true
    const cancel = this.#env.clock.schedule(STOP_MS, () => this.#stopping.abort())
    await Promise.all([this.#ownerless.stop(), ...this.#active])
    cancel()
  }

  /** Starts deliveries while there are places, for one project after the other. */
  #fill(): void {
    for (const [projectId, waiting] of [...this.#ready]) {
      while (waiting.length > 0 && this.#active.size < MAX_RUNNING && this.#places.mayBegin(projectId))
        this.#start(projectId, waiting.shift()!)
      this.#ready.delete(projectId)
      if (waiting.length > 0) this.#ready.set(projectId, waiting)
    }
  }

  #start(projectId: string, queue: NoticeQueue): void {
    const release = this.#places.begin(projectId)
    const running = this.#deliver(queue).finally(() => {
      this.#active.delete(running)
      release()
      this.#fill()
    })
    this.#active.add(running)
  }

  /** Delivers the notices of a room of this node, until there is none or an attempt fails. Never rejects. */
  async #deliver(queue: NoticeQueue): Promise<void> {
    const { store, log } = this.#env
    const { room } = queue
    let delayMs: number | undefined
    try {
      while (delayMs === undefined && !this.#stopped && !queue.ended) {
        const notice = await queue.next(store.notices)
        if (!notice) break
        if (queue.accepted !== notice) {
          // Another owner may have posted later notices.
          delayMs = queue.mayAct() ? this.#mustWait(room, notice) : FIRST_RETRY_MS
          if (delayMs !== undefined) break
          delayMs = await this.#attempt(room, notice, queue.failures)
          if (delayMs !== undefined) {
            queue.failures++
            break
          }
          queue.accepted = notice
        }
        await store.notices.remove(room, notice)
        queue.removed(notice)
      }
    } catch (error) {
      delayMs = FIRST_RETRY_MS
      if (!(error instanceof StoreUnavailable)) log.error({ err: error, room }, 'notices not delivered')
    }
    queue.busy = false
    if (this.#stopped) return
    if (queue.ended) await this.leave(queue)
    else if (delayMs !== undefined) this.#later(queue, delayMs, () => this.ready(queue))
    else if (queue.size > 0) this.ready(queue)
    else if (queue.indexed) this.#later(queue, IDLE_MS, () => void this.#unlist(queue))
  }

  #later(queue: NoticeQueue, delayMs: number, run: () => void): void {
    queue.later(this.#env.clock.schedule(delayMs, run))
  }

  /** The room has had no notice for a while, and leaves the index. A notice that is announced now has a later fence, and stays. */
  async #unlist(queue: NoticeQueue): Promise<void> {
    if (!queue.isEmpty || queue.ended) return
    const { room, fence } = queue
    queue.unlisted()
    await this.#env.store.notices.set(room, fence, undefined).catch(() => undefined)
  }

  /** Takes due rooms. While the backend cannot be reached: one that probes it, when it is time. */
  async #take(part: number, places: number): Promise<OwnerlessRoom[]> {
    const { notices } = this.#env.store
    const probes = this.#breaker.isOpen
    if (probes && this.#breaker.begin() > 0) return []
    let taken: DueRoom[] = []
    try {
      taken = await notices.take(part, { limit: probes ? 1 : places, againMs: LOOK_MS })
    } finally {
      if (probes && taken.length === 0) this.#breaker.cancel()
    }
    return taken.map((due) => ({ ...due, probes }))
  }

  /** Delivers the notices of a room that has no owner, until there is none or an attempt fails. */
  async #deliverOwnerless(due: OwnerlessRoom): Promise<void> {
    const probe = { isPending: due.probes }
    await this.#deliverDue(due, probe).finally(() => {
      if (probe.isPending) this.#breaker.cancel()
    })
  }

  /** `probe.isPending`: true until the probe of this room has begun. */
  async #deliverDue({ room, fence }: OwnerlessRoom, probe: { isPending: boolean }): Promise<void> {
    const { rooms, notices } = this.#env.store
    while (!this.#stopped) {
      const record = await rooms.inspect(room)
      if (await this.#hasOwner(room, record)) return
      const [notice] = await notices.oldest(room, 1)
      if (!notice) {
        this.#waiting.delete(room)
        // Otherwise the room stays in the index, because a suspended owner may still write the notice that it has announced.
        if (!mayWrite(record, fence)) await notices.set(room, fence, undefined)
        return
      }
      await this.#setDue(room, fence, LEASE_MS)
      const waitMs = probe.isPending ? undefined : this.#mustWait(room, notice)
      probe.isPending = false
      const delayMs = waitMs ?? (await this.#attempt(room, notice))
      if (delayMs !== undefined) {
        await this.#setDue(room, fence, delayMs)
        if (waitMs === undefined) this.#env.clock.schedule(delayMs, () => this.#ownerless.look(duePart(room)))
        return
      }
      await notices.remove(room, notice)
    }
    // Another node need not wait.
    await this.#setDueNow(room, fence)
  }

  /** True if a node owns the room, and delivers its notices. A node that could not release a room is its owner in the store. */
  async #hasOwner(room: string, record: RoomOwner | undefined): Promise<boolean> {
    const owner = record?.owner ?? undefined
    if (owner === undefined) return false
    const { nodeId, isAlive } = this.#env
    if (owner !== nodeId) return isAlive(owner)
    const queue = this.#owned.get(room)
    // Notices that the queue does not know, for example of a type that had notices in an earlier version.
    if (queue?.isEmpty && !queue.indexed) queue.recover()
    return queue !== undefined
  }

  /** Another node may take the room, also if the clock of this node has just been set. */
  #setDueNow(room: string, fence: Fence): Promise<void> {
    return this.#env.store.notices.set(room, fence, 0)
  }

  async #setDue(room: string, fence: Fence, delayMs: number): Promise<void> {
    const { clock, clockOffset, store } = this.#env
    await store.notices.set(room, fence, Math.floor(clock.now() - clockOffset.ms + delayMs))
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

  /** Milliseconds for which the notice waits, because the backend cannot be reached. Undefined: an attempt begins. */
  #mustWait(room: string, bytes: Uint8Array): number | undefined {
    const waitMs = this.#breaker.begin()
    this.#reportAge(room, timeOf(decodeNotice(bytes)), waitMs + LEASE_MS)
    return waitMs > 0 ? waitMs : undefined
  }

  /**
   * Sends a notice. Undefined: it needs no other attempt. Otherwise the milliseconds until the next one. `failures`: number of earlier
   * failures. Undefined: not known, and the age of the notice decides.
   */
  async #attempt(room: string, bytes: Uint8Array, failures?: number): Promise<number | undefined> {
    const { clock, log, metrics, post } = this.#env
    const notice = decodeNotice(bytes)
    const { projectId } = roomNamed(room)
    const at = timeOf(notice)
    const ageMs = clock.now() - at
    const { signal } = this.#stopping
    const attempt = await attemptOf(post, { projectId, ...notice }, signal)
    if (signal.aborted && attempt.is === 'failed') return 0
    this.#breaker.end(attempt.is !== 'failed' || attempt.reached)
    if (attempt.is === 'delivered') {
      metrics.noticeAttempts.inc({ result: 'delivered' })
      metrics.noticeAge.observe(Math.max(0, clock.now() - at) / 1000)
      this.#waiting.delete(room)
      return undefined
    }
    const isDead = attempt.is === 'rejected' || ageMs >= MAX_AGE_MS
    metrics.noticeAttempts.inc({ result: isDead ? 'dead' : 'failed' })
    const fields = { room, notice: notice.id, reason: attempt.reason }
    if (!isDead) {
      const backoffMs = Math.min(
        failures === undefined ? Math.max(FIRST_RETRY_MS, ageMs / 2) : retryDelay(failures),
        attempt.is === 'failed' && attempt.reached ? LONGEST_RETRY_MS : LONGEST_PROBE_MS + AFTER_OTHERS_MS,
      )
      const delayMs = Math.max(backoffMs, Math.min(attempt.retryAfterMs, LONGEST_RETRY_AFTER_MS))
      this.#reportAge(room, at, delayMs + LEASE_MS)
      const suppressed = this.#quiet.pass(attempt.reason)
      if (suppressed !== undefined) log.warn({ ...fields, suppressed }, 'notice not accepted')
      return delayMs
    }
    await this.#deadLetters.add(projectId, notice, attempt.reason)
    log.warn(fields, 'notice moved to the dead letters')
    this.#waiting.delete(room)
    return undefined
  }
}

/** A due room of the index. `probes`: its first attempt shows whether the backend can be reached again. */
interface OwnerlessRoom extends DueRoom {
  readonly probes: boolean
}

/** Time of the turn of a notice, milliseconds since 1970. */
const timeOf = ({ body }: StoredNotice): number => Date.parse((JSON.parse(body) as NoticeBody).at)

/** True if the owner that has announced a write under `fence` may still write it: its record is unchanged. */
const mayWrite = (record: RoomOwner | undefined, fence: Fence): boolean =>
  record?.owner != null && record.epoch === fence.epoch && record.version <= fence.version

/**
 * The places of projects for deliveries. While several projects have notices, each gets at most its share. A backend that does not answer so
 * delays only the notices of its project.
 */
class Places {
  readonly #clock: Clock
  readonly #max: number
  /** Deliveries under way, by project. */
  readonly #running = new Counts()
  /** Monotonic time of the last notice of each project, oldest first. */
  readonly #seen = new Map<string, number>()

  /** `max`: places of a project, if another one has notices. 0: no bound. */
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

  mayBegin(projectId: string): boolean {
    this.needs(projectId)
    return this.#max === 0 || this.#seen.size === 1 || this.#running.of(projectId) < this.#max
  }

  /** A delivery begins. Call the returned function at its end. */
  begin(projectId: string): () => void {
    this.#running.add(projectId, 1)
    return () => this.#running.add(projectId, -1)
  }
}

/** While the backend cannot be reached, one attempt at a time probes it, and the others wait. */
class Breaker {
  readonly #clock: Clock
  /** Attempts in a row that did not reach the backend. */
  #unreached = 0
  /** Monotonic time of the next probe. */
  #probeAt = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** True while the backend cannot be reached. */
  get isOpen(): boolean {
    return this.#unreached >= UNREACHED
  }

  /** An attempt begins, if 0 is returned. Otherwise it must wait for so many milliseconds. */
  begin(): number {
    const now = this.#clock.monotonic()
    if (!this.isOpen) return 0
    if (now < this.#probeAt) return this.#probeAt - now
    // The end of the probe sets another time.
    this.#probeAt = now + LONGEST_PROBE_MS
    return 0
  }

  /** There is no notice for the probe that has begun. */
  cancel(): void {
    this.#probeAt = this.#clock.monotonic()
  }

  /** An attempt has ended. `reached`: the backend has answered. */
  end(reached: boolean): void {
    this.#unreached = reached ? 0 : this.#unreached + 1
    if (this.isOpen)
      this.#probeAt =
        this.#clock.monotonic() + Math.min(LONGEST_PROBE_MS, retryDelay(this.#unreached - UNREACHED))
  }
}

/** Milliseconds until the next attempt, after so many earlier failures. */
const retryDelay = (failures: number): number => FIRST_RETRY_MS * 2 ** Math.min(failures, 20)
