import { Inbox } from '../inbox.ts'
import { nowhere } from '../place.ts'
import {
  type Arrival,
  isClose,
  type LocalSeat,
  type MemberMessage,
  type RoomAddress,
  roomIdOf,
  type ToOwner,
} from '../traffic.ts'
import type { Additions } from './additions.ts'
import { RoomAdmission } from './admission.ts'
import { Attachments } from './attachments.ts'
import { Audience } from './audience.ts'
import { Backlog } from './backlog.ts'
import { type ClaimedRoom, coreOf, type RoomCore, refit, showsSpectatorsOf } from './core.ts'
import type { RoomDefinition } from './definition.ts'
import { Delivery } from './delivery.ts'
import { RoomDurability } from './durability.ts'
import type { RoomNeeds } from './environment.ts'
import type { Leaving, RoomEnd, RoomObserver, RoomView, Since } from './feature.ts'
import type { Update } from './journal.ts'
import { haveLayers } from './layer-rules.ts'
import type { Membership } from './memberships.ts'
import { outcomesToLeave } from './outcomes.ts'
import { RoomRecord } from './record.ts'
import { Replies } from './replies.ts'
import { RequestTurns } from './request-turns.ts'
import { turnOf } from './room-code.ts'
import { RoomFrames } from './room-frames.ts'
import { FlushTimer, RoomShare, TickTimer, type Timer } from './scheduler.ts'
import { Tasks } from './tasks.ts'
import { Turns } from './turn.ts'
import { takeUpdate } from './update.ts'

/** Longest wait for a due row. Rows are due by the wall clock, which may jump, so the room reads it at least this often. */
const LONGEST_WAIT_MS = 600_000

/**
 * After a takeover, due rows wait this long if the room has members: edges attach them and send their unacknowledged messages, which
 * come before what became due while the room had no owner.
 */
const OVERDUE_WAIT_MS = 1000

/** An empty room whose next timer is due sooner does not sleep. */
const SHORTEST_SLEEP_MS = 60_000

/** How long an empty room that may not act now waits for the next check. */
const RETRY_IDLE_MS = 1000

/** A member of a room whose session is at the same node. */
class Seat implements LocalSeat {
  readonly #room: Room
  readonly #membership: Membership
  readonly #edge: string

  constructor(room: Room, membership: Membership, edge: string) {
    this.#room = room
    this.#membership = membership
    this.#edge = edge
  }

  receive(message: MemberMessage): boolean {
    return this.#room.receiveFrom(this.#membership, this.#edge, message)
  }
}

/**
 * One room on this node, from its claim to its end. It acts while the node has its lease and the store answers.
 *
 * Only this class acts. Its parts change `core`, and leave wishes in `core.wants`. `#after` fulfils the wishes after each message, timer and
 * event. One update is in flight at a time. Later changes wait for the next update (group commit), so updates keep their order.
 */
export class Room {
  readonly core: RoomCore
  readonly delivery: Delivery
  readonly #needs: RoomNeeds
  /** The room has ended here. `successor`: the node that continues it, if it is known. */
  readonly #onEnd: (end: RoomEnd, successor: string | undefined) => void
  readonly #replies: Replies
  readonly #turns: Turns
  readonly #tasks: Tasks
  readonly #attachments: Attachments
  readonly #audience: Audience
  readonly #admission: RoomAdmission
  readonly #requests: RequestTurns
  readonly #record: RoomRecord
  readonly #durability: RoomDurability
  readonly #additions: Additions
  /** The observer of each feature of the node. Undefined: the room type does not use the feature. */
  #observers: readonly (RoomObserver | undefined)[] = []
  readonly #frames: RoomFrames
  readonly #idle: Timer
  readonly #ticks: TickTimer
  /** Fires when the next row of a table is due. */
  readonly #timers: Timer
  /** Monotonic time before which no row is handled. */
  readonly #timersFrom: number
  readonly #flushes: FlushTimer
  readonly #share: RoomShare
  /** Messages and later work that wait until the room can act. At the end of the room, the remaining messages go to the next owner. */
  readonly #inbox: Inbox
  readonly #backlog: Backlog
  /** Since when the room could act, apart from its share of the event loop. */
  #actsSince: number
  /**
   * `closing`: all members are being removed. `leaving`: the room is being saved, for another owner or to sleep. `ended`: nothing happens
   * any more.
   */
  #stage: 'open' | 'closing' | 'leaving' | 'ended' = 'open'
  /** True if the room applies and delivers nothing, because the node may not act or the store does not answer. */
  #frozen = false
  /** True if the flush in flight is committed, but the room was frozen by then. */
  #withheld = false
  /** Resolves when the last flush is committed. */
  #flushed: Promise<void> = Promise.resolve()
  /** True when the idle timeout has passed and an observer keeps the room awake. A join cancels the end. */
  #waitsToEnd = false
  /** True while due rows wait in the inbox. */
  #dueWaits = false
  /** Joins and requests that the room no longer decides, because it is ending. The next owner handles them. */
  readonly #late: Inbox
  /** State of the record at the last look. */
  #seen: { readonly uncertain: boolean; readonly epoch: number }
  /** Resolves when an ended room is deleted from the store, or when a released room has left this node. */
  #over: Promise<void> = Promise.resolve()
  /** The successor can claim the room that was handed over. */
  #isFree = false

  constructor(
    claimed: ClaimedRoom,
    inbox: Inbox,
    needs: RoomNeeds,
    onEnd: (end: RoomEnd, successor: string | undefined) => void,
  ) {
    const { address, begin, definition, fence } = claimed
    const { clock, code, limits, scheduler } = needs
    this.#needs = needs
    this.#onEnd = onEnd
    this.#inbox = inbox
    this.#late = new Inbox(limits.waitingMessages)
    this.#actsSince = clock.monotonic()
    const phase = needs.phase()
    const frames = new RoomFrames(roomIdOf(address), needs.codecs, {
      hidesMembers: definition.hidesMembers,
      showsSpectators: showsSpectatorsOf(definition),
      hasLayers: haveLayers(definition.layers),
    })
    this.#frames = frames
    this.core = coreOf(claimed, frames, needs)
    const { core } = this
    this.#seen = { uncertain: false, epoch: core.epoch }
    this.#additions = needs.additions(claimed, () => this.#mayAct())
    this.#record = new RoomRecord(core, fence, this.#additions, needs, () => this.#look())
    this.#durability = new RoomDurability(core, definition.durability, this.#record, needs, () =>
      this.#fenced(),
    )
    this.#replies = new Replies(address, core, needs, definition.durability === 'journal' || undefined)
    this.delivery = new Delivery(core, frames, this.#replies, needs)
    this.#backlog = new Backlog(inbox, definition.type, this.#replies, needs)
    const post = (run: () => void) => this.#post(run)
    this.#turns = new Turns(core, claimed.awayMs, this.#additions, this.#replies, needs)
    this.#tasks = new Tasks(core, this.#turns, needs, post)
    this.#requests = new RequestTurns(claimed, core, this.#turns, this.#replies, needs, post)
    this.#attachments = new Attachments(core, this.#turns, this.delivery, this.#replies, needs, post)
    this.#admission = new RoomAdmission(core, this.#turns, this.#attachments, this.#replies, needs, post)
    this.#audience = new Audience(core.memberships.spectatorCount, scheduler, () =>
      post(() => this.delivery.announceSpectators()),
    )
    this.#idle = scheduler.timer(() => this.#endIfIdle())
    // If a tick did not return under an earlier owner, the first tick is left out.
    let skip = code.suspects.hung(turnOf(core, 'onTick'))
    this.#ticks = new TickTimer(needs, phase, () => {
      if (!skip && !this.#share.pauses && !this.#waitsToEnd && this.#mayAct())
        this.#timed(() => this.#turns.tick())
      skip = false
    })
    this.#timers = scheduler.timer(() => this.#fireDue())
    const waits = core.memberships.size > 0 && core.tables.due !== undefined && core.tables.due <= clock.now()
    this.#timersFrom = waits ? this.#actsSince + OVERDUE_WAIT_MS : Number.NEGATIVE_INFINITY
    this.#flushes = new FlushTimer(needs, phase, () => this.#flush())
    this.#share = new RoomShare(needs, () => this.handleInbox())
    const since = begin.epoch < fence.epoch ? 'claimed' : 'made'
    this.#follow(definition, since)
    if (since === 'claimed') this.#durability.takenOver()
    for (const membership of [...core.memberships])
      if (code.suspects.hung({ ...turnOf(core, 'onLeave'), subject: membership.member.id }))
        this.#turns.part(membership, 'left')
    this.#after()
    for (const task of core.tables.tasks.rows) if (!task.work) post(() => this.#tasks.begin([task]))
  }

  /** Handles a message from an edge. If the room cannot act, the message waits in order. */
  receive(message: ToOwner, from: string): void {
    const began = this.#needs.clock.monotonic()
    if (!this.#canAct(began)) {
      this.#wait({ message, from })
      return
    }
    try {
      this.#handle(message, from)
    } finally {
      this.#after()
      this.#share.use(began, !this.#ended)
    }
  }

  /** Returns the seat of a member whose socket is at `edge`. Undefined: the room does not know it. */
  seat(memberId: string, edge: string): LocalSeat | undefined {
    const membership = this.core.memberships.ofSubscription(memberId)
    return membership && new Seat(this, membership, edge)
  }

  /** Handles a message of a member at `edge`. Returns false if the room cannot act, or if the member is not attached there any more. */
  receiveFrom(membership: Membership, edge: string, message: MemberMessage): boolean {
    const began = this.#needs.clock.monotonic()
    if (!this.#canAct(began) || !membership.present || membership.detached || membership.edge !== edge)
      return false
    try {
      this.#turns.message(membership, message)
    } finally {
      this.#after()
      this.#share.use(began, !this.#ended)
    }
    return true
  }

  /** Runs work that no message brings, as `receive` handles a message. Returns what it returns. */
  #timed<T>(run: () => T): T {
    const began = this.#needs.clock.monotonic()
    try {
      return run()
    } finally {
      this.#after()
      this.#share.use(began, !this.#ended)
    }
  }

  /** Calls `run` now, or in its turn when the room can act again. */
  #post(run: () => void): void {
    if (this.#canAct()) this.#timed(run)
    else if (this.#stage === 'open' || this.#stage === 'closing') this.#inbox.defer(() => this.#timed(run))
  }

  /** Fulfils the wishes of the parts: after each message, timer and event, and before the next one. */
  #after(): void {
    const { wants } = this.core
    if (wants.cut) this.#cutOff(wants.cut)
    if (this.#ended) return
    if (wants.close) this.#close()
    if (wants.timers) this.#watchTimers()
    else if (wants.idle) this.#watchIdle()
    if (wants.flush) this.#touched()
    if (this.#admission.late.length > 0) this.#takeLate()
  }

  /** The node has its lease again. The room continues if this node still owns it. */
  recheck(): void {
    this.#freeze()
    // When a silent store answers again, the record unfreezes the room (`#look`).
    if (this.#ended || this.#record.uncertain) return
    this.#record
      .verify()
      .then((mine) => {
        if (!mine) this.#fenced()
        else {
          this.#unfreeze()
          for (const observer of this.#observers) observer?.repair?.()
        }
      })
      .catch(this.#onBroken)
  }

  /** The store reports that the room is due. It runs already, so the store gets its next due time again. */
  wake(): void {
    if (!this.#ended && !this.#frozen) this.#record.repeatWakeup()
  }

  /** Extends the life of the room's record, and repairs what its additions need. */
  refresh(): void {
    if (this.#ended || this.#frozen) return
    this.#additions.refresh()
    this.#record
      .refresh()
      .then((mine) => mine || this.#fenced())
      .catch(this.#onBroken)
  }

  /** Replaces the definition by another one of the same type. Returns why the room keeps the old one. Undefined: it was replaced. */
  redefine(definition: RoomDefinition): string | undefined {
    const problem = refit(this.core, definition, this.#needs)
    if (problem === undefined) {
      this.#turns.forgetRates()
      this.#follow(definition, 'redefined')
    }
    this.#after()
    return problem
  }

  /** Follows a definition: its rates, and the features that it uses. */
  #follow(definition: RoomDefinition, since: Since): void {
    const { sync, tick } = definition
    const view: RoomView = {
      core: this.core,
      delivery: this.delivery,
      record: this.#record,
      timed: (run) => this.#timed(run),
      progressed: () => this.#progressed(),
    }
    this.#observers = this.#needs.features.map((feature, i) => {
      const before = this.#observers[i]
      return before?.redefined(definition) ? before : feature.observe(view, definition, since)
    })
    this.#flushes.set(sync.rate)
    this.#ticks.set(tick?.rate)
  }

  /**
   * Saves the room, and releases it for the node `successor` or for any node. Without a successor, a room that is not stored ends. A room
   * that is closing ends. Messages in the inbox stay unanswered. Resolves to true if the successor can claim the room.
   */
  async handOver(successor?: string): Promise<boolean> {
    if (this.#stage === 'closing') await this.#deliverAll()
    if (this.#stage === 'open') this.#over = this.#leave('released', successor)
    await this.#over
    return this.#isFree
  }

  async #leave(how: 'released' | 'asleep', successor?: string): Promise<void> {
    this.#stage = 'leaving'
    this.#cancelTimers()
    this.#closeAdmission()
    await this.#deliverAll()
    if (this.#ended) return
    this.#stage = 'ended'
    // Only a successor can continue a room that is not stored.
    const keep = this.core.definition.durability !== 'none' || successor !== undefined
    if (!keep) this.#turns.dispose()
    // A successor saves the room later. Without one, the store may be the memory of this process, and end with it.
    if (!successor) await this.#lastSteps(keep ? 'released' : 'dropped')
    const released = await this.#release(!keep)
    this.#isFree = released && keep && successor !== undefined
    if (!keep) await this.#left('disposed')
    else if (released && how === 'asleep') await this.#left('asleep')
    this.#end(released && keep ? how : keep ? 'fenced' : 'disposed', successor)
  }

  /** An edge is gone. Its members are detached until they resume at another edge. */
  edgeGone(edge: string): void {
    this.#post(() => this.#attachments.detachEdge(edge))
  }

  /**
   * Messages between an edge and this room may be lost. The members at the edge are detached until the edge attaches them again, and it
   * sends unacknowledged messages again.
   */
  askToReattach(edge: string): void {
    this.edgeGone(edge)
    this.#requestResend(edge)
  }

  /** Stops waiting for a store or a database that does not answer. */
  giveUp(): void {
    for (const observer of this.#observers) observer?.giveUp?.()
    this.#record.giveUp()
  }

  get address(): RoomAddress {
    return this.core.address
  }

  /** Version of the present state. */
  get stateVersion(): number {
    return this.core.definition.version
  }

  /** The node with most of the members' sockets. */
  get mostlyAt(): string | undefined {
    const { edges } = this.core.memberships
    let busiest: string | undefined
    for (const [edge, members] of edges)
      if (busiest === undefined || members > edges.get(busiest)!) busiest = edge
    return busiest
  }

  /** True if the room applies nothing, because the node may not act or the store does not answer. */
  get frozen(): boolean {
    return this.#frozen
  }

  get #ended(): boolean {
    return this.#stage === 'ended'
  }

  #handle(message: ToOwner, from: string): void {
    switch (message.kind) {
      case 'message':
      case 'refuse':
        this.#turns.receive(message, from)
        break
      case 'request':
        // A room that is ending leaves requests to the next owner, which knows the outcomes of this one.
        if (this.#stage === 'open' || isClose(message)) this.#requests.handle(message, from)
        else this.#wait({ message, from }, this.#late)
        break
      default:
        if (this.#late.hasJoin(message.member_id)) this.#wait({ message, from }, this.#late)
        else this.#admission.receive(message, from)
    }
  }

  /** Removes every member. The next flush is the last. */
  #close(): void {
    const { memberships, wants } = this.core
    wants.close = false
    if (this.#stage !== 'open') return
    this.#stage = 'closing'
    this.#cancelTimers()
    this.#closeAdmission()
    // Spectators leave first.
    const byRole = [...memberships].sort((a, b) => Number(b.member.spectator) - Number(a.member.spectator))
    for (const membership of byRole) this.#turns.close(membership)
    wants.flush = 'soon'
  }

  #closeAdmission(): void {
    this.#admission.close()
    this.#requests.close()
    this.#attachments.close()
    this.#takeLate()
  }

  /** Joins that the room can no longer decide wait for the next owner. */
  #takeLate(): void {
    for (const request of this.#admission.late.splice(0))
      this.#wait({ message: request, from: request.edge }, this.#late)
  }

  /** The room has changed: schedules the next flush, at the room's rate or `soon`. */
  #touched(): void {
    const { changes, inFlight, wants } = this.core
    const { flush } = wants
    wants.flush = undefined
    if (changes.since !== undefined && flush === 'paced' && this.#flushes.waiting) return
    const now = this.#needs.clock.monotonic()
    changes.since ??= now
    // After the flush in flight, or after the thaw, the next one is scheduled anyway.
    if (inFlight || this.#frozen) return
    if (flush === 'soon') this.#flushes.soon()
    else this.#flushes.paced(now)
  }

  /** True if all changes are delivered. */
  get #quiet(): boolean {
    const { changes, inFlight } = this.core
    return changes.since === undefined && !inFlight
  }

  /** Resolves when all changes are delivered, or when the room has ended or is frozen. */
  async #deliverAll(): Promise<void> {
    while (!this.#ended && !this.#quiet) {
      this.#flush()
      await this.#flushed
      if (this.#frozen) return
    }
  }

  #flush(): void {
    const { core } = this
    if (core.inFlight || this.#frozen || this.#ended) return
    this.#flushes.done(this.#needs.clock.monotonic())
    const flush = takeUpdate(core, this.#frames, this.#additions, this.#durability.format, this.#needs.limits)
    if (!flush) {
      this.#delivered(undefined)
      return
    }
    if (flush.stateChanged) for (const observer of this.#observers) observer?.changed?.()
    core.inFlight = flush
    const committed = this.#durability.commit(flush)
    if (committed) this.#flushed = committed.then(this.#committed).catch(this.#onUndelivered)
    else this.#committed(true)
  }

  readonly #committed = (stored: boolean): void => {
    if (this.#ended) return
    if (stored) this.#deliver()
    else this.#fenced()
  }

  /** A bug in this program stopped a delivery half way. Members that received nothing of it detect a gap, and resync. */
  readonly #onUndelivered = (error: unknown): void => {
    this.core.log.error({ err: error }, 'an update could not be delivered')
  }

  /** Delivers the flush in flight, unless the room is frozen or this node has no lease. */
  #deliver(): void {
    const { core } = this
    const flush = core.inFlight
    if (!flush) return
    this.#withheld = !this.#mayAct()
    if (this.#withheld) return
    core.inFlight = undefined
    this.delivery.flush(flush)
    if (flush.changes.joins.length + flush.changes.leaves.length > 0) this.#admission.delivered()
    if (core.definition.spectators) this.#audience.delivered(flush.spectatorCount)
    for (const observer of this.#observers) observer?.committed?.(flush.update)
    this.#delivered(flush.update)
    if (core.changes.since !== undefined && !this.#ended) this.#flushes.paced(this.#needs.clock.monotonic())
  }

  /** All changes up to a flush are delivered. `update`: the flush. Undefined: there was nothing to flush. */
  #delivered(update: Update | undefined): void {
    const tables = update?.tables
    // A room that is being handed over does not start tasks. The next owner reports them as 'moved'.
    if (tables?.tasks && this.#stage === 'open') this.#tasks.begin(tables.tasks.set)
    if (tables?.outcomes) this.#requests.committed(tables.outcomes.set)
    const { wants } = this.core
    if (wants.delivery) {
      wants.delivery = false
      this.#attachments.delivered()
      this.#requests.delivered()
    }
    this.#after()
    if (this.#stage === 'closing' && this.#quiet) this.#dispose()
  }

  /** True if the room has no member, and decides about none. */
  get #empty(): boolean {
    return this.#admission.empty && !this.#requests.asking
  }

  /** Starts the idle timer if the room is empty, and stops it otherwise. */
  #watchIdle(): void {
    const { definition, wants } = this.core
    const isWatched = this.#empty && this.#stage === 'open'
    if (wants.idle === 'anew' || !isWatched) {
      this.#idle.cancel()
      this.#waitsToEnd = false
    }
    wants.idle = undefined
    if (isWatched && !this.#idle.waiting)
      this.#idle.at(this.#needs.clock.monotonic() + definition.idleSeconds * 1000)
  }

  /** Waits for the row that is due next. Without one, the room may be idle from now on. */
  #watchTimers(): void {
    const { tables, wants } = this.core
    const { clock } = this.#needs
    wants.timers = false
    if (this.#stage !== 'open') return
    const { due } = tables
    const now = clock.monotonic()
    const waitMs = due === undefined ? Number.NaN : Math.max(due - clock.now(), this.#timersFrom - now)
    if (waitMs <= 0) this.#timers.soon()
    else if (due !== undefined) this.#timers.at(now + Math.min(waitMs, LONGEST_WAIT_MS))
    else this.#timers.cancel()
    this.#watchIdle()
  }

  readonly #fireWaiting = (): void => {
    this.#dueWaits = false
    this.#fireDue()
  }

  readonly #due = (): void => this.#turns.due()

  /** Handles the due rows in order. Rows that the room cannot handle now wait behind its messages. */
  #fireDue(): void {
    const { tables } = this.core
    while (this.#stage === 'open' && tables.due !== undefined && tables.due <= this.#needs.clock.now()) {
      if (!this.#canAct()) {
        if (!this.#dueWaits) this.#inbox.defer(this.#fireWaiting)
        this.#dueWaits = true
        return
      }
      this.#timed(this.#due)
    }
    this.#watchTimers()
  }

  #endIfIdle(): void {
    this.#waitsToEnd = false
    if (!this.#empty || this.#stage !== 'open') return
    const { definition, tables, wants } = this.core
    const { due } = tables
    const dueMs = due === undefined ? Number.POSITIVE_INFINITY : due - this.#needs.clock.now()
    // The room stays awake for its timers. When they change, `#watchTimers` starts this check again.
    if (due !== undefined && (dueMs < SHORTEST_SLEEP_MS || definition.durability === 'none')) return
    if (!this.#mayAct()) this.#idle.at(this.#needs.clock.monotonic() + RETRY_IDLE_MS)
    else if (this.#observers.some((observer) => observer?.keepsAwake?.())) this.#waitsToEnd = true
    else if (definition.onIdle === 'dispose' && due === undefined) {
      wants.close = true
      this.#after()
    } else if (this.core.memberships.size > 0) this.#endWatching()
    else this.#over = this.#leave('asleep').catch(this.#onBroken)
  }

  /** The room falls asleep: its spectators leave before. If a hook of one keeps the room awake, the others stay. */
  #endWatching(): void {
    const { memberships, wants } = this.core
    this.#timed(() => {
      for (const membership of [...memberships])
        if (membership.present && this.#empty && !wants.close) this.#turns.part(membership, 'closed')
    })
    this.#endIfIdle()
  }

  #dispose(): void {
    this.#stage = 'ended'
    this.#cancelTimers()
    // For players and room code, the room of a match begins with its first player.
    if (!this.core.awaited) this.#turns.dispose()
    this.#over = this.#forget().catch(this.#onBroken)
  }

  /** Deletes the room from the store, but only after the last steps of its observers. If one is given up, another node may continue it. */
  async #forget(): Promise<void> {
    const done = await this.#lastSteps('disposed')
    const ended = (await this.#release(done)) && done
    if (ended) await this.#left('disposed')
    this.#end(done ? 'disposed' : 'released')
    if (ended) this.#requests.ended()
  }

  /** Resolves to true if all observers are done with the room. */
  async #lastSteps(how: Leaving): Promise<boolean> {
    const steps = await Promise.all(this.#observers.map((observer) => observer?.leaving?.(how)))
    return steps.every((done) => done !== false)
  }

  async #left(how: RoomEnd): Promise<void> {
    await Promise.all(this.#observers.map((observer) => observer?.ended?.(how)))
  }

  /** Releases the room. `forget` false: writes the room first, for the next owner. `forget` true: the room ends. */
  #release(forget: boolean): Promise<boolean> {
    this.#endWork()
    if (!forget) return this.#durability.release(false)
    const { clock, format } = this.#needs
    const { outcomes } = this.core.tables
    return this.#durability.release(true, outcomesToLeave(outcomes.flushed, format, clock.now()))
  }

  /** Ends all flushes, writes, and work of observers. */
  #endWork(): void {
    this.#flushes.cancel()
    this.#audience.end()
    this.#durability.end()
    for (const observer of this.#observers) observer?.stop?.()
    this.#additions.end()
    this.core.history.end()
  }

  /** A step of an observer has ended. If a database has all changes, the record expires after its usual time again. */
  #progressed(): void {
    const { unsaved } = this.core
    if (!unsaved && !this.#ended) void this.#record.refresh()
    if (this.#waitsToEnd && !unsaved) this.#endIfIdle()
    else if (this.#isEndingUnsaved) for (const arrival of this.#inbox.take()) this.#wait(arrival)
  }

  /** True if the room has ended, and its database does not accept the state. That can last for any time. */
  get #isEndingUnsaved(): boolean {
    return this.#ended && this.#observers.some((observer) => observer?.failing)
  }

  /**
   * Whether the room can handle something now. Otherwise messages wait until it can act, or for the next owner if the room is being
   * released.
   */
  #canAct(now?: number): boolean {
    return this.#stage !== 'leaving' && !this.#ended && this.#mayAct(now) && this.#hasLoop()
  }

  /** Whether rooms have time left in this turn of the event loop, and nothing waits for the next turn. */
  #hasLoop(): boolean {
    if (this.#share.may) return true
    const since = this.#inbox.since ?? this.#needs.clock.monotonic()
    this.#share.wait(Math.max(since, this.#actsSince))
    return false
  }

  /** Queues a message until the room can act, or for the next owner. */
  #wait(arrival: Arrival, inbox?: Inbox): void {
    if (this.#isEndingUnsaved) {
      const text = `${this.core.roomId} has ended, and cannot be saved yet: try again`
      this.#replies.turnAway(arrival, nowhere('unsaved', text))
    } else this.#backlog.add(arrival, inbox)
  }

  /** Whether the room may act now. If the node has no lease, the room freezes. `now`: the monotonic time, if it was just read. */
  #mayAct(now = this.#needs.clock.monotonic()): boolean {
    if (this.#frozen) return false
    if (now < this.#needs.cluster.lease.validUntil) return true
    this.#freeze()
    return false
  }

  /** The record has changed: the store does not answer or answers again, or the room continues under another epoch. */
  #look(): void {
    const seen = this.#seen
    const { uncertain } = this.#record
    const { epoch } = this.core
    this.#seen = { uncertain, epoch }
    if (epoch !== seen.epoch) for (const observer of this.#observers) observer?.repair?.()
    // While the store does not answer, it is unknown which writes are stored.
    if (uncertain && !seen.uncertain) this.#freeze()
    else if (!uncertain && seen.uncertain) this.#unfreeze()
  }

  /** Stops turns and flushes: the node's lease has expired, or the store does not answer. */
  #freeze(): void {
    if (this.#frozen || this.#ended) return
    this.#frozen = true
    this.#flushes.cancel()
    this.#needs.metrics.roomFreezes.inc({ room_type: this.core.definition.type })
  }

  /** Continues after `#freeze`, if the node may act. Delivers the withheld flush first. */
  #unfreeze(): void {
    const now = this.#needs.clock.monotonic()
    if (!this.#frozen || this.#ended || now >= this.#needs.cluster.lease.validUntil) return
    this.#actsSince = now
    this.#frozen = false
    if (this.#withheld) this.#deliver()
    else if (this.core.changes.since !== undefined && !this.core.inFlight) this.#flushes.paced(now)
    this.handleInbox()
  }

  /** Handles the inbox in order, while the room can act. Edges whose messages found the inbox full send them again after that. */
  handleInbox(): void {
    while (this.#canAct()) {
      const waiting = this.#backlog.next(this.#actsSince)
      if (!waiting) break
      try {
        if (typeof waiting === 'function') waiting()
        else this.receive(waiting.message, waiting.from)
      } catch (error) {
        this.#onBroken(error)
      }
    }
    for (const edge of this.#backlog.turnedAway()) this.#requestResend(edge)
  }

  /** A bug in this program, in work that no caller awaits. It ends this work, and not the node. */
  readonly #onBroken = (error: unknown): void => {
    this.core.log.error({ err: error }, 'a step of the room failed unexpectedly')
  }

  #requestResend(edge: string): void {
    this.#replies.send(edge, { kind: 'resend' })
  }

  /** Another node owns the room. This node writes and sends nothing more for it. */
  #fenced(): void {
    if (this.#ended) return
    this.#stage = 'ended'
    this.#cancelTimers()
    this.#closeAdmission()
    this.#endWork()
    this.#needs.metrics.fencedWrites.inc()
    this.#end('fenced')
  }

  /**
   * A turn was cut off, so the state in memory is inconsistent. The room ends here as of its last flush. The next owner does not start the
   * turn again, because it can claim the room only after the turn is `noted`.
   */
  #cutOff(noted: Promise<void>): void {
    if (this.#ended) return
    this.#stage = 'ended'
    this.#cancelTimers()
    this.#frozen = true
    this.#flushes.cancel()
    this.#over = this.#giveBack(noted).catch(this.#onBroken)
  }

  async #giveBack(noted: Promise<void>): Promise<void> {
    this.#closeAdmission()
    await noted
    this.#end((await this.#release(false)) ? 'released' : 'fenced')
  }

  #end(end: RoomEnd, successor?: string): void {
    this.#admission.ended(end)
    if (end === 'fenced' || (end === 'released' && !successor)) void this.#left(end)
    for (const arrival of this.#late.take()) this.#inbox.add(arrival)
    // This comes before the end of the slot: an edge gets the new place before it can look for the room.
    for (const edge of [...this.core.memberships.edges.keys()])
      this.#replies.send(edge, { kind: 'redirect', owner: successor ?? null })
    this.#onEnd(end, successor)
  }

  #cancelTimers(): void {
    this.#share.cancel()
    this.#idle.cancel()
    this.#ticks.cancel()
    this.#timers.cancel()
  }
}
