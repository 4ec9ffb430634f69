import { type Clock, sleep } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import {
  type DueTimes,
  type Fence,
  type Release,
  type RoomRecords,
  StoreRefused,
  StoreRejected,
  StoreUnavailable,
} from '../../shared/store/port.ts'
import type { Additions } from './additions.ts'
import type { RoomCore } from './core.ts'
import type { JournalFormat } from './journal.ts'
import type { RoomLimits } from './limits.ts'
import type { RoomMetrics } from './metrics.ts'
import { OUTCOME_MS } from './outcomes.ts'
import { whole } from './update.ts'

/** Dependencies of a room's record. */
export interface RecordNeeds {
  readonly nodeId: string
  readonly clock: Clock
  readonly random: Random
  readonly records: RoomRecords
  readonly wakeups: DueTimes
  readonly limits: RoomLimits
  readonly metrics: RoomMetrics
  readonly format: JournalFormat
  readonly cluster: {
    readonly nodes: {
      /**
       * Monotonic time in milliseconds from which on this node may write a room again that the store has lost. Until then, a later owner
       * of the room may report itself.
       */
      readonly rewritesAllowedAt: number
    }
  }
}

const DAY_MS = 86_400_000
/** The snapshot of a room that is not stored. */
export const NO_ROOM = new Uint8Array(0)
const NONE: readonly never[] = []
const FIRST_RETRY_MS = 50
const LONGEST_RETRY_MS = 1000
/** Interval of the checks whether a lost room may be written again. */
const CHECK_MS = 100

/** How long the store keeps a room without an owner, from a write on. */
export interface RoomLife {
  /** Milliseconds. Infinity: until an owner changes it. */
  readonly ttlMs: number
  /** The room counts as one of its creator's lasting rooms. */
  readonly lasting: boolean
}

type AddingWrite = (fence: Fence, added: readonly Uint8Array[]) => Promise<boolean>
type Standing = 'same' | 'next' | 'rewritten' | 'lost'

/**
 * A room's record in the store. Writes run under this node's fence, one after the other. The promise of a write resolves to true when the
 * write is certainly stored, or to false if another node owns the room. If the answer to a write is lost, this object reads the record to learn
 * whether the write is stored, before it repeats the write.
 */
export class RoomRecord {
  readonly #needs: RecordNeeds
  readonly #room: RoomCore
  /** True if the store keeps the room while it has no owner. */
  readonly #stored: boolean
  readonly #additions: Additions
  readonly #look: () => void
  #fence: Fence
  #last: Promise<unknown> = Promise.resolve()
  /** A verification that has not begun. Later callers share it. */
  #verification: Promise<boolean> | undefined
  #uncertain = false
  #givenUp = false
  #ownedAt = 0
  /** Until when the store counts the room, by this owner's last refresh: milliseconds since 1970. */
  #countedUntil: number
  /**
   * The room's wakeup time in the store. It is never later than the time in the record. Undefined: none. Infinity: not known, or written by
   * an earlier owner.
   */
  #wakeAt: number | undefined
  #wakeups = 0
  /** A claim of a lost record was sent, and its answer is unknown. */
  #claiming = false
  /** Entries given to the journal, and how many of them the last whole write contains. */
  #entries = 0
  #covered = 0

  /** Calls `look` when `uncertain` or the epoch of the room has changed. */
  constructor(room: RoomCore, fence: Fence, additions: Additions, needs: RecordNeeds, look: () => void) {
    this.#needs = needs
    this.#room = room
    this.#stored = room.definition.durability !== 'none'
    this.#additions = additions
    this.#look = look
    this.#fence = fence
    this.#countedUntil = needs.clock.now() + needs.limits.recordTtlMs
    this.#wakeAt = this.#dueAt === undefined ? undefined : Number.POSITIVE_INFINITY
  }

  /** When this node last owned the released room: milliseconds since 1970. */
  get ownedAt(): number {
    return this.#ownedAt
  }

  /** True if the store does not answer, and it is unknown which writes are stored. */
  get uncertain(): boolean {
    return this.#uncertain
  }

  /** Adds an entry to the journal. `flushed`: additions of its update. */
  append(entry: Uint8Array, flushed: readonly Uint8Array[]): Promise<boolean> {
    const number = ++this.#entries
    const { ttlMs } = this.#life
    const wakeAt = this.#dueAt
    const { records } = this.#needs
    const done = this.#inOrder(() =>
      // The store had lost the record while this entry waited, and a whole write contains the entry.
      number <= this.#covered
        ? true
        : this.#waking(
            wakeAt,
            flushed,
            (fence, added) => records.commit(this.#room.name, fence, entry, ttlMs, added),
            'appends',
          ),
    )
    this.#countFor(ttlMs)
    return done
  }

  /** Replaces snapshot and journal. `flushed`: additions of the update that waits for this. */
  replace(snapshot: Uint8Array, flushed: readonly Uint8Array[] = NONE): Promise<boolean> {
    const fields = { ttlMs: this.#life.ttlMs, stateVersion: this.#room.state.version }
    const wakeAt = this.#dueAt
    const write: AddingWrite = (fence, added) => this.#snapshot(fence, snapshot, fields, added)
    const done = this.#inOrder(() => this.#waking(wakeAt, flushed, write))
    this.#countFor(fields.ttlMs)
    return done
  }

  /**
   * Releases the room. `forget`: deletes all of the record except its epoch, and writes the additions of the last turn. This node does not
   * own the room afterwards, whatever the result.
   */
  release(forget: boolean, outcomes?: Release['outcomes']): Promise<boolean> {
    const life = forget ? { ttlMs: this.#needs.limits.recordTtlMs } : this.#life
    let firstAt: number | undefined
    let last: readonly Uint8Array[] | undefined
    return this.#untilAnswered(async () => {
      // Not before: an earlier write may write the whole room again, which is as of the last flush.
      last ??= forget ? this.#takeLast() : NONE
      const added = last.length > 0 ? await this.#additions.prepare(this.#fence, last) : NONE
      // The store refuses after a lost answer: the first release took place, or another node owns the room.
      const wasSent = firstAt !== undefined
      const at = this.#needs.clock.now()
      firstAt ??= at
      const isDone = await this.#needs.records.release(this.#room.name, this.#fence, {
        ...{ forget, notices: added, ...life },
        ...(outcomes && { outcomes }),
      })
      this.#ownedAt = isDone ? at : firstAt
      const released = isDone || wasSent
      if (released && forget && this.#wakeAt !== undefined) this.#sendWakeup(undefined)
      if (released && added.length > 0) this.#additions.wrote(added)
      return released
    })
  }

  /** Returns the additions of the turn that ended the room. */
  #takeLast(): readonly Uint8Array[] {
    const { epoch, seq, state } = this.#room
    return this.#additions.flush({ epoch, seq: seq + (state.dirty ? 1 : 0) })
  }

  /** The store has reported the room as due: sends its wakeup time again. */
  repeatWakeup(): void {
    if (this.#wakeAt !== Number.POSITIVE_INFINITY) this.#sendWakeup(this.#wakeAt)
  }

  /**
   * Runs a write of a record whose wakeup time is `wakeAt`. A time earlier than the store's goes to the store before the write, and a later
   * one after it, so the store is never late. `flushed`: see `Additions`.
   */
  async #waking(
    wakeAt: number | undefined,
    flushed: readonly Uint8Array[] | undefined,
    write: AddingWrite,
    appends?: 'appends',
  ): Promise<boolean> {
    const added =
      flushed?.length === 0 ? NONE : await this.#retry(() => this.#additions.prepare(this.#fence, flushed))
    if (!added) return false
    const known = this.#wakeAt ?? Number.POSITIVE_INFINITY
    if (wakeAt !== undefined && wakeAt < known && !(await this.#requireWakeup(wakeAt))) return false
    const stored = await this.#writeUntilCertain(write, added, appends)
    if (stored && added.length > 0) this.#additions.wrote(added)
    if (stored && this.#wakeAt !== wakeAt) this.#sendWakeup(wakeAt)
    return stored
  }

  /** Sends the wakeup time to the store until it answers. False: the attempts were given up. */
  #requireWakeup(at: number): Promise<boolean> {
    return this.#retry(async () => {
      await this.#needs.wakeups.set(this.#room.name, this.#nextWakeup(), at)
      this.#wakeAt = at
      return true
    })
  }

  /** Sends the wakeup time to the store, without waiting for the answer. */
  #sendWakeup(at: number | undefined): void {
    this.#wakeAt = at
    this.#needs.wakeups.set(this.#room.name, this.#nextWakeup(), at).catch(() => {
      this.#wakeAt = Number.POSITIVE_INFINITY
    })
  }

  #nextWakeup(): Fence {
    return { epoch: this.#fence.epoch, version: ++this.#wakeups }
  }

  /** Extends the life of the record, and the time for which the store counts the room. No other write extends that time. */
  refresh(): Promise<boolean> {
    const { ttlMs, lasting } = this.#life
    this.#countedUntil = this.#needs.clock.now() + ttlMs
    // A fail-over of the store may have lost the wakeup time.
    if (this.#wakeAt !== undefined) this.repeatWakeup()
    return this.#untilAnswered(
      async () =>
        (await this.#needs.records.refresh(this.#room.name, this.#fence, ttlMs, lasting)) ||
        this.#isOwn(await this.#standing()),
    )
  }

  /** Refreshes a room that lasts longer from now on, if the next regular refresh may be too late for its count. */
  #countFor(ttlMs: number): void {
    const until = this.#needs.clock.now() + ttlMs
    if (until > this.#countedUntil + this.#needs.limits.recordTtlMs) void this.refresh()
  }

  /** Asks the store after all earlier work, until it answers. False: the attempts were given up. */
  #untilAnswered(ask: () => Promise<boolean>): Promise<boolean> {
    return this.#inOrder(() => this.#retry(ask))
  }

  /** Asks the store until it answers. False: the attempts were given up. */
  async #retry<T>(ask: () => Promise<T>): Promise<T | false> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await ask()
      } catch (error) {
        if (!(await this.#pause(attempt, error))) return false
      }
    }
  }

  /**
   * Resolves to true if the record is still as this node left it. Calls that come before the check begins share it: a node that was taken
   * for dead gets such a call for every message that waited for it, and writes must not wait for all those checks.
   */
  verify(): Promise<boolean> {
    this.#verification ??= this.#inOrder(async () => {
      this.#verification = undefined
      return this.#isOwn(await this.#standing())
    })
    return this.#verification
  }

  /** Stops asking a store that does not answer. Work in progress ends as if the room were fenced. */
  giveUp(): void {
    this.#givenUp = true
  }

  /** Writes until the answer is certain. Repeats a write only after the record has shown that it is not stored. */
  async #writeUntilCertain(
    write: AddingWrite,
    added: readonly Uint8Array[],
    appends?: 'appends',
  ): Promise<boolean> {
    for (let attempt = 0; ; attempt++) {
      let fenced = false
      let ranInPart = false
      try {
        if (await write(this.#fence, added)) break
        fenced = true
      } catch (error) {
        ranInPart = error instanceof StoreRefused
        if (!(await this.#pause(attempt, error))) return false
      }
      const standing = await this.#standing()
      if (standing === 'rewritten') return true
      // Only this node writes under its epoch, so this is the same write, sent or answered twice.
      if (standing === 'next') break
      if (standing === 'lost' || fenced) return false
      // The entry may be in the journal without the commit that counts it. A second copy would make the record unreadable.
      if (appends && ranInPart) return this.#writeWhole()
    }
    this.#fence = { epoch: this.#fence.epoch, version: this.#fence.version + 1 }
    return true
  }

  /**
   * Compares the record with the last write of this node. `same`: as this node left it. `next`: one write further. `rewritten`: written
   * again, because the store had lost it. `lost`: another node owns the room.
   */
  async #standing(): Promise<Standing> {
    const { nodeId: owner } = this.#needs
    for (let attempt = 0; ; attempt++) {
      try {
        const found = await this.#needs.records.inspect(this.#room.name)
        const { epoch, version } = this.#fence
        // An epoch ahead of this owner's may come from its own claim, whose answer was lost.
        const claimed = this.#claiming && found?.owner === owner && found.epoch > epoch
        // The record is lost, and may be recalled: by an earlier owner, or by this one with a lost answer. Or its life ended while the
        // store was away, and only the epoch is left: no other node releases the room under this epoch.
        const missing = !found || (found.epoch <= epoch && (found.owner === null || found.recalled === true))
        const recalled = missing && (await this.#recall())
        // An epoch behind this owner's: a fail-over of the store has lost the last writes.
        if (missing || claimed || found.epoch < epoch) {
          // Refused: another node or an earlier claim of this owner was faster. The record shows which.
          if (!(await this.#reclaim(recalled ? epoch : (found?.epoch ?? 0)))) continue
          return (await this.#writeWhole()) ? 'rewritten' : 'lost'
        }
        if (found.owner !== owner || found.epoch !== epoch) return 'lost'
        if (found.version === version) return 'same'
        if (found.version < version) return (await this.#rewrite(found.version)) ? 'rewritten' : 'lost'
        return found.version === version + 1 ? 'next' : 'lost'
      } catch (error) {
        if (!(await this.#pause(attempt, error))) return 'lost'
      }
    }
  }

  /**
   * Records that this node owned the room, and waits for a later owner to do the same. A node that lost the room while it was cut off may
   * be the first to find that the store has lost everything. False: another node owns the room.
   */
  async #recall(): Promise<boolean> {
    const { nodeId, clock, cluster } = this.#needs
    if (
      !(await this.#needs.records.recall(
        this.#room.name,
        nodeId,
        this.#fence.epoch,
        this.#needs.limits.recordTtlMs,
      ))
    )
      return false
    for (;;) {
      const waitMs = cluster.nodes.rewritesAllowedAt - clock.monotonic()
      if (waitMs <= 0 || this.#givenUp) return true
      this.#setUncertain(true)
      await sleep(clock, Math.min(waitMs, CHECK_MS))
    }
  }

  /**
   * The store has lost the claim. Claims the room again, to continue from memory under a new epoch. False: the record has another epoch by
   * now.
   */
  async #reclaim(foundEpoch: number): Promise<boolean> {
    this.#claiming = true
    const { nodeId } = this.#needs
    const claim = await this.#needs.records.claim(
      this.#room.name,
      nodeId,
      foundEpoch,
      this.#needs.limits.recordTtlMs,
    )
    if (!claim) return false
    this.#claiming = false
    this.#renew(claim.fence)
    this.#room.log.warn(
      { epoch: claim.fence.epoch },
      'the store has lost the room; writing it again from memory',
    )
    return true
  }

  /**
   * The room continues from memory under a new epoch. An update that members have not received gets the new epoch, because another owner
   * may have used its seq under the old epoch.
   */
  #renew(fence: Fence): void {
    const { epoch } = fence
    const room = this.#room
    room.history.lose({ after: this.#fence.epoch, before: epoch })
    room.epoch = epoch
    this.#fence = fence
    const { inFlight } = room
    if (inFlight) {
      const update = { ...inFlight.update, epoch }
      room.inFlight = { ...inFlight, update, packed: inFlight.packed && this.#needs.format.entry(update) }
    }
    this.#look()
  }

  /** The store has lost this owner's last writes. No other node writes under its epoch, so it writes the whole room again. */
  #rewrite(version: number): Promise<boolean> {
    const { epoch } = this.#fence
    this.#room.log.warn(
      { epoch, lost: this.#fence.version - version },
      'the store has lost writes of the room; writing it again from memory',
    )
    this.#fence = { epoch, version }
    return this.#writeWhole()
  }

  async #writeWhole(): Promise<boolean> {
    const packed = this.#whole()
    const fields = { ttlMs: this.#life.ttlMs, stateVersion: this.#room.state.version }
    const entries = this.#entries
    const wakeAt = this.#dueAt
    // The store may have lost the wakeup time with the record.
    if (this.#wakeAt !== undefined) this.#wakeAt = Number.POSITIVE_INFINITY
    const write: AddingWrite = (fence, added) => this.#snapshot(fence, packed, fields, added)
    if (!(await this.#waking(wakeAt, undefined, write))) return false
    this.#covered = Math.max(this.#covered, entries)
    return true
  }

  #snapshot(
    fence: Fence,
    snapshot: Uint8Array,
    { ttlMs, stateVersion }: { ttlMs: number; stateVersion: number },
    added: readonly Uint8Array[],
  ): Promise<boolean> {
    return this.#needs.records.snapshot(this.#room.name, fence, snapshot, ttlMs, stateVersion, added)
  }

  /** When a node has to run the room, as of the last flush: milliseconds since 1970. Undefined: never. */
  get #dueAt(): number | undefined {
    return this.#stored ? this.#room.tables.flushedDue : undefined
  }

  /** Life of the record, from a write that starts now. */
  get #life(): RoomLife {
    const { ttlMs, lasting } = this.#own ?? { ttlMs: 0, lasting: false }
    return { ttlMs: Math.max(ttlMs, this.#needs.limits.recordTtlMs), lasting }
  }

  /** How long the store keeps the room without an owner, in milliseconds. */
  get lifeMs(): number {
    return this.#own?.ttlMs ?? this.#needs.limits.recordTtlMs
  }

  /**
   * How long the store keeps the room without an owner, as of the last flush. Undefined: the default. A room that sleeps or has timers:
   * `sleepDays` from now, or from the next due time. A room with changes that its database lacks: without end, because there is no other
   * copy. A room with outcomes of requests: at least until they expire.
   */
  get #own(): RoomLife | undefined {
    if (!this.#stored) return undefined
    const { definition, tables, unsaved } = this.#room
    const { clock, limits } = this.#needs
    const due = tables.flushedDue
    const lasting = definition.onIdle === 'sleep' || due !== undefined
    if (unsaved) return { ttlMs: Number.POSITIVE_INFINITY, lasting }
    const outcomesMs = tables.outcomes.size > 0 ? OUTCOME_MS : 0
    if (!lasting && outcomesMs === 0) return undefined
    const untilDueMs = due === undefined ? 0 : Math.max(0, due - clock.now())
    const restMs = lasting ? untilDueMs + definition.sleepDays * DAY_MS : limits.recordTtlMs
    return { ttlMs: Math.ceil(Math.max(restMs, outcomesMs)), lasting }
  }

  /** The whole room as of its last flush. Empty: it is not stored. */
  #whole(): Uint8Array {
    return this.#stored ? whole(this.#room, this.#needs.format) : NO_ROOM
  }

  #isOwn(standing: Standing): boolean {
    return standing === 'same' || standing === 'rewritten'
  }

  /** Runs `work` after all earlier work. */
  #inOrder(work: () => Promise<boolean> | boolean): Promise<boolean> {
    const { clock, metrics } = this.#needs
    const done = this.#last.then(async () => {
      const began = clock.monotonic()
      const stored = await work()
      metrics.commitDuration.observe((clock.monotonic() - began) / 1000)
      // A lost room stays frozen until it is gone.
      if (stored) this.#setUncertain(false)
      return stored
    })
    this.#last = done.catch(() => false)
    return done
  }

  /**
   * Waits before the next attempt. False: do not try again. Only an error that is certain to last ends the room here. After any other error
   * the memory of this node is the only copy of what was acked since the last write.
   */
  async #pause(attempt: number, error: unknown): Promise<boolean> {
    const { clock, random } = this.#needs
    if (error instanceof StoreRejected) {
      this.#room.log.error(
        { err: error },
        'the store can never take the record of the room: the room ends here',
      )
      return false
    }
    if (attempt === 0) {
      const failure = error instanceof StoreUnavailable ? error.failure : undefined
      this.#room.log.warn({ failure, err: error }, 'the store did not take a write: the room waits')
    }
    this.#setUncertain(true)
    if (this.#givenUp) return false
    const longest = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** attempt)
    await sleep(clock, longest * (0.5 + random.float() / 2))
    return !this.#givenUp
  }

  #setUncertain(uncertain: boolean): void {
    if (this.#uncertain === uncertain) return
    this.#uncertain = uncertain
    this.#look()
  }
}
