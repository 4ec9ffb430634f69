import type { CommitTimes } from './commit-times.ts'
import type { ClientRecord, History } from './history.ts'
import type { Violation, ViolationName } from './violation.ts'

/** All processes of a run read one monotonic clock, and write the answer of the store down before they act on it: a millisecond is for rounding. */
export const CLOCK_TOLERANCE_MS = 1

/** In a journal room members see what the store has, nothing else, and not before it is certain that the store has it. */
export function checkCommits({ clients, rooms }: History, times: CommitTimes): Violation[] {
  const journals = new Set(rooms.filter(({ durability }) => durability === 'journal').map(({ room }) => room))
  return clients.flatMap((record) =>
    record.kind === 'frame' && journals.has(record.room) ? checkFrame(record, times) : [],
  )
}

function checkFrame(frame: Extract<ClientRecord, { kind: 'frame' }>, times: CommitTimes): Violation[] {
  const { room, member, client, at, seq, checksum, op, t } = frame
  const report = (name: ViolationName, message: string): Violation[] => [
    { name, at, room, member, client, message },
  ]
  if (checksum === undefined && !op) return []
  const what =
    checksum === undefined
      ? `the event of ref ${op?.ref} of ${op?.by}`
      : `${t} ${seq} with checksum ${checksum}`
  const from =
    checksum === undefined ? times.ofOp(room, op!.by, op!.ref) : times.ofUpdate(room, { seq, checksum })
  if (from === undefined) return report('uncommitted_update', `${what} is in no commit`)
  if (from <= at + CLOCK_TOLERANCE_MS) return []
  return report('shown_early', `${what} came ${Math.ceil(from - at)} ms before its commit was certain`)
}
