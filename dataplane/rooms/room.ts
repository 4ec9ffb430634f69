import type { StandardSchemaV1 } from '@standard-schema/spec'
import { Inbox } from '../inbox.ts'
import { nowhere } from '../place.ts'
import { type Arrival, isClose, type RoomAddress, type ToOwner } from '../traffic.ts'
import { encodeNote } from '../watchdog/turns.ts'
import { RoomAdmission } from './admission.ts'
import type { RoomDefinition } from './definition.ts'
import { hasLease } from './environment.ts'
import { errorText, validate } from './failures.ts'
import { Inputs } from './inputs.ts'
import type { Update } from './journal.ts'
import { areSameRules } from './layer-rules.ts'
import { REPAIR_MS } from './listing.ts'
import { RequestTurns } from './request-turns.ts'
import type { RoomTurn } from './room-code.ts'
import { RoomShare, TickTimer, type Timer } from './scheduler.ts'
import type { RoomSlot } from './slot.ts'
import { migrate } from './state.ts'
import { type ClaimedRoom, RoomStream } from './stream.ts'

/** How a room ended on this node: for good, released for another owner, saved until it is joined, or lost to another owner. */
export type RoomEnd = 'disposed' | 'released' | 'asleep' | 'fenced'

/** An overloaded node drops or refuses messages that have waited for longer. */
const LATE_MS = 150
const OVERLOADED = 'the service has more to do than it can at the moment: send less'

/** The wall clock may jump, by which timers are due: it is looked at again so often. */
const LONGEST_WAIT_MS = 600_000

/** An empty room whose next timer is due sooner stays where it is. */
const SHORTEST_SLEEP_MS = 60_000

/** How long an empty room that may not act now waits to be checked again. */
const RETRY_IDLE_MS = 1000

/** One room's life on this node, from its claim to its end: acts while its node may, waits while it may not. */
export class Room {
  /** Its members and state, and what they have been told. */
  readonly stream: RoomStream
  readonly #slot: RoomSlot
  readonly #inputs: Inputs
  readonly #admission: RoomAdmission
  readonly #idle
  readonly #ticks: TickTimer
  /** Waits for the row of a table that is due next. */
  readonly #timers: Timer
  readonly #share: RoomShare
  /** What waits until the room can act again, or is left over for the next owner. */
  readonly #inbox: Inbox
  /** Since when the room could act, but for its share of the event loop. */
  #actsSince: number
  /** `closing`: every member is being removed; `leaving`: saved for another owner; `ended`: nothing happens any more. */
  #stage: 'open' | 'closing' | 'leaving' | 'ended' = 'open'
  /** It was empty for long, and ends once its database has it: whatever happens in it meanwhile is asked for by someone. */
  #waitsForSave = false
  readonly #requests: RequestTurns
  /** Requests that came while the room was ending: for the next owner. */
  readonly #late: Inbox
  /** Settles when a room that ended for good is out of the store, and one that was handed over out of this node. */
  #over: Promise<void> = Promise.resolve()
  /** The node that the room was handed over to can claim it. */
  #isFree = false

  constructor(claimed: ClaimedRoom, inbox: Inbox, slot: RoomSlot) {
    const { environment, definition, stuck } = claimed
    this.#slot = slot
    this.#inbox = inbox
    this.#late = new Inbox(environment.limits.waitingMessages)
    this.#actsSince = environment.clock.monotonic()
    this.stream = new RoomStream(claimed, this)
    this.#inputs = new Inputs(claimed, this)
    this.#requests = new RequestTurns(claimed, this, this.#inputs)
    this.#admission = new RoomAdmission(this, this.#inputs)
    this.#idle = environment.scheduler.timer(() => this.#endIfIdle())
    // A tick that did not end is left out.
    let skip = stuck.last?.hook === 'onTick'
    this.#ticks = new TickTimer(environment, this.stream.phase, () => {
      if (!skip && !this.#share.pauses && !this.#waitsForSave && this.#mayAct())
        this.#timed(() => this.#inputs.tick())
      skip = false
    })
    this.#timers = environment.scheduler.timer(() => this.act(() => this.#fireDue()))
    this.#share = new RoomShare(environment, () => this.handleInbox())
    for (const membership of [...this.stream.memberships])
      if (stuck.hasLeft(membership.member.id)) this.#inputs.part(membership, 'left')
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

  /** A message from an edge. What cannot be handled now waits, in order. */
  receive(message: ToOwner, from: string): void {
    const began = this.stream.environment.clock.monotonic()
    if (!this.#canAct(began)) {
      this.wait({ message, from })
      return
    }
    this.#handle(message, from)
    this.used(began)
  }

  /** As `receive`, for what no message brings. */
  #timed(run: () => void): void {
    const began = this.stream.environment.clock.monotonic()
    run()
    this.used(began)
  }

  /** Code of the room has run since `began`, on the monotonic clock. */
  used(began: number): void {
    this.#share.use(began, !this.#ended)
  }

  /** The node's lease stands again after it had run out: the room goes on if it is still this node's. */
  recheck(): void {
    this.freeze()
    // A silent store tells by itself when it answers again.
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

  /** The store says that the room is to be woken: it is awake. */
  wake(): void {
    if (!this.#ended && !this.frozen) this.stream.record.repeatWakeup()
  }

  /** Keeps the room's record alive. */
  refresh(): void {
    if (this.#ended || this.frozen) return
    this.stream.notices.refresh()
    this.stream.record
      .refresh()
      .then((mine) => mine || this.fenced())
      .catch(this.#onBroken)
  }

  /** Runs another definition of the same type from now on. The text says why the old one stays. */
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
    this.stream.memberships.forgetRates()
    return undefined
  }

  #validated(schema: StandardSchemaV1): ReturnType<typeof validate> {
    const { environment, state } = this.stream
    const turn = { room: this.stream, hook: 'migrate', subject: '', ref: 0, type: '', principal: '' } as const
    try {
      return environment.code.run(turn, () => validate(schema, state.present))
    } catch (error) {
      return { ok: false, message: errorText(error) }
    }
  }

  /**
   * Saves the room and releases it for the node `successor`, or for any node. A room that is not stored ends if it has no successor. A room that
   * is ending ends. Input is left unanswered. Resolves with true if the successor can claim the room.
   */
  async handOver(successor?: string): Promise<boolean> {
    if (this.#stage === 'closing') await this.stream.settle()
    if (this.#stage === 'open') this.#over = this.#leave('released', successor)
    await this.#over
    return this.#isFree
  }

  async #leave(how: 'released' | 'asleep', successor?: string): Promise<void> {
    this.#stage = 'leaving'
    this.#cancelTimers()
    this.#admission.close()
    await this.stream.settle()
    if (this.#ended) return
    this.#stage = 'ended'
    // What is not stored is worth handing over only to a successor that takes it.
    const keep = this.definition.durability !== 'none' || successor !== undefined
    if (!keep) this.#inputs.dispose()
    // A successor saves it in its turn. Where there is none, this store may be the only place that has it, and end with the process.
    if (!successor) await this.stream.saveLast('once', !keep)
    const released = await this.stream.release(!keep)
    this.#isFree = released && keep && successor !== undefined
    if (!keep) await this.stream.listing?.leave('ended')
    else if (released && how === 'asleep')
      await this.stream.listing?.leave('asleep', this.stream.record.ownedAt)
    this.#end(released && keep ? how : keep ? 'fenced' : 'disposed', successor)
  }

  /** An edge is gone, and the sockets it held with it. */
  edgeGone(edge: string): void {
    this.act(() => this.#admission.detachEdge(edge))
  }

  /** The version that its state has, as its type counts. */
  get stateVersion(): number {
    return this.stream.stateVersion
  }

  /** The node with most of the members' sockets. */
  get mostlyAt(): string | undefined {
    return this.stream.memberships.busiestEdge
  }

  /** Whether members' sockets are at `edge`, as far as is known here. */
  hasMembersAt(edge: string): boolean {
    return this.stream.memberships.isAt(edge)
  }

  /**
   * Tells an edge of members that something may be lost between it and this room: it asks again what is open. A member that does not come back
   * was given up meanwhile.
   */
  askToReattach(edge: string): void {
    this.edgeGone(edge)
    this.#requestResend(edge)
  }

  /** Stops waiting for a store, or a database, that does not answer. */
  giveUp(): void {
    this.stream.saves?.giveUp()
    this.stream.listing?.giveUp()
    this.stream.record.giveUp()
  }

  /** Whether nothing is applied, since the node may not act or the store is silent. */
  get frozen(): boolean {
    return this.stream.stopped
  }

  /** Whether the room is on its way to another owner, or has ended. */
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
          // A member that is being removed is told so soon.
          if (!memberships.addressee(message.member_id)) replies.noSeat(from, message.member_id)
          return
        }
        // The session went on at another edge: what is left over here is old, and sent again there where it matters.
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
        // The next owner has the outcomes of this one.
        if (this.#stage === 'open' || isClose(message)) this.#requests.handle(message, from)
        else this.wait({ message, from }, this.#late)
        break
    }
  }

  /** Every member leaves with the next flush, which is the last. */
  close(): void {
    if (this.#stage !== 'open') return
    this.#stage = 'closing'
    this.#cancelTimers()
    this.#admission.close()
    for (const membership of [...this.stream.memberships]) this.#inputs.part(membership, 'closed')
    this.stream.flushSoon()
  }

  /** Everything up to a flush is delivered. `update`: the flush; undefined: there was nothing to flush. */
  delivered(update: Update | undefined): void {
    const { tasks, outcomes } = update?.tables ?? {}
    // A room that is being handed over does not start tasks. The next owner reports them as 'moved'.
    if (tasks && this.#stage === 'open') this.#inputs.begin(tasks.set)
    if (outcomes) this.#requests.committed(outcomes.set)
    this.#admission.delivered()
    this.#requests.delivered()
    if (this.#stage === 'closing' && this.stream.quiet) this.#dispose()
  }

  /** Starts or stops the idle timer: the room may have become empty, or is so no more. */
  watchIdle(): void {
    if (!this.#admission.empty || this.#stage !== 'open') {
      this.#idle.cancel()
      this.#waitsForSave = false
    } else if (!this.#idle.waiting)
      this.#idle.at(this.stream.environment.clock.monotonic() + this.definition.idleSeconds * 1000)
  }

  /** Waits for the row that is due next; and where that was the last, the room may be idle from now on. */
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

  /** One row at a time, so that many that are due together leave room for the rest. */
  #fireDue(): void {
    const { environment, tables } = this.stream
    if (this.#stage === 'open' && tables.due !== undefined && tables.due <= environment.clock.now())
      this.#inputs.due()
    else this.watchTimers()
  }

  #endIfIdle(): void {
    this.#waitsForSave = false
    if (!this.#admission.empty || this.#stage !== 'open') return
    const { environment, tables } = this.stream
    const { due } = tables
    const dueMs = due === undefined ? Number.POSITIVE_INFINITY : due - environment.clock.now()
    // It is awake for its timers: when they are other ones, this is looked at again.
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

  /** The room goes out of the store, which it does not before its database has it; where that is given up, another node may go on with it. */
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

  /** Whether the room has ended, and waits for a database that does not take it: no one knows for how long. */
  get #isEndingUnsaved(): boolean {
    return this.#ended && this.stream.saves?.failing === true
  }

  /** Does something now, or in its turn when the room can act again. */
  act(run: () => void): void {
    if (this.#canAct()) this.#timed(run)
    else if (this.#stage === 'open' || this.#stage === 'closing') this.#inbox.defer(run)
  }

  /** Whether something can be handled now; what cannot waits until the room can act again or, once the room is on its way out, for the next owner. */
  #canAct(now?: number): boolean {
    return this.#stage !== 'leaving' && !this.#ended && this.#mayAct(now) && this.#hasLoop()
  }

  /** Whether rooms have not had their share of this turn of the event loop, and nothing waits for the next. */
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
    // An answer to each would cost a node that is behind more than handling them.
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

  /** Whether the room may act at this moment; it freezes when its node may not. `now`: the monotonic time, where it was just read. */
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

  /** Handles what waits, in order, as far as the room can act. */
  handleInbox(): void {
    while (this.#canAct()) {
      const waiting = this.#inbox.shift()
      if (!waiting) break
      try {
        if (typeof waiting === 'function') this.#timed(waiting)
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
   * Whether a message has waited for so long that the node does better without it. What waited because the room could not act, such as for
   * its store, is not late.
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

  /** The node cannot handle a message in time: one with a ref is refused, which settles it, and one without is dropped. */
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

  /** A mistake in this program, met where no one waits: it harms what it happened to, and not the node. */
  readonly #onBroken = (error: unknown): void => {
    this.stream.log.error({ err: error }, 'a step of the room failed unexpectedly')
  }

  #requestResend(edge: string): void {
    this.stream.replies.send(edge, { kind: 'resend' })
  }

  /** Another node owns the room: nothing more may leave. */
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
   * A turn was cut off half way: the state in memory is torn. The room ends here as of its last flush, and the next owner does not start
   * that turn again.
   */
  cutOff(turn: RoomTurn): void {
    if (this.#ended) return
    this.#stage = 'ended'
    this.#cancelTimers()
    this.stream.stop()
    this.#over = this.#giveBack(turn).catch(this.#onBroken)
  }

  async #giveBack(turn: RoomTurn): Promise<void> {
    // The call that was cut off is still on the stack, and takes back what it has begun.
    await Promise.resolve()
    const { environment, name, epoch } = this.stream
    const { limits, records } = environment
    const noted = records.noteStuck(name, epoch, encodeNote(turn), limits.noteTtlMs)
    this.#admission.close()
    const released = this.stream.release(false)
    await noted.catch((error) => this.stream.log.warn({ err: error }, 'the note of a turn was not written'))
    this.#end((await released) ? 'released' : 'fenced')
  }

  #end(end: RoomEnd, successor?: string): void {
    const { memberships, replies } = this.stream
    this.#admission.ended(end)
    // The row names this node, which lives. The store keeps the row of a later owner.
    if (end === 'fenced' || (end === 'released' && !successor)) void this.stream.listing?.unlist()
    for (const arrival of this.#late.take()) this.#inbox.add(arrival)
    // While the room still counts as here, so that no one asks for it before the edges know where it is.
    for (const edge of [...memberships.edges])
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
