import type { RoomDescription } from '../descriptions.ts'
import type { Room } from './room.ts'

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
