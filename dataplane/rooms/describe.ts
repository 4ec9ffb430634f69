import type { Clock } from '../../shared/clock.ts'
import { hasText, type MemberDescription, type RoomDescription, type RoomQuery } from '../descriptions.ts'
import { roomName } from '../traffic.ts'
import type { JournalFormat } from './journal.ts'
import { recentEvents } from './recent.ts'
import type { Room } from './room.ts'
import type { Seat } from './seat.ts'

/** Whether a query is for a room. */
export const isAskedFor = (room: Room, { room_id, project_id, q }: RoomQuery): boolean =>
  (room_id === undefined || room.room_id === room_id) &&
  (project_id === undefined || room.address.project_id === project_id) &&
  hasText(q, namesIn(room))

function* namesIn(room: Room): Iterable<string | null> {
  yield roomName(room.address)
  for (const { member, session_id } of room.seats) {
    yield member.sub
    yield member.member_id
    yield session_id
  }
}

/** The room as its members know it: state, seq and checksum are those of the last delivered flush. */
export function describeRoom(
  room: Room,
  query: Pick<RoomQuery, 'include_state' | 'include_events' | 'members'>,
  { format, clock }: { readonly format: JournalFormat; readonly clock: Clock },
): RoomDescription {
  const { project_id, room_type, key } = room.address
  const { seq, checksum, state } = room.delivered
  const { members: most = Number.POSITIVE_INFINITY } = query
  const members: MemberDescription[] = []
  let connected_count = 0
  for (const seat of room.seats) {
    if (seat.attached) connected_count++
    if (members.length < most) members.push(describeMember(seat))
  }
  return {
    room_id: room.room_id,
    project_id,
    room_type,
    key,
    epoch: room.epoch,
    seq,
    checksum,
    members,
    member_count: room.seats.size,
    connected_count,
    ...(query.include_state && { state }),
    ...(query.include_events && { events: recentEvents(room.history, format, clock) }),
  }
}

const describeMember = ({ member, session_id, attached, edge }: Seat): MemberDescription => ({
  member_id: member.member_id,
  session_id,
  sub: member.sub,
  connected: attached,
  node_id: edge,
})
