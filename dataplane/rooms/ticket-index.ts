import type { Json } from '../../shared/json.ts'
import { PARTY_CODE } from '../../shared/protocol/messages.ts'
import type { Matcher, MatchTicket, Unit } from './matcher.ts'

/** Maximum number of waiting tickets of a shard. */
const MAX_SHARD_TICKETS = 5000
/** Minimum and maximum time for which tickets are left out after their match has failed, milliseconds. It doubles with each failure. */
const REST_MS = 1000
const MAX_REST_MS = 60_000
/** Interval of the log lines about a rule that fails, milliseconds. */
const QUIET_MS = 10_000

/** A ticket in the record of its queue, by the name of its player. */
export interface TicketRow {
  readonly member: string
  readonly ticket: Json
  /** Hash of the data that the client has given. Absent: it is `ticket`. */
  readonly given?: string
  readonly since: number
  /** Code of its party. Absent: the player queues alone. */
  readonly party?: string
  /** Key of the room of its match, from the turn that has made it until the room of the match has answered. */
  readonly order?: string
}

/** A ticket in memory. */
export interface IndexedTicket extends MatchTicket<Json> {
  readonly member: string
  readonly given: string | undefined
  readonly party: string | undefined
  readonly shard: string
  ordered: boolean
}

/** What a queue keeps in memory of its tickets, so that a turn costs what it changes. It is made of the state, and is no part of it. */
export class TicketIndex {
  /** Matches whose room has not answered. */
  orders = 0
  /** See `QueueState.changes`. */
  changes = 0
  /** When the members were told of the number of tickets. */
  toldAt = Number.NEGATIVE_INFINITY
  readonly #tickets = new Map<string, IndexedTicket>()
  readonly #byMember = new Map<string, string>()
  readonly #parties = new Map<string, Set<string>>()
  /** By unit, how often its match has failed. It is left out until then; undefined: it is not. */
  readonly #rests = new Map<string, { player: string; failures: number; until: number | undefined }>()
  readonly #shards = new Map<string, { readonly matcher: Matcher<Json>; tickets: number }>()
  readonly #expiring: { readonly player: string; readonly at: number }[] = []
  readonly #logged = new Map<string, number>()

  get size(): number {
    return this.#tickets.size
  }

  /** Names and matchers of the shards. The one that was served last is the last. */
  get shards(): (readonly [name: string, matcher: Matcher<Json>])[] {
    return [...this.#shards].map(([name, { matcher }]) => [name, matcher])
  }

  /** The other shards are before this one at the next look. */
  served(name: string): void {
    const shard = this.#shards.get(name)
    if (!shard) return
    this.#shards.delete(name)
    this.#shards.set(name, shard)
  }

  get incompleteParties(): string[] {
    return [...this.#parties.keys()].filter((code) => this.partyOf(code).size < sizeOfParty(code))
  }

  isFull(shard: string): boolean {
    return (this.#shards.get(shard)?.tickets ?? 0) >= MAX_SHARD_TICKETS
  }

  /** Players of a party that have tickets. */
  partyOf(code: string): ReadonlySet<string> {
    return this.#parties.get(code) ?? new Set()
  }

  ticketOf(player: string): IndexedTicket | undefined {
    return this.#tickets.get(player)
  }

  playerOf(memberId: string): string | undefined {
    return this.#byMember.get(memberId)
  }

  /** Adds a ticket, or one that waits again. Returns its unit and matcher if all tickets of the unit wait. */
  add(
    ticket: MatchTicket<Json>,
    { member, given, party, order }: TicketRow,
    shardOf: () => string,
    newMatcher: () => Matcher<Json>,
  ): { readonly id: string; readonly matcher: Matcher<Json> } | undefined {
    this.changes++
    let known = this.#tickets.get(ticket.id)
    if (!known) {
      known = { ...ticket, member, given, party, shard: shardOf(), ordered: order !== undefined }
      this.#tickets.set(ticket.id, known)
      this.#byMember.set(member, ticket.id)
      const shard = this.#shards.get(known.shard) ?? { matcher: newMatcher(), tickets: 0 }
      this.#shards.set(known.shard, shard)
      shard.tickets++
      if (party !== undefined) this.#parties.set(party, new Set([...this.partyOf(party), ticket.id]))
    }
    return this.#enter(known)
  }

  /** Leaves the units of these players out for a time: their match has failed. The random part separates a unit from one that always fails. */
  rest(players: readonly string[], { now, random }: { readonly now: number; random(): number }): void {
    this.changes++
    for (const [id, player] of new Map(
      players.map((player) => [unitId(this.#tickets.get(player)!), player]),
    )) {
      const { failures } = this.#rests.get(id) ?? { failures: 0 }
      const longest = Math.min(REST_MS * 2 ** failures, MAX_REST_MS)
      const until = now + REST_MS + (longest - REST_MS) * random()
      this.#rests.set(id, { player, failures: failures + 1, until })
    }
  }

  /** Adds the units again that have been left out for long enough. */
  wake(now: number): void {
    for (const rest of this.#rests.values()) {
      // Longer than any rest: the clock has gone back.
      const isOver = rest.until !== undefined && (rest.until <= now || rest.until - now > MAX_REST_MS)
      if (!isOver) continue
      this.changes++
      rest.until = undefined
      this.#enter(this.#tickets.get(rest.player)!)
    }
  }

  #enter(ticket: IndexedTicket): { readonly id: string; readonly matcher: Matcher<Json> } | undefined {
    const unit = this.#unitOf(ticket)
    if (!unit || this.#rests.get(unit.id)?.until !== undefined) return undefined
    // Tickets of a party may be of several shards: that of the first counts.
    const { matcher } = this.#shards.get(this.#tickets.get(unit.tickets[0]!.id)!.shard)!
    if (!matcher.has(unit.id)) matcher.add(unit)
    return { id: unit.id, matcher }
  }

  remove(player: string): void {
    const ticket = this.#tickets.get(player)
    if (!ticket) return
    this.changes++
    const { party, shard, member } = ticket
    for (const { matcher } of this.#shards.values()) matcher.remove(unitId(ticket))
    this.#rests.delete(unitId(ticket))
    this.#tickets.delete(player)
    this.#byMember.delete(member)
    const counted = this.#shards.get(shard)!
    if (--counted.tickets === 0) this.#shards.delete(shard)
    if (party === undefined) return
    const others = [...this.partyOf(party)].filter((other) => other !== player)
    if (others.length > 0) this.#parties.set(party, new Set(others))
    else this.#parties.delete(party)
  }

  setOrdered(player: string, ordered: boolean): void {
    this.changes++
    this.#tickets.get(player)!.ordered = ordered
  }

  /** The match of a player is remembered from `at` on. */
  expires(player: string, at: number): void {
    this.changes++
    this.#expiring.push({ player, at })
  }

  /** Players whose last match was made before `time`. */
  takeExpired(time: number): string[] {
    const expired: string[] = []
    while (this.#expiring[0] && this.#expiring[0].at < time) {
      this.changes++
      const { player } = this.#expiring.shift()!
      if (!this.#expiring.some((later) => later.player === player)) expired.push(player)
    }
    return expired
  }

  mayLog(rule: string, now: number): boolean {
    if (now - (this.#logged.get(rule) ?? Number.NEGATIVE_INFINITY) < QUIET_MS) return false
    this.#logged.set(rule, now)
    return true
  }

  #unitOf(ticket: IndexedTicket): Unit<Json> | undefined {
    const { party } = ticket
    if (party === undefined) return ticket.ordered ? undefined : { id: unitId(ticket), tickets: [ticket] }
    const tickets = [...this.partyOf(party)]
      .map((player) => this.#tickets.get(player)!)
      .sort((one, other) => one.since - other.since || (one.id < other.id ? -1 : 1))
    if (tickets.length < sizeOfParty(party) || tickets.some(({ ordered }) => ordered)) return undefined
    return { id: unitId(ticket), tickets }
  }
}

const unitId = ({ id, party }: { readonly id: string; readonly party: string | undefined }): string =>
  party === undefined ? `ticket ${id}` : `party ${party}`

/** Number of players of a party. */
export const sizeOfParty = (code: string): number => Number(PARTY_CODE.exec(code)?.[1])
