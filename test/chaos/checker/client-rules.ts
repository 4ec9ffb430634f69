import { CLOSE, closeName } from '../../../shared/protocol/close-codes.ts'
import type { ClientRecord, Durability, History } from './history.ts'
import type { Ownerships } from './ownership.ts'
import type { Violation } from './violation.ts'

/** Nobody is sent away for good, and nobody loses a seat, unless a fault that was drawn explains it. */
export function checkClients(history: History, ownerships: Ownerships): Violation[] {
  const durability = new Map(history.rooms.map(({ room, durability }) => [room, durability]))
  const clients = new Map<string, Client>()
  for (const record of history.clients) {
    let client = clients.get(record.client)
    if (!client) {
      client = new Client(ownerships, durability)
      clients.set(record.client, client)
    }
    client.take(record)
  }
  return [...clients.values()].flatMap(({ found }) => found)
}

class Client {
  readonly found: Violation[] = []
  readonly #ownerships: Ownerships
  readonly #durability: ReadonlyMap<string, Durability>
  #session_at = 0

  constructor(ownerships: Ownerships, durability: ReadonlyMap<string, Durability>) {
    this.#ownerships = ownerships
    this.#durability = durability
  }

  take(record: ClientRecord): void {
    if (record.kind === 'welcome' && !record.resumed) this.#session_at = record.at
    else if (record.kind === 'raced') {
      const message = `${record.winners} connections were welcome with one token, and stayed`
      this.found.push({ name: 'resumed_twice', at: record.at, client: record.client, message })
    } else if (record.kind === 'closed') this.#closed(record)
    else if (record.kind === 'lost' && record.why === 'seat') this.#lost(record)
  }

  #closed(record: Extract<ClientRecord, { kind: 'closed' }>): void {
    const { code, reason, asked, at, client } = record
    const name = closeName(code)
    if (asked || name === undefined || CLOSE[name].retry === 'resume' || this.#explains(code, client, at))
      return
    const message = `closed with ${code} (${reason})`
    this.found.push({ name: 'closed_without_cause', at, client, message })
  }

  #explains(code: number, client: string, at: number): boolean {
    if (code === CLOSE.session_taken_over.code)
      return this.#ownerships.fault('race', { from: at, to: at }, client) !== undefined
    if (code === CLOSE.resume_failed.code)
      return this.#ownerships.fault('redis_lost', { from: this.#session_at, to: at }) !== undefined
    return false
  }

  #lost({ room, member, at, client }: Extract<ClientRecord, { kind: 'lost' }>): void {
    const durability = this.#durability.get(room) ?? 'none'
    const since = { from: this.#session_at, to: at }
    if (this.#ownerships.losses(room).some(({ claim }) => claim.ended >= since.from && claim.began <= at))
      return
    if (this.#ownerships.fault('redis_lost', since)) return
    if (durability !== 'journal' && this.#ownerships.mayForget(room, since, durability === 'none')) return
    const message = 'the server knows no seat of the member any more'
    this.found.push({ name: 'seat_lost', at, room, member, client, message })
  }
}
