import type { StandardSchemaV1 } from '@standard-schema/spec'
import { REPAIR_MS } from '../features/lists/listing.ts'
import { Inbox } from '../inbox.ts'
import { nowhere } from '../place.ts'
import { type Arrival, isClose, type RoomAddress, type ToOwner } from '../traffic.ts'
import { RoomAdmission } from './admission.ts'
import type { RoomDefinition } from './definition.ts'
import { hasLease } from './environment.ts'
import { errorText, validate } from './failures.ts'
import { Inputs } from './inputs.ts'
import type { Update } from './journal.ts'
import { areSameRules } from './layer-rules.ts'
import { RequestTurns } from './request-turns.ts'
import { turnOf } from './room-code.ts'
import { RoomShare, TickTimer, type Timer } from './scheduler.ts'
import type { RoomSlot } from './slot.ts'
import { migrate } from './state.ts'
import { type ClaimedRoom, RoomStream } from './stream.ts'

/**
 * How a room ended on this node. `disposed`: for good. `released`: for another owner. `asleep`: stored until the next join. `fenced`:
 * another node owns it.
 */
export type RoomEnd = 'disposed' | 'released' | 'asleep' | 'fenced'

/** An overloaded node drops or refuses messages that have waited for longer. */
const LATE_MS = 150
const OVERLOADED = 'the service has more to do than it can at the moment: send less'

/** Longest wait for a due row. Rows are due by the wall clock, which may jump, so the room reads it at least this often. */
const LONGEST_WAIT_MS = 600_000

/** An empty room whose next timer is due sooner does not sleep. */
const SHORTEST_SLEEP_MS = 60_000

/** How long an empty room that may not act now waits for the next check. */
const RETRY_IDLE_MS = 1000

/** One room on this node, from its claim to its end. It acts while the node has its lease and the store answers. */
export class Room {
  /** Members, state and updates of the room. */
  readonly stream: RoomStream
  readonly #slot: RoomSlot
  readonly #inputs: Inputs
  readonly #admission: RoomAdmission
  readonly #idle
  readonly #ticks: TickTimer
  /** Fires when the next row of a table is due. */
  readonly #timers: Timer
  readonly #share: RoomShare
  /** Messages that wait until the room can act. At the end of the room, the rest goes to the next owner. */
  readonly #inbox: Inbox
  /** Since when the room could act, apart from its share of the event loop. */
  #actsSince: number
  /**
   * `closing`: all members are being removed. `leaving`: the room is being saved, for another owner or to sleep. `ended`: nothing happens
   * any more.
   */
  #stage: 'open' | 'closing' | 'leaving' | 'ended' = 'open'
  /** True when the idle timeout has passed and the last save is still running. A join cancels the end. */
  #waitsForSave = false
  /** True while due rows wait in the inbox. */
  #dueWaits = false
  readonly #requests: RequestTurns
  /** Requests that arrived while the room was ending. The next owner handles them. */
  readonly #late: Inbox
  /** Resolves when an ended room is deleted from the store, or when a released room has left this node. */
  #over: Promise<void> = Promise.resolve()
  /** The successor can claim the room that was handed over. */
  #isFree = false

  constructor(claimed: ClaimedRoom, inbox: Inbox, slot: RoomSlot) {
    const { environment, definition } = claimed
    const { suspects } = environment.code
    this.#slot = slot
    this.#inbox = inbox
    this.#late = new Inbox(environment.limits.waitingMessages)
    this.#actsSince = environment.clock.monotonic()
    this.stream = new RoomStream(claimed, this)
    this.#inputs = new Inputs(claimed, this)
    this.#requests = new RequestTurns(claimed, this, this.#inputs)
    this.#admission = new RoomAdmission(this, this.#inputs)
    this.#idle = environment.scheduler.timer(() => this.#endIfIdle())
    // If a tick did not return under an earlier owner, the first tick is left out.
    let skip = suspects.hung(turnOf(this.stream, 'onTick'))
    this.#ticks = new TickTimer(environment, this.stream.phase, () => {
      if (!skip && !this.#share.pauses && !this.#waitsForSave && this.#mayAct())
        this.#timed(() => this.#inputs.tick())
      skip = false
    })
    this.#timers = environment.scheduler.timer(() => this.#fireDue())
    this.#share = new RoomShare(environment, () => this.handleInbox())
    for (const membership of [...this.stream.memberships])
      if (suspects.hung({ ...turnOf(this.stream, 'onLeave'), subject: membership.member.id }))
        this.#inputs.part(membership, 'left')
    this.#ticks.set(definition.tick?.rate)
    this.watchIdle()
    this.watchTimers()
    for (const task of this.stream.tables.tasks.rows)
      if (!task.work) this.act(() => this.#inputs.begin([task]))
  }

  get definition(): RoomDefinition {
    return this.#inputs.handlers.definition
  }

  get address(): RoomAddress {
    return this.stream.address
  }

  get epoch(): number {
    return this.stream.epoch
  }

  /** Handles a message from an edge. If the room cannot act, the message waits in order. */
  receive(message: ToOwner, from: string): void {
    const began = this.stream.environment.clock.monotonic()
    if (!this.#canAct(began)) {
      this.wait({ message, from })
      return
    }
    this.#handle(message, from)
    this.used(began)
  }

  /** Runs work that no message brings, and counts its time as `receive` does. */
  #timed(run: () => void): void {
    const began = this.stream.environment.clock.monotonic()
    run()
    this.used(began)
  }

  /** Counts the time since `began` (monotonic clock) in the room's share of the event loop. */
  used(began: number): void {
    this.#share.use(began, !this.#ended)
  }

  /** The node has its lease again. The room continues if this node still owns it. */
  recheck(): void {
    this.freeze()
    // When a silent store answers again, the record unfreezes the room (`doubt`).
    if (this.#ended || this.stream.record.uncertain) return
    this.stream.record
      .verify()
      .then((mine) => {
        if (!mine) this.fenced()
        else {
          this.unfreeze()
          this.stream.listing?.rewrite(REPAIR_MS)
        }
      })
      .catch(this.#onBroken)
  }

  /** The store reports that the room is due. It runs already, so the store gets its next due time again. */
  wake(): void {
    if (!this.#ended && !this.frozen) this.stream.record.repeatWakeup()
  }

  /** Extends the life of the room's record, and repairs the index of its notices. */
  refresh(): void {
    if (this.#ended || this.frozen) return
    this.stream.notices.refresh()
    this.stream.record
      .refresh()
      .then((mine) => mine || this.fenced())
      .catch(this.#onBroken)
  }

  /** Replaces the definition by another one of the same type. Returns why the room keeps the old one. Undefined: it was replaced. */
  redefine(definition: RoomDefinition): string | undefined {
    const { environment, stateVersion, roomId } = this.stream
    if (!areSameRules(this.definition.layers, definition.layers))
      return `the layers of ${roomId} are others now, and members know those that it has`
    if (definition.version !== stateVersion) {
      try {
        migrate(this.stream.state, stateVersion, definition, environment, this.stream)
      } catch (error) {
        return `${roomId}: ${errorText(error)}`
      }
      this.stream.touch()
    } else if (definition.state) {
      const checked = this.#validated(definition.state)
      if (!checked.ok) return `the state of ${this.stream.roomId} does not fit: ${checked.message}`
    }
    this.#inputs.handlers.definition = definition
    this.stream.redefine(definition)
    this.stream.listing?.rewrite()
    this.#ticks.set(definition.tick?.rate)
    this.stream.memberships.rates.forget()
    return undefined
  }

  #validated(schema: StandardSchemaV1): ReturnType<typeof validate> {
    const { environment, state } = this.stream
    try {
      return environment.code.run(turnOf(this.stream, 'migrate'), () => validate(schema, state.present))
    } catch (error) {
      return { ok: false, message: errorText(error) }
    }
  }

  /**
   * Saves the room, and releases it for the node `successor` or for any node. Without a successor, a room that is not stored ends. A room
   * that is closing ends. Messages in the inbox stay unanswered. Resolves to true if the successor can claim the room.
   */
  async handOver(successor?: string): Promise<boolean> {
    if (this.#stage === 'closing') await this.stream.deliverAll()
    if (this.#stage === 'open') this.#over = this.#leave('released', successor)
    await this.#over
    return this.#isFree
  }

  async #leave(how: 'released' | 'asleep', successor?: string): Promise<void> {
    this.#stage = 'leaving'
    this.#cancelTimers()
    this.#admission.close()
    await this.stream.deliverAll()
    if (this.#ended) return
    this.#stage = 'ended'
    // Only a successor can continue a room that is not stored.
    const keep = this.definition.durability !== 'none' || successor !== undefined
    if (!keep) this.#inputs.dispose()
    // A successor saves the room later. Without one, the store may be the memory of this process, and end with it.
    if (!successor) await this.stream.saveLast('once', !keep)
    const released = await this.stream.release(!keep)
    this.#isFree = released && keep && successor !== undefined
    if (!keep) await this.stream.listing?.leave('ended')
    else if (released && how === 'asleep')
      await this.stream.listing?.leave('asleep', this.stream.record.ownedAt)
    this.#end(released && keep ? how : keep ? 'fenced' : 'disposed', successor)
  }

  /** An edge is gone. Its members are detached until they resume at another edge. */
  edgeGone(edge: string): void {
    this.act(() => this.#admission.detachEdge(edge))
  }

  /** Version of the present state. */
  get stateVersion(): number {
    return this.stream.stateVersion
  }

  /** The node with most of the members' sockets. */
  get mostlyAt(): string | undefined {
    return busiestOf(this.stream.memberships.edges)
  }

  /** True if a member's socket is at `edge`, as far as this node knows. */
  hasMembersAt(edge: string): boolean {
    return this.stream.memberships.edges.has(edge)
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
    this.stream.saves?.giveUp()
    this.stream.listing?.giveUp()
    this.stream.record.giveUp()
  }

  /** True if the room applies nothing, because the node may not act or the store does not answer. */
  get frozen(): boolean {
    return this.stream.stopped
  }

  /** True if the room is being released, or has ended. */
  get leaving(): boolean {
    return this.#stage === 'leaving' || this.#ended
  }

  get #ended(): boolean {
    return this.#stage === 'ended'
  }

  #handle(message: ToOwner, from: string): void {
    switch (message.kind) {
      case 'message':
      case 'refuse': {
        const { memberships, replies } = this.stream
        const membership = memberships.ofSubscription(message.member_id)
        if (!membership) {
          // A member that is being removed gets `left` soon.
          if (!memberships.addressee(message.member_id)) replies.noSeat(from, message.member_id)
          return
        }
        // The session has moved to another edge. Its client sends unacknowledged messages again there.
        if (!membership.isServedBy(from)) return
        if (!membership.attached && !membership.wasAskedToAttach) {
          // Its edge does not know that it counts as detached. Without an attach it would get no acks and no layers.
          membership.wasAskedToAttach = true
          this.#requestResend(from)
        }
        if (message.kind === 'message') this.#inputs.message(membership, message)
        else this.#inputs.refuse(membership, message)
        break
      }
      case 'join':
        this.#admission.join(message)
        break
      case 'leave':
        this.#admission.leave(message, from)
        break
      case 'resync':
        this.#admission.resync(message, from)
        break
      case 'detach':
        this.#admission.detach(message, from)
        break
      case 'attach':
        this.#admission.attach(message)
        break
      case 'renew':
        this.#admission.renew(message, from)
        break
      case 'request':
        // A room that is ending leaves requests to the next owner, which knows the outcomes of this one.
        if (this.#stage === 'open' || isClose(message)) this.#requests.handle(message, from)
        else this.wait({ message, from }, this.#late)
        break
    }
  }

  /** Removes every member. The next flush is the last. */
  close(): void {
    if (this.#stage !== 'open') return
    this.#stage = 'closing'
    this.#cancelTimers()
    this.#admission.close()
    for (const membership of [...this.stream.memberships]) this.#inputs.part(membership, 'closed')
    this.stream.flushSoon()
  }

  /** All changes up to a flush are delivered. `update`: the flush. Undefined: there was nothing to flush. */
  delivered(update: Update | undefined): void {
    const { tasks, outcomes } = update?.tables ?? {}
    // A room that is being handed over does not start tasks. The next owner reports them as 'moved'.
    if (tasks && this.#stage === 'open') this.#inputs.begin(tasks.set)
    if (outcomes) this.#requests.committed(outcomes.set)
    this.#admission.delivered()
    this.#requests.delivered()
    if (this.#stage === 'closing' && this.stream.quiet) this.#dispose()
  }

  /** Starts the idle timer if the room is empty, and stops it otherwise. */
  watchIdle(): void {
    if (!this.#admission.empty || this.#stage !== 'open') {
      this.#idle.cancel()
      this.#waitsForSave = false
    } else if (!this.#idle.waiting)
      this.#idle.at(this.stream.environment.clock.monotonic() + this.definition.idleSeconds * 1000)
  }

  /** Waits for the row that is due next. Without one, the room may be idle from now on. */
  watchTimers(): void {
    const { environment, tables } = this.stream
    const { clock } = environment
    const { due } = tables
    if (this.#stage !== 'open') return
    const waitMs = due === undefined ? Number.NaN : due - clock.now()
    if (waitMs <= 0) this.#timers.soon()
    else if (due !== undefined) this.#timers.at(clock.monotonic() + Math.min(waitMs, LONGEST_WAIT_MS))
    else this.#timers.cancel()
    this.watchIdle()
  }

  readonly #fireWaiting = (): void => {
    this.#dueWaits = false
    this.#fireDue()
  }

  /** Handles the due rows in order. Rows that the room cannot handle now wait behind its messages. */
  #fireDue(): void {
    const { environment, tables } = this.stream
    while (this.#stage === 'open' && tables.due !== undefined && tables.due <= environment.clock.now()) {
      if (!this.#canAct()) {
        if (!this.#dueWaits) this.#inbox.defer(this.#fireWaiting)
        this.#dueWaits = true
        return
      }
      this.#timed(() => this.#inputs.due())
    }
    this.watchTimers()
  }

  #endIfIdle(): void {
    this.#waitsForSave = false
    if (!this.#admission.empty || this.#stage !== 'open') return
    const { environment, tables } = this.stream
    const { due } = tables
    const dueMs = due === undefined ? Number.POSITIVE_INFINITY : due - environment.clock.now()
    // The room stays awake for its timers. When they change, `watchTimers` starts this check again.
    if (due !== undefined && (dueMs < SHORTEST_SLEEP_MS || this.definition.durability === 'none')) return
    if (!this.#mayAct()) this.#idle.at(this.stream.environment.clock.monotonic() + RETRY_IDLE_MS)
    else if (this.stream.unsaved) {
      this.#waitsForSave = true
      this.stream.saves?.soon()
    } else if (this.definition.onIdle === 'dispose' && due === undefined) this.close()
    else this.#over = this.#leave('asleep').catch(this.#onBroken)
  }

  #dispose(): void {
    this.#stage = 'ended'
    this.#cancelTimers()
    this.#inputs.dispose()
    void this.stream.listing?.unlist()
    this.#over = this.#forget().catch(this.#onBroken)
  }

  /** Deletes the room from the store, but only after its database has it. If the save is given up, another node may continue the room. */
  async #forget(): Promise<void> {
    const saved = await this.stream.saveLast('until_saved', true)
    const ended = (await this.stream.release(saved)) && saved
    if (ended) await this.stream.listing?.leave('ended')
    this.#end(saved ? 'disposed' : 'released')
    if (ended) this.#requests.ended()
  }

  /** A save to the database of the room type has ended. */
  saveEnded(): void {
    if (this.#waitsForSave && !this.stream.unsaved) this.#endIfIdle()
    else if (this.#isEndingUnsaved) for (const arrival of this.#inbox.take()) this.wait(arrival)
  }

  /** True if the room has ended, and its database does not accept the state. That can last for any time. */
  get #isEndingUnsaved(): boolean {
    return this.#ended && this.stream.saves?.failing === true
  }

  /** Calls `run` now, or in its turn when the room can act again. */
  act(run: () => void): void {
    if (this.#canAct()) this.#timed(run)
    else if (this.#stage === 'open' || this.#stage === 'closing') this.#inbox.defer(() => this.#timed(run))
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
    const since = this.#inbox.since ?? this.stream.environment.clock.monotonic()
    this.#share.wait(Math.max(since, this.#actsSince))
    return false
  }

  /** Queues a message until the room can act, or for the next owner. */
  wait({ message, from }: Arrival, inbox = this.#inbox): void {
    if (this.#isEndingUnsaved) {
      const { replies, roomId } = this.stream
      const text = `${roomId} has ended, and cannot be saved yet: try again`
      replies.turnAway({ message, from }, nowhere('unsaved', text))
      return
    }
    const arrival = { message, from, at: this.stream.environment.clock.monotonic() }
    if (inbox.add(arrival)) return
    // On a node that is behind, an answer to each message would cost more than handling it.
    if (
      message.kind === 'message' &&
      message.ref === undefined &&
      this.stream.environment.load.slowdown > 1
    ) {
      this.#shed(arrival)
      return
    }
    const { environment, replies, roomId } = this.stream
    environment.metrics.backlogFull.inc({ room_type: this.definition.type })
    if (!replies.turnAway(arrival, nowhere('busy', `${roomId} has to wait: try again`)))
      this.#inbox.turnedAway.add(arrival.from)
  }

  /** Whether the room may act now. If the node has no lease, the room freezes. `now`: the monotonic time, if it was just read. */
  #mayAct(now?: number): boolean {
    if (this.frozen) return false
    if (hasLease(this.stream.environment, now)) return true
    this.freeze()
    return false
  }

  /** Stops turns and flushes: the node's lease has expired, or the store does not answer. */
  freeze(): void {
    if (this.frozen || this.#ended) return
    this.stream.stop()
    this.stream.environment.metrics.roomFreezes.inc({ room_type: this.definition.type })
  }

  /** Continues after `freeze`, if the node may act. */
  unfreeze(): void {
    if (!this.frozen || this.#ended || !hasLease(this.stream.environment)) return
    this.#actsSince = this.stream.environment.clock.monotonic()
    this.stream.resume()
    this.handleInbox()
  }

  /** Handles the inbox in order, while the room can act. Edges whose messages found the inbox full send them again after that. */
  handleInbox(): void {
    while (this.#canAct()) {
      const waiting = this.#inbox.shift()
      if (!waiting) break
      try {
        if (typeof waiting === 'function') waiting()
        else if (this.#isLate(waiting)) this.#shed(waiting)
        else this.receive(waiting.message, waiting.from)
      } catch (error) {
        this.#onBroken(error)
      }
    }
    if (!this.#inbox.empty) return
    const { turnedAway } = this.#inbox
    const edges = [...turnedAway]
    turnedAway.clear()
    for (const edge of edges) this.#requestResend(edge)
  }

  /**
   * True if a message has waited for so long that an overloaded node should drop it. Messages that arrived while the room could not act,
   * such as during an outage of the store, are never late.
   */
  #isLate({ message, at = 0 }: Arrival): boolean {
    const { clock, load } = this.stream.environment
    return (
      message.kind === 'message' &&
      load.overloaded &&
      at >= this.#actsSince &&
      clock.monotonic() - at > LATE_MS
    )
  }

  /** The overloaded node cannot handle a message in time: refuses a message with a ref, and drops one without. */
  #shed({ message, from }: Arrival): void {
    if (message.kind !== 'message') return
    const { ref } = message
    this.stream.environment.metrics.inputsShed.inc({
      room_type: this.definition.type,
      how: ref === undefined ? 'dropped' : 'refused',
    })
    if (ref === undefined) return
    const { room, member_id } = message
    this.receive(
      { kind: 'refuse', room, member_id, from: ref, through: ref, code: 'rate_limited', message: OVERLOADED },
      from,
    )
  }

  /** A bug in this program, in work that no caller awaits. It ends this work, and not the node. */
  readonly #onBroken = (error: unknown): void => {
    this.stream.log.error({ err: error }, 'a step of the room failed unexpectedly')
  }

  #requestResend(edge: string): void {
    this.stream.replies.send(edge, { kind: 'resend' })
  }

  /** Another node owns the room. This node writes and sends nothing more for it. */
  fenced(): void {
    if (this.#ended) return
    this.#stage = 'ended'
    this.#cancelTimers()
    this.#admission.close()
    this.stream.end()
    this.stream.environment.metrics.fencedWrites.inc()
    this.#end('fenced')
  }

  /**
   * A turn was cut off, so the state in memory is inconsistent. The room ends here as of its last flush. The next owner does not start the
   * turn again, because it can claim the room only after the turn is `noted`.
   */
  cutOff(noted: Promise<void>): void {
    if (this.#ended) return
    this.#stage = 'ended'
    this.#cancelTimers()
    this.stream.stop()
    this.#over = this.#giveBack(noted).catch(this.#onBroken)
  }

  async #giveBack(noted: Promise<void>): Promise<void> {
    // The call that was cut off is still on the stack, and undoes its changes first.
    await Promise.resolve()
    this.#admission.close()
    await noted
    this.#end((await this.stream.release(false)) ? 'released' : 'fenced')
  }

  #end(end: RoomEnd, successor?: string): void {
    const { memberships, replies } = this.stream
    this.#admission.ended(end)
    // The row names this node. Since the node lives, no other node removes the row. The store keeps the row of a later owner.
    if (end === 'fenced' || (end === 'released' && !successor)) void this.stream.listing?.unlist()
    for (const arrival of this.#late.take()) this.#inbox.add(arrival)
    // This comes before the end of the slot: an edge gets the new place before it can look for the room.
    for (const edge of [...memberships.edges.keys()])
      replies.send(edge, { kind: 'redirect', owner: successor ?? null })
    this.#slot.ended(end, this.epoch, successor)
  }

  #cancelTimers(): void {
    this.#share.cancel()
    this.#idle.cancel()
    this.#ticks.cancel()
    this.#timers.cancel()
  }
}

/** Returns the edge with the most attached members. */
function busiestOf(edges: ReadonlyMap<string, number>): string | undefined {
  let busiest: string | undefined
  for (const [edge, members] of edges)
    if (busiest === undefined || members > edges.get(busiest)!) busiest = edge
  return busiest
}
