import type { Json } from '../../shared/json.ts'
import type { Fence } from '../../shared/store/port.ts'
import { Backlog } from '../backlog.ts'
import { type Arrival, type RoomAddress, roomIdOf, roomName, type ToOwner } from '../traffic.ts'
import { RoomAdmission } from './admission.ts'
import type { RoomDefinition, RoomLog } from './definition.ts'
import { Replies } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import { FailureLog, validate } from './failures.ts'
import { Handlers } from './handlers.ts'
import { Inputs } from './inputs.ts'
import type { RestoredRoom } from './journal.ts'
import { Membership, Memberships } from './memberships.ts'
import { TickTimer } from './scheduler.ts'
import { StateSize } from './state-size.ts'
import { RoomStream } from './stream.ts'
import type { StuckTurns } from './stuck-turns.ts'

/** How a room ended on this node: for good, released for another owner, or lost to another owner. */
export type RoomEnd = 'disposed' | 'released' | 'fenced'

/** The node that a room is handed over to. */
export interface Successor {
  readonly nodeId: string
  /** The room is free: it can be claimed now. */
  readonly take: () => void
}

/** What a room is made of. */
export interface RoomParts {
  readonly environment: RoomEnvironment
  readonly room: RoomAddress
  readonly definition: RoomDefinition
  readonly fence: Fence
  readonly log: RoomLog
  /** A new room's state, or what the store held. */
  readonly begin: { readonly state: Json } | { readonly restored: RestoredRoom }
  /** What earlier owners did not come to the end of. */
  readonly stuck: StuckTurns
  /** A member came (1) or went (-1). */
  readonly onMembers: (change: number) => void
  /** The room is no longer here; `unhandled` arrived too late for it; `successor` is to have it. */
  readonly onEnd: (end: RoomEnd, unhandled: readonly Arrival[], successor: string | undefined) => void
}

/** How long an empty room that may not act now waits to be checked again. */
const RETRY_IDLE_MS = 1000

/** One room's life on this node, from its claim to its end: acts while its node may, waits while it may not. */
export class Room {
  readonly address: RoomAddress
  /** `project/type:key`. */
  readonly name: string
  readonly roomId: string
  readonly memberships = new Memberships()
  readonly #parts: RoomParts
  readonly #environment: RoomEnvironment
  readonly #handlers: Handlers
  readonly #stream: RoomStream
  readonly #replies: Replies
  readonly #inputs: Inputs
  readonly #admission: RoomAdmission
  readonly #phase: number
  readonly #idle
  readonly #ticks: TickTimer
  /** Nothing is applied: the node may not act, or the store is silent. */
  #frozen = false
  /** What waits until the room can act again, or is left over for the next owner. */
  readonly #backlog: Backlog<() => void>
  /** Edges of which something had no place in it: they ask again when the room can act. */
  readonly #edgesToAsk = new Set<string>()
  /** `closing`: every member is being removed; `leaving`: saved for another owner; `ended`: nothing happens any more. */
  #stage: 'open' | 'closing' | 'leaving' | 'ended' = 'open'
  /** Settles when a room that ended for good is out of the store, and one that was handed over out of this node. */
  #over: Promise<void> = Promise.resolve()

  constructor(parts: RoomParts) {
    const { environment, room, definition, log, begin } = parts
    const { clock, random, scheduler, metrics, deliver } = environment
    this.#parts = parts
    this.#environment = environment
    this.#backlog = new Backlog(environment.limits.waitingMessages)
    this.address = room
    this.name = roomName(room)
    this.roomId = roomIdOf(room)
    this.#phase = random.float()
    const { memberships, roomId } = this
    const restored = 'restored' in begin ? begin.restored : undefined
    for (const record of restored?.seats ?? [])
      memberships.add(new Membership(record, environment.limits.outcomes, clock.monotonic()))
    const state = 'restored' in begin ? begin.restored.state : begin.state
    const size = new StateSize(state, {
      limit: environment.limits.stateBytes,
      onLarge: (bytes) =>
        log.warn(
          { bytes, limit: environment.limits.stateBytes },
          'the state of the room comes near its limit',
        ),
      onRefused: () => metrics.limitsReached.inc({ room_type: definition.type, limit: 'state' }),
    })
    this.#handlers = new Handlers(definition, state, {
      roomId,
      clock,
      random,
      log,
      members: () => memberships.members,
      mayStart: (tasks) => this.#inputs.mayStart(tasks),
      size,
    })
    this.#stream = this.#createStream(restored, size)
    this.#replies = new Replies(room, () => this.epoch, metrics, deliver)
    const common = {
      environment,
      handlers: this.#handlers,
      memberships,
      stream: this.#stream,
      replies: this.#replies,
      failures: new FailureLog(clock, log, environment.revealFailures),
      room: this,
      stuck: parts.stuck,
      act: (run: () => void) => this.#act(run),
    }
    this.#inputs = new Inputs({
      ...common,
      onMembers: (change) => {
        parts.onMembers(change)
        this.#watchIdle()
      },
      onClose: () => this.#close(),
    })
    this.#admission = new RoomAdmission({
      ...common,
      roomId,
      log,
      inputs: this.#inputs,
      onEmpty: () => this.#watchIdle(),
      onLate: (request) => this.#wait({ message: request, from: request.edge }),
    })
    this.#idle = scheduler.timer(() => this.#disposeIfIdle())
    // A tick that did not end is left out.
    let skip = parts.stuck.last?.hook === 'onTick'
    this.#ticks = new TickTimer(environment, this.#phase, () => {
      if (!skip) this.#tick()
      skip = false
    })
    parts.onMembers(memberships.size)
    for (const membership of [...memberships])
      if (parts.stuck.hasLeave(membership.member.id)) this.#inputs.part(membership, 'left')
    this.#ticks.set(definition.tick?.rate)
    this.#watchIdle()
  }

  get definition(): RoomDefinition {
    return this.#handlers.definition
  }

  get epoch(): number {
    return this.#stream.epoch
  }

  /** What members know of the room: its last delivered flush. */
  get delivered() {
    return this.#stream.delivery.delivered
  }

  /** The last updates that members saw. */
  get history() {
    return this.#stream.history
  }

  /** A message from an edge. What cannot be handled now waits, in order. */
  receive(message: ToOwner, from: string): void {
    if (this.#canAct()) this.#handle(message, from)
    else this.#wait({ message, from })
  }

  /** The node's lease stands again after it had run out: the room goes on if it is still this node's. */
  recheck(): void {
    this.#freeze()
    // A silent store tells by itself when it answers again.
    if (this.#ended || this.#stream.uncertain) return
    this.#stream
      .verify()
      .then((mine) => (mine ? this.#unfreeze() : this.#fenced()))
      .catch(this.#onBroken)
  }

  /** Keeps the room's record alive. */
  refresh(): void {
    if (this.#ended || this.#frozen) return
    this.#stream
      .refresh()
      .then((mine) => mine || this.#fenced())
      .catch(this.#onBroken)
  }

  /** Runs another definition of the same type from now on. The text says why the old one stays. */
  redefine(definition: RoomDefinition): string | undefined {
    if (definition.state) {
      const checked = validate(definition.state, this.#handlers.state)
      if (!checked.ok) return `the state of ${this.roomId} does not fit: ${checked.message}`
    }
    this.#handlers.definition = definition
    this.#stream.setRate(definition.sync.rate)
    this.#ticks.set(definition.tick?.rate)
    this.memberships.forgetRates()
    return undefined
  }

  /**
   * Saves the room and gives it up, for another owner to go on with; a room that is kept nowhere ends, and one that is ending comes to
   * its end. Input is left unanswered.
   */
  async handOver(successor?: Successor): Promise<void> {
    if (this.#stage === 'closing') await this.#stream.settle()
    if (this.#stage === 'open') this.#over = this.#leave(successor)
    return this.#over
  }

  async #leave(successor?: Successor): Promise<void> {
    this.#stage = 'leaving'
    this.#cancelTimers()
    this.#admission.close()
    await this.#stream.settle()
    if (this.#ended) return
    this.#stage = 'ended'
    // What is kept nowhere is worth handing over only to a successor that takes it.
    const keep = this.definition.durability !== 'none' || successor !== undefined
    if (!keep) this.#inputs.dispose()
    const released = await this.#stream.release(!keep)
    if (released && keep) successor?.take()
    this.#end(released && keep ? 'released' : keep ? 'fenced' : 'disposed', successor?.nodeId)
  }

  /** An edge is gone, and the sockets it held with it. */
  edgeGone(edge: string): void {
    this.#act(() => this.#admission.detachEdge(edge))
  }

  /** The node with most of the members' sockets. */
  get mostlyAt(): string | undefined {
    return this.memberships.busiestEdge
  }

  /** Whether members' sockets are at `edge`, as far as is known here. */
  isSeatedAt(edge: string): boolean {
    return this.memberships.isAt(edge)
  }

  /**
   * Tells an edge of members that something may be lost between it and this room: it asks again what is open. A member that does not come back
   * was given up meanwhile.
   */
  askToReattach(edge: string): void {
    this.edgeGone(edge)
    this.#requestResend(edge)
  }

  /** Stops waiting for a store that does not answer. */
  giveUp(): void {
    this.#stream.giveUp()
  }

  /** Whether nothing is applied, since the node may not act or the store is silent. */
  get frozen(): boolean {
    return this.#frozen
  }

  get #ended(): boolean {
    return this.#stage === 'ended'
  }

  #createStream(restored: RestoredRoom | undefined, size: StateSize): RoomStream {
    const { environment, room, definition, fence, log } = this.#parts
    return new RoomStream(
      {
        environment,
        room,
        roomId: this.roomId,
        durability: definition.durability,
        syncRate: definition.sync.rate,
        phase: this.#phase,
        fence,
        memberships: this.memberships,
        log,
        state: () => this.#handlers.state,
        size,
        onDelivered: () => this.#delivered(),
        onFenced: () => this.#fenced(),
        onStopped: (stopped) => (stopped ? this.#freeze() : this.#unfreeze()),
      },
      restored,
    )
  }

  #handle(message: ToOwner, from: string): void {
    switch (message.kind) {
      case 'message':
      case 'refuse': {
        const membership = this.memberships.get(message.member_id)
        // A member that is being removed is told so soon.
        if (!membership && !this.memberships.recipient(message.member_id)) this.#replies.noSeat(from, message)
        // The session went on at another edge: what is left over here is old, and sent again there where it matters.
        else if (!membership?.isServedBy(from)) return
        else if (message.kind === 'message') this.#inputs.message(membership, message)
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
    }
  }

  /** Every member leaves with the next flush, which is the last. */
  #close(): void {
    if (this.#stage !== 'open') return
    this.#stage = 'closing'
    this.#cancelTimers()
    this.#admission.close()
    for (const membership of [...this.memberships]) this.#inputs.part(membership, 'closed')
    this.#stream.flushSoon()
  }

  #delivered(): void {
    this.#admission.delivered()
    if (this.#stage === 'closing' && this.#stream.quiet) this.#dispose()
  }

  /** Starts or stops the idle timer: the room may have become empty, or is so no more. */
  #watchIdle(): void {
    if (!this.#admission.empty || this.#stage !== 'open') this.#idle.cancel()
    else if (!this.#idle.waiting)
      this.#idle.at(this.#environment.clock.monotonic() + this.definition.idleSeconds * 1000)
  }

  #disposeIfIdle(): void {
    if (!this.#admission.empty || this.#stage !== 'open') return
    if (!this.#frozen && this.#mayAct()) this.#close()
    else this.#idle.at(this.#environment.clock.monotonic() + RETRY_IDLE_MS)
  }

  #dispose(): void {
    this.#stage = 'ended'
    this.#cancelTimers()
    this.#inputs.dispose()
    this.#over = this.#stream
      .release(true)
      .then(() => this.#end('disposed'))
      .catch(this.#onBroken)
  }

  #tick(): void {
    if (!this.#frozen && this.#mayAct()) this.#inputs.tick()
  }

  /** Does something now, or in its turn when the room can act again. */
  #act(run: () => void): void {
    if (this.#canAct()) run()
    else if (this.#stage === 'open' || this.#stage === 'closing') this.#backlog.defer(run)
  }

  /** Whether something can be handled now; what cannot waits until the room can act again or, once the room is on its way out, for the next owner. */
  #canAct(): boolean {
    return this.#stage !== 'leaving' && !this.#ended && !this.#frozen && this.#mayAct()
  }

  #wait(arrival: Arrival): void {
    if (this.#backlog.add(arrival)) return
    this.#environment.metrics.backlogFull.inc({ room_type: this.definition.type })
    if (!this.#replies.refuseUnavailable(arrival, `${this.roomId} has to wait: try again`))
      this.#edgesToAsk.add(arrival.from)
  }

  /** Freezes the room when the node may not act. */
  #mayAct(): boolean {
    if (this.#environment.mayAct()) return true
    this.#freeze()
    return false
  }

  #freeze(): void {
    if (this.#frozen || this.#ended) return
    this.#frozen = true
    this.#stream.stop()
    this.#environment.metrics.roomFreezes.inc({ room_type: this.definition.type })
  }

  #unfreeze(): void {
    if (!this.#frozen || this.#ended || !this.#environment.mayAct()) return
    this.#frozen = false
    this.#stream.resume()
    if (this.#stage === 'leaving') return
    for (const waiting of this.#backlog.take())
      try {
        if (typeof waiting === 'function') this.#act(waiting)
        else this.receive(waiting.message, waiting.from)
      } catch (error) {
        this.#onBroken(error)
      }
    const edgesToAsk = [...this.#edgesToAsk]
    this.#edgesToAsk.clear()
    for (const edge of edgesToAsk) this.#requestResend(edge)
  }

  /** A mistake in this program, met where no one waits: it harms what it happened to, and not the node. */
  readonly #onBroken = (error: unknown): void => {
    this.#parts.log.error({ err: error }, 'something could not be done in the room')
  }

  #requestResend(edge: string): void {
    this.#replies.send(edge, { kind: 'resend' })
  }

  #fenced(): void {
    if (this.#ended) return
    this.#stage = 'ended'
    this.#cancelTimers()
    this.#admission.close()
    this.#stream.end()
    this.#environment.metrics.fencedWrites.inc()
    this.#end('fenced')
  }

  #end(end: RoomEnd, successor?: string): void {
    this.#parts.onMembers(-this.memberships.size)
    this.#admission.ended(end)
    // While the room still counts as here, so that no one asks for it before the edges know where it is.
    for (const edge of [...this.memberships.edges])
      this.#replies.send(edge, { kind: 'redirect', owner: successor ?? null })
    const unhandled = this.#backlog.take().filter((waiting) => typeof waiting !== 'function')
    this.#parts.onEnd(end, unhandled, successor)
  }

  #cancelTimers(): void {
    this.#idle.cancel()
    this.#ticks.cancel()
  }
}
