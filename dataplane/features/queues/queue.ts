import { createHash } from 'node:crypto'
import type { StandardJSONSchemaV1, StandardSchemaV1 } from '@standard-schema/spec'
import * as v from 'valibot'
import { canonicalJson, type Json, type JsonObject } from '../../../shared/json.ts'
import type { ErrorCode } from '../../../shared/protocol/error-codes.ts'
import { type Match, PARTY_CODE, type SeatCode } from '../../../shared/protocol/messages.ts'
import type { TypedRoom } from '../../../shared/room-types.ts'
import { QUEUE_PRINCIPALS } from '../../place.ts'
import { deepCopy, frozen } from '../../room/copy.ts'
import { defineRoom, type RoomDefinition } from '../../room/definition.ts'
import type {
  AdmitContext,
  Matches,
  Member,
  MessageContext,
  MessageInput,
  Pair,
  QueueFigures,
  RoomLog,
  TaskRun,
  TurnContext,
} from '../../room/definition-types.ts'
import {
  bounded,
  errorText,
  jsonCopy,
  kindOf,
  RoomLogicError,
  RoomLogicRefused,
  validateInput,
} from '../../room/failures.ts'
import type { SystemParts } from '../../room/handler-context.ts'
import { jsonSchemaOf } from '../../room/json-schema.ts'
import { mayHave } from '../../room/limits.ts'
import { plain } from '../../room/plain.ts'
import { isPromise } from '../../room/room-code.ts'
import { seatName } from '../../room/table.ts'
import type { RequestAnswer, RequestCode, RoomAction } from '../../traffic.ts'
import {
  checkQueueSpec,
  type IndexedTicket,
  type MatchRules,
  type MatchTicket,
  type QueueSpec,
  sizeOfParty,
  TicketIndex,
  type TicketRow,
  type Unit,
  WAITING_SENDS,
} from './tickets.ts'

/**
 * A queue is a room. `tickets.ts` keeps its tickets in memory and finds matches. A task asks the room of a match for seats. Clients use
 * `client/queue.ts`.
 */

/** Maximum number of waiting tickets of a queue: all shards are one room. */
const MAX_TICKETS = 20_000
/** Maximum size of the data of a ticket, of what the queue keeps of it, and of the join options of a match, as bytes of JSON. */
const MAX_DATA_BYTES = 512
/** Maximum size of the state when a ticket is added, as a part of its limit. The rest is for matches. */
const MAX_STATE_SHARE = 0.5
/** Time for the room of a match to answer, milliseconds. Then the match is cancelled. */
const ORDER_MS = 20_000
/** Time for the room of a match to confirm that it is cancelled, milliseconds. Then the queue asks again. */
const CANCEL_MS = 10_000
/** Time for which the room of a match keeps the seats, seconds. */
const RESERVE_SECONDS = 30
/** Pause between the attempts to cancel a match, milliseconds. */
const CANCEL_PAUSE_MS = 1000
const PARTY_MS = 60_000
/** Pause between two turns from which on the queue had no owner, or could not act, milliseconds. */
const GAP_MS = 2000
/** Longest time between two writes of the time at which the queue ran last, milliseconds. */
const RAN_MS = 5000
/** A player with this number of refusals by matches in this time gets no ticket for a while. */
const REFUSALS = { number: 3, inMs: 600_000, waitMs: 60_000 }
/** Maximum number of refusals that a queue remembers. */
const MAX_REFUSALS = 1000
/** Searches for matches per second, and maximum number of comparisons in each. */
const LOOKS_PER_SECOND = 10
const COMPARISONS = 16_384

type In<S extends StandardSchemaV1> = StandardSchemaV1.InferInput<S>

/** Rules of a queue whose types are not known. */
type AnyQueueSpec = QueueSpec<string, StandardSchemaV1<unknown, Json>, string, Json>

/** Types of a queue for the client. */
export interface QueueTypes<Ticket extends StandardSchemaV1, Name extends string> {
  /** State of a queue. */
  readonly state: {
    /** Number of waiting tickets, some seconds old. */
    readonly waiting: number
  }
  /** Messages of a queue. */
  readonly messages: {
    /** Asks how long the ticket has waited. Refused with `already_queued` if the player has a ticket with other data. */
    readonly ticket: {
      /** Data of the ticket. */
      readonly ticket: In<Ticket>
      /** Code of the player's party. */
      readonly party?: string
    }
  }
  /** Replies of a queue. */
  readonly replies: {
    /** Time in milliseconds for which the ticket has waited. */
    readonly ticket: number
  }
  /** A queue has no events. */
  readonly events: Record<never, never>
  /** Room type of the matches. */
  readonly matches: Name
  /** Join options of the queue. */
  readonly options: {
    /** Data of the ticket. */
    readonly ticket: In<Ticket>
    /** Code of the player's party. */
    readonly party?: string
    /** Room of the last match that the player has left. */
    readonly seen?: string
  }
}

/** A match whose room has not answered yet, by the key of the room. */
interface OrderRow {
  readonly at: number
  readonly seats: Seats
  /**
   * Why the match is being cancelled. `left`: a player has left. `failed`: its room has not reserved the seats. `broken`: `create` or
   * `admit` of its room has failed, or the room does not accept the options. Absent: its room may still answer.
   */
  readonly cancelled?: Cancelled
}

type Cancelled = 'left' | 'failed' | 'broken'

interface QueueState {
  /** Number of waiting tickets, some seconds old. All members see it. */
  waiting: number
  tickets: { [player: string]: TicketRow }
  /** By code, the queue time since which a party waits for its members, or waits for a match. */
  parties: { [code: string]: { readonly since: number } }
  orders: { [id: string]: OrderRow }
  /** Matches of the last `RESERVE_SECONDS`, by player: a player that has missed the end of its seat asks again. */
  matched: {
    [player: string]: { readonly room_id: string; readonly options: JsonObject; readonly at: number }
  }
  /** By player, the times at which `admit` of a match has refused it. Absent in records of earlier code, as the next two. */
  refusals?: { [player: string]: readonly number[] }
  /** Time without an owner, in milliseconds. The queue time is the time without it. */
  paused?: number
  /** When the queue ran last, in milliseconds since 1970, as far as it is stored. Null: never. */
  ranAt?: number | null
  /** Counts the changes of the index. After a failed turn, the index in memory has another count, and is built again. */
  changes: number
}

/** Join options of a queue, checked. */
interface QueueJoin {
  readonly ticket: Json
  readonly given?: string
  readonly party?: string
  /** Id of the room of the last match that the player has left. That match is over for the player. */
  readonly seen?: string
}

/** Context of the handlers of a queue. */
interface QueueContext extends TurnContext<Pair, Pair, Pair, Pair, Pair> {
  readonly system: SystemParts
}

const TICKET_GONE = 'the ticket has ended'

/**
 * Defines a queue, which brings players together and makes rooms for them. Export the result as the module's default, as for a room type.
 * Clients join by `client.queue`. Throws a `RoomDefinitionError` that lists all mistakes.
 */
export function defineQueue<
  const Type extends string,
  Ticket extends StandardSchemaV1,
  const Name extends string,
  Kept = StandardSchemaV1.InferOutput<Ticket>,
>(spec: QueueSpec<Type, Ticket, Name, Kept>): RoomDefinition & TypedRoom<QueueTypes<Ticket, Name>, Type>
export function defineQueue(spec: AnyQueueSpec): RoomDefinition {
  checkQueueSpec(spec)
  const { players } = spec
  const { min, max } = typeof players === 'number' ? { min: players, max: players } : players
  const queue = new Queue(spec, min, max)
  const { type, reconnectSeconds } = spec
  const definition = defineRoom({
    type,
    maxPlayers: MAX_TICKETS,
    sameSub: 'replace',
    tick: { rate: LOOKS_PER_SECOND },
    ...(reconnectSeconds !== undefined && { reconnectSeconds }),
    // The end of an empty queue forgets the refusals.
    idleSeconds: REFUSALS.inMs / 1000,
    layers: {
      ...{ tickets: null, parties: null, orders: null, matched: null },
      ...{ refusals: null, paused: null, ranAt: null, changes: null },
    },
    options: queue.options,
    create: (): QueueState => ({
      ...{ waiting: 0, tickets: {}, parties: {}, orders: {}, matched: {} },
      ...{ refusals: {}, paused: 0, ranAt: null, changes: 0 },
    }),
    messages: { ticket: { data: queue.options, reply: v.number(), handle: queue.asked } },
    // The data of a task is the key of an order in the state.
    tasks: {
      reserve: {
        result: v.custom<Reserved>(isAny),
        retry: true,
        data: v.string(),
        run: queue.reserve,
        handle: queue.reserved,
      },
      cancel: {
        result: v.boolean(),
        retry: true,
        data: v.string(),
        run: queue.cancel,
        handle: queue.cancelled,
      },
    },
    timers: { cancel: { data: v.string(), handle: queue.cancelAgain } },
    admit: queue.admit,
    onJoin: queue.joined,
    onLeave: queue.left,
    onTick: queue.look,
  })
  return Object.freeze({ ...definition, system: true as const, hidesMembers: true, matches: queue })
}

/** Seats of a match in its room. */
interface Seats {
  /** Key of the room. */
  readonly key: string
  /** Idempotency id of the requests, unique in the cluster. */
  readonly id: string
  readonly subs: readonly string[]
  /** Join options of the room, if it has to be created. */
  readonly options: Json
}

/** Answer of the room of a match. `refused`: texts for the players that its `admit` has refused, by player. */
type Reserved =
  | { readonly reserved: true }
  | { readonly refused: { readonly [player: string]: string } }
  | { readonly code: RequestCode; readonly message: string }

const isAny = (): boolean => true

/**
 * Errors of a room that does not exist and cannot be created with these options, so that it keeps no seats. An existing room runs no room
 * logic for a cancel.
 */
const IMPOSSIBLE: ReadonlySet<string> = new Set(['invalid_options', 'invalid_request', 'room_logic_failed'])

/**
 * A queue: its rules, and the hooks of its rooms. Between turns, its rooms keep an index of the tickets in memory. The state is
 * authoritative.
 * @internal
 */
class Queue implements Matches {
  /** Room type of the matches. */
  readonly room: string
  /** Maximum number of players of a match. */
  readonly players: number
  readonly #spec: AnyQueueSpec
  readonly #rules: MatchRules<Json>
  /** By the logger of the room, which all contexts of the room share. */
  readonly #indexes = new WeakMap<RoomLog, TicketIndex>()
  /** Matches and failures of each room, in the same way. */
  readonly #counts = new WeakMap<RoomLog, { matches: number; failures: number }>()

  constructor(spec: AnyQueueSpec, min: number, max: number) {
    this.room = spec.room
    this.players = max
    this.#spec = spec
    const waitMs = typeof spec.players === 'number' ? 0 : spec.players.waitSeconds * 1000
    this.#rules = { ...spec, matchSize: { min, max }, waitMs }
  }

  /** Schema of the join options. Its JSON Schema has only the ticket: clients add the other options. */
  get options(): StandardSchemaV1<object, QueueJoin> & StandardJSONSchemaV1<object> {
    const input = () => ({
      type: 'object',
      properties: { ticket: jsonSchemaOf(this.#spec.ticket, 'input') ?? {} },
      required: ['ticket'],
    })
    return {
      '~standard': {
        version: 1,
        vendor: 'roomful',
        jsonSchema: { input, output: input },
        validate: (options) => {
          const { ticket, party, seen, ...others } = options as { [name: string]: unknown }
          const problem = (message: string, ...path: string[]) => ({ issues: [{ message, path }] })
          const [unknown] = Object.keys(others).filter((name) => name !== 'key')
          if (unknown !== undefined) return problem('is no option of a queue', unknown)
          const size = PARTY_CODE.exec(String(party))?.[1]
          if (party !== undefined && !(Number(size) <= this.players))
            return problem(`must be a code of client.party, of at most ${this.players} players`, 'party')
          if (seen !== undefined && typeof seen !== 'string')
            return problem('must be the id of a room', 'seen')
          const valid = validateInput(this.#spec.ticket, ticket)
          if (!valid.ok)
            return valid.cause === undefined ? problem(valid.message, 'ticket') : raise(valid.cause)
          const data = jsonCopy(valid.value, 'the data of the ticket')
          if (sizeOf(data) > MAX_DATA_BYTES)
            return problem(`has ${sizeOf(data)} bytes of JSON; limit: ${MAX_DATA_BYTES}`, 'ticket')
          const given = canonicalJson((ticket ?? null) as Json)
          return {
            value: {
              ticket: data,
              ...((this.#spec.entry !== undefined || given !== canonicalJson(data)) && {
                given: createHash('sha256').update(given).digest('base64url'),
              }),
              ...(party !== undefined && { party: String(party) }),
              ...(seen && { seen }),
            },
          }
        },
      },
    }
  }

  figures(log: RoomLog, { tickets, orders }: QueueState): QueueFigures {
    let waiting = 0
    let oldestSince: number | undefined
    for (const { since, order } of Object.values(tickets)) {
      if (order !== undefined) continue
      waiting++
      oldestSince = Math.min(oldestSince ?? since, since)
    }
    return { waiting, oldestSince, pendingMatches: Object.keys(orders).length, ...this.#countsOf(log) }
  }

  #countsOf(log: RoomLog): { matches: number; failures: number } {
    const counts = this.#counts.get(log) ?? { matches: 0, failures: 0 }
    this.#counts.set(log, counts)
    return counts
  }

  /** A player has one ticket. A join with the same data continues it: the room gives its seat to the newer session. */
  readonly admit = (member: Member, options: QueueJoin, ctx: AdmitContext<QueueState>) => {
    if (ctx.key !== 'default') return 'the queue has one room: join it without a key'
    const { sub } = member
    if (sub === null) return undefined
    // Reading the state here would copy it.
    const index = this.#indexes.get(ctx.log)
    const known = index ? index.ticketOf(sub) : (ctx.state.tickets[sub] as TicketRow | undefined)
    return known && !isSame(known, options) ? otherTicket() : undefined
  }

  readonly joined = this.#turn((state, member: Member, ctx, index, options: QueueJoin) => {
    const { memberships, state: live } = ctx.system.room
    const player = seatName(member.sub, memberships.get(member.id)!.sessionId)
    const { given, party, seen } = options
    const matched = state.matched[player]
    if (matched && matched.room_id !== seen)
      refuse('matched', 'the match of the player is made', matchOf(plain(matched)))
    // The next page of the player does not know that this page has seen the match.
    delete state.matched[player]
    const waitMs = restOfRefusals(state, player, ctx.now)
    if (waitMs > 0) refuse('ticket_refused', `wait ${Math.ceil(waitMs / 1000)} s`)
    const ticket = this.#kept(options.ticket, member, ctx, index)
    const { giveUpSeconds } = this.#spec
    const row: TicketRow = {
      ...{ member: member.id, ticket, since: ctx.now },
      ...(giveUpSeconds !== undefined && { ends: queueTime(state, ctx.now) + giveUpSeconds * 1000 }),
      ...(given && { given }),
      ...(party && { party }),
    }
    if (live.share > MAX_STATE_SHARE || index.isFull(ticket)) refuse('queue_full', 'the queue is full')
    if (party) {
      const members = index.partyOf(party).size + 1
      if (members > sizeOfParty(party)) refuse('party_full', 'the party is full')
      state.parties[party] ??= { since: queueTime(state, ctx.now) }
    }
    state.tickets[player] = row
    const unit = this.#add(player, row, index)
    if (unit && mayOrder(ctx, index)) {
      const match = unit.matcher.arrived(unit.id, ctx.now)
      if (match) this.#order(state, ctx, index, match)
    }
  })

  readonly left = this.#turn((state, member: Member, ctx, index) => {
    const player = index.playerOf(member.id)
    if (player === undefined) return
    const { order } = state.tickets[player]!
    this.#remove(state, player, ctx.now, index)
    if (order !== undefined && !state.orders[order]?.cancelled) this.#cancel(state, order, 'left', ctx)
  })

  /** Message `ticket`: returns the time for which the member's ticket has waited, in milliseconds, if it is the one that the client means. */
  readonly asked = this.#turn(
    (
      state,
      { member, data }: MessageInput<'ticket', QueueJoin>,
      ctx: MessageContext<QueueContext, number>,
      index,
    ) => {
      const player = index.playerOf(member.id)
      const known = player === undefined ? undefined : state.tickets[player]
      if (!known) return ctx.refuse(TICKET_GONE)
      if (!isSame(known, data)) return otherTicket()
      ctx.reply(Math.max(0, ctx.now - known.since))
    },
  )

  readonly look = (draft: QueueState, ctx: QueueContext): void => {
    this.#turn((state, _none: undefined, _ctx, index) => {
      const { now } = ctx
      for (const player of index.takeExpired(now - RESERVE_SECONDS * 1000)) delete state.matched[player]
      const time = queueTime(state, now)
      for (const code of index.incompleteParties) {
        const players = [...index.partyOf(code)]
        if (time - state.parties[code]!.since < PARTY_MS) continue
        if (players.some((player) => isAsked(state, player))) continue
        for (const player of players) this.#end(state, player, 'party_timeout', ctx, index)
      }
      for (const player of index.gaveUp(time, (player) => isAsked(state, player)))
        this.#end(state, player, 'gave_up', ctx, index)
      if (index.size > 0 && Math.abs(now - (state.ranAt ?? 0)) >= RAN_MS) state.ranAt = now
      this.#resume(state, ctx)
      index.wake(now)
      let left = COMPARISONS
      // A search may find thousands of matches: the limit counts once.
      let isFull = false
      for (const [shard, matcher] of index.shards) {
        if (matcher.empty) continue
        if (left <= 0 || isFull || !mayOrder(ctx, index)) break
        index.served(shard)
        const before = matcher.comparisons
        for (const match of matcher.search(now, left)) {
          isFull ||= !mayOrder(ctx, index)
          if (isFull) for (const unit of match) matcher.add(unit)
          else this.#order(state, ctx, index, match)
        }
        left -= matcher.comparisons - before
      }
      const { size, waitingSends } = index
      if (state.waiting !== size && waitingSends.waitMs(WAITING_SENDS.burst) < 1) {
        // At least a whole burst, so that members get one change a second.
        waitingSends.charge(Math.max(WAITING_SENDS.burst, size))
        state.waiting = size
      }
    })(draft, undefined, ctx)
  }

  /** Reserves a seat for each player of a match, all or none, if its `admit` allows all of them. Creates the room if there is none. */
  readonly reserve = async (key: string, run: Run): Promise<Reserved> => {
    const answer = await this.#ask('reserve', key, run)
    if (answer === undefined) return { code: 'cancelled', message: 'the match has been cancelled' }
    return 'reply' in answer ? (answer.reply as Reserved) : answer
  }

  /** Ends the reservations of `reserve`, and refuses a later one. Also creates the room, so that it can refuse. */
  readonly cancel = async (key: string, run: Run): Promise<boolean> => {
    const answer = await this.#ask('cancel', key, run)
    return answer === undefined || 'reply' in answer || IMPOSSIBLE.has(answer.code)
  }

  /** Sends a request to the room of a match. Can be repeated. Undefined: there is no such match, or a player of `reserve` has left. */
  async #ask(op: 'reserve' | 'cancel', key: string, run: Run): Promise<RequestAnswer | undefined> {
    const { ask, memberOf, state } = run
    const order = state.orders[key]
    if (!order) return undefined
    const { id, subs, options } = plain(order.seats)
    const create = { principal: QUEUE_PRINCIPALS[op], options }
    const request = (action: RoomAction, waitMs: number) =>
      ask(this.room, key, { id, hash: 'seats', create, do: action }, waitMs)
    if (op === 'cancel') return request({ op, subs }, CANCEL_MS)
    const players = subs.flatMap((player) => {
      const member = memberOf(state.tickets[player]?.member ?? '')
      return member ? [{ sub: member.sub, data: member.data }] : []
    })
    // The departure of a player cancels the match.
    if (players.length < subs.length) return undefined
    return request({ op, subs, seconds: RESERVE_SECONDS, players }, ORDER_MS)
  }

  readonly reserved = this.#turn((state, { ok, value, data: key }: Ended<Reserved>, ctx, index) => {
    const order = state.orders[key]
    // The match is being cancelled, so its room does not keep the seats.
    if (!order || order.cancelled) return
    const { subs } = order.seats
    if (ok && 'refused' in value!) this.#refused(state, key, plain(value.refused), ctx, index)
    // Older code did not cancel the match of a player who has left.
    else if (this.#ordered(state, key, subs).length < subs.length) this.#cancel(state, key, 'left', ctx)
    else if (ok && 'reserved' in value! && ctx.now - order.at <= ORDER_MS)
      this.#matched(state, key, ctx, index)
    else {
      const { code, message } = failureOf(ok, value)
      const isBroken = IMPOSSIBLE.has(code)
      this.#countFailure(ctx, isBroken ? 'room_logic' : 'room')
      if (index.mayLog('room', ctx.now))
        ctx.log.error({ room_id: `${this.room}:${key}`, code, error: message }, 'a match of the queue failed')
      this.#cancel(state, key, isBroken ? 'broken' : 'failed', ctx)
    }
  })

  /** The room of a match keeps the seats: notifies the players. */
  #matched(state: QueueState, key: string, ctx: QueueContext, index: TicketIndex): void {
    const { metrics } = ctx.system.needs
    const { subs, options } = plain(state.orders[key]!.seats)
    const matched = { room_id: `${this.room}:${key}`, options: options as JsonObject, at: ctx.now }
    for (const player of this.#ordered(state, key, subs)) {
      const { member, since } = state.tickets[player]!
      metrics.queueWait.observe({ room_type: this.#spec.type }, Math.max(0, ctx.now - since) / 1000)
      this.#forget(state, player, index)
      state.matched[player] = matched
      index.expires(player, ctx.now)
      ctx.system.end(member, { match: matchOf(matched) })
    }
    this.#endOrder(state, key, index)
    metrics.queueMatches.inc({ room_type: this.#spec.type })
    this.#countsOf(ctx.log).matches++
  }

  /** `admit` of the match has refused some players: ends their tickets and those of their parties. The others wait again. */
  #refused(
    state: QueueState,
    key: string,
    refused: { readonly [player: string]: string },
    ctx: QueueContext,
    index: TicketIndex,
  ): void {
    const players = this.#ordered(state, key, plain(state.orders[key]!.seats).subs)
    const parties = new Set(
      players.flatMap((player) => (player in refused && state.tickets[player]!.party) || []),
    )
    index.separate(players, ctx.now)
    noteRefusals(state, Object.keys(refused), ctx.now)
    for (const player of players) {
      const { member, party } = state.tickets[player]!
      const text = refused[player]
      if (text === undefined && !(party !== undefined && parties.has(party))) continue
      this.#forget(state, player, index)
      ctx.system.end(
        member,
        text === undefined ? { code: 'party_refused' } : { code: 'join_refused', message: text },
      )
    }
    this.#endOrder(state, key, index)
    this.#waitAgain(
      state,
      players.filter((player) => state.tickets[player]),
      index,
    )
  }

  readonly cancelAgain = this.#turn((state, { data: key }: { readonly data: string }, ctx) => {
    const { cancelled } = state.orders[key] ?? {}
    if (cancelled) this.#cancel(state, key, cancelled, ctx)
  })

  readonly cancelled = this.#turn((state, { ok, value, data: key }: Ended<boolean>, ctx, index) => {
    const order = state.orders[key]
    if (!order) return
    if (!ok || !value) {
      this.#cancelLater(key, ctx)
      return
    }
    const { cancelled } = order
    const players = this.#ordered(state, key, plain(order.seats).subs)
    this.#endOrder(state, key, index)
    if (cancelled === 'failed' || cancelled === 'broken') {
      index.separate(players, ctx.now)
      index.rest(players, ctx)
    }
    this.#waitAgain(state, players, index)
    if (cancelled === 'broken') this.#broke(state, players, ctx, index)
  })

  /** Room code has failed for a match of these players. Ends the tickets that have had enough of such matches. */
  #broke(state: QueueState, players: readonly string[], ctx: QueueContext, index: TicketIndex): void {
    for (const player of index.failed(players)) this.#end(state, player, 'match_failed', ctx, index)
  }

  /**
   * Cancels a match. Its room confirms that it keeps no seats, and then the tickets wait again. A node that has lost the queue never cancels
   * a match that the next owner has announced, because the request leaves after the commit of this turn.
   */
  #cancel(state: QueueState, key: string, cancelled: Cancelled, ctx: QueueContext): void {
    const order = state.orders[key]!
    if (order.cancelled !== cancelled) state.orders[key] = { ...plain(order), cancelled }
    const { needs, room } = ctx.system
    if (room.tables.tasks.size < needs.limits.tasks) ctx.task('cancel', key)
    else this.#cancelLater(key, ctx)
  }

  #endOrder(state: QueueState, key: string, index: TicketIndex): void {
    delete state.orders[key]
    index.orders--
  }

  /** Tickets of a match that is not played wait again, with their age. */
  #waitAgain(state: QueueState, players: readonly string[], index: TicketIndex): void {
    for (const player of players) {
      const { order: _match, ...row } = plain(state.tickets[player]!)
      state.tickets[player] = row
    }
    index.wait(players)
  }

  /** Players of a match who have not left since it was made. A player who has left may have another ticket. */
  #ordered({ tickets }: QueueState, key: string, players: readonly string[]): string[] {
    return players.filter((player) => tickets[player]?.order === key)
  }

  /** Cancels late matches that have neither a task nor a timer, because a handler has failed. */
  #resume(state: QueueState, ctx: QueueContext): void {
    const { orders } = state
    const late = Object.keys(orders).filter(
      (key) => orders[key]!.cancelled || ctx.now - orders[key]!.at > ORDER_MS,
    )
    if (late.length === 0) return
    const { tasks, timers } = ctx.system.room.tables
    const pending = new Set([...tasks.rows, ...timers.rows].map(({ data }) => data))
    for (const key of late)
      if (!pending.has(key)) this.#cancel(state, key, orders[key]!.cancelled ?? 'failed', ctx)
  }

  #cancelLater(key: string, ctx: QueueContext): void {
    ctx.after(CANCEL_PAUSE_MS, 'cancel', key, { id: `cancel-${key}` })
  }

  /** Returns what the queue keeps of a ticket. Throws the refusal of `entry`, or its failure. */
  #kept(sent: Json, { sub, data }: Member, ctx: QueueContext, index: TicketIndex): Json {
    const { entry } = this.#spec
    if (!entry) return sent
    const refuseTicket = (message: string): never => {
      if (typeof message !== 'string' || message === '')
        throw new RoomLogicError(`ctx.refuse got ${kindOf(message)}; it must be a text for the player`)
      return refuse('ticket_refused', bounded(message))
    }
    try {
      const kept = entry(frozen(deepCopy(sent)), { sub, data }, { refuse: refuseTicket })
      if (kept === undefined)
        throw new RoomLogicError('entry returned nothing; it must return what the queue keeps of the ticket')
      return resultOf('entry', kept)
    } catch (error) {
      if (!RoomLogicRefused.is(error)) this.#failed(ctx, index, 'entry', error, 1)
      throw error
    }
  }

  /** Commits the order of a match. Its tickets stop waiting in the turn that starts its task. */
  #order(state: QueueState, ctx: QueueContext, index: TicketIndex, match: readonly Unit<Json>[]): void {
    const tickets = match.flatMap((unit) => unit.tickets)
    const options = this.#optionsOf(tickets, ctx, index)
    const players = tickets.map((ticket) => ticket.id)
    if (!options) {
      index.separate(players, ctx.now)
      index.rest(players, ctx)
      this.#broke(state, players, ctx, index)
      return
    }
    const key = Array.from({ length: 4 }, () => word(ctx.random())).join('')
    const seats = { key, id: `queue:${key}`, subs: players, options }
    state.orders[key] = { at: ctx.now, seats }
    for (const player of players) {
      state.tickets[player] = { ...plain(state.tickets[player]!), order: key }
    }
    index.order(players)
    index.orders++
    ctx.task('reserve', key)
  }

  #optionsOf(
    tickets: readonly MatchTicket<Json>[],
    ctx: QueueContext,
    index: TicketIndex,
  ): JsonObject | undefined {
    try {
      const options = resultOf('options', this.#spec.options?.(tickets.map(({ ticket }) => ticket)) ?? {})
      if (typeof options !== 'object' || options === null || Array.isArray(options))
        throw new RoomLogicError('options returned no object; it must return join options of the room')
      // Joins name the room by it, so `admit` would see other options when the player joins.
      const { key: _, ...rest } = options as JsonObject
      return rest
    } catch (error) {
      this.#failed(ctx, index, 'options', error, 1)
      return undefined
    }
  }

  /** Adds a ticket to the index. Returns its unit, if that can be matched now. */
  #add(player: string, row: TicketRow, index: TicketIndex) {
    const ticket = { id: player, ticket: frozen(plain(row.ticket)), since: row.since }
    return index.add(ticket, row)
  }

  /** Ends a waiting ticket, with a code for its player. */
  #end(state: QueueState, player: string, code: SeatCode, ctx: QueueContext, index: TicketIndex): void {
    ctx.system.end(state.tickets[player]!.member, { code })
    this.#remove(state, player, ctx.now, index)
  }

  /** Removes a waiting ticket. Its party is incomplete from now on. */
  #remove(state: QueueState, player: string, now: number, index: TicketIndex): void {
    const { party } = state.tickets[player]!
    this.#forget(state, player, index)
    if (party !== undefined && state.parties[party]) state.parties[party] = { since: queueTime(state, now) }
  }

  #forget(state: QueueState, player: string, index: TicketIndex): void {
    const { party } = state.tickets[player]!
    delete state.tickets[player]
    index.remove(player)
    if (party !== undefined && index.partyOf(party).size === 0) delete state.parties[party]
  }

  #failed(
    ctx: QueueContext,
    index: TicketIndex,
    rule: 'entry' | 'near' | 'fits' | 'options' | 'shard',
    error: unknown,
    count: number,
  ): void {
    this.#countFailure(ctx, rule, count)
    if (!index.mayLog(rule, ctx.now)) return
    ctx.log.error({ rule, error: errorText(error) }, 'a rule of the queue failed')
  }

  #countFailure(
    { system, log }: QueueContext,
    reason: 'room' | 'room_logic' | 'entry' | 'near' | 'fits' | 'options' | 'shard',
    count = 1,
  ): void {
    system.needs.metrics.queueFailures.inc({ room_type: this.#spec.type, reason }, count)
    this.#countsOf(log).failures += count
  }

  /** Returns a handler that gets the index of its room. */
  #turn<Subject, Options, Context extends QueueContext = QueueContext>(
    run: (state: QueueState, subject: Subject, ctx: Context, index: TicketIndex, options: Options) => void,
  ) {
    return (state: QueueState, subject: Subject, ctx: Context, options?: Options): void => {
      const index = this.#index(state, ctx)
      this.#pass(state, ctx.now, index)
      try {
        run(state, subject, ctx, index, options as Options)
      } finally {
        for (const [rule, { error, count }] of index.failures) this.#failed(ctx, index, rule, error, count)
        index.failures.clear()
      }
      if (index.changes === state.changes) return
      state.changes = index.changes
      state.ranAt = ctx.now
    }
  }

  /** Notes that time has passed. If the queue had no owner, or if the clock has jumped, the queue time stands still. */
  #pass(state: QueueState, now: number, index: TicketIndex): void {
    const gap = now - (index.ranAt ?? state.ranAt ?? now)
    index.ranAt = now
    if (Math.abs(gap) <= GAP_MS) return
    // If the turn fails, the index is built again.
    index.changes++
    state.paused = (state.paused ?? 0) + gap
  }

  #index(state: QueueState, ctx: QueueContext): TicketIndex {
    const known = this.#indexes.get(ctx.log)
    if (known?.changes === state.changes) return known
    const index = new TicketIndex(this.#rules, ctx.system.needs.clock)
    this.#indexes.set(ctx.log, index)
    const tickets = Object.entries(plain(state.tickets))
    for (const [player, row] of tickets) this.#add(player, row, index)
    for (const [player, { at }] of Object.entries(plain(state.matched))) index.expires(player, at)
    index.orders = Object.keys(state.orders).length
    index.changes = state.changes
    // Older code kept the ticket of a player who had left while the match was pending.
    const members = new Set(ctx.members.map(({ id }) => id))
    for (const [player, { member }] of tickets)
      if (!members.has(member)) this.#remove(state, player, ctx.now, index)
    return index
  }
}

/** True if the room of the player's match may still reserve its seats. The ticket does not end by itself until then. */
function isAsked({ tickets, orders }: QueueState, player: string): boolean {
  const { order } = tickets[player]!
  return order !== undefined && !orders[order]?.cancelled
}

/** Time of a queue: the time in which it had an owner that could act, in milliseconds from any start. */
const queueTime = ({ paused = 0 }: QueueState, now: number): number => now - paused

/** Milliseconds for which a player gets no ticket, because matches have refused it. */
function restOfRefusals(state: QueueState, player: string, now: number): number {
  const times = state.refusals?.[player] ?? []
  const waitMs = (times[REFUSALS.number - 1] ?? Number.NEGATIVE_INFINITY) + REFUSALS.waitMs - now
  // Longer than any wait: the clock has gone back.
  return waitMs > REFUSALS.waitMs ? 0 : waitMs
}

/** Remembers that a match has refused players, in place of old refusals. */
function noteRefusals(state: QueueState, refused: readonly string[], now: number): void {
  const all = Object.entries(plain(state.refusals ?? {})).flatMap(([player, times]) =>
    times.map((at) => ({ player, at })),
  )
  const kept = [...all, ...refused.map((player) => ({ player, at: now }))]
    .filter(({ at }) => Math.abs(now - at) < REFUSALS.inMs)
    .sort((one, other) => one.at - other.at)
    .slice(-MAX_REFUSALS)
  const refusals: { [player: string]: number[] } = {}
  for (const { player, at } of kept)
    refusals[player] = [...(refusals[player] ?? []), at].slice(-REFUSALS.number)
  state.refusals = refusals
}

/** Why a match has failed. */
function failureOf(
  ok: boolean,
  value: Reserved | undefined,
): { readonly code: string; readonly message: string } {
  if (ok && value && 'code' in value) return value
  return { code: 'timeout', message: `its room has not answered within ${ORDER_MS / 1000} s` }
}

/** True if one more match may wait for its room. Each has one task, and another one while it is cancelled. */
const mayOrder = ({ system: { room, needs } }: QueueContext, { orders }: TicketIndex): boolean =>
  mayHave(needs, room.address.roomType, 'tasks', Math.max(orders, room.tables.tasks.size) + 1)

/** Outcome of a task of a queue. */
interface Ended<Value> {
  readonly ok: boolean
  readonly value?: Value
  /** Key of the order. */
  readonly data: string
}

/** Argument of a task's work. */
interface Run extends TaskRun {
  readonly ask: NonNullable<TaskRun['ask']>
  readonly memberOf: NonNullable<TaskRun['memberOf']>
  /** Use it immediately: the next flush changes it. */
  readonly state: { readonly orders: QueueState['orders']; readonly tickets: QueueState['tickets'] }
}

/** The match, without the time at which it was made. */
const matchOf = ({ room_id, options }: Match): Match => ({ room_id, options })

/** Refuses a ticket. `text` is for the player. */
function refuse(code: ErrorCode, text: string, match?: Match): never {
  throw new RoomLogicRefused(text, code, match)
}

const otherTicket = (): never => refuse('already_queued', 'the player has a ticket with other data')

/** Returns a copy of what a rule has returned. Throws a RoomLogicError. */
function resultOf(rule: 'entry' | 'options', returned: unknown): Json {
  if (isPromise(returned)) {
    Promise.resolve(returned).catch(() => {})
    throw new RoomLogicError(`${rule} returned a promise; it must be synchronous`)
  }
  const copy = jsonCopy(returned, `the result of ${rule}`)
  if (sizeOf(copy) <= MAX_DATA_BYTES) return copy
  throw new RoomLogicError(`${rule} returned ${sizeOf(copy)} bytes of JSON; it may return ${MAX_DATA_BYTES}`)
}

const sizeOf = (data: Json): number => Buffer.byteLength(JSON.stringify(data))

/** 32 random bits. */
const word = (random: number): string =>
  Math.floor(random * 2 ** 32)
    .toString(16)
    .padStart(8, '0')

/** True if the client has given the same data. A schema may make other data of it each time, for example with a date. */
const isSame = (known: IndexedTicket | TicketRow, options: QueueJoin) =>
  dataOf(known) === dataOf(options) && known.party === options.party

const dataOf = ({ ticket, given }: { readonly ticket: Json; readonly given?: string | undefined }): string =>
  given ?? canonicalJson(ticket)

function raise(error: unknown): never {
  throw error
}
