import { within } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import { type Claim, StoreUnavailable } from '../../shared/store/port.ts'
import type { Inbox } from '../inbox.ts'
import {
  ABSENT,
  firstMaker,
  isEmpty,
  isForMatch,
  type Maker,
  type Nowhere,
  nowhere,
  refuseAll,
  unavailable,
  unavailableText,
} from '../place.ts'
import { isClose, type RoomAddress, roomIdOf, type ToOwner } from '../traffic.ts'
import { joinOptions, joinTurn, unfitness } from './admission.ts'
import { queue } from './backlog.ts'
import type { ClaimedRoom } from './core.ts'
import type { RoomDefinition } from './definition.ts'
import type { RoomNeeds } from './environment.ts'
import { RoomLogicError } from './failures.ts'
import type { RoomEnd } from './feature.ts'
import type { TurnRoom } from './hooks.ts'
import { type JournalFormat, NewerRecord, UnreadableRecord } from './journal.ts'
import { answerLeft, outcomesLeft, outcomesToLeave } from './outcomes.ts'
import { Replies } from './replies.ts'
import { newRoom, type RestoredRoom, restore } from './restore.ts'
import { Room } from './room.ts'
import { TurnCut, turnOf } from './room-code.ts'
import { CannotMigrate, createState, type LiveState, NewerState, stateOf } from './state.ts'
import type { Outcome } from './table.ts'

/** Epoch of answers about a room that does not run here. */
export const NO_EPOCH = { epoch: 0 }

/** Dependencies of the slots of a node: those of rooms, and those of openings. */
export type SlotNeeds = RoomNeeds & OpeningNeeds

interface OpeningNeeds {
  readonly log: Logger
  /** Reasons for which rooms of newer versions could not be opened here: each is logged once. */
  readonly newer: Set<string>
  readonly cluster: {
    readonly router: {
      /** Forwards messages for a room that this node does not run. `owner`: the node that runs it; undefined: not known. */
      redirect(room: RoomAddress, inbox: Inbox, owner: string | undefined): void
    }
  }
}

/** The slots and rooms of a node. */
interface Slots {
  /** True if this node takes rooms. */
  readonly accepts: boolean
  /** Adds a running room. */
  add(room: Room): void
  /** Removes a slot, and its room if it ran. */
  remove(slot: RoomSlot): void
}

/**
 * One room name at this node, from its claim to its end. The inbox holds messages that cannot be handled yet. They are forwarded to the
 * next owner, or answered by the table of refusals.
 */
export class RoomSlot {
  readonly address: RoomAddress
  readonly needs: SlotNeeds
  readonly definition: RoomDefinition
  readonly inbox: Inbox
  /** Answers about a room that does not run here. */
  readonly replies: Replies
  readonly #slots: Slots
  #room: Room | undefined
  #isGone = false

  constructor(
    needs: SlotNeeds,
    address: RoomAddress,
    definition: RoomDefinition,
    inbox: Inbox,
    slots: Slots,
  ) {
    this.needs = needs
    this.address = address
    this.definition = definition
    this.inbox = inbox
    this.#slots = slots
    this.replies = new Replies(address, NO_EPOCH, needs)
  }

  /** Queues a message for a room that does not run yet. If the inbox is full, the message is refused. */
  receive(message: ToOwner, from: string): void {
    queue({ message, from }, this.inbox, this.replies, this.needs)
  }

  /** Restores or creates the room that this node has claimed, and runs it. */
  begin(claim: Claim, mayMake: boolean): void {
    // No caller awaits this. A bug in it harms this room, and not the node.
    this.#begin(claim, mayMake).catch((error) => {
      this.needs.log.error(
        { err: error, room: this.address.name },
        'a room could not be opened, or not for everyone who waited',
      )
      this.#leave()
    })
  }

  async #begin(claim: Claim, mayMake: boolean): Promise<void> {
    if (!this.#slots.accepts) {
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
    if (!this.#slots.accepts) return false
    this.#room = new Room(claimed, this.inbox, this.needs, (end, successor) => this.#ended(end, successor))
    this.#slots.add(this.#room)
    const { epoch, log, memberships } = this.#room.core
    log.debug({ epoch, members: memberships.size }, 'room opened')
    // Before any other message arrives.
    this.#room.handleInbox()
    return true
  }

  /** The room has ended here. The rest of its inbox goes to the node `successor`, or to the next owner. */
  #ended(end: RoomEnd, successor: string | undefined): void {
    const { log, metrics } = this.needs
    const { epoch } = this.#room!.core
    if (end === 'asleep') metrics.roomsAsleep.inc({ room_type: this.address.roomType })
    // Releases and fences are few a day. An operator searches the log for them.
    log[end === 'disposed' || end === 'asleep' ? 'debug' : 'info'](
      { room_id: roomIdOf(this.address), end, epoch, successor },
      'room ended',
    )
    this.#forward(successor)
  }

  /** Forwards the inbox to the node `owner`, or to the node that has the room by then. */
  #forward(owner: string | undefined): void {
    this.#leave()
    this.needs.cluster.router.redirect(this.address, this.inbox, owner)
  }

  /** Answers the inbox. Messages that look for the room again are forwarded. */
  #refuse(place: Nowhere): void {
    this.#leave()
    refuseAll(this.inbox, place, this.replies.answer)
    this.#forward(undefined)
  }

  #leave(): void {
    if (this.#isGone) return
    this.#isGone = true
    this.inbox.dropEvents()
    this.#slots.remove(this)
  }
}

/** Room logic created no room. Code and text are for the client whose message asked for it. */
class CannotCreate extends Error {
  override readonly name = 'CannotCreate'
  readonly code: ErrorCode

  constructor({ code, message }: { readonly code: ErrorCode; readonly message: string }) {
    super(message)
    this.code = code
  }
}

/** `load` failed or timed out, so it is unknown whether the database has the room. A later join may succeed. The text gives the reason. */
class CannotLoad extends Error {
  override readonly name = 'CannotLoad'
}

class LoadTimeout extends Error {
  override readonly name = 'LoadTimeout'
}

/** Result of an opening: the room runs here, has to be looked up again, or cannot be served. */
type Opened = { readonly at: 'here' } | { readonly at: 'unknown' } | Nowhere

const MAX_REASON_LENGTH = 300

/**
 * Opens a claimed room: restores it, or creates it for the first join if the claim was counted for a new room (`mayMake`). If neither is
 * possible, gives the claim back. Rejects only for bugs in this program.
 */
async function openRoom(slot: RoomSlot, found: Claim, mayMake: boolean): Promise<Opened> {
  const { needs, address, definition, inbox } = slot
  const { fence } = found
  let claim = found
  let first: Maker | undefined
  try {
    const { clock, code, format } = needs
    // A turn of this room may have ended the last owner.
    await code.suspects.current()
    let restored = restore(found, format)
    const { createdAt = 0 } = restored ?? {}
    const disposing = turnOf({ name: address.name, epoch: fence.epoch, createdAt }, 'onDispose')
    // A room whose `onDispose` did not return has ended, except for its last save. A later room has a record of a later epoch.
    if (restored && !definition.save && code.suspects.hung(disposing, restored.epoch)) {
      claim = endedClaim(found, format)
      restored = undefined
    }
    const left = restored ? [] : outcomesLeft(claim, format, clock.now())
    answerRepeated(slot, left)
    first = firstMaker(inbox)
    const begin = restored ?? (first && mayMake ? await created(slot, first, fence.epoch, left) : undefined)
    const log = needs.log.child({ room_id: roomIdOf(address), project_id: address.projectId })
    const maker = restored ? undefined : first?.member_id
    const awayMs = restored ? Math.round(claim.idleMs ?? 0) : 0
    const claimed = begin && { address, definition, fence, log, begin, maker, awayMs }
    if (claimed && slot.run(claimed)) return { at: 'here' }
    await giveBack(slot, claim, !restored)
    return begin ? { at: 'unknown' } : ABSENT
  } catch (error) {
    const place = await cannotOpen(slot, claim, error)
    return place.at === 'nowhere' && first ? { ...place, maker: first.member_id } : place
  }
}

/** Returns the claim as if the owner had ended the room: only the outcomes of its requests are left. */
function endedClaim(claim: Claim, format: JournalFormat): Claim {
  const outcomes = outcomesIn(claim, format)
  const left = outcomes.length > 0 && { outcomes: format.outcomes(outcomes) }
  return { ...claim, snapshot: undefined, journal: [], ...left }
}

/** Creates a room for the first join or request. Undefined: that message creates no room. */
async function created(
  slot: RoomSlot,
  first: Maker,
  epoch: number,
  left: readonly Outcome[],
): Promise<RestoredRoom | undefined> {
  const { address, definition, needs } = slot
  const state = await firstState(slot, first, epoch)
  if (!state) return undefined
  let code: string | undefined
  for (const feature of needs.features) code ??= await feature.codeFor?.(address, definition)
  const now = Math.floor(needs.clock.now())
  return newRoom(state, epoch, definition.version, now, code, left, isForMatch(first))
}

/**
 * Returns the first state of a new room: from `load`, or else from `create` if the message may create a room. All of this runs under the
 * claim, also the validator of the options. So a turn that does not return names the epoch of the claim. Rejects with CannotCreate, or
 * with CannotLoad after at most `loadMs`.
 */
async function firstState(slot: RoomSlot, join: Maker, epoch: number): Promise<LiveState | undefined> {
  const { needs, address, definition } = slot
  const { code, failures, limits } = needs
  const { load, type } = definition
  if (!load && join.create === false) return undefined
  const unfit = join.kind === 'join' && unfitness(join, definition, limits)
  if (unfit) throw new CannotCreate(unfit)
  const room = { name: address.name, epoch }
  const options = joinOptions(code, room, definition, join)
  if (!options.ok && options.cause === undefined)
    throw new CannotCreate({ code: 'invalid_options', message: options.message })
  if (!options.ok)
    throw new CannotCreate(
      failures.explain(`the validator of the options of ${type}`, options.cause, room.name),
    )
  const loaded = load && (await loadState(slot, load, join, room, options.value))
  if (loaded || join.create === false) return loaded
  try {
    return code.run(joinTurn(room, 'create', join), () =>
      createState(definition, options.value, limits.stateBytes),
    )
  } catch (error) {
    throw new CannotCreate(failures.explain(`create of ${type}`, error, room.name))
  }
}

async function loadState(
  { needs, address, definition }: RoomSlot,
  load: NonNullable<RoomDefinition['load']>,
  join: Maker,
  room: TurnRoom,
  options: unknown,
): Promise<LiveState | undefined> {
  const { clock, code, failures, limits, metrics } = needs
  const { key, projectId, roomType } = address
  const { type } = definition
  const count = (outcome: 'loaded' | 'none' | 'failed' | 'timed_out') =>
    metrics.roomLoads.inc({ room_type: type, outcome })
  try {
    const turn = joinTurn(room, 'load', join)
    const loading = code.start(turn, () => load(key, options, { projectId, roomType }))
    const loaded = await within(clock, limits.loadMs, loading, () => {
      throw new LoadTimeout(`load of ${type} did not end within ${limits.loadMs / 1000} seconds`)
    })
    if (loaded === null)
      throw new RoomLogicError('load returned null; return the state, or undefined when there is none')
    // Reading the loaded value may run code of the room type: getters, toJSON.
    const state =
      loaded === undefined
        ? undefined
        : code.run(turn, () => stateOf('load', loaded, definition, limits.stateBytes))
    count(state ? 'loaded' : 'none')
    return state
  } catch (error) {
    const timedOut = error instanceof LoadTimeout
    count(timedOut ? 'timed_out' : 'failed')
    const refused = failures.explain(`load of ${type}`, error, room.name)
    // The turn was cut off, and is not started again for a while. A retry would not help.
    if (error instanceof TurnCut) throw new CannotCreate(refused)
    const { message } = refused
    throw new CannotLoad(`its state could not be loaded: ${timedOut ? 'load took too long' : message}`)
  }
}

/** Answers requests that an earlier room of this name has handled. They create no room. */
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
  const { needs, address } = slot
  if (error instanceof UnreadableRecord) return quarantine(slot, claim, error)
  if (error instanceof CannotCreate) {
    await giveBack(slot, claim, true)
    return nowhere('not_created', error.message, error.code)
  }
  if (error instanceof CannotLoad || error instanceof CannotMigrate) {
    await giveBack(slot, claim, error instanceof CannotLoad)
    return unavailable(address, error.message)
  }
  // A new room could not claim a code.
  if (error instanceof StoreUnavailable) {
    await giveBack(slot, claim, true)
    return unavailable(address, 'the store does not answer')
  }
  const isNewer = error instanceof NewerRecord || error instanceof NewerState
  if (isNewer) logNewer(slot, error)
  else needs.log.error({ err: error, room: address.name }, 'a room could not be opened')
  await giveBack(slot, claim, false)
  return unavailable(address, isNewer ? 'a newer node wrote its record' : 'it could not be opened')
}

function logNewer({ needs, address }: RoomSlot, error: Error): void {
  const { newer, log } = needs
  if (newer.has(error.message)) return
  newer.add(error.message)
  log.error(
    { err: error, room: address.name },
    'rooms of a newer version cannot run here: finish the upgrade',
  )
}

/** Releases a claim that led to no room, so that nodes can claim the room again. */
async function giveBack({ needs, address }: RoomSlot, claim: Claim, forget: boolean): Promise<void> {
  const { clock, format, limits, log, records, wakeups } = needs
  const { fence } = claim
  const { name } = address
  try {
    // An ended room may have left a wakeup time. Nodes would try to wake the room again and again.
    if (forget) await wakeups.set(name, fence, undefined)
    // A room that cannot be opened now keeps the rest of its life.
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

/** Returns the outcomes in a record, or none if it cannot be read. */
function outcomesIn(claim: Claim, format: JournalFormat): readonly Outcome[] {
  try {
    return restore(claim, format)?.tables.outcomes.rows ?? []
  } catch {
    return []
  }
}

/**
 * An operator ends a claimed room whose type is not installed: deletes its record, without calling a hook. Answers the inbox. Never rejects.
 */
export async function endUnknown(
  needs: SlotNeeds,
  address: RoomAddress,
  inbox: Inbox,
  claim: Claim,
  refusal: Nowhere,
): Promise<void> {
  const { clock, cluster, features, format, records, wakeups, limits, log } = needs
  const { name } = address
  const replies = new Replies(address, NO_EPOCH, needs)
  const ends = inbox.remove(({ message }) => isClose(message))
  refuseAll(inbox, refusal, replies.answer)
  for (const end of ends) inbox.add(end)
  const { fence } = claim
  try {
    await wakeups.set(name, fence, undefined)
    const outcomes = outcomesToLeave(outcomesIn(claim, format), format, clock.now())
    const release = { forget: true, ttlMs: limits.recordTtlMs, ...(outcomes && { outcomes }) }
    await records.release(name, fence, release)
    for (const feature of features) feature.gone?.(address, fence.epoch)
    if (isEmpty(claim)) refuseAll(inbox, ABSENT, replies.answer)
    for (const { message, from } of inbox.take())
      replies.send(from, {
        kind: 'answer',
        member_id: message.member_id,
        answer: { reply: { ended: true }, epoch: fence.epoch, seq: 0 },
      })
  } catch (error) {
    log.warn({ err: error, room: name }, 'a room could not be ended')
    refuseAll(inbox, unavailable(address, 'the store does not answer'), replies.answer)
  }
  // Edges of messages that found the inbox full send them again.
  cluster.router.redirect(address, inbox, undefined)
}

/**
 * Moves the damaged record of a claimed room to quarantine. The text of the error is for the log, and for an operator who reads the record:
 * it contains no state and no payload.
 */
async function quarantine(
  { needs, address }: RoomSlot,
  { fence }: Claim,
  error: UnreadableRecord,
): Promise<Opened> {
  const { limits, log, metrics, records } = needs
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
  for (const feature of needs.features) feature.gone?.(address, fence.epoch)
  metrics.roomsQuarantined.inc({ room_type: roomType })
  log.error({ room: name, epoch: fence.epoch, err: error }, 'a room was put in quarantine')
  return nowhere('quarantined', unavailableText(address, 'its record was put in quarantine'))
}
