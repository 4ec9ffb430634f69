import { nearestOf } from '../../shared/config.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Claim } from '../../shared/store/port.ts'
import { noTracer, type Tracer } from '../../shared/tracing/tracer.ts'
import type { Found, RoomDescription, RoomQuery } from '../descriptions.ts'
import type { Inbox } from '../inbox.ts'
import { ProjectCounts } from '../metrics.ts'
import { ABSENT, type Claimed, isEmpty, type Nowhere, nowhere, refuseAll, unavailable } from '../place.ts'
import {
  type Arrival,
  isClose,
  type RequestAnswer,
  type RoomAddress,
  type RoomRequest,
  type Shown,
  type ToOwner,
} from '../traffic.ts'
import { type RoomDefinition, roomTypes } from './definition.ts'
import { Departures } from './departures.ts'
import { RoomDescriptions, recordedView } from './describe.ts'
import { FailureLog } from './failures.ts'
import type { FeatureNeeds, RoomFeature } from './feature.ts'
import { HistoryBudget } from './history.ts'
import { noObserver, type TurnObserver } from './hooks.ts'
import { JournalFormat } from './journal.ts'
import { ROOM_LIMITS, type RoomLimits } from './limits.ts'
import { answerLeft, outcomesLeft, outcomesToLeave } from './outcomes.ts'
import { Replies } from './replies.ts'
import { restore } from './restore.ts'
import type { Room } from './room.ts'
import { type KnownSuspects, noSuspects, RoomCode, turnOf } from './room-code.ts'
import { type Defer, LoopShare, Scheduler } from './scheduler.ts'
import { NO_EPOCH, outcomesIn, queue, RoomSlot, type SlotNeeds, type SlotState } from './slot.ts'

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
  | 'scheduler'
type Defaulted = 'revealFailures' | 'tracer'

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

/** The rooms that this node runs, and those that it opens. */
export class RoomHost {
  /** Runs the code of all rooms. */
  readonly code: RoomCode
  readonly #needs: SlotNeeds
  /** The installed room types, by name. */
  readonly types: ReadonlyMap<string, RoomDefinition>
  readonly #types: Map<string, RoomDefinition>
  /** Slots by room name: of running rooms, and of rooms that are being opened. */
  readonly #slots = new Map<string, RoomSlot>()
  /** Running rooms by name. */
  readonly #rooms = new Map<string, Room>()
  readonly #projects = new ProjectCounts()
  readonly #descriptions: RoomDescriptions
  readonly #refresh
  #closed = false

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
    this.#types = roomTypes(options.rooms)
    this.types = this.#types
    this.#needs = {
      ...options,
      tracer: options.tracer ?? noTracer,
      code: this.code,
      revealFailures,
      limits,
      scheduler,
      loopShare: new LoopShare(clock, defer, this.code),
      codecs: new Map(options.codecs.map((codec) => [codec.subprotocol, codec])),
      format: new JournalFormat(),
      historyBudget: new HistoryBudget(limits.historyBytes, metrics.historyDropped),
      newer: new Set(),
      departures: new Departures(clock, limits.detachedMs),
      failures,
      features: options.features({ ...options, scheduler, code: this.code, limits, failures }),
    }
    this.#descriptions = new RoomDescriptions(clock, this.#needs.format)
    metrics.rooms.read(() => this.size)
    metrics.projectRooms.read(() => this.#projects.series)
    metrics.members.read(() => this.members)
    metrics.roomsFrozen.read(() => this.frozen)
    metrics.historyBytes.read(() => this.historyBytes)
    const everyMs = limits.recordTtlMs / 4
    this.#refresh = scheduler.timer(() => {
      this.#refresh.at(clock.monotonic() + everyMs)
      for (const room of this.rooms) room.refresh()
      for (const edge of this.#edges()) if (options.cluster.nodes.isGone(edge)) this.edgeGone(edge)
    })
    this.#refresh.at(clock.monotonic() + everyMs)
  }

  get size(): number {
    return this.#rooms.size
  }

  /** Number of rooms that this node has claimed: running, or being opened. */
  get claimed(): number {
    return this.#slots.size
  }

  /** Number of rooms of a project that this node has claimed. */
  claimedOf(projectId: string): number {
    return this.#projects.of(projectId)
  }

  /** Bytes that the histories of all rooms hold. */
  get historyBytes(): number {
    return this.#needs.historyBudget.bytes
  }

  /** How long the next inputs have waited for the event loop, in milliseconds. */
  get waitedMs(): number {
    return this.#needs.loopShare.waitedMs
  }

  /** Number of frozen rooms. */
  get frozen(): number {
    let frozen = 0
    for (const room of this.#rooms.values()) if (room.frozen) frozen++
    return frozen
  }

  /** Version of each room type on this node. A room whose state has a newer version cannot run here. */
  get versions(): Readonly<Record<string, number>> {
    return Object.fromEntries([...this.#types.values()].map(({ type, version }) => [type, version]))
  }

  /** True if this node takes rooms. */
  get accepts(): boolean {
    return !this.#closed
  }

  /** Whether a room (`project/type:key`) runs here, or is being opened under the claim of this node. */
  has(name: string): boolean {
    return this.state(name) !== 'gone'
  }

  /** State of a room name (`project/type:key`) at this node. */
  state(name: string): SlotState {
    return this.#slots.get(name)?.state ?? 'gone'
  }

  /** Handles a message from the edge `from`. Returns false if its room is not here. */
  receive(message: ToOwner, from: string): boolean {
    const { name } = message.room
    const receiver = this.#rooms.get(name) ?? this.#slots.get(name)
    receiver?.receive(message, from)
    return receiver !== undefined || this.#hasParted(message)
  }

  /** Answers an attach to a room that has ended here, if the node still remembers how the seat ended. */
  #hasParted(message: ToOwner): boolean {
    if (message.kind !== 'attach') return false
    const { room, edge, member_id: subscriptionId } = message
    const farewell = this.#needs.departures.of(subscriptionId)
    if (farewell) new Replies(room, farewell, this.#needs).left(edge, subscriptionId, farewell)
    return farewell !== undefined
  }

  /** Returns the definition of a room type, or the answer to messages of a type that is not installed. */
  typeOf(roomType: string): RoomDefinition | Nowhere {
    const definition = this.#types.get(roomType)
    if (definition) return definition
    const nearest = nearestOf(roomType, [...this.#types.keys()])
    const meant = nearest === undefined ? '' : `; did you mean ${JSON.stringify(nearest)}?`
    return nowhere('unknown_type', `no room type ${JSON.stringify(roomType)} is installed${meant}`)
  }

  /** Runs a room that this node has claimed, for the messages in the inbox. If its type is not installed, it can only be ended. */
  run(address: RoomAddress, inbox: Inbox, { claim, mayMake }: Claimed): void {
    const type = this.typeOf(address.roomType)
    if ('at' in type) {
      void this.#endUnknown(address, inbox, claim, type)
      return
    }
    const slot = new RoomSlot(this.#needs, address, type, inbox, this)
    this.#slots.set(address.name, slot)
    this.#projects.add(address.projectId, 1)
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

  /** Adds a running room. */
  add(room: Room): void {
    this.#rooms.set(room.core.name, room)
  }

  /** Removes a slot, and its room if it ran. */
  remove({ address: { name, projectId } }: RoomSlot): void {
    if (this.#slots.delete(name)) this.#projects.add(projectId, -1)
    this.#rooms.delete(name)
  }

  /** Replaces the definition of a room type. Running rooms continue with it, and keep their state if it fits. */
  replaceRoom(definition: RoomDefinition): void {
    const { type } = definition
    const running = this.rooms.filter((room) => room.core.definition.type === type)
    const problems = running.flatMap((room) => room.redefine(definition) ?? [])
    const before = this.#types.get(type)
    this.#types.set(type, definition)
    const { log } = this.#needs
    const replaced = running.length - problems.length
    log.info({ room_type: type, rooms: replaced }, `room type ${type} was replaced`)
    for (const problem of problems)
      log.warn({ room_type: type }, `${problem}; this room keeps the old definition`)
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
    for (const room of this.rooms) room.recheck()
  }

  /** Another node reports that it owns a room (`project/type:key`). If the room runs here, it continues only if this node still owns it. */
  verify(name: string): void {
    this.#rooms.get(name)?.recheck()
  }

  /** A room is due. Returns false if it neither runs here nor is being opened. */
  wake(name: string): boolean {
    this.#rooms.get(name)?.wake()
    return this.has(name)
  }

  /** Members of all rooms that run here. */
  get members(): number {
    let members = 0
    for (const { core } of this.#rooms.values()) members += core.memberships.size
    return members
  }

  /** Returns the rooms as operators see them. */
  describe(query: RoomQuery): Found<RoomDescription> {
    return this.#descriptions.of(this.rooms, query)
  }

  /** Rooms that run here. */
  get rooms(): readonly Room[] {
    return [...this.#rooms.values()]
  }

  /** An edge is gone. Its members are detached until they resume at another edge. */
  edgeGone(edge: string): void {
    for (const room of this.rooms) if (room.core.memberships.edges.has(edge)) room.edgeGone(edge)
  }

  /** Nodes where members of the rooms have their sockets. */
  #edges(): Set<string> {
    return new Set(this.rooms.flatMap((room) => [...room.core.memberships.edges.keys()]))
  }

  /** Messages between `edge` and this node may be lost. The edge attaches its members again. */
  edgeMissed(edge: string): void {
    for (const room of this.rooms) if (room.core.memberships.edges.has(edge)) room.askToReattach(edge)
  }

  /** Takes no more rooms. */
  refuseMore(): void {
    this.#closed = true
  }

  /** Takes no more rooms, and saves and releases its rooms. After `timeoutMs`, it stops waiting for a store that does not answer. */
  async close(timeoutMs = 5000): Promise<void> {
    this.#closed = true
    this.#refresh.cancel()
    const cancel = this.#needs.clock.schedule(timeoutMs, () => {
      for (const room of this.rooms) room.giveUp()
    })
    await Promise.all(this.rooms.map((room) => room.handOver()))
    cancel()
  }

  /** Returns the outcome that an ended room has left for a repeated request. Undefined: there is none. Rejects with `StoreUnavailable`. */
  async endedAnswer({ name }: RoomAddress, request: RoomRequest): Promise<RequestAnswer | undefined> {
    const { clock, format, records } = this.#needs
    const left = outcomesLeft(await records.read(name), format, clock.now())
    const outcome = left.find(({ id }) => id === request.id)
    return outcome && answerLeft(request, outcome)
  }

  /**
   * Returns a view of a room that no node runs, from its record. Undefined: there is no record. Rejects with `StoreUnavailable`, or if the
   * record cannot be read.
   */
  async recorded({ name, roomType }: RoomAddress, shown: Shown): Promise<RequestAnswer | undefined> {
    const { code, format, records } = this.#needs
    const room = restore({ ...(await records.read(name)), fence: { epoch: 0 } }, format)
    if (!room) return undefined
    const { epoch, seq } = room
    const turn = turnOf({ name, epoch }, 'migrate')
    // The functions of the layers run here.
    const reply = code.run(turn, () => recordedView(room, this.#types.get(roomType), shown))
    return { reply, epoch, seq }
  }

  /** An operator ends a room whose type is not installed: deletes its record, without calling a hook. Never rejects. */
  async #endUnknown(address: RoomAddress, inbox: Inbox, claim: Claim, refusal: Nowhere): Promise<void> {
    const { clock, cluster, features, format, records, wakeups, limits, log } = this.#needs
    const { name } = address
    const ends = inbox.remove(({ message }) => isClose(message))
    this.refuse(address, inbox, refusal)
    for (const end of ends) inbox.add(end)
    const { fence } = claim
    try {
      await wakeups.set(name, fence, undefined)
      const outcomes = outcomesToLeave(outcomesIn(claim, format), format, clock.now())
      const release = { forget: true, ttlMs: limits.recordTtlMs, ...(outcomes && { outcomes }) }
      await records.release(name, fence, release)
      for (const feature of features) feature.gone?.(address, fence.epoch)
      if (isEmpty(claim)) this.refuse(address, inbox, ABSENT)
      for (const { message, from } of inbox.take())
        this.#repliesOf(address).send(from, {
          kind: 'answer',
          member_id: message.member_id,
          answer: { reply: { ended: true }, epoch: fence.epoch, seq: 0 },
        })
    } catch (error) {
      log.warn({ err: error, room: name }, 'a room could not be ended')
      this.refuse(address, inbox, unavailable(address, 'the store does not answer'))
    }
    // Edges of messages that found the inbox full send them again.
    cluster.router.redirect(address, inbox, undefined)
  }
}
