import type { Logger } from '../../shared/log.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Claim, Quarantine } from '../../shared/store/port.ts'
import type { TraceContext } from '../../shared/tracing/tracer.ts'
import { Backlog } from '../backlog.ts'
import {
  type Arrival,
  type JoinRequest,
  type RoomAddress,
  roomIdOf,
  roomName,
  type ToOwner,
  traceOf,
} from '../traffic.ts'
import type { TurnCause } from '../watchdog/turns.ts'
import type { RoomDefinition } from './definition.ts'
import { Replies } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import { FAILED, type FailureLog, type Invalid } from './failures.ts'
import { createState, parseOptions } from './handlers.ts'
import { NewerRecord, restore, UnreadableRecord } from './journal.ts'
import type { QuarantineCause } from './metrics.ts'
import type { Room, RoomParts } from './room.ts'
import { StuckTurns } from './stuck-turns.ts'

/** The room is nowhere, and may not be made: for the client who asked for it. */
export interface RefusedRoom {
  readonly refused: Extract<ErrorCode, 'rate_limited' | 'project_full'>
  readonly message: string
}

/** What came of asking for a room: it is this node's (`from`: taken from a dead one), a living node owns it, there is none (and none was to be made), no one may have it for now, or the store is silent. */
export type ClaimResult =
  | (Claim & { readonly from?: string })
  | { readonly elsewhere: string }
  | RefusedRoom
  | 'absent'
  | 'quarantined'
  | 'unavailable'

/** How a room is asked for. */
export interface ClaimOptions {
  /** Also when it is nowhere yet, on the account of this principal (`Session.principal`); undefined: only when it is somewhere. */
  readonly creator: string | undefined
  /** Its owner is dead when its lease has run out, and not before. */
  readonly byLease: boolean
  /** The span of the join that may make the room, where that is recorded. */
  readonly madeFor: TraceContext | undefined
  /** The spans of those who wait for the room by now. */
  readonly askedBy: () => readonly string[]
}

/** Asks for the ownership of a room (`project/type:key`). */
export type ClaimRoom = (room: string, options: ClaimOptions) => Promise<ClaimResult>

/** The host, as the openings of its rooms need it. */
interface OpeningHost {
  readonly environment: RoomEnvironment
  readonly log: Logger
  /** Of room logic where there is no room yet. */
  readonly failures: FailureLog
  readonly claim: ClaimRoom
  readonly redirect: (arrivals: readonly Arrival[], owner: string | undefined) => void
  /** Whether the host takes no more rooms. */
  readonly closed: () => boolean
  /** The opening is over: nothing waits for it any more. */
  readonly onOver: (name: string) => void
  /** The room is this node's: makes it. */
  readonly build: (found: Pick<RoomParts, 'room' | 'definition' | 'fence' | 'begin' | 'stuck'>) => Room
  /** A newer node wrote the record of the room. */
  readonly onNewer: (name: string, error: NewerRecord) => void
  /** The room is here. */
  readonly onOpen: (room: Room) => void
}

/**
 * One room on its way to this node: claims it, restores or creates it, and holds what arrives for it meanwhile, in order. Where it comes
 * to no room, each arrival is answered or goes to the owner.
 */
export class RoomOpening {
  readonly #host: OpeningHost
  readonly #address: RoomAddress
  readonly #name: string
  readonly #definition: RoomDefinition
  readonly #waiting: Backlog

  constructor(address: RoomAddress, definition: RoomDefinition, host: OpeningHost) {
    this.#host = host
    this.#address = address
    this.#name = roomName(address)
    this.#definition = definition
    this.#waiting = new Backlog(host.environment.limits.waitingMessages)
  }

  /** Something arrives for the room. */
  receive(arrival: Arrival): void {
    if (this.#waiting.add(arrival)) return
    this.#host.environment.metrics.backlogFull.inc({ room_type: this.#address.roomType })
    this.#refuseUnavailable(arrival, 'it is being opened, and too much waits for it')
  }

  /** Claims the room for those who wait; resolves with what came of the claim. A join makes a new room, others only find one. */
  async open(): Promise<ClaimResult> {
    const options = this.#claimOptions()
    const result = await this.#claim(options)
    void this.#guard(() => this.#claimed(result, options.creator !== undefined))
    return result
  }

  /** More may come while the room is asked for. */
  #claimOptions(): ClaimOptions {
    const join = firstJoin(this.#waiting.waiting)
    return {
      creator: join?.principal,
      // Taking what is kept nowhere from an owner that lives would end it.
      byLease: this.#definition.durability === 'none',
      madeFor: join?.traceparent === undefined ? undefined : join,
      askedBy: () => this.#waiting.waiting.flatMap(({ message }) => traceOf(message) ?? []),
    }
  }

  async #claim(options: ClaimOptions): Promise<ClaimResult> {
    try {
      return await this.#host.claim(this.#name, options)
    } catch (error) {
      this.#host.log.warn({ err: error, room: this.#name }, 'a room could not be claimed')
      return 'unavailable'
    }
  }

  #claimed(result: ClaimResult, mayMake: boolean): void {
    if (result === 'absent') this.#absent()
    else if (result === 'unavailable') this.#refuseAll('the store does not answer')
    else if (result === 'quarantined') this.#refuseMembers('it is in quarantine; try again in a minute')
    else if ('elsewhere' in result) this.#redirect(this.#waiting.take(), result.elsewhere)
    else if ('refused' in result) this.#refused(result)
    else if (this.#host.closed())
      this.#giveBack(result, false, () => this.#redirect(this.#waiting.take(), undefined))
    else this.#begin(result, mayMake)
  }

  /** The room is this node's: it goes on from what the store holds, or begins with the first join, if it was counted for one (`may_make`). */
  #begin(claim: Claim, mayMake: boolean): void {
    const { environment, log, build, onOver, onOpen } = this.#host
    const { fence } = claim
    const stuck = new StuckTurns(claim)
    if (stuck.last) this.#logStuck(claim, stuck.last)
    if (stuck.tooMany) {
      const why = { cause: 'looping', text: `${stuck.recent} turns in a minute did not end` } as const
      void this.#guard(() => this.#quarantine(claim, why))
      return
    }
    for (const arrival of this.#waiting.take())
      if (!this.#isStuck(arrival.message, stuck)) this.#waiting.add(arrival)
    const first = firstJoin(this.#waiting.waiting)
    let room: Room
    try {
      // One that did not come to the end of its last turn has ended.
      const ended = stuck.last?.hook === 'onDispose'
      const restored = ended ? undefined : restore(claim, environment.format)
      if (!restored && !(first && mayMake)) {
        this.#giveBack(claim, true, () => this.#absent())
        return
      }
      const begin = restored ? { restored } : { state: this.#create(fence.epoch, first!) }
      room = build({ room: this.#address, definition: this.#definition, fence, begin, stuck })
    } catch (error) {
      this.#cannotBegin(claim, error, first)
      return
    }
    onOver(this.#name)
    onOpen(room)
    const { epoch } = fence
    log.debug({ room_id: room.roomId, epoch, members: room.memberships.size }, 'the room is here')
    for (const { message, from } of this.#waiting.take()) void this.#guard(() => room.receive(message, from))
  }

  /** Under the claim, validator and all: what does not return is then known of by whichever node claims the room next. */
  #create(epoch: number, join: JoinRequest) {
    const { turns, limits } = this.#host.environment
    const definition = this.#definition
    turns.begin({ name: this.#name, epoch }, 'create', join.session_id, join.ref, '')
    try {
      const options = parseOptions(definition, join.options)
      if (!options.ok) throw new CannotCreate(this.#refusalOf(options))
      return createState(definition, options.value, limits.stateBytes)
    } catch (error) {
      if (error instanceof CannotCreate) throw error
      throw new CannotCreate(this.#host.failures.explain(`create of ${definition.type}`, error))
    } finally {
      turns.end()
    }
  }

  /** The last owner ended because of a turn of this room, and could count nothing any more. */
  #logStuck({ over }: Claim, { hook, type }: TurnCause): void {
    const { log, environment } = this.#host
    const { projectId, roomType } = this.#address
    environment.metrics.turnsStuck.inc({ room_type: roomType, hook })
    log.error(
      {
        room_id: roomIdOf(this.#address),
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
    if (is) this.#replies.refuse(message, 'room_logic_failed', FAILED)
    return is
  }

  #cannotBegin(claim: Claim, error: unknown, first: JoinRequest | undefined): void {
    if (error instanceof UnreadableRecord) {
      const why = { cause: 'damaged', text: error.message } as const
      void this.#guard(() => this.#quarantine(claim, why, error))
      return
    }
    if (error instanceof NewerRecord) {
      this.#host.onNewer(this.#name, error)
      this.#giveBack(claim, false, () => this.#refuseAll('a newer node wrote its record'))
      return
    }
    if (!(error instanceof CannotCreate)) {
      this.#host.log.error({ err: error, room: this.#name }, 'a room could not be opened')
      this.#giveBack(claim, false, () => this.#refuseAll('it could not be opened'))
      return
    }
    if (first) this.#replies.refuse(first, error.code, error.message)
    this.#giveBack(claim, true, () => this.#redirect(without(first, this.#waiting.take()), undefined))
  }

  /** Gives up a claim that led to no room; what waits is dealt with when that is done, so that it can be claimed again. */
  #giveBack({ fence }: Claim, forget: boolean, then: () => void): void {
    const { records, limits } = this.#host.environment
    const released = records
      .release(this.#name, fence, { forget, ttlMs: limits.recordTtlMs })
      .catch((error) => {
        this.#host.log.warn({ err: error, room: this.#name }, 'a room could not be released')
      })
    void released.then(() => this.#guard(then))
  }

  /** Puts the record of a room that was just claimed aside; `cause`: what was thrown, if anything was. */
  async #quarantine({ fence }: Claim, why: QuarantineReason, cause?: unknown): Promise<void> {
    const { records, limits } = this.#host.environment
    let done: boolean
    try {
      done = await records.quarantine(this.#name, fence, quarantineOf(why, limits.quarantineTtlMs))
    } catch (error) {
      this.#host.log.error(
        { err: error, room: this.#name, reason: why.text },
        'a record could not be put aside',
      )
      this.#refuseAll('its record cannot be read')
      return
    }
    if (!done) {
      this.#redirect(this.#waiting.take(), undefined)
      return
    }
    this.#logQuarantine(fence.epoch, why, cause)
    this.#refuseMembers('its record was put in quarantine')
  }

  #logQuarantine(epoch: number, { cause, text }: QuarantineReason, err?: unknown): void {
    const { log, environment } = this.#host
    environment.metrics.roomsQuarantined.inc({ room_type: this.#address.roomType, cause })
    log.error(
      { room: this.#name, epoch, cause, reason: text, ...(err !== undefined && { err }) },
      'a room was put in quarantine',
    )
  }

  /** What follows an answer of the store has no one who waits for it: a mistake in it harms this room, and not the node. */
  async #guard(work: () => void | Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      this.#host.log.error(
        { err: error, room: this.#name },
        'a room could not be opened, or not for everyone who waited',
      )
      this.#host.onOver(this.#name)
    }
  }

  /** The join that would have made the room may not; others who wait for it may. */
  #refused({ refused, message: text }: RefusedRoom): void {
    const arrivals = this.#waiting.take()
    const first = firstJoin(arrivals)
    if (first) this.#replies.refuse(first, refused, text)
    this.#redirect(without(first, arrivals), undefined)
  }

  /** There is no such room, so only those who join can become members. */
  #absent(): void {
    const arrivals = this.#waiting.take()
    const join = arrivals.findIndex(({ message }) => message.kind === 'join')
    const strangers = join < 0 ? arrivals : arrivals.slice(0, join)
    for (const { message, from } of strangers)
      if (message.kind !== 'detach') this.#replies.noSeat(from, message)
    this.#redirect(join < 0 ? [] : arrivals.slice(join), undefined)
  }

  /** The room is not opened here: what has waited for it goes to its owner. */
  #redirect(arrivals: readonly Arrival[], owner: string | undefined): void {
    this.#host.onOver(this.#name)
    if (arrivals.length > 0) this.#host.redirect(arrivals, owner)
  }

  #refuseAll(why: string): void {
    this.#host.onOver(this.#name)
    for (const arrival of this.#waiting.take()) this.#refuseUnavailable(arrival, why)
  }

  /** The room is not to be had, and what it was is gone: joins may be tried again, and all others are told that they are no members. */
  #refuseMembers(why: string): void {
    this.#host.onOver(this.#name)
    for (const arrival of this.#waiting.take()) {
      const { message, from } = arrival
      if (message.kind === 'join') this.#refuseUnavailable(arrival, why)
      else if (message.kind !== 'detach') this.#replies.noSeat(from, message)
    }
  }

  /** Edges ask again for what gets no answer here: an attach, a resync. */
  #refuseUnavailable({ message, from }: Arrival, why: string): void {
    const replies = this.#replies
    const text = `${roomIdOf(message.room)} is not available: ${why}`
    if (replies.refuseUnavailable({ message, from }, text)) return
    // Its edge has it, and gives it to the owner that attaches the member.
    if (message.kind === 'message' || message.kind === 'refuse')
      replies.send(from, { kind: 'redirect', owner: null })
  }

  #refusalOf(options: Invalid): { code: ErrorCode; message: string } {
    if (options.cause === undefined) return { code: 'invalid_options', message: options.message }
    return this.#host.failures.explain(
      `the validator of the options of ${this.#definition.type}`,
      options.cause,
    )
  }

  get #replies(): Replies {
    return repliesWithoutRoom(this.#address, this.#host.environment)
  }
}

/** Answers about a room that is not here: under epoch 0, which belongs to no one. */
export const repliesWithoutRoom = (
  room: RoomAddress,
  { metrics, deliver }: Pick<RoomEnvironment, 'metrics' | 'deliver'>,
): Replies => new Replies(room, () => 0, metrics, deliver)

/** Why the record of a room is put aside. */
interface QuarantineReason {
  readonly cause: QuarantineCause
  /** For the log, and for an operator who reads the record: no state, no payload. */
  readonly text: string
}

/** What is damaged harms no one once it is out of the way; what loops would take down one node after the other if players came back at once. */
const REFUSE_MS: Record<QuarantineCause, number> = { damaged: 0, looping: 60_000 }
const MAX_REASON_LENGTH = 300

/** What the store is told. */
const quarantineOf = ({ cause, text }: QuarantineReason, ttlMs: number): Quarantine => ({
  reason: `${cause}: ${text}`.slice(0, MAX_REASON_LENGTH),
  ttlMs,
  refuseMs: REFUSE_MS[cause],
})

const firstJoin = (arrivals: readonly Arrival[]): JoinRequest | undefined =>
  arrivals.map(({ message }) => message).find((message) => message.kind === 'join')

/** All but the join that `first` is, however often its edge has asked. */
const without = (first: JoinRequest | undefined, arrivals: readonly Arrival[]): readonly Arrival[] =>
  arrivals.filter(({ message }) => message.kind !== 'join' || message.member_id !== first?.member_id)

/** The room logic made no room; code and text are for the client that asked for it. */
class CannotCreate extends Error {
  override readonly name = 'CannotCreate'
  readonly code: ErrorCode

  constructor({ code, message }: { readonly code: ErrorCode; readonly message: string }) {
    super(message)
    this.code = code
  }
}
