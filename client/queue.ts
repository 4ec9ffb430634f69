/**
 * `roomful/client/queue`: matchmaking for the client. A separate module, so that games without queues do not load it.
 * @module roomful/client/queue
 */
import type { Json, JsonObject } from '../shared/json.ts'
import type { Match } from '../shared/protocol/messages.ts'
import { type Random, systemRandom } from '../shared/random.ts'
import type {
  RoomCollection,
  RoomIn,
  RoomOfType,
  RoomOptions,
  TypedRoom,
  UntypedRoom,
} from '../shared/room-types.ts'
import type { Client } from './client.ts'
import { RoomfulError, type RoomfulErrorCode } from './errors.ts'
import { Listeners, Reported, type Unsubscribe } from './listeners.ts'
import type { Room } from './room.ts'
import type { JoinTarget, LeaveReason } from './seat.ts'

/** Join options of a queue with tickets of `Data`. */
export interface Ticketed<Data> {
  /** Data of the ticket. */
  readonly ticket: Data
}

/** Data of a ticket, from the definition of the queue. */
export type TicketData<Q extends TypedRoom> = string extends keyof RoomOptions<Q>
  ? Json
  : RoomOptions<Q> extends Ticketed<infer Data>
    ? Data
    : never

/** Room type of the matches of the queue `Q`. */
export type MatchRoom<Rooms extends RoomCollection, Q extends TypedRoom> =
  NonNullable<Q['~types']> extends {
    /** Room type of the matches. */ readonly matches: infer Name extends string
  }
    ? RoomOfType<Rooms, Name>
    : TypedRoom<UntypedRoom>

/** Party of players who want to be in the same match. */
export interface Party {
  /** Code for the friends of the player, with 128 random bits: `client.queue('ranked', { elo }, { party: code })`. */
  readonly code: string
}

/** Options of `queue`. */
export interface QueueOptions {
  /** Code of the player's party. */
  readonly party?: string
}

/** State of a waiting ticket. */
export interface TicketStatus {
  /** Time for which the ticket has waited, in milliseconds. */
  readonly waitedMs: number
  /** Number of tickets in the queue, some seconds old. */
  readonly waiting: number
}

/** Methods that `withQueues` adds to a client. */
export interface Queues<Rooms extends RoomCollection> {
  /**
   * Puts the player into a queue. The ticket has the outcome: `ticket.matched`. A player has one ticket in a queue: another call with the
   * same data, for example in another tab, gets the same ticket.
   */
  queue<Q extends TypedRoom = never, R extends TypedRoom = TypedRoom<UntypedRoom>>(
    type: Q['type'],
    data: TicketData<Q>,
    options?: QueueOptions,
  ): QueueTicket<R>
  /** The same, with the types of a client that knows its rooms. */
  queue<Type extends RoomIn<Rooms>['type']>(
    type: Type,
    data: TicketData<RoomOfType<Rooms, Type>>,
    options?: QueueOptions,
  ): QueueTicket<MatchRoom<Rooms, RoomOfType<Rooms, Type>>>
  /** Makes a party for `size` players. Each of them queues with its code within 60 s. */
  party(options: { readonly size: number }): Promise<Party>
}

/** Adds `queue` and `party` to a client, and returns it. `random` is the source of party codes; default: the machine's. */
export function withQueues<Rooms extends RoomCollection>(
  client: Client<Rooms>,
  random: Random = systemRandom,
): Client<Rooms> & Queues<Rooms> {
  const seen: SeenMatches = new Map()
  const queue = (type: string, data: unknown, { party }: QueueOptions = {}) => {
    const options = { ticket: data, ...(party !== undefined && { party }) }
    return new QueueTicket<TypedRoom>(client, type, options, seen)
  }
  const party = async ({ size }: { readonly size: number }): Promise<Party> => {
    if (!Number.isInteger(size) || size < 1 || size > 100)
      throw new RoomfulError(
        'invalid_options',
        `The size of the party is ${size}: use an integer from 1 to 100.`,
      )
    const hex = Array.from(random.bytes(16), (byte) => byte.toString(16).padStart(2, '0'))
    return { code: `${size}-${hex.join('')}` }
  }
  return Object.assign(client, { queue, party }) as never
}

/** Room id of the client's last match, by the id of the queue. The next ticket names it, so that the queue does not answer with that match. */
type SeenMatches = Map<string, string>

/** Interval of `onChange` while a ticket waits, in milliseconds. */
const SHOWN_MS = 1000

/** Codes with which a queue ends or refuses a ticket. */
const ENDS: ReadonlySet<string> = new Set([
  'already_queued',
  'queue_full',
  'party_full',
  'party_timeout',
  'party_refused',
  'ticket_refused',
  'join_refused',
  'match_failed',
  'gave_up',
])

/** Refusals of the room of a match that is over for the player. */
const OVER: ReadonlySet<string> = new Set(['room_not_found', 'room_full', 'join_refused', 'banned'])

/** Refusals of rooms that mean something else in a queue. */
const CODES: { readonly [code: string]: RoomfulErrorCode } = {
  room_full: 'queue_full',
  already_joined: 'already_queued',
}

/** The part of a client that a ticket uses. */
interface Joiner {
  serverTime(): number
  schedule(ms: number, callback: () => void): () => void
  join<R extends TypedRoom = TypedRoom<UntypedRoom>>(
    type: string,
    options: JsonObject,
    target?: JoinTarget,
  ): Promise<Room<R>>
}

/** Place of a player in a queue, made by `client.queue`. */
export class QueueTicket<R extends TypedRoom = TypedRoom> {
  /** Id of the room that is the queue. */
  readonly id: string
  /**
   * Resolves to the room of the match, which the client has joined. Rejects with a RoomfulError: `cancelled`, `already_queued` (the player
   * has a ticket with other data; the ticket of an earlier page ends with that), `queue_full`, `party_full`, `party_timeout`,
   * `ticket_refused` and `join_refused` (the message is the reason), `party_refused`, `match_failed`, `gave_up`, `seat_lost` (the player
   * was disconnected for too long, or kicked or banned: then the message is the reason), `rate_limited`, `replaced` (another client of the
   * player has the ticket), or another error of a join.
   */
  readonly matched: Promise<Room<R>>
  readonly #client: Joiner
  readonly #options: JsonObject
  readonly #seen: SeenMatches
  readonly #changes = new Listeners<[status: TicketStatus]>((error) =>
    queueMicrotask(() => {
      throw error
    }),
  )
  #room: Room | undefined
  #since: number
  #cancelled = false
  /** The queue's answer that the seat belongs to another ticket. */
  #refusal: RoomfulError | undefined

  /** Called by `client.queue`. */
  constructor(client: Joiner, type: string, options: object, seen: SeenMatches) {
    this.id = `${type}:default`
    this.#client = client
    this.#options = options as JsonObject
    this.#seen = seen
    this.#since = client.serverTime()
    this.matched = Reported.of(this.#run(type), () => {})
  }

  /** Time for which the ticket has waited, in milliseconds. */
  get waitedMs(): number {
    return Math.max(0, this.#client.serverTime() - this.#since)
  }

  /** Number of tickets in the queue, some seconds old. 0 before the queue has answered. */
  get waiting(): number {
    return (this.#room?.state as { readonly waiting: number } | undefined)?.waiting ?? 0
  }

  /** Calls `callback` when the ticket has its place in the queue, and then once a second and after each change of the number of tickets. */
  onChange(callback: (status: TicketStatus) => void): Unsubscribe {
    return this.#changes.add(callback)
  }

  /** Leaves the queue. Resolves when the ticket has ended. If the client has already received the match, `matched` still resolves. */
  async cancel(): Promise<void> {
    this.#cancelled = true
    await this.#room?.leave()
    await this.matched.then(
      () => {},
      () => {},
    )
  }

  async #run(type: string): Promise<Room<R>> {
    for (;;) {
      const { room_id: roomId, options } = await this.#wait(type)
      const colon = roomId.indexOf(':')
      try {
        const join = { ...options, key: roomId.slice(colon + 1) }
        return await this.#client.join<R>(roomId.slice(0, colon), join, { create: false })
      } catch (error) {
        // The match is one that an earlier page of the player was in, and it has ended. Queue again.
        const { code } = error as RoomfulError
        if (!(this.#room ? code === 'room_not_found' : OVER.has(code))) throw error
      }
    }
  }

  /** Resolves to the match of the ticket. */
  async #wait(type: string): Promise<Match> {
    const seen = this.#seen.get(this.id)
    let room: Room
    try {
      room = await this.#client.join(type, { ...this.#options, ...(seen !== undefined && { seen }) })
    } catch (error) {
      const match = this.#matchOf(error)
      if (match) return match
      throw this.#ended(error)
    }
    this.#room = room
    // The match can arrive together with the join, before this code could add listeners. The queue repeats it to the next join.
    if (room.status === 'left') return this.#wait(type)
    let over = false
    let stop = (): void => {}
    const tick = (): void => {
      if (over) return
      stop = this.#client.schedule(SHOWN_MS, tick)
      this.#changed()
    }
    return new Promise<Match>((resolve, reject) => {
      const { memberId } = room
      const lost = (): void => {
        // The seat was lost, and the client has joined again as a new member, with another ticket.
        if (room.memberId === memberId) return
        reject(new RoomfulError('seat_lost', SEAT_LOST))
        room.leave().catch(() => {})
      }
      room.onMembersChange(lost)
      room.onStateChange(() => this.#changed())
      room.onLeave((reason, error) => {
        const match = this.#matchOf(error)
        if (match) resolve(match)
        else reject(this.#ended(error, reason))
      })
      if (this.#cancelled) void room.leave()
      else
        room.request('ticket', this.#options).then(
          (waitedMs) => {
            this.#since = this.#client.serverTime() - Number(waitedMs)
            tick()
          },
          (error: RoomfulError) => {
            if (error.code !== 'already_queued') return
            // The seat belongs to an earlier page, which had other data. This page leaves it, because no player would join its match.
            this.#refusal = error
            room.leave().catch(() => reject(this.#ended(error)))
          },
        )
    }).finally(() => {
      over = true
      stop()
    })
  }

  /** Returns the match in an error. A cancelled or refused ticket has none; its match is noted, so that the next ticket does not get it. */
  #matchOf(error: unknown): Match | undefined {
    const match = matchOf(error)
    if (match) this.#seen.set(this.id, match.room_id)
    return this.#cancelled || this.#refusal ? undefined : match
  }

  #ended(error: unknown, reason?: LeaveReason): RoomfulError {
    if (this.#cancelled) return ended(undefined)
    return this.#refusal ? ended(this.#refusal) : ended(error as RoomfulError | undefined, reason)
  }

  #changed(): void {
    this.#changes.call({ waitedMs: this.waitedMs, waiting: this.waiting })
  }
}

const SEAT_LOST =
  'The client was disconnected for too long, and has lost its place in the queue: queue again.'

/** Returns the match with which a queue has ended a seat or refused a join. */
function matchOf(error: unknown): Match | undefined {
  const { code, cause } = (error ?? {}) as Partial<RoomfulError>
  return code === 'matched' ? (cause as Match) : undefined
}

/** Returns the error of a ticket that has ended without a match. */
function ended(cause: RoomfulError | undefined, reason?: LeaveReason): RoomfulError {
  if (reason === 'left' || !cause) return new RoomfulError('cancelled', 'The ticket was cancelled.')
  const { code, message, retryable } = cause
  if (ENDS.has(code)) return cause
  if (reason === 'replaced') return new RoomfulError('replaced', message, { cause })
  if (reason !== undefined && reason !== 'client_closed')
    return new RoomfulError('seat_lost', reason === 'kicked' ? message : SEAT_LOST, { cause })
  return CODES[code] ? new RoomfulError(CODES[code], message, { cause, retryable }) : cause
}
