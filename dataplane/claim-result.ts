import type { ErrorCode } from '../shared/protocol/error-codes.ts'
import type { Claim, RoomOwner } from '../shared/store/port.ts'

/** How a room is asked for. */
export interface ClaimOptions {
  /** On whose account (`Session.principal`) the room is made when it is nowhere yet; undefined: it is not to be made. */
  readonly creator?: string | undefined
  /** Whether its owner is dead when its lease has run out, and not before. */
  readonly byLease?: boolean
  /** The version of the room type's state that the claimant has code for; default 1. */
  readonly stateVersion?: number
  /** The last answer of the store about the room: the first attempt does not ask again where it can be relied on. */
  readonly seen?: Inspection | undefined
  /** The spans of the joins and attaches that wait for the room by now. */
  readonly askedBy?: () => readonly string[]
}

/** Answer of the store about the owner of a room. */
export interface Inspection {
  /** Undefined: the store has no record of the room. */
  readonly record: RoomOwner | undefined
  /** When the store was asked, on the monotonic clock. */
  readonly askedAt: number
}

/** The room is nowhere, and may not be made: for the client who asked for it. */
export interface RefusedRoom {
  readonly refused: Extract<ErrorCode, 'rate_limited' | 'project_full' | 'too_many_rooms'>
  readonly message: string
}

/**
 * What came of asking for a room: it is this node's (`from`: taken from a dead one), a living node owns it (`elsewhere`), too many are
 * made, or there (`refused`), there is none, and none was to be made (`absent`), its state is
 * of a newer version than the claimant knows (`newer`), or the store does not answer (`unavailable`).
 */
export type ClaimResult =
  | (Claim & { readonly from?: string })
  | { readonly elsewhere: string }
  | RefusedRoom
  | 'absent'
  | 'newer'
  | 'unavailable'
