import { sleep } from '../../shared/clock.ts'
import {
  type Fence,
  type Release,
  type RoomRecords,
  StoreRefused,
  StoreRejected,
  StoreUnavailable,
} from '../../shared/store/port.ts'
import type { Durability } from './definition.ts'
import type { RoomEnvironment } from './environment.ts'
import type { Update } from './journal.ts'
import type { Timer } from './scheduler.ts'
import type { RoomStream } from './stream.ts'

/**
 * When and how a room's updates reach the store, as its room type asks for: a `journal` room has each update written before it stands, a `snapshot`
 * room is written soon after it has changed, and one with `none` is written only to be handed over.
 */
export class RoomDurability {
  readonly #durability: Durability
  readonly #room: RoomStream
  #ended = false
  /** Of a journal: entries and bytes since the snapshot, and the size of that. A room has none at first. */
  #journal = { entries: Number.POSITIVE_INFINITY, bytes: 0, snapshotBytes: 0 }
  /** Of a `snapshot` room: when it is written next; whether it is being written, and since when it has changes that this does not write. */
  readonly #snapshot: Timer
  #writing = false
  #changedSince: number | undefined

  constructor(durability: Durability, room: RoomStream) {
    this.#durability = durability
    this.#room = room
    this.#snapshot = room.environment.scheduler.timer(() => this.#writeSnapshot())
  }

  /** The room had another owner. One that is not stored was handed over, and what it was then is not to come back. */
  takenOver(): void {
    if (!this.#room.stored) void this.#replace(this.#room.whole())
  }

  /** The journal entry of an update; undefined in a room that is not stored. */
  entry(update: Update): Uint8Array | undefined {
    return this.#room.stored ? this.#room.environment.format.entry(update) : undefined
  }

  /**
   * Keeps the update that the room has flushed last, of which this is the entry. The promise tells whether it stands; undefined: it need
   * not be waited for. `atOnce`: a `snapshot` room is written with this update, which waits for the write.
   * `notices` are written with the update.
   */
  commit(
    entry: Uint8Array | undefined,
    atOnce: boolean,
    notices: readonly Uint8Array[],
  ): Promise<boolean> | undefined {
    if (!entry) return undefined
    const { environment, record } = this.#room
    if (this.#durability === 'snapshot' && atOnce) {
      this.#snapshot.cancel()
      this.#changedSince = undefined
      return record.replace(this.#room.withoutHistory(), notices)
    }
    if (this.#durability === 'snapshot') {
      this.#changedSince ??= environment.clock.monotonic()
      if (!this.#writing) this.#snapshotSoon(this.#changedSince)
      return undefined
    }
    const { journalEntries, journalBytes } = environment.limits
    const { entries, bytes, snapshotBytes } = this.#journal
    if (entries >= journalEntries || bytes >= Math.max(journalBytes, snapshotBytes)) {
      const whole = this.#room.whole()
      this.#journal = { entries: 0, bytes: 0, snapshotBytes: whole.length }
      return record.replace(whole, notices)
    }
    this.#journal.entries++
    this.#journal.bytes += entry.length
    return record.append(entry, notices)
  }

  /** The next update is written as a whole snapshot, which says the version of the state: no entry does. */
  snapshotNext(): void {
    this.#journal.entries = Number.POSITIVE_INFINITY
  }

  /** Gives the room up, for others to go on with (`forget` false: written first) or for good, with what its last turn leaves. */
  async release(forget: boolean, left: Pick<Release, 'notices' | 'outcomes'> = {}): Promise<boolean> {
    const { record, stored } = this.#room
    // A room that is not stored has no history to give.
    const whole = () => (stored ? this.#room.whole() : this.#room.withoutHistory())
    if (!forget && !(await record.replace(whole()))) return false
    return record.release(forget, left)
  }

  /** Nothing is written by itself any more. */
  end(): void {
    this.#ended = true
    this.#snapshot.cancel()
  }

  #snapshotSoon(changedAt: number): void {
    this.#snapshot.at(changedAt + this.#room.environment.limits.snapshotMs)
  }

  #writeSnapshot(): void {
    // One every second need not carry what a crash makes worthless: members are resynced after one. Where this throws, the next change
    // asks for a snapshot again.
    this.#changedSince = undefined
    const whole = this.#room.withoutHistory()
    this.#writing = true
    void this.#replace(whole).then(() => {
      this.#writing = false
      if (this.#changedSince !== undefined && !this.#ended) this.#snapshotSoon(this.#changedSince)
    })
  }

  /** Writes what no update waits for. */
  async #replace(whole: Uint8Array): Promise<void> {
    if (!(await this.#room.record.replace(whole)) && !this.#ended) this.#room.fenced()
  }
}

const FIRST_RETRY_MS = 50
const LONGEST_RETRY_MS = 1000
/** Notices that were written so long before the last one are kept, and at most so many: the store may lose them. */
const NOTICES_KEPT_MS = 30_000
const MAX_NOTICES_KEPT = 1000
/** How often is checked whether a room may be written again. */
const CHECK_MS = 100

/** For how long the store keeps a room that no one has, from a write on. */
export interface RoomLife {
  /** Milliseconds; Infinity: until an owner says otherwise. */
  readonly ttlMs: number
  /** The room counts as one of its creator's lasting rooms. */
  readonly lasting: boolean
}

/** The room of a log. Each write asks it for the room as of its last flush. */
export type RecordedRoom = Pick<
  RoomStream,
  'name' | 'log' | 'life' | 'wakeAt' | 'flushedVersion' | 'whole' | 'renew' | 'doubt'
> & { readonly notices: Pick<RoomStream['notices'], 'wrote'> }

interface WrittenNotice {
  readonly at: number
  readonly notice: Uint8Array
}
type Write = (fence: Fence) => Promise<boolean>
/** A write that adds notices. */
type NoticingWrite = (fence: Fence, notices: readonly Uint8Array[]) => Promise<boolean>
type Standing = 'same' | 'next' | 'rewritten' | 'lost'

/**
 * A room's record in the store, written under this node's fence, one write after the other. Each write's promise tells true once it is
 * certain to stand, or false when the room is another node's (fenced), and takes as long as that needs: a write whose answer was lost
 * is neither taken for done nor blindly repeated, the record says which it was.
 */
export class FencedLog {
  readonly #environment: RoomEnvironment
  readonly #room: RecordedRoom
  #fence: Fence
  #last: Promise<unknown> = Promise.resolve()
  /** One that has not begun. */
  #verification: Promise<boolean> | undefined
  #uncertain = false
  #givenUp = false
  #ownedAt = 0
  /** Up to when the room is counted, as far as this owner has said: milliseconds since 1970. */
  #countedUntil: number
  /**
   * When the room is to be woken, as far as the store was told: at no time later than the record says. Infinity: what an earlier owner has told it,
   * or something that is not known.
   */
  #wakeAt: number | undefined
  #wakeups = 0
  /** A claim of a record that the store has lost was sent, and nothing is known of it. */
  #claiming = false
  /** Entries given to the journal, and how many of them a whole room that was written in their place has in it. */
  #entries = 0
  #covered = 0
  /** Notices that are not known to be written, by update. */
  readonly #unwritten = new Set<readonly Uint8Array[]>()
  /** Notices that were written lately, and when that was, on the monotonic clock. */
  #written: WrittenNotice[] = []

  /** Of a room that this node has claimed. */
  constructor(environment: RoomEnvironment, room: RecordedRoom, fence: Fence) {
    this.#environment = environment
    this.#room = room
    this.#fence = fence
    this.#countedUntil = environment.clock.now() + this.#recordTtlMs
    this.#wakeAt = room.wakeAt === undefined ? undefined : Number.POSITIVE_INFINITY
  }

  get epoch(): number {
    return this.#fence.epoch
  }

  /** Of a released room: when it was still this node's, milliseconds since 1970. */
  get ownedAt(): number {
    return this.#ownedAt
  }

  /** Whether the store is silent, and it is not known what stands. */
  get uncertain(): boolean {
    return this.#uncertain
  }

  /** Adds an entry to the journal. */
  append(entry: Uint8Array, notices: readonly Uint8Array[]): Promise<boolean> {
    const number = ++this.#entries
    const { ttlMs } = this.#life
    const wakeAt = this.#room.wakeAt
    if (notices.length > 0) this.#unwritten.add(notices)
    const done = this.#alone(async () => {
      // The store had lost the record, and was told all of the room while this entry waited.
      if (number <= this.#covered) return true
      const write: NoticingWrite = (fence, added) =>
        this.#records.commit(this.#room.name, fence, entry, ttlMs, added)
      return this.#waking(wakeAt, [notices], write, 'appends')
    })
    this.#countFor(ttlMs)
    return done
  }

  /** Replaces snapshot and journal. */
  replace(snapshot: Uint8Array, notices: readonly Uint8Array[] = []): Promise<boolean> {
    const said = this.#said()
    const wakeAt = this.#room.wakeAt
    if (notices.length > 0) this.#unwritten.add(notices)
    const write: NoticingWrite = (fence, added) => this.#snapshot(fence, snapshot, said, added)
    const done = this.#alone(() => this.#waking(wakeAt, [notices], write))
    this.#countFor(said.ttlMs)
    return done
  }

  /** Gives the room up; with `forget`, everything but its epoch goes. After that it is not this node's, with any answer. */
  release(forget: boolean, left: Pick<Release, 'notices' | 'outcomes'> = {}): Promise<boolean> {
    const { notices = [] } = left
    const options = { forget, ...(forget ? { ttlMs: this.#recordTtlMs } : this.#life), ...left }
    let firstAt: number | undefined
    return this.#untilAnswered(async () => {
      if (notices.length > 0) await this.#environment.notices.announce(this.#room.name, this.#fence)
      // Refused after a lost answer: that release took place, or the room is another node's.
      const wasSent = firstAt !== undefined
      const at = this.#environment.clock.now()
      firstAt ??= at
      const isDone = await this.#records.release(this.#room.name, this.#fence, options)
      this.#ownedAt = isDone ? at : firstAt
      const released = isDone || wasSent
      if (released && forget && this.#wakeAt !== undefined) this.#tellWakeup(undefined)
      if (released && notices.length > 0) this.#room.notices.wrote(notices.length)
      return released
    })
  }

  /** The store says that the room is due: it is told again when it is. */
  repeatWakeup(): void {
    if (this.#wakeAt !== Number.POSITIVE_INFINITY) this.#tellWakeup(this.#wakeAt)
  }

  /**
   * Writes what a room that is to be woken at `wakeAt` has: the store is told before where that is earlier than it knows, and after where
   * it is not. If notices of `updates` are not written yet, they are written as well, and the store is told before, so that no notice is in no
   * index.
   */
  async #waking(
    wakeAt: number | undefined,
    updates: readonly (readonly Uint8Array[])[],
    write: NoticingWrite,
    appends?: 'appends',
  ): Promise<boolean> {
    const unwritten = updates.filter((notices) => this.#unwritten.has(notices))
    if (unwritten.length > 0 && !(await this.#announce())) return false
    const known = this.#wakeAt ?? Number.POSITIVE_INFINITY
    if (wakeAt !== undefined && wakeAt < known && !(await this.#requireWakeup(wakeAt))) return false
    const stands = await this.#settle((fence) => write(fence, unwritten.flat()), appends)
    if (stands) this.#wrote(unwritten)
    if (stands && this.#wakeAt !== wakeAt) this.#tellWakeup(wakeAt)
    return stands
  }

  /** Tells the store when to wake the room, until it has answered; false: that is given up. */
  #requireWakeup(at: number): Promise<boolean> {
    return this.#retry(async () => {
      await this.#environment.wakeups.set(this.#room.name, this.#nextWakeup(), at)
      this.#wakeAt = at
      return true
    })
  }

  /** Tells the store that notices follow, until it has answered. False: that is given up. */
  #announce(): Promise<boolean> {
    return this.#retry(async () => {
      await this.#environment.notices.announce(this.#room.name, this.#fence)
      return true
    })
  }

  /** The notices of these updates are written. */
  #wrote(updates: readonly (readonly Uint8Array[])[]): void {
    const written = updates.filter((notices) => this.#unwritten.delete(notices)).flat()
    if (written.length === 0) return
    this.#room.notices.wrote(written.length)
    const at = this.#environment.clock.monotonic()
    const kept = this.#written.filter((earlier) => earlier.at >= at - NOTICES_KEPT_MS)
    this.#written = [...kept, ...written.map((notice) => ({ at, notice }))].slice(-MAX_NOTICES_KEPT)
  }

  /** The same, for what no write waits for. */
  #tellWakeup(at: number | undefined): void {
    this.#wakeAt = at
    this.#environment.wakeups.set(this.#room.name, this.#nextWakeup(), at).catch(() => {
      this.#wakeAt = Number.POSITIVE_INFINITY
    })
  }

  #nextWakeup(): Fence {
    return { epoch: this.#fence.epoch, version: ++this.#wakeups }
  }

  /** Says for how long the record lives, and for how long the room is counted, which no other write does. */
  refresh(): Promise<boolean> {
    const { ttlMs, lasting } = this.#life
    this.#countedUntil = this.#environment.clock.now() + ttlMs
    // A fail-over of the store may have lost it.
    if (this.#wakeAt !== undefined) this.repeatWakeup()
    return this.#untilAnswered(
      async () =>
        (await this.#records.refresh(this.#room.name, this.#fence, ttlMs, lasting)) ||
        this.#isOwn(await this.#standing()),
    )
  }

  /** A room that lasts longer from now on has to be counted for as long, which the next regular refresh may be too late for. */
  #countFor(ttlMs: number): void {
    const until = this.#environment.clock.now() + ttlMs
    if (until > this.#countedUntil + this.#recordTtlMs) void this.refresh()
  }

  /** Asks the store, in its turn, until it has answered; false: that is given up. */
  #untilAnswered(ask: () => Promise<boolean>): Promise<boolean> {
    return this.#alone(() => this.#retry(ask))
  }

  async #retry(ask: () => Promise<boolean>): Promise<boolean> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await ask()
      } catch (error) {
        if (!(await this.#pause(attempt, error))) return false
      }
    }
  }

  /**
   * Whether the record is still this node's, exactly as it left it. One answer serves all who ask before the store is asked: an owner that was
   * taken for dead answers every message that had waited for it by naming the new one, and no write is to wait for as many looks.
   */
  verify(): Promise<boolean> {
    this.#verification ??= this.#alone(async () => {
      this.#verification = undefined
      return this.#isOwn(await this.#standing())
    })
    return this.#verification
  }

  /** Stops asking a store that does not answer; what is under way ends as if fenced. */
  giveUp(): void {
    this.#givenUp = true
  }

  /** Writes until the answer is certain. Never repeats a write before the record has said that it does not stand. */
  async #settle(write: Write, appends?: 'appends'): Promise<boolean> {
    for (let attempt = 0; ; attempt++) {
      let fenced = false
      let ranInPart = false
      try {
        if (await write(this.#fence)) return this.#stood()
        fenced = true
      } catch (error) {
        ranInPart = error instanceof StoreRefused
        if (!(await this.#pause(attempt, error))) return false
      }
      const standing = await this.#standing()
      if (standing === 'rewritten') return true
      // No one else writes under this epoch: it was this very write, sent or answered twice.
      if (standing === 'next') return this.#stood()
      if (standing === 'lost' || fenced) return false
      // The entry may be in the journal without the commit that counts it. A second one would make the record unreadable.
      if (appends && ranInPart) return this.#writeWhole()
    }
  }

  /**
   * Where the record is: as this node left it, one write further, written again because the store had lost it, or no longer this
   * node's.
   */
  async #standing(): Promise<Standing> {
    const { nodeId: owner } = this.#environment
    for (let attempt = 0; ; attempt++) {
      try {
        const found = await this.#records.inspect(this.#room.name)
        const { epoch, version } = this.#fence
        // One ahead of this owner's epoch may be of its own claim, whose answer was lost.
        const claimed = this.#claiming && found?.owner === owner && found.epoch > epoch
        // Lost, and perhaps recalled: by an earlier owner, or by this one, whose answer was lost. Or its life ran out while the store was
        // away, and the epoch alone is left: no one else gives it up under this epoch.
        const missing = !found || (found.epoch <= epoch && (found.owner === null || found.recalled === true))
        const recalled = missing && (await this.#recall())
        // One behind this owner's epoch is one that the store has gone back to: a fail-over loses the last writes.
        if (missing || claimed || found.epoch < epoch) {
          // Refused: another node was faster, or an earlier claim of this owner. The record says which.
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
   * Says that this owner had the room, and waits for a later owner to say the same: one that was replaced while it was cut off may
   * be the first to find that the store has lost everything. False: another node has the room.
   */
  async #recall(): Promise<boolean> {
    const { nodeId, clock, cluster } = this.#environment
    if (!(await this.#records.recall(this.#room.name, nodeId, this.#fence.epoch, this.#recordTtlMs)))
      return false
    for (;;) {
      const waitMs = cluster.nodes.rewritesAllowedAt - clock.monotonic()
      if (waitMs <= 0 || this.#givenUp) return true
      this.#setUnsure(true)
      await sleep(clock, Math.min(waitMs, CHECK_MS))
    }
  }

  /** The store has lost the claim: the room goes on from memory under a new epoch. False: the record has another epoch by now. */
  async #reclaim(foundEpoch: number): Promise<boolean> {
    this.#claiming = true
    const { nodeId } = this.#environment
    const claim = await this.#records.claim(this.#room.name, nodeId, foundEpoch, this.#recordTtlMs)
    if (!claim) return false
    this.#claiming = false
    this.#room.renew({ after: this.#fence.epoch, before: claim.fence.epoch })
    this.#fence = claim.fence
    this.#room.log.warn(
      { epoch: claim.fence.epoch },
      'the store has lost the room; writing it again from memory',
    )
    return true
  }

  /** The store has lost this owner's last writes: no one else writes under its epoch, so it writes the room as it has it. */
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
    const whole = this.#room.whole()
    const said = this.#said()
    const entries = this.#entries
    const wakeAt = this.#room.wakeAt
    // The store may have lost this with the record.
    if (this.#wakeAt !== undefined) this.#wakeAt = Number.POSITIVE_INFINITY
    // The store may have lost these as well, also if it was away for longer. It keeps each notice once.
    const again = this.#written.map(({ notice }) => notice)
    if (again.length > 0 && !(await this.#announce())) return false
    const write: NoticingWrite = (fence, added) => this.#snapshot(fence, whole, said, [...again, ...added])
    if (!(await this.#waking(wakeAt, [...this.#unwritten], write))) return false
    this.#covered = Math.max(this.#covered, entries)
    return true
  }

  #snapshot(
    fence: Fence,
    snapshot: Uint8Array,
    { ttlMs, stateVersion }: { ttlMs: number; stateVersion: number },
    notices: readonly Uint8Array[],
  ): Promise<boolean> {
    return this.#records.snapshot(this.#room.name, fence, snapshot, ttlMs, stateVersion, notices)
  }

  get #records(): RoomRecords {
    return this.#environment.records
  }

  /** How long the record is to outlive a write that is asked for now. */
  get #life(): RoomLife {
    const { ttlMs, lasting } = this.#room.life ?? { ttlMs: 0, lasting: false }
    return { ttlMs: Math.max(ttlMs, this.#recordTtlMs), lasting }
  }

  /** What a snapshot that is made now says besides. */
  #said(): { readonly ttlMs: number; readonly stateVersion: number } {
    return { ttlMs: this.#life.ttlMs, stateVersion: this.#room.flushedVersion }
  }

  get #recordTtlMs(): number {
    return this.#environment.limits.recordTtlMs
  }

  #isOwn(standing: Standing): boolean {
    return standing === 'same' || standing === 'rewritten'
  }

  #stood(): true {
    this.#fence = { epoch: this.#fence.epoch, version: this.#fence.version + 1 }
    return true
  }

  /** Does `work` when everything asked for before is done. */
  #alone(work: () => Promise<boolean>): Promise<boolean> {
    const done = this.#last.then(() => this.#timed(work))
    this.#last = done.catch(() => false)
    return done
  }

  async #timed(work: () => Promise<boolean>): Promise<boolean> {
    const { clock, metrics } = this.#environment
    const began = clock.monotonic()
    const stands = await work()
    metrics.commitDuration.observe((clock.monotonic() - began) / 1000)
    // A room that was lost stays frozen until it is gone.
    if (stands) this.#setUnsure(false)
    return stands
  }

  /**
   * Waits before the store is asked again; false: do not. Only an error that is certain to last ends the room here. Any other may pass, and the
   * memory of this node is then the only place that has what was acked since the last save.
   */
  async #pause(attempt: number, error: unknown): Promise<boolean> {
    const { clock, random } = this.#environment
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
    this.#setUnsure(true)
    if (this.#givenUp) return false
    const longest = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** attempt)
    await sleep(clock, longest * (0.5 + random.float() / 2))
    return !this.#givenUp
  }

  #setUnsure(uncertain: boolean): void {
    if (this.#uncertain === uncertain) return
    this.#uncertain = uncertain
    this.#room.doubt(uncertain)
  }
}
