import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ResyncReason } from '../../shared/protocol/messages.ts'
import type { TurnHook } from '../watchdog/turns.ts'

/** Why a member got a whole state besides at its join: it asked, its edge dropped patches, or a resume reached back too far. */
export type ResyncCause = ResyncReason | 'stalled' | 'resume'

/** `damaged`: the record cannot be read. `looping`: the room's logic does not come to an end, time after time. */
export type QuarantineCause = 'damaged' | 'looping'

/** What rooms count; ops/ turns it into metrics. Called on the hot path: implementations must be cheap and must not throw. */
export interface RoomMetrics {
  /** A member's message was applied. */
  applied(room_type: string): void
  /** A message, join or leave ended with this error; those of room logic include ticks, which have no one to tell. */
  error(room_type: string, code: ErrorCode): void
  /** A message was refused because its type has a rate. */
  rateLimited(room_type: string): void
  resync(room_type: string, cause: ResyncCause): void
  /** An update was delivered; `seconds` since the first message in it arrived. */
  delivered(room_type: string, seconds: number): void
  /** A write of a room's record was answered. */
  committed(seconds: number): void
  /** A turn of a room did not end, and its owner did; counted by who claims the room. */
  stuck(room_type: string, hook: TurnHook): void
  /** A write was refused because another node owns the room. */
  fenced(): void
  /** A room stopped because its node may not act (its lease ran out), or the store does not answer. */
  frozen(room_type: string): void
  /** Something came for a room that cannot handle it now, and too much waits already. */
  backlogFull(room_type: string): void
  /** A turn failed since its room has so many tasks in flight, or so large a state. */
  limitReached(room_type: string, limit: 'tasks' | 'state'): void
  /** Updates were forgotten since all histories together held too much. */
  historyDropped(updates: number): void
  /** The record of a room was put aside. */
  quarantined(room_type: string, cause: QuarantineCause): void
  /** How many rooms this node runs, and how many members they have; told whenever it changes. */
  rooms(count: number): void
  members(count: number): void
}

/** Counts nothing. */
export const noRoomMetrics: RoomMetrics = {
  applied() {},
  error() {},
  rateLimited() {},
  resync() {},
  delivered() {},
  committed() {},
  stuck() {},
  fenced() {},
  frozen() {},
  backlogFull() {},
  limitReached() {},
  historyDropped() {},
  quarantined() {},
  rooms() {},
  members() {},
}
