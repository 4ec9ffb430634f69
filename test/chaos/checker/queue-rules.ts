import { isRefused, LEVELS, MATCH_PLAYERS, PARTY_SIZE, partyOf, playerOf } from '../rooms.ts'
import type {
  History,
  Queue,
  QueueEnd,
  QueueRecord,
  StoreRecord,
  Violation,
  WaitingTicket,
} from './history.ts'
import type { Ownerships } from './ownership.ts'
import { CLOCK_TOLERANCE_MS } from './store-rules.ts'

const QUEUE = 'chaos-queue:default'
/** Time for which the room of a match keeps the seats, and the queue remembers the match. */
const RESERVED_MS = 30_000
/** Less than `reconnectSeconds` of the queue, since the server may notice earlier than the client that a connection is lost. */
const AWAY_MS = 8000
/** Less than the time in which a party has to be complete. */
const PARTY_MS = 55_000
/** Refusals by matches after which the queue refuses a player. */
const REFUSALS = 3

/** A ticket waits until it is cancelled or has one match. Its player is notified of the match when the seat is reserved. */
export function checkQueue(history: History, ownerships: Ownerships): Violation[] {
  const { queue } = history
  if (!queue) return []
  const matches = new Matches(history, queue, ownerships)
  const found = queue.records.flatMap((record): Violation[] => {
    switch (record.kind) {
      case 'announced':
        return [
          ...early(record, matches),
          ...split(record),
          ...refused(record),
          ...short(record, queue, matches),
        ]
      case 'matched':
        return misplaced(record, queue, matches)
      case 'ended':
        return ended(record, queue, matches)
      case 'intruded':
        return intruded(record, matches)
      default:
        return []
    }
  })
  return [...found, ...matches.twice(), ...checkQueueEnd(queue.end), ...checkActivity(history, queue)]
}

type Of<K extends QueueRecord['kind']> = Extract<QueueRecord, { kind: K }>

const violation = (
  { at, client }: Pick<QueueRecord, 'at' | 'client'>,
  name: Violation['name'],
  message: string,
  room?: string,
): Violation => ({ name, at, client, message, ...(room !== undefined && { room }) })

function early(record: Of<'announced'>, matches: Matches): Violation[] {
  const { at, client, room } = record
  const from = matches.reservedFrom(room, client)
  if (from !== undefined && from <= at + CLOCK_TOLERANCE_MS) return []
  const when = from === undefined ? 'no write reserves its seat' : `${Math.ceil(from - at)} ms too early`
  return [violation(record, 'match_early', `it was notified of its match: ${when}`, room)]
}

function split(record: Of<'announced'>): Violation[] {
  const parties = new Set(record.tickets.map(partyOf))
  parties.delete(undefined)
  return [...parties].flatMap((party) => {
    const tickets = record.tickets.filter((ticket) => partyOf(ticket) === party)
    if (tickets.length === PARTY_SIZE) return []
    const message = `of party ${party}, the match has ${tickets.join(', ')}`
    return [violation(record, 'party_split', message, record.room)]
  })
}

function refused(record: Of<'announced'>): Violation[] {
  const wrong = record.tickets.filter(isRefused)
  if (wrong.length === 0) return []
  return [violation(record, 'match_refused', `the room refuses ${wrong.join(', ')}`, record.room)]
}

/**
 * A queue that has confirmed a cancelled ticket notifies no player of a match of this ticket. If the queue had committed the match before,
 * the player that cancels is notified as well. A page that the player has loaded later cancels its own ticket, and is not notified.
 */
function short(record: Of<'announced'>, { records }: Queue, matches: Matches): Violation[] {
  const { at, room, tickets } = record
  return tickets.flatMap((ticket) => {
    const cancelled = records.find(
      (other): other is Of<'ended'> =>
        other.kind === 'ended' && other.cancelled && other.ticket === ticket && other.at < at,
    )
    if (!cancelled || !isKnown(cancelled, records, matches) || isCut(cancelled, records)) return []
    const wasTold = records.some(
      (other) => other.kind === 'announced' && other.client === cancelled.client && other.room === room,
    )
    if (wasTold || matches.storeLost(cancelled.at, at)) return []
    const madeAt = matches.reservedFrom(room, cancelled.client)
    if (madeAt !== undefined && hasForgotten(records, cancelled.client, madeAt, cancelled.at)) return []
    return [violation(record, 'match_short', `${ticket} was cancelled before`, room)]
  })
}

function misplaced(record: Of<'matched'>, { records }: Queue, matches: Matches): Violation[] {
  const { at, client, room, tickets, seated } = record
  const own = tickets.find((ticket) => playerOf(ticket) === client)
  const cancelled = records.findLast(
    (other): other is Of<'ended'> =>
      other.kind === 'ended' && other.cancelled && other.ticket === own && other.at < at,
  )
  if (
    cancelled &&
    isKnown(cancelled, records, matches) &&
    !isCut(cancelled, records) &&
    !hasForgotten(records, client, cancelled.at, at)
  )
    return [violation(record, 'match_of_cancelled', `it had cancelled ${own}`, room)]
  if (seated && own !== undefined) return []
  const message = `${client} is ${seated ? 'a' : 'no'} member of the match of ${tickets.join(', ')}`
  return [violation(record, 'seat_twice', message, room)]
}

/**
 * True if the queue had answered when the player cancelled. Before that, the ticket may still be on its way to the queue. If the queue has
 * another owner, which knows no seat of the player, the notification of a match may be lost with the earlier owner.
 */
function isKnown({ at, client }: QueueRecord, records: readonly QueueRecord[], matches: Matches): boolean {
  const last = records.findLast(
    ({ kind, ...other }) =>
      other.client === client &&
      other.at < at &&
      (kind === 'asked' || kind === 'placed' || kind === 'announced'),
  )
  if (last?.kind === 'announced') return true
  return last?.kind === 'placed' && !matches.queueMoved(last.at, at)
}

/** True if the client lost its connection while the player cancelled. Then the edge gives the seat up, and the client may not receive a match. */
function isCut({ at, client, ticket }: Of<'ended'>, records: readonly QueueRecord[]): boolean {
  const began = records.findLast((other) => other.kind === 'cancelling' && other.ticket === ticket)?.at ?? at
  return records.some(
    (other) =>
      other.kind === 'lost_connection' && other.client === client && other.at >= began && other.at <= at,
  )
}

/** True if a player has loaded its page again since `from`, and before the next ticket. The new page does not know the earlier match. */
function hasForgotten(records: readonly QueueRecord[], player: string, from: number, to: number): boolean {
  const since = records.filter(({ client, at }) => client === player && at > from && at < to)
  const first = since.find(({ kind }) => kind === 'loaded' || kind === 'placed')
  return first?.kind === 'loaded'
}

function ended(record: Of<'ended'>, { records }: Queue, matches: Matches): Violation[] {
  const { at, client, ticket, code, cancelled } = record
  const before = records.filter((other) => other.client === client && other.at <= at)
  const lost = (excused: boolean): Violation[] =>
    excused ? [] : [violation(record, 'ticket_lost', `${ticket} ended with ${code}`)]
  if (code === 'queue_full') return lost(false)
  if (code === 'cancelled') return lost(cancelled)
  if (code === 'join_refused') return lost(isRefused(ticket))
  if (code === 'party_refused') return lost(partyOf(ticket) !== undefined)
  if (code === 'ticket_refused') {
    const asked = before.filter((other) => other.kind === 'asked' && isRefused(other.ticket))
    return lost(asked.length >= REFUSALS)
  }
  if (code === 'match_failed' || code === 'gave_up') return lost(false)
  if (code === 'party_timeout') {
    const asked = before.find((other) => other.kind === 'asked' && other.ticket === ticket)
    return lost(matches.clockJumped(at) || (asked !== undefined && at - asked.at >= PARTY_MS))
  }
  if (code === 'seat_lost')
    return lost(
      matches.clockJumped(at) ||
        matches.storeLost(0, at) ||
        wasAway(before, at) ||
        hasLostReason(record, before, matches),
    )
  const announced = before.findLast((other) => other.kind === 'announced')
  if (code !== 'room_full' || announced?.kind !== 'announced' || !matches.isReserved(announced.room, at))
    return []
  // The seat is free after its player has left.
  if (before.some((other) => other.kind === 'matched' && other.room === announced.room)) return []
  return [violation(record, 'seat_twice', 'its seat was reserved, and it got room_full', announced.room)]
}

/**
 * True if the queue may end the ticket itself, and has another owner since the player asked. The reason is lost if the earlier owner was also the
 * edge of the player, and could not send it (decision 43).
 */
function hasLostReason(
  { at, ticket }: Of<'ended'>,
  before: readonly QueueRecord[],
  matches: Matches,
): boolean {
  const asked = before.find((other) => other.kind === 'asked' && other.ticket === ticket)
  const isEnded = isRefused(ticket) || partyOf(ticket) !== undefined
  return isEnded && asked !== undefined && matches.queueMoved(asked.at, at)
}

/** True if a client was without a connection for about the time that the queue keeps a seat. */
function wasAway(records: readonly QueueRecord[], at: number): boolean {
  let since: number | undefined
  for (const record of records) {
    if (record.kind === 'lost_connection') since ??= record.at
    if (record.kind !== 'connected') continue
    if (since !== undefined && record.at - since >= AWAY_MS) return true
    since = undefined
  }
  return since !== undefined && at - since >= AWAY_MS
}

function intruded(record: Of<'intruded'>, matches: Matches): Violation[] {
  const { at, room, tickets, seats, came } = record
  const expected = tickets.map(playerOf).filter((player) => !came.includes(player))
  if (seats.length + expected.length <= MATCH_PLAYERS || !matches.isReserved(room, at)) return []
  const message = `${seats.join(', ')} have its seats, which are reserved for ${expected.join(', ')}`
  return [violation(record, 'seat_twice', message, room)]
}

/** Rooms of matches. */
class Matches {
  readonly #history: History
  readonly #queue: Queue
  readonly #ownerships: Ownerships
  /** Writes that took effect or may have, by room. */
  readonly #writes = new Map<string, StoreRecord[]>()

  constructor(history: History, queue: Queue, ownerships: Ownerships) {
    this.#history = history
    this.#queue = queue
    this.#ownerships = ownerships
    for (const call of history.store) {
      if (call.ok === false || !call.room.startsWith('chaos-match:')) continue
      const calls = this.#writes.get(call.room)
      if (calls) calls.push(call)
      else this.#writes.set(call.room, [call])
    }
  }

  /** Time from which it is certain that a seat is reserved: its writer has the answer, or the next owner has found it. */
  reservedFrom(room: string, player: string): number | undefined {
    const calls = this.#writes.get(room) ?? []
    const times = calls
      .filter(({ content }) => content?.reserved?.includes(player))
      .flatMap(({ ended, epoch, version }) => [
        ended,
        ...calls
          .filter((call) => call.kind === 'claim' && call.epoch > epoch && call.version > version)
          .map((claim) => claim.ended),
      ])
    return times.length > 0 ? Math.min(...times) : undefined
  }

  /** True if the room keeps the seats of absent players at `at`. */
  isReserved(room: string, at: number): boolean {
    const first = this.#writes.get(room)?.find(({ content }) => content?.reserved)
    if (!first || at > first.began + RESERVED_MS) return false
    return !this.clockJumped(at) && !this.storeLost(first.began, at)
  }

  /** True if another owner has claimed the queue, or may have. */
  queueMoved(from: number, to: number): boolean {
    return this.#history.store.some(
      ({ kind, room, ok, began, ended }) =>
        kind === 'claim' && room === QUEUE && ok !== false && ended >= from && began <= to,
    )
  }

  clockJumped(before: number): boolean {
    return this.#history.faults.some(({ kind, at }) => kind === 'clock' && at <= before)
  }

  storeLost(from: number, before: number): boolean {
    return this.#ownerships.wipes(before).some(({ until }) => until >= from)
  }

  /** Tickets in two matches, each with a notified player. */
  twice(): Violation[] {
    const announced = this.#queue.records.filter((record) => record.kind === 'announced')
    const first = new Map<string, Of<'announced'>>()
    const found: Violation[] = []
    for (const record of announced)
      for (const ticket of record.tickets) {
        const other = first.get(ticket)
        if (!other) first.set(ticket, record)
        if (!other || other.room === record.room) continue
        first.set(ticket, record)
        if (this.#isOver(other, record, ticket)) continue
        found.push(violation(record, 'ticket_twice', `${ticket} was also in ${other.room}`, record.room))
      }
    return found
  }

  /** True if a ticket may be in a later match: the room of the first has ended, or the player asked again after the queue had forgotten the first. */
  #isOver({ room, at }: Of<'announced'>, later: Of<'announced'>, ticket: string): boolean {
    const hasEnded = (this.#writes.get(room) ?? []).some(({ forget, ended }) => forget && ended <= later.at)
    if (hasEnded || this.storeLost(at, later.at)) return true
    const knew = this.#queue.records.some(
      (record) =>
        record.kind === 'announced' &&
        record.room === room &&
        record.client === playerOf(ticket) &&
        record.at <= later.at,
    )
    return !knew && (this.clockJumped(later.at) || later.at - at > RESERVED_MS)
  }
}

/** At the end, the queue has the tickets of the waiting players, and no tickets that fit. */
export function checkQueueEnd({ at, queues, waiting, outside }: QueueEnd): Violation[] {
  const found = outside.map((client) =>
    violation({ at, client }, 'left_out', `${client} has neither a ticket nor a match`),
  )
  const room = QUEUE
  const [queue, other] = queues
  if (other) found.push({ name: 'two_owners', at, room, message: `${queue!.node} and ${other.node} run it` })
  const lost = (message: string) => found.push({ name: 'ticket_lost', at, room, message })
  const { tickets = {}, orders = {} } = (queue?.state ?? {}) as {
    readonly tickets?: { readonly [player: string]: object }
    readonly orders?: object
  }
  const players = waiting.map(({ client }) => client)
  const has = Object.keys(tickets).sort().join(', ')
  const waits = players.toSorted().join(', ')
  if (has !== waits)
    lost(`the queue has tickets of ${has || 'nobody'}, and these players wait: ${waits || 'nobody'}`)
  const pending = Object.keys(orders)
  if (pending.length > 0) lost(`the matches ${pending.join(', ')} are still pending`)
  for (let level = 0; level < LEVELS; level++) {
    const fitting = waiting.filter((ticket) => ticket.level === level)
    if (isMatch(fitting)) lost(`${fitting.map(({ ticket }) => ticket).join(', ')} wait, and fit`)
  }
  return found
}

/** True if some of the tickets can be a match: single players, or a complete party with others. */
function isMatch(tickets: readonly WaitingTicket[]): boolean {
  const parties = tickets.flatMap(({ ticket }) => partyOf(ticket) ?? [])
  const singles = tickets.length - parties.length
  const hasParty = new Set(parties).size < parties.length
  return singles >= (hasParty ? MATCH_PLAYERS - PARTY_SIZE : MATCH_PLAYERS)
}

/** Minimum number of records per player and second. It is far below that of a run in which something is broken half of the time. */
const LEAST = { matched: 0.05, intruders: 0.005, cancelled: 0.005, parties: 0.005 }

function checkActivity({ run }: History, { records, end }: Queue): Violation[] {
  const seconds = (run.ended - run.began) / 1000
  const players = new Set(records.map(({ client }) => client)).size
  const matched = records.filter((record) => record.kind === 'matched')
  const found = {
    matched: matched.length,
    intruders: records.filter(({ kind }) => kind === 'kept_out' || kind === 'intruded').length,
    cancelled: records.filter((record) => record.kind === 'ended' && record.cancelled).length,
    parties: matched.filter(({ ticket }) => partyOf(ticket) !== undefined).length,
  }
  return (Object.keys(LEAST) as (keyof typeof LEAST)[]).flatMap((way): Violation[] => {
    const wanted = Math.floor(LEAST[way] * seconds * players)
    if (found[way] >= wanted) return []
    const message = `${found[way]} records of the queue: ${way}; at least ${wanted} would prove something`
    return [{ name: 'too_little', at: end.at, message }]
  })
}
