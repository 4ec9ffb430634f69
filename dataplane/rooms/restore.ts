import type { Json } from '../../shared/json.ts'
import type { Claim } from '../../shared/store/port.ts'
import { apply } from '../../shared/sync/apply.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { type JournalFormat, type RoomSnapshot, UnreadableRecord } from './journal.ts'
import { type SeatRecord, withRefusal } from './seat.ts'
import type { Update } from './update.ts'

/**
 * The room that a claim found: its last snapshot and everything committed since. Undefined for a room that never was, or has ended.
 * Throws UnreadableRecord when the record is damaged, or is not what its checksum says.
 */
export function restore({ snapshot, journal }: Claim, format: JournalFormat): RoomSnapshot | undefined {
  // An empty one stands for a room that was handed over and is kept nowhere since.
  if (!snapshot?.length) {
    if (journal.length === 0) return undefined
    throw new UnreadableRecord(`a room record has ${journal.length} journal entries but no snapshot`)
  }
  const base = format.readSnapshot(snapshot)
  const updates = [...base.updates]
  const seats = new Map(base.seats.map((seat) => [seat.member.member_id, seat]))
  let state: Json = base.state
  let { epoch, seq, checksum } = base
  for (const bytes of journal) {
    const update = format.readEntry(bytes)
    if (update.seq !== seq + (update.visible ? 1 : 0))
      throw new UnreadableRecord(`a journal entry has seq ${update.seq} behind seq ${seq}`)
    if (update.delta) state = apply(state, update.delta)
    seatMembers(seats, update)
    if (update.visible) updates.push(bytes)
    ;({ epoch, seq, checksum } = update)
  }
  const found = new Checksum().of(state)
  if (found !== checksum)
    throw new UnreadableRecord(`the restored state has checksum ${found}, but ${checksum} was committed`)
  return { epoch, seq, checksum, state, seats: [...seats.values()], base: base.base, updates }
}

function seatMembers(seats: Map<string, SeatRecord>, { joined, left, acks, refused }: Update): void {
  for (const { member } of left) seats.delete(member.member_id)
  for (const seat of joined) seats.set(seat.member.member_id, seat)
  for (const [member_id, last_ref] of acks) {
    const seat = seats.get(member_id)
    if (seat) seats.set(member_id, { ...seat, last_ref })
  }
  for (const { member_id, ...refusal } of refused) {
    const seat = seats.get(member_id)
    if (seat) seats.set(member_id, { ...seat, refused: withRefusal(seat.refused, refusal) })
  }
}
