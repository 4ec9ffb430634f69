import type { Json } from '../../shared/json.ts'
import type { Claim } from '../../shared/store/port.ts'
import { apply } from '../../shared/sync/apply.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import type { RefusedRef } from '../traffic.ts'
import { type JournalFormat, NewerRecord, type RoomSnapshot, UnreadableRecord } from './journal.ts'
import type { SeatRecord } from './seat.ts'
import type { Update } from './update.ts'

/** A room as its record has it, read to the end: nothing of it is decoded for the first time later. */
export interface RestoredRoom extends RoomSnapshot {
  /** What `updates` say. */
  readonly history: readonly Update[]
}

/**
 * The room that a claim found: its last snapshot and everything committed since. Undefined for a room that never was, or has ended.
 * Throws UnreadableRecord when the record is damaged, or is not what its checksum says, and NewerRecord when it can be read elsewhere.
 */
export function restore(claim: Claim, format: JournalFormat): RestoredRoom | undefined {
  try {
    return readRecord(claim, format)
  } catch (error) {
    if (error instanceof UnreadableRecord || error instanceof NewerRecord) throw error
    throw new UnreadableRecord('the parts of a room record do not fit each other', { cause: error })
  }
}

function readRecord({ snapshot, journal }: Claim, format: JournalFormat): RestoredRoom | undefined {
  // An empty one stands for a room that was handed over and is kept nowhere since.
  if (!snapshot?.length) {
    if (journal.length === 0) return undefined
    throw new UnreadableRecord(`a room record has ${journal.length} journal entries but no snapshot`)
  }
  const whole = format.readSnapshot(snapshot)
  const updates = [...whole.updates]
  const history = updates.map((bytes) => format.readEntry(bytes))
  requireGapFree(whole, history)
  const seats = new Map(whole.seats.map((seat) => [seat.member.member_id, open(seat)]))
  let state: Json = whole.state
  let { epoch, seq, checksum } = whole
  for (const bytes of journal) {
    const update = format.readEntry(bytes)
    if (update.seq !== seq + (update.visible ? 1 : 0))
      throw new UnreadableRecord(`a journal entry has seq ${update.seq} behind seq ${seq}`)
    if (update.delta) state = apply(state, update.delta)
    seatMembers(seats, update)
    if (update.visible) {
      updates.push(bytes)
      history.push(update)
    }
    ;({ epoch, seq, checksum } = update)
  }
  const found = new Checksum().of(state)
  if (found !== checksum)
    throw new UnreadableRecord(`the restored state has checksum ${found}, but ${checksum} was committed`)
  return { epoch, seq, checksum, state, seats: [...seats.values()], base: whole.base, updates, history }
}

function requireGapFree({ base, seq }: RoomSnapshot, history: readonly Update[]): void {
  let last = base.seq
  for (const update of history) {
    if (!update.visible || update.seq !== last + 1)
      throw new UnreadableRecord(`the history of a snapshot has seq ${update.seq} behind seq ${last}`)
    last = update.seq
  }
  if (last !== seq)
    throw new UnreadableRecord(`the history of a snapshot ends at seq ${last}; the snapshot is at ${seq}`)
}

function seatMembers(seats: Map<string, RestoredSeat>, { joined, left, acks, refused }: Update): void {
  for (const { member } of left) seats.delete(member.member_id)
  for (const seat of joined) seats.set(seat.member.member_id, open(seat))
  for (const { member_id, ref, forgotten } of acks) {
    const seat = seats.get(member_id)
    if (seat) seats.set(member_id, { ...seat, last_ref: ref, forgotten })
  }
  for (const { member_id, ...refusal } of refused) {
    const seat = seats.get(member_id)
    // Whoever joined with this very update has it already.
    if (seat && refusal.ref > (seat.refused.at(-1)?.ref ?? 0)) seat.refused.push(refusal)
  }
}

/** A seat while its journal is read. */
interface RestoredSeat extends SeatRecord {
  readonly refused: RefusedRef[]
}

const open = (seat: SeatRecord): RestoredSeat => ({ ...seat, refused: [...seat.refused] })
