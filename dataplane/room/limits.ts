import { LIMITS } from '../../shared/limits.ts'
import { MAX } from '../../shared/protocol/messages.ts'
import type { RoomMetrics } from './metrics.ts'

/** Limits of the history that a room keeps for resumes. */
export interface HistoryLimits {
  readonly entries: number
  readonly bytes: number
}

/** Limits of the outcomes that are kept for one member until its client confirms them. */
export interface OutcomeLimits {
  readonly messages: number
  readonly bytes: number
}

/** Maximum number of entries of each kind that a room keeps. */
export interface KeptLimits {
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
  /** Players that the room bans. */
  readonly bans: number
  /** Hidden layers that are shown to one member. */
  readonly layers: number
  /** Kicks of one turn, and layers that it shows or hides, together. */
  readonly effects: number
  /** Members whose role one turn changes. */
  readonly roles: number
}

/** Limits of every room of a node. */
export interface RoomLimits extends KeptLimits {
  /** History kept for resumes. */
  readonly history: HistoryLimits
  /** Bytes of the histories of all rooms of the node together. */
  readonly historyBytes: number
  /**
   * Messages that wait while a room cannot act. If there are more, edges keep the reliable ones, and others are dropped. Their clients get
   * `room_unavailable` at most once a second.
   */
  readonly waitingMessages: number
  /** Outcomes of one member's messages that are kept until its client confirms them. */
  readonly unconfirmed: OutcomeLimits
  /** Events of one turn, and bytes of one event and of all events of a turn, as `bytesOf` counts them. */
  readonly events: { readonly turn: number; readonly bytes: number; readonly turnBytes: number }
  /** Bytes of the state, as `LiveState` counts them. */
  readonly stateBytes: number
  /** Bytes of the options of a join, as JSON, in a room type with spectators, which keeps them. */
  readonly optionsBytes: number
  /** How long `admit` may take. */
  readonly admitMs: number
  /** How long `admit` may take for all players of a match together. */
  readonly matchAdmitMs: number
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
  bans: 1000,
  layers: 1024,
  effects: 100_000,
  roles: 100,
  events: {
    turn: LIMITS.maxTurnEvents.value,
    bytes: LIMITS.maxEventBytes.value,
    turnBytes: LIMITS.maxTurnEventBytes.value,
  },
  stateBytes: 8 * 1024 * 1024,
  optionsBytes: 1024,
  admitMs: 5000,
  matchAdmitMs: 8000,
  loadMs: 10_000,
  saveToMs: 30_000,
  detachedMs: 120_000,
  movesMs: 20_000,
  snapshotMs: 700,
  journalEntries: 512,
  journalBytes: 256 * 1024,
  recordTtlMs: 600_000,
  quarantineTtlMs: 259_200_000,
}

/** A part of a node that counts reached limits. */
export interface Limited {
  readonly limits: RoomLimits
  readonly metrics: RoomMetrics
}

/** Returns true if a room, or one of its members, may have `number` entries of a kind. Otherwise counts the reached limit. */
export function mayHave(
  { limits, metrics }: Limited,
  roomType: string,
  limit: keyof KeptLimits,
  number: number,
): boolean {
  if (number <= limits[limit]) return true
  metrics.limitsReached.inc({ room_type: roomType, limit })
  return false
}
