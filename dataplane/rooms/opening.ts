import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Claim } from '../../shared/store/port.ts'
import { Backlog } from '../backlog.ts'
import {
  ABSENT,
  type ClaimOptions,
  type Inspection,
  type Nowhere,
  nowhere,
  type Place,
  refuseAll,
  unavailable,
  unavailableText,
} from '../place.ts'
import {
  type Arrival,
  type JoinRequest,
  type RoomAddress,
  roomIdOf,
  type ToOwner,
  traceOf,
} from '../traffic.ts'
import { fieldsOf } from '../watchdog/suspects.ts'
import type { TurnCause, TurnRoom } from '../watchdog/turns.ts'
import { joinOptions, joinTurn } from './admission.ts'
import type { RoomDefinition } from './definition.ts'
import { Replies } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import { FAILED, RoomLogicError, StuckTurns } from './failures.ts'
import { NewerRecord, UnreadableRecord } from './journal.ts'
import type { LiveTree } from './live-tree.ts'
import { CannotMigrate, NewerState } from './migration.ts'
import { newRoom, type RestoredRoom, restore } from './restore.ts'
import type { Room } from './room.ts'
import { TurnCut } from './room-code.ts'
import { createState, treeOf } from './state.ts'
import type { ClaimedRoom } from './stream.ts'

/** The room logic made no room; code and text are for the client that asked for it. */
class CannotCreate extends Error {
  override readonly name = 'CannotCreate'
  readonly code: ErrorCode

  constructor({ code, message }: { readonly code: ErrorCode; readonly message: string }) {
    super(message)
    this.code = code
  }
}

/** `load` brought nothing, not even that there is nothing: the room may be made at another time. The text says why. */
class CannotLoad extends Error {
  override readonly name = 'CannotLoad'
}

class LoadTimeout extends Error {
  override readonly name = 'LoadTimeout'
}

/** What an opening has to do with its host. */
interface OpeningEvents {
  /** Whether the host takes no more rooms. */
  readonly closed: () => boolean
  /** The opening is over without a room: nothing waits for it any more. */
  readonly over: () => void
  /** A newer node wrote the record of the room. */
  readonly newer: (error: NewerRecord | NewerState) => void
  /** The opening is over, the room is this node's: runs it. */
  readonly run: (claimed: ClaimedRoom) => Room
}

/**
 * One room on its way to this node: claims it, restores or creates it, and holds what arrives for it meanwhile, in order. Where it comes
 * to no room, each arrival is answered or goes to the owner.
 */
export class RoomOpening {
  readonly #environment: RoomEnvironment
  readonly #address: RoomAddress
  readonly #name: string
  readonly #definition: RoomDefinition
  readonly #replies: Replies
  readonly #on: OpeningEvents
  readonly #waiting: Backlog

  constructor(
    environment: RoomEnvironment,
    address: RoomAddress,
    definition: RoomDefinition,
    on: OpeningEvents,
  ) {
    this.#environment = environment
    this.#address = address
    this.#name = address.name
    this.#definition = definition
    this.#replies = new Replies(address, NO_EPOCH, environment)
    this.#on = on
    this.#waiting = new Backlog(environment.limits.waitingMessages)
  }

  /** Something arrives for the room. */
  receive(arrival: Arrival): void {
    if (this.#waiting.add(arrival)) return
    this.#environment.metrics.backlogFull.inc({ room_type: this.#address.roomType })
    const full = nowhere(
      'busy',
      unavailableText(this.#address, 'it is being opened, and too much waits for it'),
    )
    refuseAll([arrival], full, this.#replies.answer)
  }

  /** Claims the room for those who wait; resolves with what came of the claim. A join makes a new room, others only find one. */
  async open(seen: Inspection | undefined): Promise<Place> {
    const join = this.#firstJoin
    const place = await this.#claim({
      creator: join?.principal,
      // Taking what is not stored from an owner that lives would end it.
      byLease: this.#definition.durability === 'none',
      stateVersion: this.#definition.version,
      seen,
      // More may come while the room is asked for.
      askedBy: () => this.#waiting.waiting.flatMap(({ message }) => traceOf(message) ?? []),
    })
    // No one waits for what follows: a mistake in it harms this room, and not the node.
    this.#claimed(place, join !== undefined).catch((error) => {
      this.#logError(error, 'a room could not be opened, or not for everyone who waited')
      this.#on.over()
    })
    return place
  }

  get #firstJoin(): JoinRequest | undefined {
    return this.#waiting.waiting.map(({ message }) => message).find((message) => message.kind === 'join')
  }

  async #claim(options: ClaimOptions): Promise<Place> {
    const { claim, log } = this.#environment
    try {
      return await claim(this.#name, options)
    } catch (error) {
      log.warn({ err: error, room: this.#name }, 'a room could not be claimed')
      return unavailable(this.#address, 'the store does not answer')
    }
  }

  async #claimed(place: Place, mayMake: boolean): Promise<void> {
    if (place.at === 'nowhere') this.#refuse(place)
    else if (place.at === 'node') this.#forward(place.nodeId)
    else if (this.#on.closed()) {
      await this.#giveBack(place.claim, false)
      this.#forward()
    } else await this.#begin(place.claim, mayMake)
  }

  /** The room is this node's: it goes on from what the store holds, or begins with the first join, if it was counted for one (`mayMake`). */
  async #begin(claim: Claim, mayMake: boolean): Promise<void> {
    const environment = this.#environment
    const { fence } = claim
    const stuck = new StuckTurns(claim, environment.clock)
    if (stuck.last) this.#logStuck(claim, stuck.last)
    // Not once more: the code may be another by the time the note is gone.
    if (stuck.last?.hook === 'migrate') {
      await this.#giveBack(claim, false)
      this.#refuse(this.#unavailable('its state could not be brought to the version of its code'))
      return
    }
    for (const arrival of this.#waiting.take())
      if (!this.#isStuck(arrival.message, stuck)) this.#waiting.add(arrival)
    const first = this.#firstJoin
    let room: Room | undefined
    try {
      // One that did not come to the end of its last turn has ended, but for its last save.
      const ended = stuck.last?.hook === 'onDispose' && !this.#definition.save
      const restored = ended ? undefined : restore(claim, environment.format)
      const begin = restored ?? (first && mayMake ? await this.#new(first, fence.epoch) : undefined)
      if (begin && this.#on.closed()) {
        await this.#giveBack(claim, !restored)
        this.#forward()
        return
      }
      if (begin)
        room = this.#on.run({
          environment,
          address: this.#address,
          definition: this.#definition,
          fence,
          log: environment.log.child({
            room_id: roomIdOf(this.#address),
            project_id: this.#address.projectId,
          }),
          begin,
          stuck,
        })
    } catch (error) {
      await this.#cannotBegin(claim, error)
      return
    }
    if (!room) {
      await this.#giveBack(claim, true)
      this.#refuse(ABSENT)
      return
    }
    const members = room.stream.memberships.size
    room.stream.log.debug({ epoch: fence.epoch, members }, 'room opened')
    for (const { message, from } of this.#waiting.take()) this.#handOn(room, message, from)
  }

  async #new(first: JoinRequest, epoch: number): Promise<RestoredRoom> {
    return newRoom(await this.#firstState(first, epoch), epoch, this.#definition.version)
  }

  /**
   * The state that a room which is nowhere begins with: what `load` brings, or else what `create` makes. Of a room that `join` makes under
   * `epoch`: under the claim, validator and all, so that what does not return is known of by whichever node claims the room next. Rejects
   * with CannotCreate, or with CannotLoad after at most `loadMs`.
   */
  async #firstState(join: JoinRequest, epoch: number): Promise<LiveTree> {
    const { code, failures, limits } = this.#environment
    const definition = this.#definition
    const { load, type } = definition
    const room = { name: this.#name, epoch }
    const options = joinOptions(code, room, definition, join)
    if (!options.ok && options.cause === undefined)
      throw new CannotCreate({ code: 'invalid_options', message: options.message })
    if (!options.ok)
      throw new CannotCreate(failures.explain(`the validator of the options of ${type}`, options.cause))
    const loaded = load && (await this.#load(load, join, room, options.value))
    if (loaded) return loaded
    try {
      return code.run(joinTurn(room, 'create', join), () =>
        createState(definition, options.value, limits.stateBytes),
      )
    } catch (error) {
      throw new CannotCreate(failures.explain(`create of ${type}`, error))
    }
  }

  async #load(
    load: NonNullable<RoomDefinition['load']>,
    join: JoinRequest,
    room: TurnRoom,
    options: unknown,
  ): Promise<LiveTree | undefined> {
    const { clock, code, failures, limits, metrics } = this.#environment
    const { key, projectId } = this.#address
    const { type } = this.#definition
    const count = (outcome: 'loaded' | 'none' | 'failed' | 'timed_out') =>
      metrics.roomLoads.inc({ room_type: type, outcome })
    let cancel: (() => void) | undefined
    const late = new Promise<never>((_, reject) => {
      cancel = clock.schedule(limits.loadMs, () =>
        reject(new LoadTimeout(`load of ${type} did not end within ${limits.loadMs / 1000} seconds`)),
      )
    })
    try {
      const turn = joinTurn(room, 'load', join)
      const state = await Promise.race([code.start(turn, () => load(key, options, { projectId })), late])
      if (state === null)
        throw new RoomLogicError('load returned null; return the state, or undefined when there is none')
      // Reading what it brought may run code of the room type: getters, toJSON.
      const tree =
        state === undefined
          ? undefined
          : code.run(turn, () => treeOf('load', state, this.#definition, limits.stateBytes))
      count(tree ? 'loaded' : 'none')
      return tree
    } catch (error) {
      const timedOut = error instanceof LoadTimeout
      count(timedOut ? 'timed_out' : 'failed')
      const refused = failures.explain(`load of ${type}`, error)
      // It is not started again soon: to try again is of no use.
      if (error instanceof TurnCut) throw new CannotCreate(refused)
      const { message } = refused
      throw new CannotLoad(`its state could not be loaded: ${timedOut ? 'that takes too long' : message}`)
    } finally {
      cancel?.()
    }
  }

  /** A mistake in what one arrival leads to harms that one. */
  #handOn(room: Room, message: ToOwner, from: string): void {
    try {
      room.receive(message, from)
    } catch (error) {
      this.#logError(error, 'something that had waited for a room could not be handled')
    }
  }

  /** The last owner ended because of a turn of this room, and could count nothing any more. */
  #logStuck({ over }: Claim, cause: TurnCause): void {
    this.#environment.log.error(
      fieldsOf({ ...cause, room: { name: this.#name, epoch: over } }),
      'a turn of the room did not return under its last owner: it is not started again',
    )
  }

  /** Whether a join is one that an owner did not come to the end of; then it is refused. */
  #isStuck(message: ToOwner, stuck: StuckTurns): boolean {
    if (message.kind !== 'join') return false
    const { hook } = stuck.last ?? {}
    const is = hook === 'create' || hook === 'load' || stuck.hasJoin(message.session_id, message.ref)
    if (is) this.#replies.refuse(message, 'room_logic_failed', FAILED)
    return is
  }

  async #cannotBegin(claim: Claim, error: unknown): Promise<void> {
    if (error instanceof UnreadableRecord) {
      await this.#quarantine(claim, error)
    } else if (error instanceof CannotCreate) {
      await this.#giveBack(claim, true)
      this.#refuse(nowhere('not_created', error.message, error.code))
    } else if (error instanceof CannotLoad || error instanceof CannotMigrate) {
      await this.#giveBack(claim, error instanceof CannotLoad)
      this.#refuse(this.#unavailable(error.message))
    } else {
      const newer = error instanceof NewerRecord || error instanceof NewerState
      if (newer) this.#on.newer(error)
      else this.#logError(error, 'a room could not be opened')
      await this.#giveBack(claim, false)
      this.#refuse(this.#unavailable(newer ? 'a newer node wrote its record' : 'it could not be opened'))
    }
  }

  /** Gives up a claim that led to no room, so that it can be claimed again. */
  async #giveBack({ fence }: Claim, forget: boolean): Promise<void> {
    const { limits, log, records, wakeups } = this.#environment
    try {
      // There may be a time of a room that has ended: it would be looked for again and again.
      if (forget) await wakeups.set(this.#name, fence, undefined)
      // A room that cannot be opened now keeps what is left of its life.
      const release = forget ? { forget, ttlMs: limits.recordTtlMs } : { forget }
      await records.release(this.#name, fence, release)
    } catch (error) {
      log.warn({ err: error, room: this.#name }, 'a room could not be released')
    }
  }

  /**
   * Puts the damaged record of a room that was just claimed aside. The text of the error is for the log, and for an operator who reads the
   * record: it has no state and no payload.
   */
  async #quarantine({ fence }: Claim, error: UnreadableRecord): Promise<void> {
    const { limits, log, metrics, records } = this.#environment
    let done: boolean
    try {
      done = await records.quarantine(this.#name, fence, {
        reason: error.message.slice(0, MAX_REASON_LENGTH),
        ttlMs: limits.quarantineTtlMs,
      })
    } catch (err) {
      log.error({ err, room: this.#name, reason: error.message }, 'a record could not be put aside')
      this.#refuse(this.#unavailable('its record cannot be read'))
      return
    }
    if (!done) {
      this.#forward()
      return
    }
    metrics.roomsQuarantined.inc({ room_type: this.#address.roomType })
    log.error({ room: this.#name, epoch: fence.epoch, err: error }, 'a room was put in quarantine')
    this.#refuse(nowhere('quarantined', unavailableText(this.#address, 'its record was put in quarantine')))
  }

  /** The room is not opened here: what has waited goes to `owner`, or to whichever node has the room by then. */
  #forward(owner?: string, waiting = this.#end()): void {
    if (waiting.length > 0) this.#environment.redirect(waiting, owner)
  }

  #refuse(place: Nowhere): void {
    this.#forward(undefined, refuseAll(this.#end(), place, this.#replies.answer))
  }

  #end(): readonly Arrival[] {
    this.#on.over()
    return this.#waiting.take()
  }

  #unavailable(reason: string): Nowhere {
    return unavailable(this.#address, reason)
  }

  #logError(error: unknown, text: string): void {
    this.#environment.log.error({ err: error, room: this.#name }, text)
  }
}

/** Of answers about a room that is not here: an epoch that belongs to no owner. */
export const NO_EPOCH = { epoch: 0 }

const MAX_REASON_LENGTH = 300
