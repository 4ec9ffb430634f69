import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Random } from '../../shared/random.ts'
import type { Claim, RoomRecords } from '../../shared/store/port.ts'
import { noTracer, type Tracer } from '../../shared/tracing/tracer.ts'
import { Backlog } from '../backlog.ts'
import { choose, type Found, lazily, type RoomDescription, type RoomQuery } from '../descriptions.ts'
import {
  type Arrival,
  type JoinRequest,
  type RoomAddress,
  roomIdOf,
  roomName,
  type ToEdge,
  type ToOwner,
} from '../traffic.ts'
import { noTurns, type TurnCause, type TurnRoom, type Turns } from '../watchdog/turns.ts'
import { type RoomDefinition, RoomTypes } from './definition.ts'
import { Replies } from './delivery.ts'
import { describeRoom, roomRanking, roomsAskedFor, UpdateRates } from './describe.ts'
import { ROOM_LIMITS, type RoomEnvironment, type RoomLimits } from './environment.ts'
import { FAILED, FailureLog, type Invalid } from './failures.ts'
import { createState, parseOptions } from './handlers.ts'
import { HistoryBudget } from './history.ts'
import { JournalFormat, NewerRecord, restore, UnreadableRecord } from './journal.ts'
import type { RoomMetrics } from './metrics.ts'
import {
  type ClaimOptions,
  type ClaimResult,
  type ClaimRoom,
  claimOptions,
  type QuarantineReason,
  quarantineOf,
  type RefusedRoom,
} from './opening.ts'
import { Room, type RoomParts } from './room.ts'
import { type Defer, Scheduler } from './scheduler.ts'
import { StuckTurns } from './stuck-turns.ts'

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
  /** From when on a room that the store has lost may be written anew, on the monotonic clock. */
  readonly rewritesAllowedAt: () => number
  /** Whether this node may act for its rooms at this moment (its lease is valid). */
  readonly mayAct: () => boolean
  /** Takes a message to an edge. */
  readonly deliver: (edge: string, message: ToEdge) => void
  /** Whether a node is known to have ended: one that ended before anybody knew of it is told of by nobody. */
  readonly edgeGone: (edge: string) => boolean
  /** Messages for a room that is not here (any more); `owner`: the node that has it, if that is known. */
  readonly redirect: (arrivals: readonly Arrival[], owner: string | undefined) => void
  /** Default: when this turn of the event loop has read its sockets. */
  readonly defer?: Defer
  /** Default: nobody watches. */
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
  /** Of room logic where there is no room yet. */
  readonly #failures: FailureLog
  readonly #rooms = new Map<string, Room>()
  /** Being claimed: what arrived for them meanwhile, in order. */
  readonly #opening = new Map<string, Backlog>()
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
      history: new HistoryBudget(limits.historyBytes, (updates) => metrics.historyDropped.inc(updates)),
      revealFailures: parts.revealFailures ?? false,
      deliver,
      mayAct,
      rewritesAllowedAt,
    }
    this.#failures = new FailureLog(clock, log, this.#environment.revealFailures)
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
    return this.#environment.history.bytes
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
    const waiting = this.#opening.get(name)
    if (room) room.receive(message, from)
    else if (!waiting) this.#parts.redirect([{ message, from }], undefined)
    else if (!waiting.add({ message, from })) {
      this.#parts.metrics.backlogFull.inc({ room_type: message.room.roomType })
      this.#unavailable({ message, from }, 'it is being opened, and too much waits for it')
    }
  }

  /**
   * Claims a room that nobody living owns and runs it, for whoever has arrived: a join makes a new one, others only find one that was.
   * Resolves with what came of the claim, once that has happened; undefined: there was no reason for one.
   */
  open(address: RoomAddress, arrivals: readonly Arrival[]): Promise<ClaimResult> | undefined {
    const name = roomName(address)
    const definition = this.#types.get(address.roomType)
    if (this.#closed) this.#parts.redirect(arrivals, undefined)
    else if (!definition) for (const arrival of arrivals) this.#unknownType(arrival)
    else if (this.has(name)) for (const { message, from } of arrivals) this.receive(message, from)
    else {
      const waiting = new Backlog(this.#environment.limits.waitingMessages)
      this.#opening.set(name, waiting)
      for (const { message, from } of arrivals) this.receive(message, from)
      const asked = claimOptions(definition, waiting)
      const mayMake = asked.creator !== undefined
      return this.#claim(name, asked).then((result) => {
        void this.#guard(name, () => this.#claimed(address, definition, result, waiting, mayMake))
        return result
      })
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
    return new Set([...this.#rooms.values()].flatMap((room) => [...room.seats.edges]))
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

  #refusalOf({ type }: RoomDefinition, options: Invalid): { code: ErrorCode; message: string } {
    if (options.cause === undefined) return { code: 'invalid_options', message: options.message }
    return this.#failures.explain(`the validator of the options of ${type}`, options.cause)
  }

  async #claim(name: string, options: ClaimOptions): Promise<ClaimResult> {
    try {
      return await this.#parts.claim(name, options)
    } catch (error) {
      this.#parts.log.warn({ err: error, room: name }, 'a room could not be claimed')
      return 'unavailable'
    }
  }

  #claimed(
    address: RoomAddress,
    definition: RoomDefinition,
    result: ClaimResult,
    waiting: Backlog,
    mayMake: boolean,
  ): void {
    const name = roomName(address)
    if (result === 'absent') this.#absent(name, waiting)
    else if (result === 'unavailable') this.#refuseAll(name, waiting, 'the store does not answer')
    else if (result === 'quarantined')
      this.#unseat(name, waiting, 'it is in quarantine; try again in a minute')
    else if ('elsewhere' in result) this.#redirect(name, waiting.take(), result.elsewhere)
    else if ('refused' in result) this.#refused(name, waiting, result)
    else if (this.#closed)
      this.#giveBack(name, result, false, () => this.#redirect(name, waiting.take(), undefined))
    else this.#begin(address, definition, result, waiting, mayMake)
  }

  /** The room is this node's: it goes on from what the store holds, or begins with the first join, if it was counted for one (`may_make`). */
  #begin(
    address: RoomAddress,
    definition: RoomDefinition,
    claim: Claim,
    waiting: Backlog,
    mayMake: boolean,
  ): void {
    const name = roomName(address)
    const stuck = new StuckTurns(claim)
    if (stuck.last) this.#tellStuck(address, claim, stuck.last)
    if (stuck.tooMany) {
      const why = { cause: 'looping', text: `${stuck.recent} turns in a minute did not end` } as const
      void this.#guard(name, () => this.#putAside(address, claim, why, waiting))
      return
    }
    for (const arrival of waiting.take()) if (!this.#isStuck(arrival.message, stuck)) waiting.add(arrival)
    const first = firstJoin(waiting.waiting)
    let room: Room
    try {
      // One that did not come to the end of its last turn has ended.
      const ended = stuck.last?.hook === 'onDispose'
      const restored = ended ? undefined : restore(claim, this.#environment.format)
      if (!restored && !(first && mayMake)) {
        this.#giveBack(name, claim, true, () => this.#absent(name, waiting))
        return
      }
      const begin = restored
        ? { restored }
        : { state: this.#create({ name, epoch: claim.fence.epoch }, definition, first!) }
      room = this.#build(address, definition, { fence: claim.fence, begin, stuck })
    } catch (error) {
      this.#cannotBegin(address, claim, error, waiting, first)
      return
    }
    this.#opening.delete(name)
    this.#rooms.set(name, room)
    const { epoch } = claim.fence
    this.#parts.log.debug({ room_id: roomIdOf(address), epoch, members: room.seats.size }, 'the room is here')
    for (const { message, from } of waiting.take()) void this.#guard(name, () => room.receive(message, from))
  }

  #build(
    address: RoomAddress,
    definition: RoomDefinition,
    found: Pick<RoomParts, 'fence' | 'begin' | 'stuck'>,
  ): Room {
    const name = roomName(address)
    const { log } = this.#parts
    const { epoch } = found.fence
    return new Room({
      environment: this.#environment,
      room: address,
      definition,
      log: log.child({ room_id: roomIdOf(address), project_id: address.projectId }),
      ...found,
      onMembers: (change) => {
        this.#members += change
      },
      onEnd: (end, unhandled, successor) => {
        this.#rooms.delete(name)
        // A few a day, and what an operator looks for then.
        log[end === 'disposed' ? 'debug' : 'info'](
          { room_id: roomIdOf(address), end, epoch, successor },
          'the room is no longer here',
        )
        if (unhandled.length > 0) this.#parts.redirect(unhandled, successor)
      },
    })
  }

  /** Under the claim, validator and all: what does not return is then known of by whichever node claims the room next. */
  #create(room: TurnRoom, definition: RoomDefinition, join: JoinRequest) {
    const { turns } = this.#environment
    turns.begin(room, 'create', join.session_id, join.ref, '')
    try {
      const options = parseOptions(definition, join.options)
      if (!options.ok) throw new CannotCreate(this.#refusalOf(definition, options))
      return createState(definition, options.value, this.#environment.limits.stateBytes)
    } catch (error) {
      if (error instanceof CannotCreate) throw error
      throw new CannotCreate(this.#failures.explain(`create of ${definition.type}`, error))
    } finally {
      turns.end()
    }
  }

  /** The last owner ended because of a turn of this room, and could count nothing any more. */
  #tellStuck(room: RoomAddress, { over }: Claim, { hook, type }: TurnCause): void {
    const { log, metrics } = this.#parts
    const { projectId, roomType } = room
    metrics.turnsStuck.inc({ room_type: roomType, hook })
    log.error(
      {
        room_id: roomIdOf(room),
        project_id: projectId,
        room_type: roomType,
        hook,
        message_type: type || undefined,
        epoch: over,
      },
      'a turn of the room did not end, and ended its owner: it is not begun again',
    )
  }

  /** Whether a join is one that an owner did not come to the end of; then it is refused. */
  #isStuck(message: ToOwner, stuck: StuckTurns): boolean {
    if (message.kind !== 'join') return false
    const is = stuck.last?.hook === 'create' || stuck.hasJoin(message.session_id, message.ref)
    if (is) this.#repliesOf(message.room).refuse(message, 'room_logic_failed', FAILED)
    return is
  }

  #cannotBegin(
    address: RoomAddress,
    claim: Claim,
    error: unknown,
    waiting: Backlog,
    first: JoinRequest | undefined,
  ): void {
    const name = roomName(address)
    const { log } = this.#parts
    if (error instanceof UnreadableRecord) {
      const why = { cause: 'damaged', text: error.message } as const
      void this.#guard(name, () => this.#putAside(address, claim, why, waiting, error))
      return
    }
    if (error instanceof NewerRecord) {
      this.#tellOfNewer(name, error)
      this.#giveBack(name, claim, false, () =>
        this.#refuseAll(name, waiting, 'a newer node wrote its record'),
      )
      return
    }
    if (!(error instanceof CannotCreate)) {
      log.error({ err: error, room: name }, 'a room could not be opened')
      this.#giveBack(name, claim, false, () => this.#refuseAll(name, waiting, 'it could not be opened'))
      return
    }
    if (first) this.#repliesOf(address).refuse(first, error.code, error.message)
    this.#giveBack(name, claim, true, () => this.#redirect(name, without(first, waiting.take()), undefined))
  }

  /** Gives up a claim that led to no room; what waits is dealt with when that is done, so that it can be claimed anew. */
  #giveBack(name: string, { fence }: Claim, forget: boolean, then: () => void): void {
    const { records, limits } = this.#environment
    const told = records.release(name, fence, { forget, ttlMs: limits.recordTtlMs }).catch((error) => {
      this.#parts.log.warn({ err: error, room: name }, 'a room could not be released')
    })
    void told.then(() => this.#guard(name, then))
  }

  /** Puts the record of a room that was just claimed aside; `cause`: what was thrown, if anything was. */
  async #putAside(
    address: RoomAddress,
    { fence }: Claim,
    why: QuarantineReason,
    waiting: Backlog,
    cause?: unknown,
  ): Promise<void> {
    const name = roomName(address)
    const { records, limits } = this.#environment
    let done: boolean
    try {
      done = await records.quarantine(name, fence, quarantineOf(why, limits.quarantineTtlMs))
    } catch (error) {
      this.#parts.log.error({ err: error, room: name, reason: why.text }, 'a record could not be put aside')
      this.#refuseAll(name, waiting, 'its record cannot be read')
      return
    }
    if (!done) {
      this.#redirect(name, waiting.take(), undefined)
      return
    }
    this.#tellOfQuarantine(address, fence.epoch, why, cause)
    this.#unseat(name, waiting, 'its record was put in quarantine')
  }

  #tellOfQuarantine(
    address: RoomAddress,
    epoch: number,
    { cause, text }: QuarantineReason,
    err?: unknown,
  ): void {
    const { log, metrics } = this.#parts
    metrics.roomsQuarantined.inc({ room_type: address.roomType, cause })
    log.error(
      { room: roomName(address), epoch, cause, reason: text, ...(err !== undefined && { err }) },
      'a room was put in quarantine',
    )
  }

  #tellOfNewer(room: string, error: NewerRecord): void {
    if (this.#newer.has(error.version)) return
    this.#newer.add(error.version)
    this.#parts.log.error(
      { err: error, room },
      'rooms of a newer version cannot run here: finish the upgrade',
    )
  }

  /** What follows an answer of the store has no one who waits for it: a mistake in it harms this room, and not the node. */
  async #guard(name: string, work: () => void | Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      this.#parts.log.error(
        { err: error, room: name },
        'a room could not be opened, or not for everyone who waited',
      )
      this.#opening.delete(name)
    }
  }

  /** Whoever would have made the room may not; others who wait for it may. */
  #refused(name: string, waiting: Backlog, { refused, message: text }: RefusedRoom): void {
    const arrivals = waiting.take()
    const first = firstJoin(arrivals)
    if (first) this.#repliesOf(first.room).refuse(first, refused, text)
    this.#redirect(name, without(first, arrivals), undefined)
  }

  /** There is no such room, so whoever is no newcomer holds no seat in it. */
  #absent(name: string, waiting: Backlog): void {
    const arrivals = waiting.take()
    const join = arrivals.findIndex(({ message }) => message.kind === 'join')
    const strangers = join < 0 ? arrivals : arrivals.slice(0, join)
    for (const { message, from } of strangers)
      if (message.kind !== 'detach') this.#repliesOf(message.room).noSeat(from, message)
    this.#redirect(name, join < 0 ? [] : arrivals.slice(join), undefined)
  }

  /** The room is not opened here: what has waited for it goes to whoever has it. */
  #redirect(name: string, arrivals: readonly Arrival[], owner: string | undefined): void {
    this.#opening.delete(name)
    if (arrivals.length > 0) this.#parts.redirect(arrivals, owner)
  }

  #refuseAll(name: string, waiting: Backlog, why: string): void {
    this.#opening.delete(name)
    for (const arrival of waiting.take()) this.#unavailable(arrival, why)
  }

  /** The room is not to be had, and what it was is gone: joins may be tried again, and whoever is no newcomer holds no seat in it. */
  #unseat(name: string, waiting: Backlog, why: string): void {
    this.#opening.delete(name)
    for (const arrival of waiting.take()) {
      const { message, from } = arrival
      if (message.kind === 'join') this.#unavailable(arrival, why)
      else if (message.kind !== 'detach') this.#repliesOf(message.room).noSeat(from, message)
    }
  }

  /** Edges ask again for what gets no answer here: an attach, a resync. */
  #unavailable({ message, from }: Arrival, why: string): void {
    const replies = this.#repliesOf(message.room)
    const text = `${roomIdOf(message.room)} is not available: ${why}`
    if (replies.turnAway({ message, from }, text)) return
    // Its edge has it, and gives it to whoever attaches the member.
    if (message.kind === 'message' || message.kind === 'refuse')
      replies.send(from, { kind: 'redirect', owner: null })
  }

  #unknownType({ message, from }: Arrival): void {
    const replies = this.#repliesOf(message.room)
    const { roomType } = message.room
    if (message.kind !== 'join') replies.noSeat(from, message)
    else replies.refuse(message, 'unknown_room_type', `no room type ${JSON.stringify(roomType)} is installed`)
  }

  /** Answers about a room that is not here: under epoch 0, which belongs to nobody. */
  #repliesOf(room: RoomAddress): Replies {
    const { metrics, deliver } = this.#parts
    return new Replies(room, () => 0, metrics, deliver)
  }
}

const firstJoin = (arrivals: readonly Arrival[]): JoinRequest | undefined =>
  arrivals.map(({ message }) => message).find((message) => message.kind === 'join')

/** All but the join that `first` is, however often its edge has asked. */
const without = (first: JoinRequest | undefined, arrivals: readonly Arrival[]): readonly Arrival[] =>
  arrivals.filter(({ message }) => message.kind !== 'join' || message.member_id !== first?.member_id)

/** The room logic made no room; code and text are for whoever asked for it. */
class CannotCreate extends Error {
  override readonly name = 'CannotCreate'
  readonly code: ErrorCode

  constructor({ code, message }: { readonly code: ErrorCode; readonly message: string }) {
    super(message)
    this.code = code
  }
}
