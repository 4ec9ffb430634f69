import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Clock } from '../../../shared/clock.ts'
import type { Json, JsonObject } from '../../../shared/json.ts'
import { PARTY_CODE } from '../../../shared/protocol/messages.ts'
import { type Rate, RateLimit } from '../../../shared/rate-limit.ts'
import {
  A_SCHEMA,
  A_TYPE,
  checkDefinition,
  isNumber,
  isObject,
  SECONDS,
  type Shape,
  synchronous,
} from '../../room/definition-check.ts'

type Out<S extends StandardSchemaV1> = StandardSchemaV1.InferOutput<S>

/** Player of a new ticket. Both fields come from the token, so the player cannot choose them. */
export interface TicketPlayer {
  /** Player's id from the token; null if the token has none. */
  readonly sub: string | null
  /** Claim `data` of the token, or null. */
  readonly data: JsonObject | null
}

/** Context of `entry`. */
export interface EntryContext {
  /** Refuses the ticket. `matched` rejects with `ticket_refused` and this text. Throws. */
  refuse(message: string): never
}

/** Argument of `defineQueue`. `Kept`: what the queue keeps of a ticket. */
export interface QueueSpec<
  Type extends string,
  Ticket extends StandardSchemaV1,
  Name extends string,
  Kept = Out<Ticket>,
> {
  /** Name of the queue, as for room types: a queue and a room type cannot have the same name. */
  readonly type: Type
  /** Name of the room type of the matches. Its durability must not be `none`. */
  readonly room: Name
  /**
   * Number of players of a match, 1 to 100. With `min` and `max`, a match has `max` players. After the oldest ticket has waited for
   * `waitSeconds`, a match of at least `min` players is made.
   */
  readonly players:
    | number
    | {
        /** Minimum number of players. */
        readonly min: number
        /** Maximum number of players. */
        readonly max: number
        /** Time in seconds after which the oldest ticket is content with `min` players. */
        readonly waitSeconds: number
      }
  /** Schema of the data that the client sends with a ticket, at most 512 bytes of JSON. */
  readonly ticket: Ticket
  /**
   * Returns what the queue keeps of a ticket, at most 512 bytes of JSON: the argument of `near`, `fits`, `options` and `shard`. Called once,
   * when the ticket gets its place. Write it in front of them, because its result decides their types. Default: the data that the client
   * sends.
   */
  readonly entry?: (ticket: Out<Ticket>, player: TicketPlayer, ctx: EntryContext) => Kept
  /**
   * Returns a number by which tickets are compared: a ticket is compared with the 32 tickets whose numbers are nearest. Default: with the
   * 32 tickets that are next in age.
   */
  readonly near?: (ticket: NoInfer<Kept>) => number
  /**
   * Returns true if two tickets can be in the same match. `a` is the older ticket, and `waitedMs` the time that it has waited. Called for
   * each pair of tickets of a match, except two of the same party. If it throws, the pair is skipped and the error is logged. Default: all
   * fit.
   */
  readonly fits?: (a: NoInfer<Kept>, b: NoInfer<Kept>, about: { readonly waitedMs: number }) => boolean
  /** Returns the join options of the new room, at most 512 bytes of JSON. All players of the match join with them. Default: none. */
  readonly options?: (tickets: readonly NoInfer<Kept>[]) => JsonObject
  /** Returns the name of the ticket's shard, for example its region. Tickets of different shards never meet. Default: one shard. */
  readonly shard?: (ticket: NoInfer<Kept>) => string
  /** Seconds after which a ticket without a match ends with `gave_up`. Time without an owner does not count. Default: never. */
  readonly giveUpSeconds?: number
  /** Seconds for which a disconnected player keeps the ticket. Default: `SESSION_RESUME_TTL` of the server (60 s). */
  readonly reconnectSeconds?: number
}

const A_RULE = synchronous('')
const FIELDS: Shape = {
  type: A_TYPE,
  room: A_TYPE,
  players: [isPlayers, '1 to 100, or { min, max, waitSeconds }'],
  ticket: A_SCHEMA,
  'entry?': A_RULE,
  'near?': A_RULE,
  'fits?': A_RULE,
  'options?': A_RULE,
  'shard?': A_RULE,
  'giveUpSeconds?': [(value) => isNumber(value, 1, 86_400), '1 to 86400'],
  'reconnectSeconds?': SECONDS,
}

function isPlayers(value: unknown): boolean {
  if (!isObject(value)) return isPlayerCount(value)
  const { min, max, waitSeconds, ...others } = value
  return (
    Object.keys(others).length === 0 &&
    isPlayerCount(min) &&
    isPlayerCount(max) &&
    (min as number) <= (max as number) &&
    isNumber(waitSeconds, 0, 86_400)
  )
}

const isPlayerCount = (value: unknown): boolean => Number.isSafeInteger(value) && isNumber(value, 1, 100)

/** Throws RoomDefinitionError if `spec` is not valid for `defineQueue`. */
export const checkQueueSpec = (spec: unknown): void =>
  checkDefinition(spec, { call: 'defineQueue', what: 'a queue', name: 'queue', fields: FIELDS })

/** Rules of a queue by which its tickets are matched. */
export interface MatchRules<Ticket> {
  /** See `QueueSpec`. */
  readonly near?: (ticket: Ticket) => number
  readonly fits?: (a: Ticket, b: Ticket, about: { readonly waitedMs: number }) => boolean
  readonly shard?: (ticket: Ticket) => string
  /** Number of players of a match. */
  readonly matchSize: { readonly min: number; readonly max: number }
  /** Time after which a match may have less than `max` players, in milliseconds. */
  readonly waitMs: number
}

/** Failures of the rules since the last report: their number and the first error of each rule. */
export type RuleFailures = Map<'near' | 'fits' | 'shard', { readonly error: unknown; count: number }>

function countFailure(failures: RuleFailures, rule: 'near' | 'fits' | 'shard', error: unknown): void {
  const known = failures.get(rule)
  if (known) known.count++
  else failures.set(rule, { error, count: 1 })
}

/** Maximum number of waiting tickets of a shard. */
const MAX_SHARD_TICKETS = 5000
/** Rate at which members get the number of waiting tickets: one token for each member. */
export const WAITING_SENDS: Rate = { perSecond: 1000, burst: 1000 }
/** Shortest and longest time for which tickets are left out after their match has failed, milliseconds. It doubles with each failure. */
const REST_MS = 1000
const MAX_REST_MS = 60_000
/** Time for which the tickets of a failed or refused match are not put together again, milliseconds. */
const APART_MS = 30_000
/** Failed matches in a row after which a ticket ends, if each had other players. */
const MAX_FAILURES = 3
/** Interval of the log lines about a rule that fails, milliseconds. */
const QUIET_MS = 10_000

/** A ticket in the record of its queue, by the name of its player. */
export interface TicketRow {
  readonly member: string
  /** The result of `entry`, which the queue keeps. */
  readonly ticket: Json
  /** Hash of the data that the client has given. Absent: it is `ticket`. */
  readonly given?: string
  readonly since: number
  /** Queue time at which the ticket gives up, in milliseconds. Absent: never. */
  readonly ends?: number
  /** Code of its party. Absent: the player queues alone. */
  readonly party?: string
  /** Key of the room of its match, from the turn that has made it until the room of the match has answered. */
  readonly order?: string
}

/** A ticket in memory. */
export interface IndexedTicket extends MatchTicket<Json> {
  readonly member: string
  readonly given: string | undefined
  readonly ends: number | undefined
  readonly party: string | undefined
  readonly shard: string
  ordered: boolean
}

/**
 * Index of a queue's tickets in memory, so that the cost of a turn follows its changes. It is built from the state, and is not a part of
 * it.
 */
export class TicketIndex {
  /** Matches whose room has not answered. */
  orders = 0
  /** See `QueueState.changes`. */
  changes = 0
  /** When the queue ran last, in milliseconds since 1970. Undefined: `QueueState.ranAt` has it. */
  ranAt: number | undefined
  /** Limits how often the members get the number of tickets. */
  readonly waitingSends: RateLimit
  readonly failures: RuleFailures = new Map()
  readonly #rules: MatchRules<Json>
  readonly #tickets = new Map<string, IndexedTicket>()
  readonly #byMember = new Map<string, string>()
  readonly #parties = new Map<string, Set<string>>()
  /** By unit: how often its match has failed, and until when it is left out. `until` undefined: it is not left out. */
  readonly #rests = new Map<string, { player: string; failures: number; until: number | undefined }>()
  /** By player: the other players of its matches that have failed in room code, and the number of these matches. */
  readonly #failed = new Map<string, { readonly others: ReadonlySet<string>; readonly times: number }>()
  /** Queue time before which no ticket gives up. */
  #nextEnd = Number.NEGATIVE_INFINITY
  readonly #separations = new Separations()
  readonly #shards = new Map<string, { readonly matcher: Matcher<Json>; tickets: number }>()
  readonly #expiring: { readonly player: string; readonly at: number }[] = []
  readonly #logged = new Map<string, number>()

  constructor(rules: MatchRules<Json>, clock: Clock) {
    this.#rules = rules
    this.waitingSends = new RateLimit(clock, WAITING_SENDS)
  }

  get size(): number {
    return this.#tickets.size
  }

  /** Names and matchers of the shards. The shard that was served last comes last. */
  get shards(): (readonly [name: string, matcher: Matcher<Json>])[] {
    return [...this.#shards].map(([name, { matcher }]) => [name, matcher])
  }

  /** Puts a shard behind the others for the next search. */
  served(name: string): void {
    const shard = this.#shards.get(name)
    if (!shard) return
    this.#shards.delete(name)
    this.#shards.set(name, shard)
  }

  get incompleteParties(): string[] {
    return [...this.#parties.keys()].filter((code) => this.partyOf(code).size < sizeOfParty(code))
  }

  /** True if the shard of a new ticket is full. */
  isFull(ticket: Json): boolean {
    return (this.#shards.get(this.#shardOf(ticket))?.tickets ?? 0) >= MAX_SHARD_TICKETS
  }

  #shardOf(ticket: Json): string {
    try {
      return String(this.#rules.shard?.(ticket) ?? '')
    } catch (error) {
      countFailure(this.failures, 'shard', error)
      return ''
    }
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
    { member, given, ends, party, order }: TicketRow,
  ): { readonly id: string; readonly matcher: Matcher<Json> } | undefined {
    this.changes++
    let known = this.#tickets.get(ticket.id)
    if (!known) {
      const shardName = this.#shardOf(ticket.ticket)
      known = { ...ticket, member, given, ends, party, shard: shardName, ordered: order !== undefined }
      this.#nextEnd = Math.min(this.#nextEnd, ends ?? Number.POSITIVE_INFINITY)
      this.#tickets.set(ticket.id, known)
      this.#byMember.set(member, ticket.id)
      const shard = this.#shards.get(shardName) ?? {
        matcher: new Matcher(this.#rules, this.failures, this.#separations),
        tickets: 0,
      }
      this.#shards.set(shardName, shard)
      shard.tickets++
      if (party !== undefined) this.#parties.set(party, new Set([...this.partyOf(party), ticket.id]))
    }
    return this.#enter(known)
  }

  /** The tickets of these players have no match any more, and wait again. */
  wait(players: readonly string[]): void {
    this.changes++
    for (const player of players) this.#tickets.get(player)!.ordered = false
    for (const player of players) this.#enter(this.#tickets.get(player)!)
  }

  /** Keeps the tickets of a match that has failed or was refused apart for a while. */
  separate(players: readonly string[], now: number): void {
    this.changes++
    this.#separations.add(players, now)
  }

  /** Room code has failed for a match of these players. Returns those who have had enough such matches, each with other players. */
  failed(players: readonly string[]): string[] {
    this.changes++
    const parties = new Map(players.map((player) => [player, this.#tickets.get(player)!.party]))
    return players.filter((player) => {
      const party = parties.get(player)
      const others = players.filter((other) => other !== player && !(party && parties.get(other) === party))
      const before = this.#failed.get(player) ?? { others: new Set(), times: 0 }
      if (others.some((other) => before.others.has(other))) return false
      const times = before.times + 1
      this.#failed.set(player, { others: new Set([...before.others, ...others]), times })
      return times >= MAX_FAILURES
    })
  }

  /** Players whose tickets give up at the queue time `time`. `isAsked`: true if the room of the player's match may still answer. */
  gaveUp(time: number, isAsked: (player: string) => boolean): string[] {
    if (time < this.#nextEnd) return []
    this.#nextEnd = Number.POSITIVE_INFINITY
    const players: string[] = []
    for (const { id, ends = Number.POSITIVE_INFINITY } of this.#tickets.values()) {
      if (ends <= time && !isAsked(id)) players.push(id)
      else this.#nextEnd = Math.min(this.#nextEnd, ends)
    }
    return players
  }

  /**
   * Leaves the units of these players out for a time, because their match has failed. The random part separates a unit from one that always
   * fails.
   */
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

  /** Adds the units again whose time is over. */
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
    // Tickets of a party may belong to several shards. The shard of the first ticket counts.
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
    this.#separations.delete(player)
    this.#failed.delete(player)
    this.#tickets.delete(player)
    this.#byMember.delete(member)
    const counted = this.#shards.get(shard)!
    if (--counted.tickets === 0) this.#shards.delete(shard)
    if (party === undefined) return
    const others = [...this.partyOf(party)].filter((other) => other !== player)
    if (others.length > 0) this.#parties.set(party, new Set(others))
    else this.#parties.delete(party)
  }

  /** The tickets of these players are in a match, whose room has not answered. */
  order(players: readonly string[]): void {
    this.changes++
    for (const player of players) this.#tickets.get(player)!.ordered = true
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

/** A ticket as the rules of a queue compare it. */
export interface MatchTicket<Ticket> {
  /** Name of the player. */
  readonly id: string
  /** Data of the ticket. */
  readonly ticket: Ticket
  /** Time from which on the ticket waits, in milliseconds since 1970. */
  readonly since: number
}

/** Tickets that are matched together or not at all: one, or those of a complete party. */
export interface Unit<Ticket> {
  /** Unique in its matcher. */
  readonly id: string
  readonly tickets: readonly MatchTicket<Ticket>[]
}

/** A match that was not played, for one of its players. */
interface Separation {
  /** Equal for all players of the match. */
  readonly match: number
  readonly until: number
}

/** Players whose match has failed or was refused. They are not put together again for a while. */
class Separations {
  readonly #of = new Map<string, readonly Separation[]>()
  #matches = 0

  add(players: readonly string[], now: number): void {
    const separation = { match: ++this.#matches, until: now + APART_MS }
    for (const player of players) this.#of.set(player, [...this.#present(player, now), separation])
  }

  delete(player: string): void {
    this.#of.delete(player)
  }

  /** True if a ticket of one unit and a ticket of the other were in the same match. */
  separate(one: Unit<unknown>, other: Unit<unknown>, now: number): boolean {
    // Called for each comparison of a search, and few tickets have had such a match.
    if (!this.#has(one) || !this.#has(other)) return false
    const matches = new Set(this.#matchesOf(one, now))
    return this.#matchesOf(other, now).some((match) => matches.has(match))
  }

  #has({ tickets }: Unit<unknown>): boolean {
    return this.#of.size > 0 && tickets.some(({ id }) => this.#of.has(id))
  }

  #matchesOf({ tickets }: Unit<unknown>, now: number): number[] {
    return tickets.flatMap(({ id }) => this.#present(id, now).map(({ match }) => match))
  }

  /** Longer than any separation: the clock has gone back. */
  #present(player: string, now: number): readonly Separation[] {
    const all = this.#of.get(player) ?? []
    return all.filter(({ until }) => until > now && until - now <= APART_MS)
  }
}

/** Number of tickets with which a ticket is compared. */
export const NEIGHBOURS = 32
/** Maximum number of comparisons for the match of one ticket. */
const GROUP_COMPARISONS = 512
/** Minimum time between the starts of two rounds, milliseconds. */
const ROUND_MS = 1000

/** A unit in the lists of a matcher. */
interface Entry<Ticket> {
  readonly unit: Unit<Ticket>
  /** Time since which its oldest ticket waits. */
  readonly since: number
  readonly near: number
}

/** Order of age. The id makes the order the same for every owner of a queue. */
const byAge = <T>(one: Entry<T>, other: Entry<T>): number =>
  one.since - other.since || (one.unit.id < other.unit.id ? -1 : one.unit.id > other.unit.id ? 1 : 0)

const byNearness = <T>(one: Entry<T>, other: Entry<T>): number => one.near - other.near || byAge(one, other)

/**
 * Finds matches among waiting tickets, the oldest ticket first. It compares a ticket with the tickets that are nearest to it, so the work
 * grows with the number of tickets, not with its square. A round over all tickets is divided into calls of `search` with bounded work.
 */
export class Matcher<Ticket> {
  readonly #rules: MatchRules<Ticket>
  readonly #failures: RuleFailures
  readonly #separations: Separations
  readonly #entries = new Map<string, Entry<Ticket>>()
  readonly #aged: Entry<Ticket>[] = []
  /** In the order of `near`; without that rule, the same list as `#aged`. */
  readonly #nearest: Entry<Ticket>[]
  readonly #order: (one: Entry<Ticket>, other: Entry<Ticket>) => number
  #comparisons = 0
  /** The last unit that the present round has checked. Undefined: no round is running. */
  #cursor: Entry<Ticket> | undefined
  #roundAt = Number.NEGATIVE_INFINITY

  /** `failures`: counts the rules that throw. */
  constructor(rules: MatchRules<Ticket>, failures: RuleFailures, separations = new Separations()) {
    this.#rules = rules
    this.#failures = failures
    this.#separations = separations
    this.#nearest = rules.near ? [] : this.#aged
    this.#order = rules.near ? byNearness : byAge
  }

  /** Number of comparisons so far. */
  get comparisons(): number {
    return this.#comparisons
  }

  /** True if no unit waits for a match. */
  get empty(): boolean {
    return this.#entries.size === 0
  }

  has(id: string): boolean {
    return this.#entries.has(id)
  }

  add(unit: Unit<Ticket>): void {
    const since = Math.min(...unit.tickets.map((ticket) => ticket.since))
    const entry = { unit, since, near: this.#nearOf(unit) }
    this.#entries.set(unit.id, entry)
    insert(this.#aged, entry, byAge)
    if (this.#nearest !== this.#aged) insert(this.#nearest, entry, this.#order)
  }

  /** Returns false if there is no such unit. */
  remove(id: string): boolean {
    const entry = this.#entries.get(id)
    if (!entry) return false
    this.#entries.delete(id)
    this.#aged.splice(indexOf(this.#aged, entry, byAge), 1)
    if (this.#nearest !== this.#aged) this.#nearest.splice(indexOf(this.#nearest, entry, this.#order), 1)
    return true
  }

  /** Removes and returns a match that a new unit makes possible. */
  arrived(id: string, now: number): Unit<Ticket>[] | undefined {
    const entry = this.#entries.get(id)
    if (!entry) return undefined
    if (sizeOf(entry) === this.#rules.matchSize.max) return this.#take(this.#groupOf(entry, now))
    let left = GROUP_COMPARISONS
    for (const other of this.#neighbours(entry)) {
      if (!this.#fits(other, entry, now)) continue
      const before = this.#comparisons
      const match = this.#take(this.#groupOf(other, now))
      if (match) return match
      left -= this.#comparisons - before
      if (left <= 0) break
    }
    return undefined
  }

  /**
   * Removes and returns the matches that it finds with about `comparisons` comparisons. Continues the round of the call before, or starts
   * one at least a second after the start of the last.
   */
  search(now: number, comparisons: number): Unit<Ticket>[][] {
    const matches: Unit<Ticket>[][] = []
    const until = this.#comparisons + comparisons
    let at = this.#cursor ? indexOf(this.#aged, this.#cursor, byAge) : 0
    if (this.#cursor && this.#aged[at] === this.#cursor) at++
    if (!this.#cursor) {
      // The clock may go back.
      if (Math.abs(now - this.#roundAt) < ROUND_MS) return matches
      this.#roundAt = now
    }
    while (this.#comparisons < until) {
      const entry = this.#aged[at]
      this.#cursor = entry
      if (!entry) break
      // Checking an entry counts as a comparison, so that the work is bounded where nothing is compared.
      this.#comparisons++
      const match = this.#take(this.#groupOf(entry, now))
      if (!match) at++
      else {
        matches.push(match)
        at = indexOf(this.#aged, entry, byAge)
      }
    }
    return matches
  }

  #nearOf({ tickets }: Unit<Ticket>): number {
    const { near } = this.#rules
    if (!near) return 0
    let sum = 0
    for (const { ticket } of tickets)
      try {
        const value = Number(near(ticket))
        if (Number.isFinite(value)) sum += value
        else throw new TypeError(`near returned ${value}; it must return a finite number`)
      } catch (error) {
        countFailure(this.#failures, 'near', error)
      }
    return sum / tickets.length
  }

  /** The units that `entry` is compared with, the oldest first. */
  #neighbours(entry: Entry<Ticket>): Entry<Ticket>[] {
    const list = this.#nearest
    const at = indexOf(list, entry, this.#order)
    if (!this.#rules.near) return list.slice(Math.max(0, at - NEIGHBOURS), at)
    let [from, to] = [at, at]
    while (to - from < NEIGHBOURS && (from > 0 || to < list.length - 1)) {
      const below = from > 0 ? entry.near - list[from - 1]!.near : Number.POSITIVE_INFINITY
      const above = to < list.length - 1 ? list[to + 1]!.near - entry.near : Number.POSITIVE_INFINITY
      if (below <= above) from--
      else to++
    }
    return [...list.slice(from, at), ...list.slice(at + 1, to + 1)].sort(byAge)
  }

  /** Returns a match of `first` and the oldest units near it. Undefined: there is none, or the allowed work did not find one. */
  #groupOf(first: Entry<Ticket>, now: number): Entry<Ticket>[] | undefined {
    const { matchSize: players, waitMs, near } = this.#rules
    const size = sizeOf(first)
    // A unit that is a match without others waits as long as others are kept apart.
    const isApart = this.#separations.separate(first.unit, first.unit, now)
    if (size === players.max) return isApart ? undefined : [first]
    const others = near ? this.#neighbours(first) : this.#nextInAge(first)
    const until = this.#comparisons + GROUP_COMPARISONS
    const least = now - first.since >= waitMs ? players.min : players.max
    let best: Entry<Ticket>[] | undefined
    let most = least - 1
    const extend = (group: readonly Entry<Ticket>[], total: number, from: number): void => {
      if (total > most && (group.length > 1 || !isApart)) {
        most = total
        best = [...group]
      }
      for (let i = from; i < others.length && most < players.max && this.#comparisons < until; i++) {
        const other = others[i]!
        const sum = total + sizeOf(other)
        if (sum <= players.max && group.every((member) => this.#fits(member, other, now)))
          extend([...group, other], sum, i + 1)
      }
    }
    extend([first], size, 0)
    return best
  }

  /** Without `near`: the units that are younger than `entry`. */
  #nextInAge(entry: Entry<Ticket>): Entry<Ticket>[] {
    const at = indexOf(this.#aged, entry, byAge)
    return this.#aged.slice(at + 1, at + 1 + NEIGHBOURS)
  }

  /** True if each ticket of one unit fits each ticket of the other. */
  #fits(one: Entry<Ticket>, other: Entry<Ticket>, now: number): boolean {
    const { fits } = this.#rules
    this.#comparisons++
    if (this.#separations.separate(one.unit, other.unit, now)) return false
    if (!fits) return true
    try {
      for (const a of one.unit.tickets)
        for (const b of other.unit.tickets) {
          const [older, younger] = a.since <= b.since ? [a, b] : [b, a]
          const waitedMs = Math.max(0, now - older.since)
          const result: unknown = fits(older.ticket, younger.ticket, { waitedMs })
          if (typeof result !== 'boolean') throw notBoolean(result)
          if (!result) return false
        }
      return true
    } catch (error) {
      countFailure(this.#failures, 'fits', error)
      return false
    }
  }

  #take(group: readonly Entry<Ticket>[] | undefined): Unit<Ticket>[] | undefined {
    for (const { unit } of group ?? []) this.remove(unit.id)
    return group?.map(({ unit }) => unit)
  }
}

/** Error for a result of `fits`. A promise among them is not awaited, and may fail. */
function notBoolean(result: unknown): TypeError {
  const isPromise = typeof (result as { then?: unknown } | null | undefined)?.then === 'function'
  if (isPromise) Promise.resolve(result).catch(() => {})
  return new TypeError(
    `fits returned ${isPromise ? 'a promise' : typeof result}; it must return true or false`,
  )
}

const sizeOf = <T>({ unit }: Entry<T>): number => unit.tickets.length

/** Index of an entry in a sorted list, or the index at which to insert it. */
function indexOf<E>(list: readonly E[], entry: E, order: (one: E, other: E) => number): number {
  let [from, to] = [0, list.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if (order(list[middle]!, entry) < 0) from = middle + 1
    else to = middle
  }
  return from
}

function insert<E>(list: E[], entry: E, order: (one: E, other: E) => number): void {
  list.splice(indexOf(list, entry, order), 0, entry)
}
