import { CLOSE, closeName } from '../../../shared/protocol/close-codes.ts'
import type { Excuses, Seated } from './excuses.ts'
import type { History } from './history.ts'
import type { Violation } from './violation.ts'

/** Nobody is sent away for good, and nobody loses a seat, unless a fault that was drawn explains it. */
export function checkClients(history: History, excuses: Excuses): Violation[] {
  const found: Violation[] = []
  const known = new Map<string, Known>()
  for (const record of history.clients) {
    const { at, client, kind } = record
    const { session, edge, seat } = known.get(client) ?? NOTHING_KNOWN
    const learn = (news: Partial<Known>) => known.set(client, { session, edge, seat, ...news })
    if (kind === 'connected') learn({ edge: record.node })
    else if (kind === 'welcome') learn({ session: record.session, edge: record.node })
    else if (kind === 'joined')
      learn({ seat: { room: record.room, member: record.member, joined_at: at, epoch: 0 } })
    else if (kind === 'frame' && seat) learn({ seat: { ...seat, epoch: record.epoch } })
    else if (kind === 'raced') {
      const message = `${record.winners} connections were welcome with one token, and stayed`
      found.push({ name: 'resumed_twice', at, client, message })
    } else if (kind === 'closed' && !record.asked) {
      const { code, reason, superseded = false } = record
      const name = closeName(code)
      if (name === undefined || CLOSE[name].retry === 'resume') continue
      // A client that hears nothing of its seat's end may hear first that its session has ended with it.
      const seated = seat !== undefined && !excuses.seat(seat, edge, at)
      if (excuses.close({ code, client, session, seated, superseded }, at)) continue
      found.push({ name: 'closed_without_cause', at, client, message: `closed with ${code} (${reason})` })
    } else if (kind === 'lost') {
      learn({ seat: undefined })
      if (record.why !== 'seat') continue
      const { room, member } = record
      if (excuses.seat({ ...(seat ?? NEVER_JOINED), room, member }, edge, at)) continue
      const message = 'the server knows no seat of the member any more'
      found.push({ name: 'seat_lost', at, room, member, client, message })
    }
  }
  return found
}

/** What a client knows. */
interface Known {
  readonly session: string
  /** The node that it was at last. */
  readonly edge: string
  readonly seat: Seated | undefined
}

const NOTHING_KNOWN: Known = { session: '', edge: '', seat: undefined }
const NEVER_JOINED = { joined_at: 0, epoch: 0 }
