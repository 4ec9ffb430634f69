import type { ClientRecord, History } from './history.ts'
import type { Ownership, Ownerships } from './ownership.ts'
import type { Violation } from './violation.ts'

/** A change is saved within a second of the moment it was seen; the rest is the way there on a busy machine. */
export const SAVED_WITHIN_MS = 1500
/** From the first to the last update that a crash takes back: a second that was not saved, the lease in which the owner may go on, and the way. */
export const MOST_LOST_MS = 3000

/** How far a crash may take a snapshot room back: to what was saved about a second before the faults began that led to it. */
export function checkRollbacks(history: History, ownerships: Ownerships): Violation[] {
  const frames = new Map<string, Frame[]>()
  for (const record of history.clients)
    if (record.kind === 'frame') {
      const ofRoom = frames.get(record.room)
      if (ofRoom) ofRoom.push(record)
      else frames.set(record.room, [record])
    }
  return history.rooms
    .filter(({ durability }) => durability === 'snapshot')
    .flatMap(({ room }) =>
      ownerships.crashes(room).flatMap((crash) => checkCrash(crash, ownerships, frames.get(room) ?? [])),
    )
}

type Frame = Extract<ClientRecord, { kind: 'frame' }>

function checkCrash(
  { claim, previous, base, outage }: Ownership,
  ownerships: Ownerships,
  frames: readonly Frame[],
): Violation[] {
  const saved = base?.content?.seq ?? 0
  const lost = frames.filter(({ epoch, seq }) => epoch === previous?.epoch && seq > saved)
  if (lost.length === 0 || outage === undefined || !previous) return []
  const { room } = claim
  // Of each update when it was seen first.
  const firstSeen = new Map<number, number>()
  for (const { seq, at } of lost) firstSeen.set(seq, Math.min(at, firstSeen.get(seq) ?? at))
  const from = Math.min(...firstSeen.values())
  const to = Math.max(...firstSeen.values())
  const report = (message: string): Violation[] => [
    { name: 'rollback_too_far', at: claim.ended, room, message },
  ]
  const what = `epoch ${claim.epoch} goes on from seq ${saved}; what it lost was seen`
  if (from < outage - SAVED_WITHIN_MS)
    return report(
      `${what} from ${Math.round(outage - from)} ms before any fault, at most ${SAVED_WITHIN_MS} ms may go`,
    )
  const moving = to - from - ownerships.frozen(previous.node, from, to)
  if (moving <= MOST_LOST_MS) return []
  return report(`${what} for ${Math.round(moving)} ms in which it moved, at most ${MOST_LOST_MS} ms may go`)
}
