import { CLOSE, closeName } from '../../../shared/protocol/close-codes.ts'
import type { Excuses } from './excuses.ts'
import type { History } from './history.ts'
import type { Violation } from './violation.ts'

/** Nobody is sent away for good, and nobody loses a seat, unless a fault that was drawn explains it. */
export function checkClients(history: History, excuses: Excuses): Violation[] {
  const found: Violation[] = []
  const sessions = new Map<string, string>()
  const edges = new Map<string, string>()
  const joinedAt = new Map<string, number>()
  const epochs = new Map<string, number>()
  const seated = new Set<string>()
  for (const record of history.clients) {
    const { at, client, kind } = record
    if (kind === 'connected') edges.set(client, record.node)
    else if (kind === 'welcome') {
      sessions.set(client, record.session)
      edges.set(client, record.node)
    } else if (kind === 'joined') {
      joinedAt.set(client, at)
      epochs.delete(client)
      seated.add(client)
    } else if (kind === 'frame') {
      epochs.set(client, record.epoch)
    } else if (kind === 'raced') {
      const message = `${record.winners} connections were welcome with one token, and stayed`
      found.push({ name: 'resumed_twice', at, client, message })
    } else if (kind === 'closed' && !record.asked) {
      const { code, reason, superseded = false } = record
      const name = closeName(code)
      if (name === undefined || CLOSE[name].retry === 'resume') continue
      const session = sessions.get(client) ?? ''
      if (excuses.close({ code, client, session, seated: seated.has(client), superseded }, at)) continue
      found.push({ name: 'closed_without_cause', at, client, message: `closed with ${code} (${reason})` })
    } else if (kind === 'lost') {
      seated.delete(client)
      if (record.why !== 'seat') continue
      const { room, member } = record
      const seat = {
        room,
        member,
        joined_at: joinedAt.get(client) ?? 0,
        epoch: epochs.get(client) ?? 0,
      }
      if (excuses.seat(seat, edges.get(client) ?? '', at)) continue
      const message = 'the server knows no seat of the member any more'
      found.push({ name: 'seat_lost', at, room, member, client, message })
    }
  }
  return found
}
