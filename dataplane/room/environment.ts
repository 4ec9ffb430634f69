import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import type { Listings, Notices, RoomRecords, Wakeups } from '../../shared/store/port.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import type { RoomCodes } from '../features/lists/codes.ts'
import type { NoticeDelivery } from '../features/notices/delivery.ts'
import type { Inbox } from '../inbox.ts'
import type { RequestAnswer, RoomAddress, RoomRequest, ToEdge } from '../traffic.ts'
import type { Departures } from './departures.ts'
import type { FailureLog } from './failures.ts'
import type { HistoryBudget } from './history.ts'
import type { JournalFormat } from './journal.ts'
import type { RoomLimits } from './limits.ts'
import type { RoomMetrics } from './metrics.ts'
import type { RoomCode } from './room-code.ts'
import type { LoopShare, NodeLoad, Scheduler } from './scheduler.ts'

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

/** True while the node may act for its rooms. `now`: the monotonic time, if the caller has just read it. */
export const hasLease = ({ clock, cluster }: RoomEnvironment, now = clock.monotonic()): boolean =>
  now < cluster.lease.validUntil
