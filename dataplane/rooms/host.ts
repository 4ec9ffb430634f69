import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Random } from '../../shared/random.ts'
import type { RoomRecords } from '../../shared/store/port.ts'
import { noTracer, type Tracer } from '../../shared/tracing/tracer.ts'
import { choose, type Found, lazily, type RoomDescription, type RoomQuery } from '../descriptions.ts'
import { type Arrival, type RoomAddress, roomIdOf, roomName, type ToEdge, type ToOwner } from '../traffic.ts'
import { noTurns, type Turns } from '../watchdog/turns.ts'
import { type RoomDefinition, RoomTypes } from './definition.ts'
import { describeRoom, roomRanking, roomsAskedFor, UpdateRates } from './describe.ts'
import { ROOM_LIMITS, type RoomEnvironment, type RoomLimits } from './environment.ts'
import { FailureLog } from './failures.ts'
import { HistoryBudget } from './history.ts'
import { JournalFormat, type NewerRecord } from './journal.ts'
import type { RoomMetrics } from './metrics.ts'
import { type ClaimResult, type ClaimRoom, RoomOpening, repliesWithoutRoom } from './opening.ts'
import { Room, type RoomParts } from './room.ts'
import { type Defer, Scheduler } from './scheduler.ts'

/** What a host is made of. */
export interface RoomHostParts {
  readonly nodeId: string
  /** The room types installed. */
  readonly rooms: readonly RoomDefinition[]
  readonly codecs: readonly Codec[]
  readonly records: RoomRecords
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: RoomMetrics
  /** Default: no traces. */
  readonly tracer?: Tracer
  readonly claim: ClaimRoom
  /** From when on a room that the store has lost may be written again, on the monotonic clock. */
  readonly rewritesAllowedAt: () => number
  /** Whether this node may act for its rooms at this moment (its lease is valid). */
  readonly mayAct: () => boolean
  /** Takes a message to an edge. */
  readonly deliver: (edge: string, message: ToEdge) => void
  /** Whether a node is known to have ended: no one tells of one that ended before it was known. */
  readonly edgeGone: (edge: string) => boolean
  /** Messages for a room that is not here (any more); `owner`: the node that has it, if that is known. */
  readonly redirect: (arrivals: readonly Arrival[], owner: string | undefined) => void
  /** Default: when this turn of the event loop has read its sockets. */
  readonly defer?: Defer
  /** Default: no watchdog. */
  readonly turns?: Turns
  /** Whether players are told what failing room logic threw; default false. */
  readonly revealFailures?: boolean
  readonly limits?: Partial<RoomLimits>
}

/** Rooms that this node owns, and those it is about to. */
export class RoomHost {
  readonly #parts: RoomHostParts
  readonly #types: RoomTypes
  readonly #environment: RoomEnvironment
  /** What every opening is given. */
  readonly #openings: ConstructorParameters<typeof RoomOpening>[2]
  readonly #rooms = new Map<string, Room>()
  readonly #opening = new Map<string, RoomOpening>()
  /** Versions of records that this node is too old for, each logged once. */
  readonly #newer = new Set<number>()
  readonly #rates: UpdateRates
  readonly #refresh
  #members = 0
  #closed = false

  /** Throws RoomDefinitionError when two room types have one name. */
  constructor(parts: RoomHostParts) {
    const { nodeId, clock, random, records, metrics, deliver, mayAct, rewritesAllowedAt, log } = parts
    this.#parts = parts
    this.#types = new RoomTypes(parts.rooms)
    this.#rates = new UpdateRates(clock)
    const scheduler = new Scheduler(clock, parts.defer ?? setImmediate, (error) =>
      log.error({ err: error }, 'a timer of a room failed'),
    )
    const limits = { ...ROOM_LIMITS, ...parts.limits }
    metrics.rooms.read(() => this.size)
    metrics.members.read(() => this.#members)
    metrics.roomsFrozen.read(() => this.frozen)
    metrics.historyBytes.read(() => this.historyBytes)
    this.#environment = {
      nodeId,
      clock,
      random,
      scheduler,
      codecs: new Map(parts.codecs.map((codec) => [codec.subprotocol, codec])),
      format: new JournalFormat(),
      records,
      metrics,
      tracer: parts.tracer ?? noTracer,
      limits,
      turns: parts.turns ?? noTurns,
      historyBudget: new HistoryBudget(limits.historyBytes, (updates) => metrics.historyDropped.inc(updates)),
      revealFailures: parts.revealFailures ?? false,
      deliver,
      mayAct,
      rewritesAllowedAt,
    }
    this.#openings = {
      environment: this.#environment,
      log,
      failures: new FailureLog(clock, log, this.#environment.revealFailures),
      claim: parts.claim,
      redirect: parts.redirect,
      closed: () => this.#closed,
      onOver: (name) => this.#opening.delete(name),
      build: (found) => this.#build(found),
      onNewer: (name, error) => this.#logNewer(name, error),
      onOpen: (room) => this.#rooms.set(room.name, room),
    }
    const everyMs = limits.recordTtlMs / 4
    this.#refresh = scheduler.timer(() => {
      this.#refresh.at(clock.monotonic() + everyMs)
      for (const room of this.#rooms.values()) room.refresh()
      for (const edge of this.#edges()) if (parts.edgeGone(edge)) this.edgeGone(edge)
    })
    this.#refresh.at(clock.monotonic() + everyMs)
  }

  /** How many rooms run here. */
  get size(): number {
    return this.#rooms.size
  }

  /** Bytes that the histories of all of them hold. */
  get historyBytes(): number {
    return this.#environment.historyBudget.bytes
  }

  /** How many of them stand still. */
  get frozen(): number {
    let frozen = 0
    for (const room of this.#rooms.values()) if (room.frozen) frozen++
    return frozen
  }

  /** Whether this node takes rooms at all. */
  get accepts(): boolean {
    return !this.#closed
  }

  /** Whether a room (`project/type:key`) runs here, or is about to. */
  has(name: string): boolean {
    return this.#rooms.has(name) || this.#opening.has(name)
  }

  /** A message from the edge `from` (default: this node's own) for one of its members' rooms. */
  receive(message: ToOwner, from: string = this.#parts.nodeId): void {
    const name = roomName(message.room)
    const room = this.#rooms.get(name)
    const opening = this.#opening.get(name)
    if (room) room.receive(message, from)
    else if (opening) opening.receive({ message, from })
    else this.#parts.redirect([{ message, from }], undefined)
  }

  /**
   * Claims a room that no living node owns, and runs it for those who have arrived: a join makes a new one, others only find one that was.
   * Resolves with what came of the claim, once that has happened; undefined: there was no reason for one.
   */
  open(address: RoomAddress, arrivals: readonly Arrival[]): Promise<ClaimResult> | undefined {
    const name = roomName(address)
    const definition = this.#types.get(address.roomType)
    if (this.#closed) this.#parts.redirect(arrivals, undefined)
    else if (!definition) for (const arrival of arrivals) this.#unknownType(arrival)
    else if (this.has(name)) for (const { message, from } of arrivals) this.receive(message, from)
    else {
      const opening = new RoomOpening(address, definition, this.#openings)
      this.#opening.set(name, opening)
      for (const arrival of arrivals) opening.receive(arrival)
      return opening.open()
    }
    return undefined
  }

  /** Puts a definition in the place of the one of the same type; running rooms go on with it, keeping their state where it fits. */
  replaceRoom(definition: RoomDefinition): void {
    const { type } = definition
    const running = [...this.#rooms.values()].filter((room) => room.address.roomType === type)
    const problems = running.flatMap((room) => room.redefine(definition) ?? [])
    this.#types.set(definition)
    const { log } = this.#parts
    const replaced = running.length - problems.length
    log.info({ room_type: type, rooms: replaced }, `room type ${type} was replaced`)
    for (const problem of problems)
      log.warn({ room_type: type }, `${problem}; this room keeps the old definition`)
  }

  /** To be called when the node may act again after it might not, and when the store is back: every room goes on that is still this node's. */
  recheck(): void {
    for (const room of [...this.#rooms.values()]) room.recheck()
  }

  /** Another node says that it has a room (`project/type:key`): if that runs here, it goes on only if it is still this node's. */
  verify(name: string): void {
    this.#rooms.get(name)?.recheck()
  }

  /** Members of all rooms that run here. */
  get members(): number {
    return this.#members
  }

  /** The rooms as operators see them. */
  describe(query: RoomQuery): Found<RoomDescription> {
    const { limit, order, room_id: roomId } = query
    if (roomId === undefined) this.#rates.sample(this.#rooms.values())
    const parts = { ...this.#environment, rates: this.#rates }
    const { chosen, found } = choose(this.#rooms.values(), {
      fits: roomsAskedFor(query),
      ranking: order && roomRanking(order, this.#rates),
      limit,
    })
    return { items: lazily(chosen, (room) => describeRoom(room, query, parts)), found, total: this.size }
  }

  /** Every room that runs here. */
  get rooms(): readonly Room[] {
    return [...this.#rooms.values()]
  }

  /** An edge is gone: its members wait to be resumed at another. */
  edgeGone(edge: string): void {
    for (const room of this.#rooms.values()) if (room.isSeatedAt(edge)) room.edgeGone(edge)
  }

  /** Every node where members of these rooms have their sockets. */
  #edges(): Set<string> {
    return new Set([...this.#rooms.values()].flatMap((room) => [...room.memberships.edges]))
  }

  /** Messages between `edge` and this node may be lost: it is to ask again what is open. */
  edgeMissed(edge: string): void {
    for (const room of this.#rooms.values()) if (room.isSeatedAt(edge)) room.askToReattach(edge)
  }

  /** Takes no more rooms. */
  refuseMore(): void {
    this.#closed = true
  }

  /** Takes no more rooms, and saves and gives up those it has. After `timeoutMs` it no longer waits for a store that does not answer. */
  async close(timeoutMs = 5000): Promise<void> {
    this.#closed = true
    this.#refresh.cancel()
    const cancel = this.#environment.clock.schedule(timeoutMs, () => {
      for (const room of this.#rooms.values()) room.giveUp()
    })
    await Promise.all([...this.#rooms.values()].map((room) => room.handOver()))
    cancel()
  }

  #build(found: Pick<RoomParts, 'room' | 'definition' | 'fence' | 'begin' | 'stuck'>): Room {
    const { log } = this.#parts
    const { room } = found
    const { epoch } = found.fence
    return new Room({
      environment: this.#environment,
      log: log.child({ room_id: roomIdOf(room), project_id: room.projectId }),
      ...found,
      onMembers: (change) => {
        this.#members += change
      },
      onEnd: (end, unhandled, successor) => {
        this.#rooms.delete(roomName(room))
        // A few a day, and what an operator searches the log for then.
        log[end === 'disposed' ? 'debug' : 'info'](
          { room_id: roomIdOf(room), end, epoch, successor },
          'the room is no longer here',
        )
        if (unhandled.length > 0) this.#parts.redirect(unhandled, successor)
      },
    })
  }

  #logNewer(room: string, error: NewerRecord): void {
    if (this.#newer.has(error.version)) return
    this.#newer.add(error.version)
    this.#parts.log.error(
      { err: error, room },
      'rooms of a newer version cannot run here: finish the upgrade',
    )
  }

  #unknownType({ message, from }: Arrival): void {
    const replies = repliesWithoutRoom(message.room, this.#environment)
    const { roomType } = message.room
    if (message.kind !== 'join') replies.noSeat(from, message)
    else replies.refuse(message, 'unknown_room_type', `no room type ${JSON.stringify(roomType)} is installed`)
  }
}
