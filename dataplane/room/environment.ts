import type { Clock } from '../../shared/clock.ts'
import { LIMITS } from '../../shared/limits.ts'
import type { Logger } from '../../shared/log.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import { MAX, type Subprotocol } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import type { Listings, Notices, RoomRecords, Wakeups } from '../../shared/store/port.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import type { RoomCodes } from '../features/lists/listing.ts'
import type { NoticeDelivery } from '../features/notices/delivery.ts'
import type { Inbox } from '../inbox.ts'
import type { RequestAnswer, RoomAddress, RoomRequest, ToEdge } from '../traffic.ts'
import type { FailureLog } from './failures.ts'
import type { HistoryBudget, HistoryLimits } from './history.ts'
import type { JournalFormat } from './journal.ts'
import type { Departures, OutcomeLimits } from './memberships.ts'
import type { Kept, RoomMetrics } from './metrics.ts'
import type { RoomCode } from './room-code.ts'
import type { LoopShare, NodeLoad, Scheduler } from './scheduler.ts'

/** Limits of every room of a node. */
export interface RoomLimits {
  /** History kept for resumes. */
  readonly history: HistoryLimits
  /** Bytes of the histories of all rooms of the node together. */
  readonly historyBytes: number
  /**
   * Messages that wait while a room cannot act. If there are more, edges keep the reliable ones, and others are refused with
   * `room_unavailable`.
   */
  readonly waitingMessages: number
  /** Outcomes of one member's messages that are kept until its client confirms them. */
  readonly unconfirmed: OutcomeLimits
  /** Outcomes of requests. A large one counts as several. */
  readonly outcomes: number
  /** Replies to one member's messages that its client has not confirmed. Large outcomes count as several. */
  readonly requests: number
  /** Reservations. */
  readonly reservations: number
  /** Seats of one player (`sub`). */
  readonly seats: number
  /** Tasks in flight. */
  readonly tasks: number
  /** Timers that room logic has set. */
  readonly timers: number
  /** Notices that wait to be delivered. */
  readonly notices: number
  /** Players that the room bans. */
  readonly bans: number
  /** Hidden layers that are shown to one member. */
  readonly layers: number
  /** Events of one turn, and bytes of one event and of all events of a turn, as `bytesOf` counts them. */
  readonly events: { readonly turn: number; readonly bytes: number; readonly turnBytes: number }
  /** Bytes of the state, as `LiveState` counts them. */
  readonly stateBytes: number
  /** How long `admit` may take. */
  readonly admitMs: number
  /** How long `load` may take. */
  readonly loadMs: number
  /** How long `save.to` may take. */
  readonly saveToMs: number
  /** A member without a socket is removed after this, even if its edge never reports the end of the session. */
  readonly detachedMs: number
  /** How long a member counts as connected after its edge is gone, or while its session moves. */
  readonly movesMs: number
  /** How long after a change a `snapshot` room is written. Together with the write, it must stay below a second. */
  readonly snapshotMs: number
  /** A journal of this many entries, or one that is larger than both `journalBytes` and its snapshot, is replaced by a snapshot. */
  readonly journalEntries: number
  readonly journalBytes: number
  /** How long a room's record outlives its last write or refresh. */
  readonly recordTtlMs: number
  /** How long the note of a turn that did not return is kept: as long as its message may be sent again. */
  readonly noteTtlMs: number
  /** How long a record in quarantine is kept. */
  readonly quarantineTtlMs: number
}

/** Default limits. */
export const ROOM_LIMITS: RoomLimits = {
  history: { entries: 512, bytes: 256 * 1024 },
  historyBytes: 256 * 1024 * 1024,
  waitingMessages: 1000,
  unconfirmed: { messages: 1024, bytes: 256 * 1024 },
  outcomes: 2000,
  requests: MAX.requests,
  reservations: 1000,
  seats: 4,
  tasks: 100,
  timers: 1000,
  notices: 1000,
  bans: 1000,
  layers: 1024,
  events: {
    turn: LIMITS.maxTurnEvents.value,
    bytes: LIMITS.maxEventBytes.value,
    turnBytes: LIMITS.maxTurnEventBytes.value,
  },
  stateBytes: 8 * 1024 * 1024,
  admitMs: 5000,
  loadMs: 10_000,
  saveToMs: 30_000,
  detachedMs: 120_000,
  movesMs: 20_000,
  snapshotMs: 700,
  journalEntries: 512,
  journalBytes: 256 * 1024,
  recordTtlMs: 600_000,
  noteTtlMs: 600_000,
  quarantineTtlMs: 259_200_000,
}

/** The cluster, as the rooms of a node use it (`Ownership`). */
interface RoomCluster {
  /** This node's lease. */
  readonly lease: {
    /** Monotonic time until which the node may act for its rooms, in milliseconds. Checked before each turn and each delivery. */
    readonly validUntil: number
  }
  readonly nodes: {
    /**
     * Monotonic time in milliseconds from which on this node may write a room again that the store has lost. Until then, a later owner of
     * the room may report itself.
     */
    readonly rewritesAllowedAt: number
    /** True if a node is known to have ended. */
    isGone(nodeId: string): boolean
  }
  readonly requests: {
    /** Sends a request to another room. */
    send(room: RoomAddress, request: RoomRequest): Promise<RequestAnswer>
  }
  readonly router: {
    /** Forwards messages for a room that this node does not run. `owner`: the node that runs it; undefined: not known. */
    redirect(room: RoomAddress, inbox: Inbox, owner: string | undefined): void
    /** Sends a message to an edge. */
    deliver(edge: string, message: ToEdge): void
  }
}

/** Dependencies of the rooms of one node. */
export interface RoomDependencies {
  readonly nodeId: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly records: RoomRecords
  readonly wakeups: Wakeups
  readonly notices: Pick<Notices, 'announce' | 'count'>
  readonly listings: Listings
  readonly codes: RoomCodes
  readonly metrics: RoomMetrics
  readonly cluster: RoomCluster
  /** Load of the node. */
  readonly load: NodeLoad
  /** Delivery of written notices to the backend. */
  readonly noticeDelivery: Pick<NoticeDelivery, 'deliver'>
}

/** Objects that all rooms of one node share. */
export interface RoomEnvironment extends RoomDependencies {
  readonly tracer: Tracer
  /** Runs the code of rooms. */
  readonly code: RoomCode
  /** True if players see what failing room logic threw. For development. */
  readonly revealFailures: boolean
  readonly limits: RoomLimits
  readonly scheduler: Scheduler
  readonly loopShare: LoopShare
  readonly codecs: ReadonlyMap<Subprotocol, Codec>
  readonly format: JournalFormat
  readonly historyBudget: HistoryBudget
  /** Seats that rooms of this node have ended. */
  readonly departures: Departures
  /** Reasons for which rooms of newer versions could not be opened here: each is logged once. */
  readonly newer: Set<string>
  /** Failures of room logic that runs outside of a room's turns, such as `load`. */
  readonly failures: FailureLog
}

/** Returns true if a room, or one of its members, may have `number` entries of a kind. Otherwise counts the reached limit. */
export function mayHave(
  { limits, metrics }: Pick<RoomEnvironment, 'limits' | 'metrics'>,
  roomType: string,
  limit: Kept,
  number: number,
): boolean {
  if (number <= limits[limit]) return true
  metrics.limitsReached.inc({ room_type: roomType, limit })
  return false
}

/** True while the node may act for its rooms. `now`: the monotonic time, if the caller has just read it. */
export const hasLease = ({ clock, cluster }: RoomEnvironment, now = clock.monotonic()): boolean =>
  now < cluster.lease.validUntil
