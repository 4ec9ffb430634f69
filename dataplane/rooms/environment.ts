import type { Clock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import type { RoomRecords } from '../../shared/store/port.ts'
import type { Tracer } from '../../shared/tracing/tracer.ts'
import type { ToEdge } from '../traffic.ts'
import type { Turns } from '../watchdog/turns.ts'
import type { OutcomeLimits } from './deduplication.ts'
import type { Codecs } from './delivery.ts'
import type { HistoryBudget, HistoryLimits } from './history.ts'
import type { JournalFormat } from './journal.ts'
import type { RoomMetrics } from './metrics.ts'
import type { Scheduler } from './scheduler.ts'

/** Bounds of every room of a node. */
export interface RoomLimits {
  /** History kept for resumes. */
  readonly history: HistoryLimits
  /** Bytes of that of all rooms of the node together. */
  readonly historyBytes: number
  /** Messages that wait while a room cannot act; of more, edges keep the reliable ones, and others are refused with `room_unavailable`. */
  readonly waitingMessages: number
  /** Refused messages of one member that are kept until its client has said that it knows. */
  readonly outcomes: OutcomeLimits
  /** Tasks in flight. */
  readonly tasks: number
  /** Bytes of the state, as `StateSize` counts them. */
  readonly stateBytes: number
  /** How long `admit` may take. */
  readonly admitMs: number
  /** A member without a socket is removed after this, should its edge never say what became of the session. */
  readonly seatMs: number
  /** How long after a change a `snapshot` room is saved; with the write itself it must stay below a second. */
  readonly saveMs: number
  /** A journal this long, or larger than both `journalBytes` and its snapshot, is replaced by a snapshot. */
  readonly journalEntries: number
  readonly journalBytes: number
  /** How long a room's record outlives its last write or refresh. */
  readonly recordTtlMs: number
  /** How long a record that was put aside is kept. */
  readonly quarantineTtlMs: number
}

/** What holds where nothing else is said. */
export const ROOM_LIMITS: RoomLimits = {
  history: { entries: 512, bytes: 256 * 1024 },
  historyBytes: 256 * 1024 * 1024,
  waitingMessages: 1000,
  outcomes: { messages: 1024, bytes: 256 * 1024 },
  tasks: 100,
  stateBytes: 8 * 1024 * 1024,
  admitMs: 5000,
  seatMs: 120_000,
  saveMs: 700,
  journalEntries: 512,
  journalBytes: 256 * 1024,
  recordTtlMs: 600_000,
  quarantineTtlMs: 259_200_000,
}

/** What all rooms of one node share. */
export interface RoomEnvironment {
  readonly nodeId: string
  readonly clock: Clock
  readonly random: Random
  readonly scheduler: Scheduler
  readonly codecs: Codecs
  readonly format: JournalFormat
  readonly records: RoomRecords
  readonly metrics: RoomMetrics
  readonly tracer: Tracer
  readonly limits: RoomLimits
  /** Is told of every turn of room logic. */
  readonly turns: Turns
  readonly historyBudget: HistoryBudget
  /** Whether players are told what failing room logic threw; for development. */
  readonly revealFailures: boolean
  /** Takes a message to an edge. */
  readonly deliver: (edge: string, message: ToEdge) => void
  /** From when on a room that the store has lost may be written again, on the monotonic clock: until then a later owner may say so. */
  readonly rewritesAllowedAt: () => number
  /** Whether this node may act for its rooms at this moment (its lease is valid). Asked before each apply and each emit. */
  readonly mayAct: () => boolean
}
