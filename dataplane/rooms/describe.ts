import type { Clock } from '../../shared/clock.ts'
import type { MemberDescription, Query, RoomColumn, RoomDescription, RoomQuery } from '../descriptions.ts'
import { type Order, type Ranking, textFinder } from '../listing.ts'
import { nodeName } from '../node-id.ts'
import { roomName } from '../traffic.ts'
import type { JournalFormat } from './journal.ts'
import { recentEvents } from './recent.ts'
import type { Room } from './room.ts'
import type { Seat } from './seat.ts'
import type { UpdateRates } from './update-rates.ts'

/** Whether a query is for a room, to be asked of many; undefined: it is for all. */
export function roomsAskedFor({ room_id, project_id, q }: Query): ((room: Room) => boolean) | undefined {
  const hasText = textFinder(q)
  if (room_id === undefined && project_id === undefined && !hasText) return undefined
  return (room) =>
    (room_id === undefined || room.room_id === room_id) &&
    (project_id === undefined || room.address.project_id === project_id) &&
    (hasText === undefined || hasName(room, hasText))
}

function hasName(room: Room, hasText: (text: string) => boolean): boolean {
  if (hasText(roomName(room.address))) return true
  for (const { member, session_id } of room.seats)
    if (hasText(member.member_id) || hasText(session_id) || (member.sub !== null && hasText(member.sub)))
      return true
  return false
}

/** The order of rooms by one of their columns. */
export function roomRanking({ by, descending }: Order<RoomColumn>, rates: UpdateRates): Ranking<Room> {
  const keys: Readonly<Record<RoomColumn, Ranking<Room>['key']>> = {
    room: (room) => room.room_id,
    project: (room) => room.address.project_id,
    members: (room) => room.seats.size,
    updates: (room) => rates.of(room),
    seq: (room) => room.delivered.seq,
  }
  return { key: keys[by], descending, name: (room) => room.room_id }
}

/** The room as its members know it: state, seq and checksum are those of the last delivered flush. */
export function describeRoom(
  room: Room,
  query: Pick<RoomQuery, 'include_state' | 'include_events' | 'members'>,
  parts: { readonly format: JournalFormat; readonly clock: Clock; readonly rates: UpdateRates },
): RoomDescription {
  const { format, clock, rates } = parts
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
    updates_per_second: rates.of(room),
    ...(query.include_state && { state }),
    ...(query.include_events && { events: recentEvents(room.history, format, clock) }),
  }
}

const describeMember = ({ member, session_id, attached, edge }: Seat): MemberDescription => ({
  member_id: member.member_id,
  session_id,
  sub: member.sub,
  connected: attached,
  node_id: nodeName(edge),
})
