import type { Json } from '../../shared/json.ts'
import type { Fence } from '../../shared/store/port.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { diff } from '../../shared/sync/diff.ts'
import { type RoomAddress, roomName } from '../traffic.ts'
import type { Durability, RoomLog } from './definition.ts'
import { Delivery, RoomFrames } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import { FencedLog, NOTHING, RoomDurability } from './fenced-log.ts'
import { History, type HistoryRecord } from './history.ts'
import type { RestoredRoom } from './journal.ts'
import type { Memberships, SeatRecord } from './memberships.ts'
import { FixedRate, type Timer } from './scheduler.ts'
import type { StateSize } from './state-size.ts'
import { type Flush, type LostEpochs, Pending, type Refusal, type Update } from './update.ts'

/** What a stream is made of. */
export interface StreamParts {
  readonly environment: RoomEnvironment
  readonly room: RoomAddress
  readonly roomId: string
  readonly durability: Durability
  readonly syncRate: number
  /** 0–1: where in an interval this room flushes. */
  readonly phase: number
  readonly fence: Fence
  readonly memberships: Memberships
  readonly log: RoomLog
  /** The room's present state. */
  readonly state: () => Json
  readonly size: Pick<StateSize, 'flushed'>
  /** Everything up to a flush is delivered. */
  readonly onDelivered: () => void
  /** Another node owns the room: nothing more may leave. */
  readonly onFenced: () => void
  /** The room may not go on for now (true): its store is silent or its node's lease has run out; or may again (false). */
  readonly onStopped: (stopped: boolean) => void
}

/**
 * A room's way out: gathers what turns did, flushes it as one update, has it committed where the room type is durable, and only then
 * delivers it. One update is under way at a time; what comes meanwhile gathers for the next (group commit), so their order holds.
 */
export class RoomStream {
  /** The last updates that members saw, for those who missed some. */
  readonly history: History
  readonly delivery: Delivery
  readonly #parts: StreamParts
  readonly #record: FencedLog
  readonly #durability: RoomDurability
  readonly #checksums = new Checksum()
  readonly #timer: Timer
  #pace: FixedRate | undefined
  #pending = new Pending()
  /** The last flush, which may be under way. */
  #flushed: { state: Json; seq: number; checksum: number }
  /** Being committed. */
  #inFlight: Flush | undefined
  /** Committed, but this node may not speak. */
  #withheld: Flush | undefined
  #done: Promise<void> = Promise.resolve()
  #stopped = false
  #ended = false

  /** A room that begins with its present state, or goes on from `restored`. */
  constructor(parts: StreamParts, restored: RestoredRoom | undefined) {
    this.#parts = parts
    const { environment, room, memberships, fence, log } = parts
    const { clock, random, metrics, scheduler } = environment
    this.#record = new FencedLog(fence, {
      rooms: environment.records,
      rewritesAllowedAt: environment.rewritesAllowedAt,
      room: roomName(room),
      owner: environment.nodeId,
      clock,
      random,
      log,
      metrics,
      ttlMs: environment.limits.recordTtlMs,
      whole: () => (parts.durability === 'none' ? NOTHING : this.#whole()),
      onRewritten: (lost) => this.#renew(lost),
      onUncertain: parts.onStopped,
    })
    const state = parts.state()
    const { seq, checksum } = restored ?? { seq: 0, checksum: this.#checksums.of(state) }
    this.#flushed = { state, seq, checksum }
    const frames = new RoomFrames(parts.roomId, environment.codecs)
    this.history = new History(environment.limits.history, environment.historyBudget, {
      frames,
      format: environment.format,
      base: restored?.base ?? { epoch: fence.epoch, seq },
    })
    restored?.history.forEach((update, i) => {
      this.history.add(update, restored.updates[i])
    })
    this.delivery = new Delivery(
      { room, memberships, frames, epoch: () => this.epoch, deliver: environment.deliver },
      { state, seq, checksum, members: memberships.members },
    )
    this.#durability = new RoomDurability(
      this.#record,
      environment,
      parts.durability,
      // A save every second need not carry what a crash makes worthless: members are resynced after one.
      parts.durability === 'snapshot' ? () => this.#withoutHistory() : () => this.#whole(),
      parts.onFenced,
    )
    if (restored) this.#durability.restored()
    this.#timer = scheduler.timer(() => this.#flush())
    this.setRate(parts.syncRate)
  }

  /** What has happened since the last flush; turns add to it, then `touch`. */
  get pending(): Pending {
    return this.#pending
  }

  get epoch(): number {
    return this.#record.epoch
  }

  /** Whether everything that happened is delivered. */
  get quiet(): boolean {
    return this.#pending.since === undefined && !this.#inFlight && !this.#withheld
  }

  setRate(perSecond: number): void {
    this.#pace = perSecond > 0 ? new FixedRate(perSecond, this.#parts.phase) : undefined
  }

  /** Something has happened: the next flush is due at its time. */
  touch(): void {
    this.#pending.since ??= this.#parts.environment.clock.monotonic()
    if (!this.#timer.waiting) this.#schedule()
  }

  /** As touch, but the flush does not wait for its time. */
  flushSoon(): void {
    this.#pending.since ??= this.#parts.environment.clock.monotonic()
    if (!this.#inFlight && !this.#withheld && !this.#stopped) this.#timer.soon()
  }

  /** What was held back goes out, and flushes go on. */
  resume(): void {
    this.#stopped = false
    const withheld = this.#withheld
    this.#withheld = undefined
    if (withheld) this.#deliver(withheld)
    else if (this.#pending.since !== undefined) this.#schedule()
  }

  /** Nothing is flushed or delivered until `resume`. */
  stop(): void {
    this.#stopped = true
    this.#timer.cancel()
  }

  /** Whether the store is silent and it is not known what stands. */
  get uncertain(): boolean {
    return this.#record.uncertain
  }

  /** Whether the room is still this node's. */
  verify(): Promise<boolean> {
    return this.#record.verify()
  }

  /** Extends the record's life, and for how long the room is counted, which no other write does; false: the room is another node's. */
  refresh(): Promise<boolean> {
    return this.#record.refresh()
  }

  /** Resolves when everything that has happened so far is delivered, or the room has ended. */
  async settle(): Promise<void> {
    while (!this.#ended && !this.quiet) {
      if (!this.#inFlight && !this.#stopped) this.#flush()
      await this.#done
      if (this.#stopped) return
    }
  }

  /** Gives the room up, for others to go on with (`forget` false: saved first) or for good. */
  async release(forget: boolean): Promise<boolean> {
    this.end()
    if (!forget && !(await this.#record.replace(this.#handedOver()))) return false
    return this.#record.release(forget)
  }

  /** Nothing leaves any more. */
  end(): void {
    this.#ended = true
    this.#timer.cancel()
    this.#durability.end()
    this.history.end()
  }

  /** Gives up on a store that does not answer. */
  giveUp(): void {
    this.#record.giveUp()
  }

  #schedule(): void {
    // What is under way schedules the next when it is done.
    if (this.#inFlight || this.#withheld || this.#stopped || this.#ended) return
    const now = this.#parts.environment.clock.monotonic()
    const due = this.#pace?.next(now) ?? now
    if (due <= now) this.#timer.soon()
    else this.#timer.at(due)
  }

  #flush(): void {
    if (this.#inFlight || this.#withheld || this.#stopped || this.#ended) return
    this.#pace?.done(this.#parts.environment.clock.monotonic())
    const flush = this.#take()
    if (!flush) {
      this.#parts.onDelivered()
      return
    }
    this.#inFlight = flush
    const committed = this.#durability.commit(flush.packed)
    if (committed) this.#done = committed.then(this.#onCommitted).catch(this.#onBroken)
    else this.#onCommitted(true)
  }

  readonly #onCommitted = (stands: boolean): void => {
    const flush = this.#inFlight
    this.#inFlight = undefined
    if (this.#ended || !flush) return
    if (stands) this.#deliver(flush)
    else this.#parts.onFenced()
  }

  /** A delivery failed half way, which is a mistake in this program. Members who got nothing of it meet a gap, and are resynced. */
  readonly #onBroken = (error: unknown): void => {
    this.#parts.log.error({ err: error }, 'an update could not be delivered')
  }

  #deliver(flush: Flush): void {
    const { environment, room } = this.#parts
    if (this.#stopped || !environment.mayAct()) {
      this.#withheld = flush
      if (!this.#stopped) this.#parts.onStopped(true)
      return
    }
    const { update } = flush
    const frames = this.delivery.flush(flush)
    flush.acked.forEach((membership, i) => {
      membership.committedRef = update.acks[i]!.ref
    })
    for (const { membership } of flush.joins) membership.settled = true
    if (update.visible) {
      if (frames) this.history.add(update, flush.packed, frames, flush.since)
      else this.history.clear({ epoch: update.epoch, seq: update.seq })
    }
    const { clock, metrics } = environment
    metrics.deliveryDuration.observe({ room_type: room.roomType }, (clock.monotonic() - flush.since) / 1000)
    this.#parts.onDelivered()
    if (this.#pending.since !== undefined && !this.#timer.waiting) this.#schedule()
  }

  /** The room goes on from memory under a new epoch, and so does what members have not been told: under the old one others may have come to its seq. */
  #renew(lost: LostEpochs): void {
    this.history.lose(lost)
    this.#inFlight &&= this.#under(lost.before, this.#inFlight)
    this.#withheld &&= this.#under(lost.before, this.#withheld)
  }

  #under(epoch: number, flush: Flush): Flush {
    const update = { ...flush.update, epoch }
    return { ...flush, update, packed: this.#packed(update) }
  }

  /** The journal entry of an update; undefined in a room that is kept nowhere. */
  #packed(update: Update): Uint8Array | undefined {
    const { durability, environment } = this.#parts
    return durability === 'none' ? undefined : environment.format.entry(update)
  }

  /** The update of everything since the last flush; undefined when nothing came of it. */
  #take(): Flush | undefined {
    const { events, joins, leaves, acked, since } = this.#pending
    const { environment, memberships } = this.#parts
    const before = this.#flushed
    const state = this.#parts.state()
    const delta = diff(before.state, state)
    this.#pending = new Pending()
    const left = leaves.filter(({ unseen }) => !unseen)
    const visible = delta !== undefined || events.length > 0 || joins.length > 0 || left.length > 0
    if (!visible && acked.length === 0 && leaves.length === 0) return undefined
    const seatsAcked = acked.filter((membership) => memberships.get(membership.member.id) === membership)
    const refused: Refusal[] = []
    const acks = seatsAcked.map((membership) => {
      const { member, refs, flushedRef } = membership
      const { id: memberId } = member
      for (const refusal of refs.refusedBetween(flushedRef, refs.last)) refused.push({ memberId, ...refusal })
      membership.ackDue = false
      membership.flushedRef = refs.last
      return { memberId, ref: refs.last, forgotten: refs.forgotten }
    })
    const seq = visible ? before.seq + 1 : before.seq
    if (delta) this.#parts.size.flushed(state, delta)
    const checksum = delta ? this.#checksums.after(before.state, state, delta) : before.checksum
    // Without a delta the states are equal, but may be different objects: the older one has its checksum cached.
    this.#flushed = { state: delta ? state : before.state, seq, checksum }
    const update: Update = {
      epoch: this.epoch,
      seq,
      visible,
      checksum,
      delta,
      events,
      joined: joins.map(({ membership }) => membership.record()),
      left: left.map(({ membership, reason }) => ({ member: membership.member, reason })),
      acks,
      refused,
    }
    return {
      update,
      packed: this.#packed(update),
      state: this.#flushed.state,
      members: memberships.members,
      joins,
      leaves,
      acked: seatsAcked,
      since: since ?? environment.clock.monotonic(),
    }
  }

  /** The room as of its last flush, delivered or not, with what members may have missed: what a new owner would need. */
  #whole(): Uint8Array {
    const underWay = this.#inFlight ?? this.#withheld
    if (!underWay?.update.visible) return this.#pack(this.history.history())
    const { update, packed } = underWay
    return this.#pack(this.history.history({ ...update, packed }))
  }

  /** What the next owner goes on from. A room that is kept nowhere has no history to give. */
  #handedOver(): Uint8Array {
    return this.#parts.durability === 'none' ? this.#withoutHistory() : this.#whole()
  }

  /** The room as of its last flush. */
  #withoutHistory(): Uint8Array {
    return this.#pack({ base: { epoch: this.epoch, seq: this.#flushed.seq }, updates: [] })
  }

  #pack(history: HistoryRecord): Uint8Array {
    const { state, seq, checksum } = this.#flushed
    const { format } = this.#parts.environment
    return format.snapshot({
      epoch: this.epoch,
      seq,
      checksum,
      state,
      seats: this.#seated(),
      ...history,
    })
  }

  /** The memberships as of the last flush. */
  #seated(): SeatRecord[] {
    const fresh = new Set(this.#pending.joins.map((join) => join.membership))
    const records: SeatRecord[] = []
    for (const { membership, unseen } of this.#pending.leaves) if (!unseen) records.push(membership.record())
    for (const membership of this.#parts.memberships)
      if (!fresh.has(membership)) records.push(membership.record())
    return records
  }
}
