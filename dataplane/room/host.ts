import type { Codec } from '../../shared/protocol/codec.ts'
import { noTracer, type Tracer } from '../../shared/tracing/tracer.ts'
import type { Found, RoomDescription, RoomQuery } from '../descriptions.ts'
import type { Inbox } from '../inbox.ts'
import { type Claimed, type Nowhere, refuseAll } from '../place.ts'
import type { Arrival, LocalSeat, RoomAddress, ToOwner } from '../traffic.ts'
import { queue } from './backlog.ts'
import type { RoomDefinition } from './definition.ts'
import { Departures } from './departures.ts'
import { RoomDescriptions } from './describe.ts'
import { FailureLog } from './failures.ts'
import type { FeatureNeeds, RoomFeature } from './feature.ts'
import { HistoryBudget } from './history.ts'
import { noObserver, type TurnObserver } from './hooks.ts'
import { HostedRooms } from './hosted-rooms.ts'
import { InstalledTypes } from './installed-types.ts'
import { JournalFormat } from './journal.ts'
import { ROOM_LIMITS, type RoomLimits } from './limits.ts'
import { Replies } from './replies.ts'
import { type KnownSuspects, noSuspects, RoomCode } from './room-code.ts'
import { type Defer, LoopShare, Scheduler } from './scheduler.ts'
import { endUnknown, NO_EPOCH, RoomSlot, type SlotNeeds } from './slot.ts'
import { StoredRooms } from './stored-rooms.ts'

/** The parts of the needs of slots that the host makes. */
type Made =
  | 'code'
  | 'codecs'
  | 'departures'
  | 'failures'
  | 'features'
  | 'format'
  | 'historyBudget'
  | 'limits'
  | 'loopShare'
  | 'newer'
  | 'phase'
  | 'scheduler'
type Defaulted = 'revealFailures' | 'tracer'

/**
 * Up to this number of rooms, all flush at the same moments: a node with little load wakes up less often. The flushes of 8 rooms with 25
 * members take about 3 ms.
 */
const TOGETHER = 8

/** Options of a host. By default there are no traces and no watchdog, and players do not see what failing room logic threw. */
interface RoomHostOptions extends Omit<SlotNeeds, Made | Defaulted> {
  readonly tracer?: Tracer
  readonly revealFailures?: boolean
  readonly cluster: SlotNeeds['cluster'] & {
    readonly nodes: {
      /** True if a node is known to have ended. */
      isGone(nodeId: string): boolean
    }
  }
  /** Makes the features of rooms. */
  readonly features: (needs: FeatureNeeds) => readonly RoomFeature[]
  /** Observes every turn. */
  readonly turns?: TurnObserver
  /** Handlers whose turns have exceeded the turn limit. */
  readonly suspects?: KnownSuspects
  /** The room types installed. */
  readonly rooms: readonly RoomDefinition[]
  readonly codecs: readonly Codec[]
  /** Default: `setImmediate`, which runs after this turn of the event loop has read its sockets. */
  readonly defer?: Defer
  readonly limits?: Partial<RoomLimits>
}

/** Runs the rooms of a node. */
export class RoomHost {
  /** Runs the code of all rooms. */
  readonly code: RoomCode
  /** The installed room types. */
  readonly types: InstalledTypes
  /** The rooms that this node has claimed. */
  readonly rooms = new HostedRooms()
  /** The rooms that no node runs. */
  readonly stored: StoredRooms
  readonly #needs: SlotNeeds
  readonly #descriptions: RoomDescriptions
  readonly #refresh

  /** Throws RoomDefinitionError if two room types have the same name. */
  constructor(options: RoomHostOptions) {
    const { clock, log, metrics, revealFailures = false } = options
    const limits = { ...ROOM_LIMITS, ...options.limits }
    const { defer = setImmediate } = options
    const scheduler = new Scheduler(clock, defer, log)
    this.code = new RoomCode({
      clock,
      log,
      metrics,
      observer: options.turns ?? noObserver,
      suspects: options.suspects ?? noSuspects,
    })
    const failures = new FailureLog(clock, log, revealFailures)
    this.types = new InstalledTypes(options.rooms)
    this.#needs = {
      ...options,
      tracer: options.tracer ?? noTracer,
      code: this.code,
      revealFailures,
      limits,
      scheduler,
      loopShare: new LoopShare(clock, defer, this.code),
      phase: () => (this.rooms.size > TOGETHER ? options.random.float() : 0),
      codecs: new Map(options.codecs.map((codec) => [codec.subprotocol, codec])),
      format: new JournalFormat(),
      historyBudget: new HistoryBudget(limits.historyBytes, metrics.historyDropped),
      newer: new Set(),
      departures: new Departures(clock, limits.detachedMs),
      failures,
      features: options.features({ ...options, scheduler, code: this.code, limits, failures }),
    }
    this.stored = new StoredRooms(this.#needs, this.types)
    this.#descriptions = new RoomDescriptions(clock, this.#needs.format)
    const { rooms } = this
    metrics.rooms.read(() => rooms.size)
    metrics.projectRooms.read(() => rooms.projects.series)
    metrics.members.read(() => rooms.members)
    metrics.roomsFrozen.read(() => rooms.frozen.length)
    metrics.historyBytes.read(() => this.historyBytes)
    const everyMs = limits.recordTtlMs / 4
    this.#refresh = scheduler.timer(() => {
      this.#refresh.at(clock.monotonic() + everyMs)
      for (const room of rooms.running) room.refresh()
      for (const edge of this.#edges()) if (options.cluster.nodes.isGone(edge)) this.edgeGone(edge)
    })
    this.#refresh.at(clock.monotonic() + everyMs)
  }

  /** Bytes that the histories of all rooms hold. */
  get historyBytes(): number {
    return this.#needs.historyBudget.bytes
  }

  /** How long the next inputs have waited for the event loop, in milliseconds. */
  get waitedMs(): number {
    return this.#needs.loopShare.waitedMs
  }

  /** Handles a message from the edge `from`. Returns false if its room is not here. */
  receive(message: ToOwner, from: string): boolean {
    const receiver = this.rooms.receiver(message.room.name)
    receiver?.receive(message, from)
    return receiver !== undefined || this.#hasParted(message)
  }

  /** Returns the seat of a member at `edge`. Undefined: its room (`project/type:key`) does not run here, or does not know it. */
  seat(name: string, memberId: string, edge: string): LocalSeat | undefined {
    return this.rooms.get(name)?.seat(memberId, edge)
  }

  /** Answers an attach to a room that has ended here, if the node still remembers how the seat ended. */
  #hasParted(message: ToOwner): boolean {
    if (message.kind !== 'attach') return false
    const { room, edge, member_id: subscriptionId } = message
    const farewell = this.#needs.departures.of(subscriptionId)?.farewell
    if (farewell) new Replies(room, { epoch: 0 }, this.#needs).left(edge, subscriptionId, farewell)
    return farewell !== undefined
  }

  /** Runs a room that this node has claimed, for the messages in the inbox. If its type is not installed, it can only be ended. */
  run(address: RoomAddress, inbox: Inbox, { claim, mayMake }: Claimed): void {
    const type = this.types.find(address.roomType)
    if ('at' in type) {
      void endUnknown(this.#needs, address, inbox, claim, type)
      return
    }
    const slot = new RoomSlot(this.#needs, address, type, inbox, this.rooms)
    this.rooms.claim(slot)
    slot.begin(claim, mayMake)
  }

  /** Adds a message to the inbox of a room that does not run. If the inbox is full, the message is refused, or its edge sends it again. */
  wait(inbox: Inbox, arrival: Arrival): void {
    queue(arrival, inbox, this.#repliesOf(arrival.message.room), this.#needs)
  }

  /** Answers the messages of a room that is nowhere, and counts the errors. Messages that look for the room again stay in the inbox. */
  refuse(room: RoomAddress, inbox: Inbox, place: Nowhere): void {
    refuseAll(inbox, place, this.#repliesOf(room).answer)
  }

  #repliesOf(room: RoomAddress): Replies {
    return new Replies(room, NO_EPOCH, this.#needs)
  }

  /** Replaces the definition of a room type. Running rooms continue with it, and keep their state if it fits. */
  replaceRoom(definition: RoomDefinition): void {
    const { type } = definition
    const running = this.rooms.running.filter((room) => room.core.definition.type === type)
    const problems = running.flatMap((room) => room.redefine(definition) ?? [])
    const before = this.types.get(type)
    this.types.replace(definition)
    const { log } = this.#needs
    const replaced = running.length - problems.length
    log.info({ room_type: type, rooms: replaced }, 'room type replaced')
    for (const problem of problems) log.warn({ room_type: type, problem }, 'a room keeps the old definition')
    // A handler that uses a new field of create fails in these rooms: the field is undefined there.
    if (
      replaced > 0 &&
      before?.version === definition.version &&
      `${before.create}` !== `${definition.create}`
    )
      log.warn(
        {
          room_type: type,
          reason: `running rooms of type ${type} keep their state; restart the server to begin with the new one, or increase version and add a migration`,
        },
        'create has changed',
      )
  }

  /** Called when the node may act again, and when the store answers again. Every room that this node still owns continues. */
  recheck(): void {
    for (const room of this.rooms.running) room.recheck()
  }

  /** Another node reports that it owns a room (`project/type:key`). If the room runs here, it continues only if this node still owns it. */
  verify(name: string): void {
    this.rooms.get(name)?.recheck()
  }

  /** A room is due. Returns false if it neither runs here nor is being opened. */
  wake(name: string): boolean {
    this.rooms.get(name)?.wake()
    return this.rooms.has(name)
  }

  /** Returns the rooms as operators see them. */
  describe(query: RoomQuery): Found<RoomDescription> {
    return this.#descriptions.of(this.rooms.running, query)
  }

  /** An edge is gone. Its members are detached until they resume at another edge. */
  edgeGone(edge: string): void {
    for (const room of this.rooms.running) if (room.core.memberships.edges.has(edge)) room.edgeGone(edge)
  }

  /** Nodes where members of the rooms have their sockets. */
  #edges(): Set<string> {
    return new Set(this.rooms.running.flatMap((room) => [...room.core.memberships.edges.keys()]))
  }

  /** Messages between `edge` and this node may be lost. The edge attaches its members again. */
  edgeMissed(edge: string): void {
    for (const room of this.rooms.running) if (room.core.memberships.edges.has(edge)) room.askToReattach(edge)
  }

  /** Takes no more rooms, and saves and releases its rooms. After `timeoutMs`, it stops waiting for a store that does not answer. */
  async close(timeoutMs = 5000): Promise<void> {
    this.rooms.refuseMore()
    this.#refresh.cancel()
    const cancel = this.#needs.clock.schedule(timeoutMs, () => {
      for (const room of this.rooms.running) room.giveUp()
    })
    await Promise.all(this.rooms.running.map((room) => room.handOver()))
    cancel()
  }
}
