import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import { type Claim, StoreUnavailable } from '../../shared/store/port.ts'
import type { Inbox } from '../inbox.ts'
import {
  ABSENT,
  firstMaker,
  isEmpty,
  type Maker,
  makerOf,
  type Nowhere,
  nowhere,
  unavailable,
  unavailableText,
} from '../place.ts'
import { type RoomAddress, roomIdOf, type ToOwner } from '../traffic.ts'
import { fieldsOf } from '../watchdog/suspects.ts'
import type { TurnCause, TurnRoom } from '../watchdog/turns.ts'
import { joinOptions, joinTurn } from './admission.ts'
import type { RoomDefinition } from './definition.ts'
import { Replies } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import { FAILED, RoomLogicError, StuckTurns } from './failures.ts'
import type { RoomHost } from './host.ts'
import { type JournalFormat, NewerRecord, UnreadableRecord } from './journal.ts'
import { LISTED_MS } from './listing.ts'
import { answerLeft, outcomesLeft, outcomesToLeave } from './request-turns.ts'
import { newRoom, type RestoredRoom, restore } from './restore.ts'
import { Room, type RoomEnd } from './room.ts'
import { TurnCut } from './room-code.ts'
import { CannotMigrate, createState, type LiveTree, NewerState, treeOf } from './state.ts'
import type { ClaimedRoom } from './stream.ts'
import type { Outcome } from './table.ts'

/** Epoch of answers about a room that is not here: it belongs to no owner. */
export const NO_EPOCH = { epoch: 0 }

/**
 * State of a room name at the node that owns it. `opening`: messages wait while the room is restored or made.
 * `running`: they are handled. `frozen`: they wait, since the node's lease has run out or the store is silent. `leaving`: they wait for the next
 * owner. `gone`: nothing of it is left here.
 */
export type SlotState = 'opening' | 'running' | 'frozen' | 'leaving' | 'gone'

/**
 * One room name at this node, from its claim to its end. Its inbox holds what cannot be handled yet. The inbox has two ways out: all of it is
 * forwarded to the next owner, or it is answered by the table of refusals.
 */
export class RoomSlot {
  readonly address: RoomAddress
  readonly environment: RoomEnvironment
  readonly definition: RoomDefinition
  readonly inbox: Inbox
  /** Answers about a room that does not run here. */
  readonly replies: Replies
  readonly #host: RoomHost
  #room: Room | undefined
  #isGone = false

  constructor(
    environment: RoomEnvironment,
    address: RoomAddress,
    definition: RoomDefinition,
    inbox: Inbox,
    host: RoomHost,
  ) {
    this.environment = environment
    this.address = address
    this.definition = definition
    this.inbox = inbox
    this.#host = host
    this.replies = new Replies(address, NO_EPOCH, environment)
  }

  get state(): SlotState {
    if (this.#isGone) return 'gone'
    if (!this.#room) return 'opening'
    if (this.#room.leaving) return 'leaving'
    return this.#room.frozen ? 'frozen' : 'running'
  }

  /** A message from an edge for a room that does not run yet. It waits in the inbox, or is refused if the inbox is full. */
  receive(message: ToOwner, from: string): void {
    this.#host.wait(this.inbox, { message, from })
  }

  /** Restores the room that this node has claimed, or makes it, and runs it. */
  begin(claim: Claim, mayMake: boolean): void {
    // No one waits for what follows: a mistake in it harms this room, and not the node.
    this.#begin(claim, mayMake).catch((error) => {
      this.environment.log.error(
        { err: error, room: this.address.name },
        'a room could not be opened, or not for everyone who waited',
      )
      this.#leave()
    })
  }

  async #begin(claim: Claim, mayMake: boolean): Promise<void> {
    if (!this.#host.accepts) {
      await giveBack(this, claim, mayMake && isEmpty(claim))
      this.#forward(undefined)
      return
    }
    const opened = await openRoom(this, claim, mayMake)
    if (opened.at === 'nowhere') this.#refuse(opened)
    else if (opened.at === 'unknown') this.#forward(undefined)
  }

  /** Runs the room under its claim. False: this node takes no more rooms. */
  run(claimed: ClaimedRoom): boolean {
    if (!this.#host.accepts) return false
    this.#room = new Room(claimed, this.inbox, this)
    this.#host.add(this.#room)
    const { epoch, log, memberships } = this.#room.stream
    log.debug({ epoch, members: memberships.size }, 'room opened')
    // Before anything else can arrive.
    this.#room.handleInbox()
    return true
  }

  /** The room is no longer here. The rest of its inbox goes to the node `successor`, or to the next owner. */
  ended(end: RoomEnd, epoch: number, successor: string | undefined): void {
    const { log, metrics } = this.environment
    if (end === 'asleep') metrics.roomsAsleep.inc({ room_type: this.address.roomType })
    // A few a day, and what an operator searches the log for then.
    log[end === 'disposed' || end === 'asleep' ? 'debug' : 'info'](
      { room_id: roomIdOf(this.address), end, epoch, successor },
      'room ended',
    )
    this.#forward(successor)
  }

  /** All that waits goes to `owner`, or to whichever node has the room by then. */
  #forward(owner: string | undefined): void {
    this.#leave()
    this.environment.cluster.router.redirect(this.address, this.inbox, owner)
  }

  /** All that waits is answered, or looks for the room again. */
  #refuse(place: Nowhere): void {
    this.#leave()
    this.#host.refuse(this.address, this.inbox, place)
    this.#forward(undefined)
  }

  #leave(): void {
    if (this.#isGone) return
    this.#isGone = true
    this.inbox.dropEvents()
    this.#host.remove(this)
  }
}

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

/** What came of an opening: the room runs here, has to be found again, or is nowhere. */
type Opened = { readonly at: 'here' } | { readonly at: 'unknown' } | Nowhere

const MAX_REASON_LENGTH = 300
const DAY_MS = 86_400_000

/**
 * Opens a room under its claim: restores it, or makes it for the first join, if it was counted for one (`mayMake`). Where that leads to no
 * room, the claim is given back. Rejects only for mistakes in this program.
 */
async function openRoom(slot: RoomSlot, found: Claim, mayMake: boolean): Promise<Opened> {
  const { environment, address, definition, inbox } = slot
  const { fence } = found
  const stuck = new StuckTurns(found, environment.clock)
  // One that did not come to the end of its last turn has ended, but for its last save.
  const ended = stuck.last?.hook === 'onDispose' && !definition.save
  const claim = ended ? endedClaim(found, environment.format) : found
  if (stuck.last) logStuck(slot, claim, stuck.last)
  // Not once more: the code may be another by the time the note is gone.
  if (stuck.last?.hook === 'migrate') {
    await giveBack(slot, claim, false)
    return unavailable(address, 'its state could not be brought to the version of its code')
  }
  refuseStuck(slot, stuck, 'join')
  let first: Maker | undefined
  try {
    const { clock, format } = environment
    const restored = restore(claim, format)
    const left = restored ? [] : outcomesLeft(claim, format, clock.now())
    answerRepeated(slot, left)
    // A request to a room that exists runs no hook of joins.
    if (!restored) refuseStuck(slot, stuck, 'request')
    first = firstMaker(inbox)
    const begin = restored ?? (first && mayMake ? await created(slot, first, fence.epoch, left) : undefined)
    const log = environment.log.child({ room_id: roomIdOf(address), project_id: address.projectId })
    const maker = restored ? undefined : first?.member_id
    const claimed = begin && { environment, address, definition, fence, log, begin, stuck, maker }
    if (claimed && slot.run(claimed)) return { at: 'here' }
    await giveBack(slot, claim, !restored)
    return begin ? { at: 'unknown' } : ABSENT
  } catch (error) {
    const place = await cannotOpen(slot, claim, error)
    return place.at === 'nowhere' && first ? { ...place, maker: first.member_id } : place
  }
}

/** The outcomes in a record; none if it cannot be read. */
export function outcomesIn(claim: Claim, format: JournalFormat): readonly Outcome[] {
  try {
    return restore(claim, format)?.tables.outcomes.rows ?? []
  } catch {
    return []
  }
}

/** A claim as it would be if the owner had ended the room: the outcomes of its requests are left. */
function endedClaim(claim: Claim, format: JournalFormat): Claim {
  const outcomes = outcomesIn(claim, format)
  const left = outcomes.length > 0 && { outcomes: format.outcomes(outcomes) }
  return { ...claim, snapshot: undefined, journal: [], ...left }
}

/** The new room that a join or a request makes. Undefined: it makes none. */
async function created(
  slot: RoomSlot,
  first: Maker,
  epoch: number,
  left: readonly Outcome[],
): Promise<RestoredRoom | undefined> {
  const { address, definition, environment } = slot
  const tree = await firstState(slot, first, epoch)
  if (!tree) return undefined
  const { codes, onIdle, sleepDays } = definition
  // It outlives a node that dies before it has kept the code once.
  const lifeMs = onIdle === 'sleep' ? Math.max(LISTED_MS, sleepDays * DAY_MS) : LISTED_MS
  const code = codes ? await environment.codes.claim(address, lifeMs) : undefined
  const now = Math.floor(environment.clock.now())
  return newRoom(tree, epoch, definition.version, now, code, left)
}

/**
 * The state that a room which is nowhere begins with: what `load` brings, or else what `create` makes, if the join may make a room. Of a room that `join` makes under
 * `epoch`: under the claim, validator and all, so that what does not return is known of by whichever node claims the room next. Rejects
 * with CannotCreate, or with CannotLoad after at most `loadMs`.
 */
async function firstState(slot: RoomSlot, join: Maker, epoch: number): Promise<LiveTree | undefined> {
  const { environment, address, definition } = slot
  const { code, failures, limits } = environment
  const { load, type } = definition
  if (!load && join.create === false) return undefined
  const room = { name: address.name, epoch }
  const options = joinOptions(code, room, definition, join)
  if (!options.ok && options.cause === undefined)
    throw new CannotCreate({ code: 'invalid_options', message: options.message })
  if (!options.ok)
    throw new CannotCreate(failures.explain(`the validator of the options of ${type}`, options.cause))
  const loaded = load && (await loadState(slot, load, join, room, options.value))
  if (loaded || join.create === false) return loaded
  try {
    return code.run(joinTurn(room, 'create', join), () =>
      createState(definition, options.value, limits.stateBytes),
    )
  } catch (error) {
    throw new CannotCreate(failures.explain(`create of ${type}`, error))
  }
}

async function loadState(
  { environment, address, definition }: RoomSlot,
  load: NonNullable<RoomDefinition['load']>,
  join: Maker,
  room: TurnRoom,
  options: unknown,
): Promise<LiveTree | undefined> {
  const { clock, code, failures, limits, metrics } = environment
  const { key, projectId, roomType } = address
  const { type } = definition
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
    const state = await Promise.race([
      code.start(turn, () => load(key, options, { projectId, roomType })),
      late,
    ])
    if (state === null)
      throw new RoomLogicError('load returned null; return the state, or undefined when there is none')
    // Reading what it brought may run code of the room type: getters, toJSON.
    const tree =
      state === undefined
        ? undefined
        : code.run(turn, () => treeOf('load', state, definition, limits.stateBytes))
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

/** The last owner ended because of a turn of this room, and could count nothing any more. */
function logStuck({ environment, address }: RoomSlot, { over }: Claim, cause: TurnCause): void {
  environment.log.error(
    fieldsOf({ ...cause, room: { name: address.name, epoch: over } }),
    'a turn of the room did not return under its last owner: it is not started again',
  )
}

/** Refuses joins, or requests with `create`, that an owner did not come to the end of. */
function refuseStuck({ inbox, replies }: RoomSlot, stuck: StuckTurns, kind: 'join' | 'request'): void {
  const { hook } = stuck.last ?? {}
  const isStuck = (message: ToOwner): boolean => {
    const maker = message.kind === kind ? makerOf(message) : undefined
    return (
      maker !== undefined &&
      (hook === 'create' || hook === 'load' || stuck.hasJoin(maker.session_id, maker.request_id))
    )
  }
  for (const arrival of inbox.remove(({ message }) => isStuck(message)))
    replies.turnAway(arrival, nowhere('not_created', FAILED))
}

/** Answers the requests that an earlier room of this name has carried out: they make no room. */
function answerRepeated({ address: room, inbox, replies }: RoomSlot, left: readonly Outcome[]): void {
  if (left.length === 0) return
  const outcomes = new Map(left.map((outcome) => [outcome.id, outcome]))
  inbox.remove(({ message, from }) => {
    const outcome = message.kind === 'request' && outcomes.get(message.request.id)
    if (!outcome) return false
    const { member_id, request } = message
    replies.answer(from, { room, epoch: 0, kind: 'answer', member_id, answer: answerLeft(request, outcome) })
    return true
  })
}

async function cannotOpen(slot: RoomSlot, claim: Claim, error: unknown): Promise<Opened> {
  const { environment, address } = slot
  if (error instanceof UnreadableRecord) return quarantine(slot, claim, error)
  if (error instanceof CannotCreate) {
    await giveBack(slot, claim, true)
    return nowhere('not_created', error.message, error.code)
  }
  if (error instanceof CannotLoad || error instanceof CannotMigrate) {
    await giveBack(slot, claim, error instanceof CannotLoad)
    return unavailable(address, error.message)
  }
  // A new room got no code.
  if (error instanceof StoreUnavailable) {
    await giveBack(slot, claim, true)
    return unavailable(address, 'the store does not answer')
  }
  const isNewer = error instanceof NewerRecord || error instanceof NewerState
  if (isNewer) logNewer(slot, error)
  else environment.log.error({ err: error, room: address.name }, 'a room could not be opened')
  await giveBack(slot, claim, false)
  return unavailable(address, isNewer ? 'a newer node wrote its record' : 'it could not be opened')
}

function logNewer({ environment, address }: RoomSlot, error: Error): void {
  const { newer, log } = environment
  if (newer.has(error.message)) return
  newer.add(error.message)
  log.error(
    { err: error, room: address.name },
    'rooms of a newer version cannot run here: finish the upgrade',
  )
}

/** Gives up a claim that led to no room, so that it can be claimed again. */
async function giveBack({ environment, address }: RoomSlot, claim: Claim, forget: boolean): Promise<void> {
  const { clock, format, limits, log, records, wakeups } = environment
  const { fence } = claim
  const { name } = address
  try {
    // There may be a time of a room that has ended: it would be looked for again and again.
    if (forget) await wakeups.set(name, fence, undefined)
    // A room that cannot be opened now keeps what is left of its life.
    if (!forget) {
      await records.release(name, fence, { forget })
      return
    }
    const now = clock.now()
    const outcomes = outcomesToLeave(outcomesLeft(claim, format, now), format, now)
    await records.release(name, fence, { forget, ttlMs: limits.recordTtlMs, ...(outcomes && { outcomes }) })
  } catch (error) {
    log.warn({ err: error, room: name }, 'a room could not be released')
  }
}

/** Removes the row of a room that slept, and is not opened under its claim. */
export function unlist({ listings, log }: RoomEnvironment, address: RoomAddress, epoch: number): void {
  const { name, projectId, roomType } = address
  const removed = { roomId: roomIdOf(address), epoch, version: 1, value: undefined }
  listings.write(`${projectId}/${roomType}`, removed, LISTED_MS).catch((error) => {
    log.warn({ err: error, room: name }, 'the row of a room could not be removed')
  })
}

/**
 * Puts the damaged record of a room that was just claimed aside. The text of the error is for the log, and for an operator who reads the
 * record: it has no state and no payload.
 */
async function quarantine(
  { environment, address }: RoomSlot,
  { fence }: Claim,
  error: UnreadableRecord,
): Promise<Opened> {
  const { limits, log, metrics, records } = environment
  const { name, roomType } = address
  try {
    const done = await records.quarantine(name, fence, {
      reason: error.message.slice(0, MAX_REASON_LENGTH),
      ttlMs: limits.quarantineTtlMs,
    })
    if (!done) return { at: 'unknown' }
  } catch (err) {
    log.error({ err, room: name, reason: error.message }, 'a record could not be put aside')
    return unavailable(address, 'its record cannot be read')
  }
  unlist(environment, address, fence.epoch)
  metrics.roomsQuarantined.inc({ room_type: roomType })
  log.error({ room: name, epoch: fence.epoch, err: error }, 'a room was put in quarantine')
  return nowhere('quarantined', unavailableText(address, 'its record was put in quarantine'))
}
