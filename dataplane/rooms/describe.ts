import type { Json } from '../../shared/json.ts'
import type { Room } from './room.ts'

/** A room as operators see it. */
export interface RoomDescription {
  /** `type:key`, as clients see it. */
  readonly room_id: string
  readonly project_id: string
  readonly room_type: string
  readonly key: string
  readonly epoch: number
  readonly seq: number
  readonly checksum: number
  readonly members: readonly MemberDescription[]
  /** Only when asked for. */
  readonly state?: Json
}

export interface MemberDescription {
  readonly member_id: string
  readonly session_id: string
  readonly sub: string | null
  /** Whether a socket is attached; a seat stays for a while without one. */
  readonly connected: boolean
  /** The node that holds, or last held, the socket. */
  readonly node_id: string
}

/** Which rooms to describe, and how far. */
export interface RoomQuery {
  readonly include_state: boolean
  readonly room_id?: string
  readonly project_id?: string
}

/** The room as its members know it: state, seq and checksum are those of the last delivered flush. */
export function describeRoom(room: Room, include_state: boolean): RoomDescription {
  const { project_id, room_type, key } = room.address
  const { seq, checksum, state } = room.delivered
  return {
    room_id: room.room_id,
    project_id,
    room_type,
    key,
    epoch: room.epoch,
    seq,
    checksum,
    members: [...room.seats].map(({ member, session_id, attached, edge }) => ({
      member_id: member.member_id,
      session_id,
      sub: member.sub,
      connected: attached,
      node_id: edge,
    })),
    ...(include_state ? { state } : {}),
  }
}
