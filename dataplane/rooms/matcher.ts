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

/** Rules by which tickets are matched. */
export interface MatchRules<Ticket> {
  /** Number of players of a match. */
  readonly players: { readonly min: number; readonly max: number }
  /** Time after which a match may have less than `max` players, in milliseconds. */
  readonly waitMs: number
  readonly near: ((ticket: Ticket) => number) | undefined
  readonly fits: ((a: Ticket, b: Ticket, about: { readonly waitedMs: number }) => unknown) | undefined
  /** Called with what a rule has thrown. */
  readonly failed: (rule: 'near' | 'fits', error: unknown) => void
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
  /** The time since which its oldest ticket waits. */
  readonly since: number
  readonly near: number
}

/** Order of age. The id makes it the same for every owner of a queue. */
const byAge = <T>(one: Entry<T>, other: Entry<T>): number =>
  one.since - other.since || (one.unit.id < other.unit.id ? -1 : one.unit.id > other.unit.id ? 1 : 0)

const byNearness = <T>(one: Entry<T>, other: Entry<T>): number => one.near - other.near || byAge(one, other)

/**
 * Finds matches among waiting tickets, the oldest ticket first. It compares a ticket with the tickets that are nearest to it, so the work
 * grows with the number of tickets, not with its square. A round over all tickets is divided into calls of `search` with bounded work.
 */
export class Matcher<Ticket> {
  readonly #rules: MatchRules<Ticket>
  readonly #entries = new Map<string, Entry<Ticket>>()
  readonly #aged: Entry<Ticket>[] = []
  /** In the order of `near`; without that rule, the same list as `#aged`. */
  readonly #nearest: Entry<Ticket>[]
  readonly #order: (one: Entry<Ticket>, other: Entry<Ticket>) => number
  #comparisons = 0
  /** The last unit that the present round has looked at. Undefined: no round is running. */
  #cursor: Entry<Ticket> | undefined
  #roundAt = Number.NEGATIVE_INFINITY

  constructor(rules: MatchRules<Ticket>) {
    this.#rules = rules
    this.#nearest = rules.near ? [] : this.#aged
    this.#order = rules.near ? byNearness : byAge
  }

  /** Number of comparisons so far. */
  get comparisons(): number {
    return this.#comparisons
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
    if (sizeOf(entry) === this.#rules.players.max) return this.#take(this.#groupOf(entry, now))
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
   * Removes and returns the matches that it finds with about `comparisons` comparisons. Continues the round of the call before, or starts one
   * at least a second after the start of the last.
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
      // A comparison for the look at the entry, so that the work is bounded where nothing is compared.
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
    const { near, failed } = this.#rules
    if (!near) return 0
    let sum = 0
    for (const { ticket } of tickets)
      try {
        const value = Number(near(ticket))
        if (Number.isFinite(value)) sum += value
        else failed('near', new TypeError(`near returned ${value}; it must return a finite number`))
      } catch (error) {
        failed('near', error)
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

  /** A match with `first` in it, of the oldest units near it. Undefined: there is none, or it was not found with the work allowed. */
  #groupOf(first: Entry<Ticket>, now: number): Entry<Ticket>[] | undefined {
    const { players, waitMs, near } = this.#rules
    const size = sizeOf(first)
    if (size === players.max) return [first]
    const others = near ? this.#neighbours(first) : this.#nextInAge(first)
    const until = this.#comparisons + GROUP_COMPARISONS
    const least = now - first.since >= waitMs ? players.min : players.max
    let best: Entry<Ticket>[] | undefined
    let most = least - 1
    const extend = (group: readonly Entry<Ticket>[], total: number, from: number): void => {
      if (total > most) {
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

  /** Whether each ticket of one unit fits to each of the other. */
  #fits(one: Entry<Ticket>, other: Entry<Ticket>, now: number): boolean {
    const { fits, failed } = this.#rules
    this.#comparisons++
    if (!fits) return true
    try {
      for (const a of one.unit.tickets)
        for (const b of other.unit.tickets) {
          const [older, younger] = a.since <= b.since ? [a, b] : [b, a]
          const waitedMs = Math.max(0, now - older.since)
          const result = fits(older.ticket, younger.ticket, { waitedMs })
          if (typeof result !== 'boolean') throw notBoolean(result)
          if (!result) return false
        }
      return true
    } catch (error) {
      failed('fits', error)
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
