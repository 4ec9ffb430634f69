import { type Clock, sleep } from '../../../shared/clock.ts'
import type { Codec, Payload } from '../../../shared/protocol/codec.ts'
import type { ListedRoom } from '../../../shared/protocol/messages.ts'
import { type Rate, RateLimits } from '../../../shared/rate-limit.ts'
import { COST, comparisonsCost } from '../../gateway/budget.ts'
import type { Connection } from '../../gateway/connection.ts'
import { Refused } from '../../gateway/refusals.ts'
import type { Session } from '../../gateway/session.ts'
import type { Watcher } from './directory.ts'
import type { ListMetrics } from './metrics.ts'
import { PlacingFailed } from './placing.ts'
import { InvalidQuery, type QueryResult, type RoomRow, tooManyRows } from './rows.ts'

/** Bytes that are saved up, in seconds: enough for the first lists of a client, and for one pause of a token's queue. */
const PLAYER_BURST_SECONDS = 2
const TOKEN_BURST_SECONDS = 0.1

/** Bytes of a token's budget for one point of its queries. */
const BYTES_PER_POINT = 200

/** Maximum number of requests for a list of one client without an answer, in addition to its watches: more than its points allow at once. */
const MAX_UNANSWERED = 32

/** Minimum time until a queue continues, so that a timer serves more than one list. */
const PAUSE_MS = 50

/** Dependencies of `Lists`. */
export interface ListsEnvironment {
  readonly clock: Clock
  readonly metrics: ListMetrics
  readonly options: {
    readonly listBytesPerSecondPerPlayer: number
    readonly listBytesPerSecondPerToken: number
  }
}

/** Lists of rooms on their way to the clients of a node: their budgets in bytes, and their encoded rows. */
export class Lists {
  readonly #environment: ListsEnvironment
  readonly #players: PaidQueues
  readonly #tokens: PaidQueues
  readonly #encoded = new EncodedRows()

  constructor(environment: ListsEnvironment) {
    const { clock, options } = environment
    const queues = (perSecond: number, seconds: number): PaidQueues =>
      new PaidQueues(clock, { perSecond, burst: perSecond * seconds })
    this.#environment = environment
    this.#players = queues(options.listBytesPerSecondPerPlayer, PLAYER_BURST_SECONDS)
    this.#tokens = queues(options.listBytesPerSecondPerToken, TOKEN_BURST_SECONDS)
  }

  /** Returns the lists of one client. `source`: see `PendingConnection.source`. */
  of(session: Session, connection: Connection, source: string): ClientLists {
    const { clock, metrics } = this.#environment
    const { listsDelayed } = metrics
    const { player, sub, projectId, principal, budget } = session
    const token = sub === null ? `${projectId}/${principal} ${source}` : undefined
    const delayed = (by: 'player' | 'token') => () => listsDelayed.inc({ by })
    const whenShared = (send: () => void): void => {
      if (token === undefined) send()
      else this.#tokens.whenPaid(token, send, delayed('token'))
    }
    const purse: Purse = {
      whenPaid: (send) => this.#players.whenPaid(player, () => whenShared(send), delayed('player')),
      whenShared,
      whenSolvent: async () => {
        // The request may be a debt, but not the queries before it.
        while (budget.debt > COST.query) await sleep(clock, Math.max(1, budget.waitMs))
      },
      canQuery: () => budget.hasPoints && (token === undefined || this.#tokens.isSolvent(token)),
      charge: (bytes) => {
        this.#players.charge(player, bytes)
        if (token !== undefined) this.#tokens.charge(token, bytes)
      },
      chargeQuery: (comparisons) => {
        const points = comparisonsCost(comparisons)
        budget.owe(points)
        if (token !== undefined) this.#tokens.charge(token, points * BYTES_PER_POINT)
      },
    }
    return new ClientLists(connection, purse, this.#encoded)
  }
}

/** The budgets of one client's lists and searches. */
interface Purse {
  /** Calls `send` once, when there are bytes for a list: immediately, or after the lists that wait already. */
  readonly whenPaid: (send: () => void) => void
  /** The same, for a search, whose answer is short: it waits only for the token's budget, which its query uses. */
  readonly whenShared: (send: () => void) => void
  /** Resolves when the player has paid for its earlier queries. */
  readonly whenSolvent: () => Promise<void>
  /** Returns true if the query of a watch can be paid. */
  readonly canQuery: () => boolean
  /** Pays for a list that was sent. */
  readonly charge: (bytes: number) => void
  /** Pays for a query that was answered. `comparisons`: see `QueryResult`. */
  readonly chargeQuery: (comparisons: number) => void
}

/** The lists of one client. Each is sent when its client reads and its player can pay. Until then, a newer list of its request replaces it. */
export class ClientLists {
  readonly #connection: Connection
  readonly #purse: Purse
  readonly #encoded: EncodedRows
  /** By request id, the newest list that waits. */
  readonly #waiting = new Map<number, readonly RoomRow[]>()
  /** By request id of a watch, the list that its client has. */
  readonly #sent = new Map<number, readonly RoomRow[]>()
  /** Ids of requests that wait for their only list. */
  readonly #unanswered = new Set<number>()
  /** The previous query. */
  #previous: Promise<unknown> = Promise.resolve()
  /** True while it waits for the budget. */
  #queued = false

  constructor(connection: Connection, purse: Purse, encoded: EncodedRows) {
    this.#connection = connection
    this.#purse = purse
    this.#encoded = encoded
  }

  /** Sends the result of `query`, once. Rejects as `query` does, and with `rate_limited` if too many requests wait already. */
  async answer(requestId: number, query: () => Promise<QueryResult>): Promise<void> {
    if (this.#unanswered.size >= MAX_UNANSWERED)
      throw new Refused(
        'rate_limited',
        `${MAX_UNANSWERED} lists wait already, because a player gets only so many bytes of lists: ask again later, for fewer rooms (limit), or watch a list`,
      )
    this.#unanswered.add(requestId)
    try {
      await new Promise<void>((resolve) => this.#purse.whenPaid(resolve))
      if (!this.#unanswered.has(requestId)) return
      const result = await this.#run(query)
      if (result.stoppedAt) throw tooManyRows(result)
      this.#add(requestId, result.rows)
    } catch (error) {
      this.#unanswered.delete(requestId)
      throw error
    }
  }

  /** Runs a search for a room, and pays for its query. Rejects as `find` does. */
  async search<T extends { readonly comparisons: number }>(find: () => Promise<T>): Promise<T> {
    await new Promise<void>((resolve) => this.#purse.whenShared(resolve))
    return this.#run(find)
  }

  /** Returns the receiver of a watch's lists. `failed`: called if the watch has to end. */
  watcher(requestId: number, failed: Watcher['failed']): Watcher {
    const { canQuery, chargeQuery } = this.#purse
    return { canPay: canQuery, pay: chargeQuery, changed: (rows) => this.#add(requestId, rows), failed }
  }

  /** A watch has ended: its list that waits is dropped. */
  end(requestId: number): void {
    this.#waiting.delete(requestId)
    this.#unanswered.delete(requestId)
    this.#sent.delete(requestId)
  }

  /** The client has caught up: sends the lists that wait. */
  hasRoom(): void {
    this.#next()
  }

  /** Drops all lists, because the connection has ended. */
  stop(): void {
    this.#waiting.clear()
    this.#unanswered.clear()
    this.#sent.clear()
  }

  /** Runs a query after the previous one of the client, because its price is known only then, and pays for it. */
  #run<T extends { readonly comparisons: number }>(query: () => Promise<T>): Promise<T> {
    const purse = this.#purse
    const result = this.#previous.then(async () => {
      await purse.whenSolvent()
      try {
        const found = await query()
        purse.chargeQuery(found.comparisons)
        return found
      } catch (error) {
        if (error instanceof InvalidQuery || error instanceof PlacingFailed)
          purse.chargeQuery(error.comparisons)
        throw error
      }
    })
    this.#previous = result.catch(() => undefined)
    return result
  }

  #add(requestId: number, rows: readonly RoomRow[]): void {
    this.#waiting.set(requestId, rows)
    this.#next()
  }

  #next(): void {
    if (this.#queued || this.#waiting.size === 0 || this.#isHeldUp()) return
    this.#queued = true
    this.#purse.whenPaid(() => {
      this.#queued = false
      this.#sendOne()
      this.#next()
    })
  }

  /** True if the client reads too slowly. The lists then wait for `hasRoom`. */
  #isHeldUp(): boolean {
    const { outbox } = this.#connection
    if (outbox.congested) outbox.awaitRoom()
    return outbox.congested
  }

  #sendOne(): void {
    const [first] = this.#waiting
    if (!first || this.#isHeldUp()) return
    const [requestId, rows] = first
    this.#waiting.delete(requestId)
    const before = this.#sent.get(requestId)
    if (!this.#unanswered.delete(requestId)) this.#sent.set(requestId, rows)
    const { codec } = this.#connection
    const encoded = this.#encoded.of(codec, rows, before)
    if (encoded) this.#purse.charge(this.#connection.sendEncoded(codec.listFor(requestId, encoded)))
  }
}

/** The list of a client that has none. */
const NOTHING: readonly RoomRow[] = []

/** Undefined: players see no change. */
type Encoded = Payload | undefined

/** Lists as bytes. Watches of equal queries have the same arrays of rows, so each change is encoded once for each subprotocol. */
class EncodedRows {
  /** By the list, and by the list before it. */
  readonly #encoded = new WeakMap<readonly RoomRow[], WeakMap<readonly RoomRow[], Map<Codec, Encoded>>>()

  /** Returns the list `rows` for clients with the list `before`, as a message with the request id 1. */
  of(codec: Codec, rows: readonly RoomRow[], before = NOTHING): Encoded {
    const byBefore = this.#encoded.get(rows) ?? new WeakMap<readonly RoomRow[], Map<Codec, Encoded>>()
    this.#encoded.set(rows, byBefore)
    const byCodec = byBefore.get(before) ?? new Map<Codec, Encoded>()
    byBefore.set(before, byCodec)
    if (!byCodec.has(codec)) {
      const list = changesOf(before, rows)
      byCodec.set(codec, list && codec.encode({ t: 'rooms', request_id: 1, ...list }))
    }
    return byCodec.get(codec)
  }
}

/**
 * Returns what a client with the list `before` lacks. Undefined: nothing. Both lists have one order, in which a row has its place for what
 * players see of it. So rows that stay have the same order in both.
 */
export function changesOf(
  before: readonly RoomRow[],
  rows: readonly RoomRow[],
): { rooms: ListedRoom[] } | { gone: number[]; set: ListedRoom[]; at: number[] } | undefined {
  const left = new Map(before.map((row) => [row.room_id, row]))
  const set: ListedRoom[] = []
  const at: number[] = []
  for (const [index, row] of rows.entries()) {
    if (isShownAs(row, left.get(row.room_id))) left.delete(row.room_id)
    else {
      set.push(listed(row))
      at.push(index)
    }
  }
  // The last one first, so that each position is that in `before`.
  const gone = before.flatMap(({ room_id: roomId }, index) => (left.has(roomId) ? index : [])).reverse()
  if (before !== NOTHING && set.length + gone.length === 0) return undefined
  // If no row stays, the whole list is shorter.
  return set.length === rows.length ? { rooms: set } : { gone, set, at }
}

/** Returns true if players see no difference between two rows. */
const isShownAs = (row: RoomRow, before: RoomRow | undefined): boolean =>
  row === before || (before !== undefined && JSON.stringify(listed(row)) === JSON.stringify(listed(before)))

const listed = ({
  room_id,
  players,
  max_players: max,
  reserved,
  created_at,
  data,
  spectators,
}: RoomRow): ListedRoom => ({
  room_id,
  players,
  ...(max !== null && { max_players: max }),
  reserved,
  created_at,
  data,
  ...(spectators !== undefined && { spectators }),
})

/** Token buckets, each with a queue of senders. A sender may overdraw its bucket by the list that it sends. */
class PaidQueues {
  readonly #clock: Clock
  readonly #rate: Rate
  readonly #buckets: RateLimits
  /** By bucket, the senders that wait, oldest first. */
  readonly #queues = new Map<string, (() => void)[]>()

  constructor(clock: Clock, rate: Rate) {
    this.#clock = clock
    this.#rate = rate
    this.#buckets = new RateLimits(clock, rate)
  }

  /** Calls `send` when the bucket of `who` is not empty: immediately, or after the senders that wait already. `delayed`: called if it has to wait. */
  whenPaid(who: string, send: () => void, delayed: () => void): void {
    const queue = this.#queues.get(who)
    if (!queue && this.#buckets.of(who).left >= 1) {
      send()
      return
    }
    delayed()
    if (queue) queue.push(send)
    else {
      this.#queues.set(who, [send])
      this.#pause(who)
    }
  }

  /** True if the bucket owes less than a burst. Queries go on while lists wait, so that the lists that wait are the newest. */
  isSolvent(who: string): boolean {
    return this.#buckets.of(who).left > -this.#rate.burst
  }

  charge(who: string, bytes: number): void {
    this.#buckets.of(who).charge(bytes)
  }

  #pause(who: string): void {
    const ms = Math.max(PAUSE_MS, this.#buckets.of(who).waitMs())
    this.#clock.schedule(ms, () => this.#continue(who))
  }

  #continue(who: string): void {
    const queue = this.#queues.get(who) ?? []
    // Senders that come back wait for the next time.
    for (let left = queue.length; left > 0 && this.#buckets.of(who).left >= 1; left--) queue.shift()!()
    if (queue.length === 0) this.#queues.delete(who)
    else this.#pause(who)
  }
}
