import type { Fence } from '../../shared/store/port.ts'
import { type JoinRequest, type RoomAddress, roomIdOf } from '../traffic.ts'
import { Changes, type Flush } from './changes.ts'
import type { RoomDefinition } from './definition.ts'
import type { RoomLog } from './definition-types.ts'
import { errorText, validate } from './failures.ts'
import { History, type HistoryBudget } from './history.ts'
import type { JournalFormat } from './journal.ts'
import { areSameRules, type Grants } from './layer-rules.ts'
import type { RoomLimits } from './limits.ts'
import { Membership, Memberships } from './memberships.ts'
import type { RestoredRoom } from './restore.ts'
import { turnOf } from './room-code.ts'
import type { RoomFrames } from './room-frames.ts'
import type { Scheduler } from './scheduler.ts'
import { CannotMigrate, type LiveState, type MigrationNeeds, migrate, NewerState } from './state.ts'
import type { Tables } from './table.ts'

/**
 * Everything that a room remembers, as plain data. The parts of the room read and write it, and leave wishes in `wants`. Only `Room` acts on
 * wishes.
 */
export interface RoomCore {
  readonly address: RoomAddress
  /** `project/type:key`. */
  readonly name: string
  /** `type:key`. */
  readonly roomId: string
  readonly log: RoomLog
  /** When the room was made, milliseconds since 1970. */
  readonly createdAt: number
  definition: RoomDefinition
  epoch: number
  /** Seq of the last flush, which may still be in flight. */
  seq: number
  /** Code of the room. Undefined: the room has none. */
  code: string | undefined
  /** True if the room was made for a match, and no player has joined it as of the last flush. No list has the room until then. */
  awaited: boolean
  readonly state: LiveState
  readonly tables: Tables
  readonly memberships: Memberships
  /** Joins whose `admit` is running, by subscription id. They hold places. */
  readonly joining: Map<string, JoinRequest>
  readonly grants: Grants
  /** The latest updates that members received, for members that missed some. */
  readonly history: History
  /** Changes since the last flush, except those of the state and of tables. */
  changes: Changes
  /** The flush that is being committed, or that is withheld. Members do not have its state yet. */
  inFlight: Flush | undefined
  /** True if the database of the room type lacks changes of the room. */
  unsaved: boolean
  readonly wants: Wants
}

/** Wishes of a room's parts. `Room` fulfils them after each message, timer and event, in the order of these fields. */
export interface Wants {
  /** A turn was cut off: only the flushed state is valid, and no turn starts any more. Resolves when the next owner knows the turn. */
  cut: Promise<void> | undefined
  /** The room ends: all members are removed. */
  close: boolean
  /** Rows with due times have changed. */
  timers: boolean
  /** The room may have become empty. `anew`: a member has joined since then. */
  idle: 'look' | 'anew' | undefined
  /** The room has changed. `paced`: the next flush is at the room's rate. `soon`: it does not wait for the rate. */
  flush: 'paced' | 'soon' | undefined
  /** Answers wait for the next delivery. It fulfils this wish. */
  delivery: boolean
}

/** A claimed room, before it runs. */
export interface ClaimedRoom {
  readonly address: RoomAddress
  readonly definition: RoomDefinition
  readonly fence: Fence
  readonly log: RoomLog
  /** The room as the store had it, or a new room with the epoch of the claim. */
  readonly begin: RestoredRoom
  /** `member_id` of the message that creates the room. Undefined: the room existed. */
  readonly maker: string | undefined
  /** Milliseconds for which the room had no owner. 0: a new room. */
  readonly awayMs: number
}

/** Dependencies of `coreOf`. */
export interface CoreNeeds extends MigrationNeeds {
  readonly scheduler: Scheduler
  readonly limits: RoomLimits
  readonly historyBudget: HistoryBudget
  readonly format: JournalFormat
}

/** Returns the core of a claimed room, whose state has the version of its definition. Throws CannotMigrate or NewerState. */
export function coreOf(
  { address, definition, fence, log, begin }: ClaimedRoom,
  frames: RoomFrames,
  needs: CoreNeeds,
): RoomCore {
  const { code, format, historyBudget, limits, scheduler } = needs
  const { epoch } = fence
  const { name } = address
  const { layers } = definition
  const restored = () => begin.state(limits.stateBytes, layers)
  // The functions of the layers run here.
  const state = layers ? code.run(turnOf({ name, epoch }, 'migrate'), restored) : restored()
  // The room does not run yet, so a migration that is cut off counts as failed.
  migrate(state, begin.stateVersion, definition, needs, { name, epoch })
  const history = new History(limits.history, historyBudget, frames, format, begin.base)
  if (hidesTheSame(state, definition, begin))
    begin.history.forEach((update, i) => {
      history.add(update, begin.updates[i])
    })
  // The room type hides other parts than before, so old updates do not fit. Members get a snapshot.
  else history.clear({ epoch, seq: begin.seq })
  const memberships = new Memberships()
  const now = scheduler.clock.monotonic()
  for (const restored of begin.memberships)
    memberships.add(new Membership(restored, limits.unconfirmed, now, now + limits.movesMs))
  return {
    address,
    name,
    roomId: roomIdOf(address),
    log,
    createdAt: begin.createdAt,
    definition,
    epoch,
    seq: begin.seq,
    code: begin.code,
    awaited: begin.awaited,
    state,
    tables: begin.tables,
    memberships,
    joining: new Map(),
    grants: begin.grants,
    history,
    changes: new Changes(),
    inFlight: undefined,
    unsaved: false,
    wants: {
      cut: undefined,
      close: false,
      timers: true,
      idle: 'look',
      flush: state.dirty ? 'paced' : undefined,
      delivery: false,
    },
  }
}

/** True if members see spectators in their lists. */
export const showsSpectatorsOf = ({ spectators }: RoomDefinition): boolean => spectators?.visible === true

/** True if members see the same parts of the state, and the same members, as under the last owner. */
const hidesTheSame = (
  { checksum, hidden }: LiveState,
  definition: RoomDefinition,
  { shown, showsSpectators }: RestoredRoom,
): boolean =>
  !shown ||
  (shown.checksum === checksum &&
    shown.layers === hidden?.checksum &&
    showsSpectators === showsSpectatorsOf(definition))

/** Fits a room to another definition of its type. Returns why the room keeps the old one. Undefined: it has the new one. */
export function refit(core: RoomCore, definition: RoomDefinition, needs: MigrationNeeds): string | undefined {
  const { roomId, state } = core
  const { layers, version } = core.definition
  if (!areSameRules(layers, definition.layers))
    return `the layers of ${roomId} have changed, and members know the old ones`
  if (showsSpectatorsOf(core.definition) !== showsSpectatorsOf(definition))
    return `spectators.visible of ${roomId} is another now, and members know whom they see`
  try {
    if (definition.version !== version) {
      migrate(state, version, definition, needs, core)
      core.wants.flush ??= 'paced'
    } else if (definition.state) {
      const { state: schema } = definition
      const checked = needs.code.run(turnOf(core, 'migrate'), () => validate(schema, state.present))
      if (!checked.ok) return `the state of ${roomId} does not fit: ${checked.message}`
    }
  } catch (error) {
    const text = errorText(error)
    return error instanceof CannotMigrate || error instanceof NewerState
      ? `${roomId}: ${text}`
      : `the state of ${roomId} does not fit: ${text}`
  }
  core.definition = definition
  return undefined
}
