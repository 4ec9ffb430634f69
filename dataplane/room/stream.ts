import type { Fence } from '../../shared/store/port.ts'
import type { Delta } from '../../shared/sync/delta.ts'
import { RoomListing } from '../features/lists/listing.ts'
import { RoomNotices } from '../features/notices/notices.ts'
import { type CommittedRoom, RoomSaves } from '../features/saves/saves.ts'
import { type RoomAddress, roomIdOf } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import type { Member, RoomLog } from './definition-types.ts'
import { Changes, changesOf, Delivery, type Flush, Replies } from './delivery.ts'
import { FencedLog, RoomDurability, type RoomLife } from './durability.ts'
import { hasLease, type RoomEnvironment } from './environment.ts'
import { frozen } from './guarded.ts'
import { History } from './history.ts'
import type { LostEpochs, MemberOutcome, PastUpdates, Update } from './journal.ts'
import type { Grants } from './layer-rules.ts'
import type { Layers, UpdateLayers } from './layers.ts'
import type { MembershipRecord } from './member.ts'
import { Membership, Memberships } from './memberships.ts'
import { OUTCOME_MS, outcomesToLeave } from './request-turns.ts'
import type { RestoredRoom } from './restore.ts'
import type { Room } from './room.ts'
import { turnOf } from './room-code.ts'
import { RoomFrames } from './room-frames.ts'
import { FixedRate, type Timer } from './scheduler.ts'
import { LiveState, migrate } from './state.ts'
import type { Tables } from './table.ts'

/** A claimed room, before it runs. */
export interface ClaimedRoom {
  readonly environment: RoomEnvironment
  readonly address: RoomAddress
  readonly definition: RoomDefinition
  readonly fence: Fence
  readonly log: RoomLog
  /** The room as the store had it, or a new room with the epoch of the claim. */
  readonly begin: RestoredRoom
  /** `member_id` of the message that creates the room. Undefined: the room existed. */
  readonly maker: string | undefined
}

const DAY_MS = 86_400_000

const NONE: readonly never[] = []
/** The snapshot of a room that is not stored. */
const NO_ROOM = new Uint8Array(0)

/**
 * Members and state of a room, and the path of its changes. Collects the effects of turns, flushes them as one update, commits the update
 * if the room type is durable, and then delivers it. One update is in flight at a time. Later changes wait for the next update (group
 * commit), so updates keep their order.
 */
export class RoomStream {
  readonly environment: RoomEnvironment
  readonly address: RoomAddress
  /** `project/type:key`. */
  readonly name: string
  /** `type:key`. */
  readonly roomId: string
  readonly log: RoomLog
  readonly memberships = new Memberships()
  readonly grants: Grants
  readonly state: LiveState
  readonly tables: Tables
  readonly notices: RoomNotices
  /** The latest updates that members received, for members that missed some. */
  readonly history: History
  readonly delivery: Delivery
  readonly replies: Replies
  /** Saves the state to the database of the room type. Undefined: the type has no `save`. */
  saves: RoomSaves | undefined
  /** Keeps the room's row and code in the store. Undefined: the room type has neither. */
  listing: RoomListing | undefined
  /** When the room was made, milliseconds since 1970. */
  readonly createdAt: number
  /** 0–1: where in an interval this room flushes and ticks. */
  readonly phase: number
  /** The room's record in the store. */
  readonly record: FencedLog
  /** True if the store keeps the room. */
  readonly stored: boolean
  /** True if acks wait for the commit of their update. */
  readonly durable: true | undefined
  readonly #room: Room
  readonly #durability: RoomDurability
  readonly #hidesMembers: boolean
  /** Whether an idle room of this type sleeps, and how long the store keeps a sleeping room. */
  #sleeps = false
  #sleepMs = 0
  /** Version of the flushed state, and of the present state. */
  #flushedVersion: number
  #version: number
  #code: string | undefined
  /** The code has changed since the last flush. */
  #codeChanged = false
  #wasCutOff = false
  readonly #timer: Timer
  #pace: FixedRate | undefined
  #pending = new Changes()
  /** Seq of the last flush, which may still be in flight. */
  #seq: number
  /** The flush that is being committed, or that is withheld. */
  #underWay: Flush | undefined
  /** The flush in flight is committed, but the room is stopped or this node has no lease. */
  #withheld = false
  #done: Promise<void> = Promise.resolve()
  #stopped = false
  #ended = false

  constructor({ environment, address, definition, fence, log, begin }: ClaimedRoom, room: Room) {
    const { clock, format, historyBudget, limits, scheduler } = environment
    const { seq, tree } = begin
    this.environment = environment
    this.address = address
    this.name = address.name
    this.roomId = roomIdOf(address)
    this.log = log
    this.phase = environment.random.float()
    this.durable = definition.durability === 'journal' || undefined
    this.#room = room
    for (const restored of begin.memberships)
      this.memberships.add(
        new Membership(restored, limits.unconfirmed, clock.monotonic(), clock.monotonic() + limits.movesMs),
      )
    this.grants = begin.grants
    const turn = turnOf({ name: address.name, epoch: fence.epoch }, 'migrate')
    // The functions of the layers run here.
    this.state = environment.code.run(turn, () => new LiveState(tree, limits.stateBytes, definition.layers))
    this.tables = begin.tables
    this.notices = new RoomNotices(environment, address, definition)
    this.#seq = seq
    this.#flushedVersion = begin.stateVersion
    this.#version = definition.version
    this.createdAt = begin.createdAt
    this.#code = begin.code
    this.stored = definition.durability !== 'none'
    this.record = new FencedLog(environment, this, fence)
    this.#durability = new RoomDurability(definition.durability, this)
    this.#hidesMembers = definition.hidesMembers
    const frames = new RoomFrames(this.roomId, environment.codecs, this.#hidesMembers)
    this.history = new History(limits.history, historyBudget, frames, format, begin.base)
    if (this.#hidesTheSame(begin.shown))
      begin.history.forEach((update, i) => {
        this.history.add(update, begin.updates[i])
      })
    // The room type hides other parts than before, so old updates do not fit. Members get a snapshot.
    else this.history.clear({ epoch: fence.epoch, seq })
    this.replies = new Replies(address, this, environment)
    const { members } = this.memberships
    this.delivery = new Delivery(this.memberships, this.grants, frames, this.replies, this.state, {
      seq,
      checksum: this.state.checksum,
      members,
    })
    this.#timer = scheduler.timer(() => this.#flush())
    this.redefine(definition)
    this.#migrate(definition)
    if (begin.epoch >= fence.epoch) return
    this.listing?.rewrite()
    // The earlier owner may not have saved the room. The save also gives the database the epoch of this owner.
    this.saves?.changed(this.phase)
    this.#durability.takenOver()
  }

  /** Migrates a state of an older version to that of the definition, as the first turn of this owner. Throws if that fails. */
  #migrate(definition: RoomDefinition): void {
    try {
      // The room does not run yet, so a migration that is cut off counts as failed.
      const { name, epoch } = this
      migrate(this.state, this.#flushedVersion, definition, this.environment, { name, epoch })
    } catch (error) {
      this.end()
      throw error
    }
    if (this.state.dirty) this.touch()
  }

  /** A turn was cut off. Only the flushed state is valid, and no turn starts any more. */
  cutOff(noted: Promise<void>): void {
    this.#wasCutOff = true
    this.#room.cutOff(noted)
  }

  /** Counts room code that ran outside of a turn since `began` (monotonic clock) in the room's share of the event loop. */
  used(began: number): void {
    this.#room.used(began)
  }

  get wasCutOff(): boolean {
    return this.#wasCutOff
  }

  /** Changes since the last flush. Turns add to it, then call `touch`. */
  get pending(): Changes {
    return this.#pending
  }

  get epoch(): number {
    return this.record.epoch
  }

  /** When a node has to run the room, as of the last flush: milliseconds since 1970. Undefined: never. */
  get wakeAt(): number | undefined {
    return this.stored ? this.tables.flushedDue : undefined
  }

  /** Version of the state as of the last flush. */
  get flushedVersion(): number {
    return this.#flushedVersion
  }

  /** Version of the present state. */
  get stateVersion(): number {
    return this.#version
  }

  /** Code of the room. Undefined: the room has none. */
  get code(): string | undefined {
    return this.#code
  }

  /** Replaces the room's code. The next update stores it. */
  changeCode(code: string): void {
    this.#code = code
    this.#codeChanged = true
    this.touch()
  }

  /** True if turns have changed the state, or shown or hidden a layer, since the last flush. */
  get dirty(): boolean {
    return this.state.dirty || this.grants.dirty
  }

  /** True if all changes are delivered. */
  get quiet(): boolean {
    return this.#pending.since === undefined && !this.#underWay
  }

  /** True while a flush is being committed. Members do not have the flushed state yet. */
  get committing(): boolean {
    return this.#underWay !== undefined
  }

  /** Seq and checksum of the flushed state. */
  get flushed(): { readonly seq: number; readonly checksum: number } {
    return { seq: this.#seq, checksum: this.state.checksum }
  }

  /** True if flushes and deliveries are stopped until `resume`. */
  get stopped(): boolean {
    return this.#stopped
  }

  /**
   * How long the store keeps the room without an owner, as of the last flush. Undefined: the default. A room that sleeps or has timers:
   * `sleepDays` from now, or from the next due time. A room with changes that its database lacks: without end, because there is no other
   * copy. A room with outcomes of requests: at least until they expire.
   */
  get life(): RoomLife | undefined {
    if (!this.stored) return undefined
    const due = this.tables.flushedDue
    const lasting = this.#sleeps || due !== undefined
    if (this.unsaved) return { ttlMs: Number.POSITIVE_INFINITY, lasting }
    const outcomesMs = this.tables.outcomes.size > 0 ? OUTCOME_MS : 0
    if (!lasting && outcomesMs === 0) return undefined
    const untilDueMs = due === undefined ? 0 : Math.max(0, due - this.environment.clock.now())
    const restMs = lasting ? untilDueMs + this.#sleepMs : this.environment.limits.recordTtlMs
    return { ttlMs: Math.ceil(Math.max(restMs, outcomesMs)), lasting }
  }

  /** How long the store keeps the room without an owner, in milliseconds. */
  get lifeMs(): number {
    return this.life?.ttlMs ?? this.environment.limits.recordTtlMs
  }

  /** True if the database of the room type lacks changes of the room. */
  get unsaved(): boolean {
    return this.saves?.unsaved ?? false
  }

  /**
   * Saves the room as of its last turn, if the database lacks changes. `ends`: no owner continues the room. Resolves to true if the
   * database has the room.
   */
  async saveLast(tries: 'once' | 'until_saved', ends: boolean): Promise<boolean> {
    const dirty = this.state.dirty && !this.#wasCutOff
    if (!this.saves || !(this.unsaved || dirty)) return true
    const state = frozen(this.#wasCutOff ? structuredClone(this.state.flushed) : this.state.plain())
    const room = { state, epoch: this.epoch, seq: this.#seq + (dirty ? 1 : 0), last: ends }
    return this.saves.last(room, tries)
  }

  /** A frozen copy of the room as of its last update. Undefined while that update is being committed. */
  get committed(): CommittedRoom | undefined {
    if (this.#underWay) return undefined
    return {
      state: frozen(structuredClone(this.state.flushed)),
      epoch: this.epoch,
      seq: this.#seq,
      last: false,
    }
  }

  /** A save has ended. If the database has all changes, the record expires after its usual time again. */
  saveEnded(): void {
    if (!this.unsaved && !this.#ended) void this.record.refresh()
    this.#room.saveEnded()
  }

  /** Replaces the definition by another one of the same type. */
  redefine(definition: RoomDefinition): void {
    const { sync, onIdle, save, sleepDays, version, listing, codes } = definition
    const { rate: perSecond } = sync
    this.#version = version
    if (this.listing) this.listing.redefine(definition)
    else if (listing || codes) this.listing = new RoomListing(this, definition)
    if (save && this.saves) this.saves.redefine(save)
    else {
      this.saves?.end()
      this.saves = save && new RoomSaves(this, save)
    }
    this.#sleeps = onIdle === 'sleep'
    this.#sleepMs = sleepDays * DAY_MS
    const { load, scheduler } = this.environment
    this.#pace = perSecond > 0 ? new FixedRate(perSecond, this.phase, load, scheduler.wallAtZero) : undefined
  }

  /** The room has changed: schedules the next flush at the room's rate. */
  touch(): void {
    this.#pending.since ??= this.environment.clock.monotonic()
    if (!this.#timer.waiting) this.#schedule()
  }

  /** As `touch`, but without waiting for the room's rate. */
  flushSoon(): void {
    this.#pending.since ??= this.environment.clock.monotonic()
    if (!this.#underWay && !this.#stopped) this.#timer.soon()
  }

  /** Delivers the withheld flush, and allows flushes again. */
  resume(): void {
    this.#stopped = false
    if (this.#withheld) this.#deliver()
    else if (this.#pending.since !== undefined) this.#schedule()
  }

  /** Stops flushes and deliveries until `resume`. */
  stop(): void {
    this.#stopped = true
    this.#timer.cancel()
  }

  /** Freezes the room while the store does not answer (`inDoubt`), because it is unknown which writes are stored. */
  doubt(inDoubt: boolean): void {
    if (inDoubt) this.#room.freeze()
    else this.#room.unfreeze()
  }

  /** Another node owns the room. */
  fenced(): void {
    this.#room.fenced()
  }

  /** Resolves when all changes are delivered, or when the room has ended or is stopped. */
  async deliverAll(): Promise<void> {
    while (!this.#ended && !this.quiet) {
      this.#flush()
      await this.#done
      if (this.#stopped) return
    }
  }

  /** Releases the room. `forget` false: writes the room first, for the next owner. `forget` true: the room ends. */
  release(forget: boolean): Promise<boolean> {
    this.end()
    if (!forget) return this.#durability.release(false)
    const { clock, format } = this.environment
    const seq = this.#seq + (this.state.dirty ? 1 : 0)
    const notices = this.notices.flush({ epoch: this.epoch, seq })
    const outcomes = outcomesToLeave(this.tables.outcomes.flushed, format, clock.now())
    return this.#durability.release(true, { notices, ...(outcomes && { outcomes }) })
  }

  /** Ends all flushes, writes and saves. */
  end(): void {
    this.#ended = true
    this.#timer.cancel()
    this.#durability.end()
    this.saves?.end()
    this.listing?.end()
    this.notices.end()
    this.history.end()
  }

  #schedule(): void {
    // The flush in flight schedules the next one when it is done.
    if (this.#underWay || this.#stopped || this.#ended) return
    const now = this.environment.clock.monotonic()
    const due = this.#pace?.next(now) ?? now
    if (due <= now) this.#timer.soon()
    else this.#timer.at(due)
  }

  #flush(): void {
    if (this.#underWay || this.#stopped || this.#ended) return
    this.#pace?.done(this.environment.clock.monotonic())
    const flush = this.#take()
    if (!flush) {
      this.#room.delivered(undefined)
      return
    }
    this.#underWay = flush
    const { bans, reservations, outcomes, tasks } = flush.update.tables ?? {}
    const retries = tasks?.set.some(({ due }) => due !== undefined)
    const writeNow =
      bans !== undefined ||
      reservations !== undefined ||
      outcomes !== undefined ||
      retries === true ||
      flush.notices.length > 0
    const committed = this.#durability.commit(flush.packed, writeNow, flush.notices)
    if (committed) this.#done = committed.then(this.#onCommitted).catch(this.#onBroken)
    else this.#onCommitted(true)
  }

  /** Takes all changes since the last flush as one update. Undefined: there is nothing to flush. */
  #take(): Flush | undefined {
    const changes = this.#pending
    const { events, joins, leaves, changed, acked } = changes
    const { memberships } = this
    const whole = this.state.flush()
    const bytes = this.state.nearLimit()
    if (bytes !== undefined) {
      const limit = this.environment.limits.stateBytes
      this.log.warn({ bytes, limit }, 'the state of the room comes near its limit')
    }
    const layers = this.state.layers && this.#layersOf(this.state.layers, whole)
    const delta = layers ? layers.base : whole
    const codeChanged = this.#codeChanged
    this.#codeChanged = false
    // Journal entries contain neither the version nor the code.
    if (this.#flushedVersion !== this.#version || codeChanged) this.#durability.snapshotNext()
    this.#flushedVersion = this.#version
    this.#pending = new Changes()
    if (whole) this.saves?.changed()
    const left = leaves.filter(({ departs }) => departs)
    const recordsOf = (replaces: boolean) =>
      joins.filter((join) => join.replaces === replaces).map(({ membership }) => membership.record())
    const [joined, replaced] = joins.length > 0 ? [recordsOf(false), recordsOf(true)] : [NONE, NONE]
    const { presence, renewed } = changesOf(changed, memberships)
    const membersChanged = joins.length > 0 || left.length > 0 || presence.length > 0
    const shown = layers?.update.grants.length ? true : events.length > 0
    const visible = this.#hidesMembers
      ? shown || delta !== undefined || (layers !== undefined && layers.update.changed.length > 0)
      : shown || whole !== undefined || membersChanged
    const tables = this.tables.flush()
    const recorded =
      acked.length > 0 ||
      leaves.length > 0 ||
      renewed.length > 0 ||
      tables !== undefined ||
      codeChanged ||
      this.notices.dirty ||
      (this.#hidesMembers && (whole !== undefined || membersChanged))
    if (!visible && !recorded) return undefined
    if (visible) this.#seq++
    // The turns of the requests did not know this seq.
    for (const { answer } of tables?.outcomes?.set ?? []) if ('reply' in answer) answer.seq = this.#seq
    const stillHere = acked.filter((membership) => memberships.has(membership))
    const outcomes: MemberOutcome[] = []
    const acks = stillHere.map((membership) => {
      const { member, refs } = membership
      const { id: memberId } = member
      for (const outcome of refs.between(refs.flushed, refs.last)) outcomes.push({ memberId, ...outcome })
      membership.ackDue = false
      refs.flushed = refs.last
      return { memberId, ref: refs.last, forgotten: refs.forgotten }
    })
    const update: Update = {
      epoch: this.epoch,
      seq: this.#seq,
      visible,
      checksum: this.state.checksum,
      delta,
      events,
      joined,
      replaced,
      left: left.map(({ membership, reason }) => ({ member: membership.member, reason })),
      presence,
      renewed,
      acks,
      outcomes,
      layers: layers?.update,
      tables,
    }
    return {
      update,
      notices: this.notices.flush(update),
      packed: this.#durability.entry(update),
      members: memberships.members,
      changes,
      acked: stillHere,
    }
  }

  /** Flushes the layers. Returns the delta of the base, and the changes of hidden parts. */
  #layersOf(layers: Layers, delta: Delta | undefined): { base: Delta | undefined; update: UpdateLayers } {
    const { base, hidden, changed } = layers.flush(delta)
    const grants = this.grants.flush()
    return {
      base,
      update: { checksum: this.state.flushedChecksum, sum: layers.sum, hidden, changed, grants },
    }
  }

  /** True if members see the same parts of the state as under the last owner. */
  #hidesTheSame(shown: RestoredRoom['shown']): boolean {
    const { checksum, layers } = this.state
    return !shown || (shown.checksum === checksum && shown.sum === (layers?.sum ?? 0))
  }

  readonly #onCommitted = (stored: boolean): void => {
    if (this.#ended) return
    if (stored) this.#deliver()
    else this.fenced()
  }

  /** A bug in this program stopped a delivery half way. Members that received nothing of it detect a gap, and resync. */
  readonly #onBroken = (error: unknown): void => {
    this.log.error({ err: error }, 'an update could not be delivered')
  }

  /** Delivers the flush in flight, unless the room is stopped or this node has no lease. */
  #deliver(): void {
    const flush = this.#underWay
    if (!flush) return
    this.#withheld = this.#stopped || !hasLease(this.environment)
    if (this.#withheld) {
      if (!this.#stopped) this.#room.freeze()
      return
    }
    this.#underWay = undefined
    const { update, changes } = flush
    const { clock, metrics } = this.environment
    const since = changes.since ?? clock.monotonic()
    const frames = this.delivery.flush(flush)
    flush.acked.forEach((membership, i) => {
      membership.refs.committed = update.acks[i]!.ref
    })
    for (const { membership } of changes.joins) membership.announced = true
    if (update.visible) {
      if (frames) this.history.add(update, flush.packed, frames, since)
      else this.history.clear({ epoch: update.epoch, seq: update.seq })
    }
    const { roomType } = this.address
    metrics.deliveryDuration.observe({ room_type: roomType }, (clock.monotonic() - since) / 1000)
    this.saves?.committed()
    this.listing?.committed()
    this.#room.delivered(update)
    if (this.#pending.since !== undefined && !this.#timer.waiting) this.#schedule()
  }

  /**
   * The room continues from memory under a new epoch. An update that members have not received gets the new epoch, because another owner
   * may have used its seq under the old epoch.
   */
  renew(lost: LostEpochs): void {
    this.history.lose(lost)
    this.listing?.rewrite()
    if (!this.#underWay) return
    const update = { ...this.#underWay.update, epoch: lost.before }
    this.#underWay = { ...this.#underWay, update, packed: this.#durability.entry(update) }
  }

  /** Packs the room as of its last flush, delivered or not, with the updates that members may have missed: all that a new owner needs. */
  whole(): Uint8Array {
    if (!this.stored) return NO_ROOM
    const { update, packed } = this.#underWay ?? {}
    return this.#pack(this.history.record(update?.visible ? { ...update, packed } : undefined))
  }

  /** Packs the room as of its last flush, without past updates. */
  withoutHistory(): Uint8Array {
    return this.#pack({ base: { epoch: this.epoch, seq: this.#seq }, updates: [] })
  }

  #pack(history: PastUpdates): Uint8Array {
    const { checksum, layers } = this.state
    return this.environment.format.snapshot({
      epoch: this.epoch,
      seq: this.#seq,
      checksum: this.state.flushedChecksum,
      state: this.state.flushed,
      memberships: this.#membershipRecords(),
      layers: layers && { checksum, sum: layers.sum, grants: this.grants.record() },
      ...history,
      stateVersion: this.#flushedVersion,
      tables: this.tables.flushed,
      createdAt: this.createdAt,
      code: this.#code,
    })
  }

  /** Members as of the last flush. */
  get flushedMembers(): Member[] {
    const fresh = new Set(this.#pending.joins.map(({ membership }) => membership))
    const left = this.#pending.leaves.filter(({ unseen }) => !unseen).map(({ membership }) => membership)
    return [...left, ...this.memberships].flatMap((one) => (fresh.has(one) ? [] : one.flushed))
  }

  /** Memberships as of the last flush. */
  #membershipRecords(): MembershipRecord[] {
    const fresh = new Set(this.#pending.joins.map((join) => join.membership))
    const records: MembershipRecord[] = []
    for (const { membership, unseen } of this.#pending.leaves) if (!unseen) records.push(membership.record())
    for (const membership of this.memberships) if (!fresh.has(membership)) records.push(membership.record())
    return records
  }
}
