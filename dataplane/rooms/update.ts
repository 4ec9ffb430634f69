import type { Json } from '../../shared/json.ts'
import type { LeaveReason } from '../../shared/protocol/messages.ts'
import type { Delta } from '../../shared/sync/delta.ts'
import type { RefusedRef } from '../traffic.ts'
import type { Member } from './definition.ts'
import type { SeatRecord } from './seat.ts'

/** A room-defined event of one flush. */
export interface RoomEvent {
  readonly name: string
  readonly data: Json
  /** Member ids; undefined: everybody. */
  readonly to: readonly string[] | undefined
}

/** How far the messages of a member are settled. */
export interface Ack {
  readonly member_id: string
  /** The highest ref that is settled. */
  readonly ref: number
  /** The highest ref of which it is forgotten whether it was refused. */
  readonly forgotten: number
}

/** A message of a member that was refused. */
export interface Refusal extends RefusedRef {
  readonly member_id: string
}

/** Somebody who is no longer in the room. */
export interface Departure {
  readonly member: Member
  readonly reason: LeaveReason
}

/**
 * What one flush did to a room: everything that members are told, that the journal records, and that a resume replays. Immutable and
 * free of anything that lives in this process only.
 */
export interface Update {
  readonly epoch: number
  /** One more than the update before when members can see it, otherwise the same. */
  readonly seq: number
  /** Whether members can see it; otherwise it carries acks only. */
  readonly visible: boolean
  /** Of the state after it. */
  readonly checksum: number
  readonly delta: Delta | undefined
  readonly events: readonly RoomEvent[]
  readonly joined: readonly SeatRecord[]
  readonly left: readonly Departure[]
  readonly acks: readonly Ack[]
  /** Those among the refs of `acks`, since the update before, that were refused, in the order of their refs. */
  readonly refused: readonly Refusal[]
}
