import { type Clock, untilNext } from '../../../shared/clock.ts'
import { canonicalJson, type Json } from '../../../shared/json.ts'
import type { Logger } from '../../../shared/log.ts'
import { type Rate, RateLimit } from '../../../shared/rate-limit.ts'
import { Slices } from '../../../shared/slices.ts'
import type { ListedRoom, Listings } from '../../../shared/store/port.ts'
import { covers } from '../../../shared/tokens.ts'
import { ListFields } from './fields.ts'
import type { ListMetrics } from './metrics.ts'
import {
  DEFAULT_LIMIT,
  decodeRow,
  InvalidQuery,
  isBefore,
  type Position,
  type QueryResult,
  type RoomQuery,
  Rows,
  rowMatcher,
  type Search,
  type StoredRow,
  tooManyRows,
} from './rows.ts'

/**
 * A node's copies of lists of rooms. `listing.ts` writes the row of a room, at its owner. `codes.ts` claims its code, and `shared/ids.ts` has the
 * format of codes.
 */

/** Dependencies of a node's lists of rooms. */
export interface DirectoryEnvironment {
  readonly store: { readonly listings: Listings; onReturn(callback: () => void): () => void }
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: ListMetrics
  /** Maximum number of rows that a query looks at. */
  readonly maxRowsPerQuery: number
  /** Returns true if a node has ended, or is unknown. */
  readonly isGone: (nodeId: string) => boolean
  /** Returns the `listing` of a room type. Null: the room type has no list. Undefined: this node has no such room type. */
  readonly listingOf: (roomType: string) => { readonly data: object } | null | undefined
}

/** Rooms of one type in one project. */
export interface RoomList {
  readonly projectId: string
  readonly roomType: string
}

/** Answers the queries of clients (`Directory`). */
export interface ListReader {
  rooms(
    list: RoomList,
    query: RoomQuery,
    allows: (roomId: string) => boolean,
    after?: Position,
  ): Promise<QueryResult>
  watch(list: RoomList, query: RoomQuery, claim: readonly string[] | undefined, watcher: Watcher): () => void
}

/** A node's local copies of lists, which answer queries. A list is read at its first query, and kept for a minute after its last. */
export class Directory implements ListReader {
  readonly #environment: DirectoryEnvironment
  readonly #copies = new Map<string, ListCopy>()
  /** By the `listing.data` of their room type. */
  readonly #fields = new WeakMap<object, ListFields>()
  /** Slices of queries, and calls of watches. */
  readonly #slices: Slices

  constructor(environment: DirectoryEnvironment) {
    const { clock, metrics } = environment
    this.#environment = environment
    this.#slices = new Slices(clock)
    metrics.listedRows.read(() => this.#sum(({ size }) => size))
    metrics.listWatchers.read(() => this.#sum(({ watches }) => watches))
    metrics.watchedQueries.read(() => this.#sum(({ watchedQueries }) => watchedQueries))
  }

  /**
   * Returns the matching rows, in order, of at most `maxRowsPerQuery` rows. `allows`: whether the token's `rooms` claim covers a room id. `after`:
   * only rows behind this one. Rejects with `InvalidQuery` for a field or a kind of value that the room type's `listing.data` does not have, and
   * for a room type without a list. Rejects with `StoreUnavailable` if there is no copy of the list and the store is unavailable.
   */
  async rooms(
    list: RoomList,
    query: RoomQuery,
    allows: (roomId: string) => boolean,
    after?: Position,
  ): Promise<QueryResult> {
    const search = this.#search(list, query, allows)
    return this.#copyOf(list).query(search, after)
  }

  /**
   * Calls `watcher.changed` with the rows immediately, and at most once a second after changes of the result. Watches of equal queries get the
   * same array, and one of them in turn pays for its evaluation. `claim`: the token's `rooms` claim. Throws the errors with which `rooms` rejects, except `StoreUnavailable`: the first call then waits for the store. The returned function ends the watch.
   */
  watch(
    list: RoomList,
    query: RoomQuery,
    claim: readonly string[] | undefined,
    watcher: Watcher,
  ): () => void {
    const { roomType } = list
    const search = this.#search(list, query, (roomId) => covers(claim, roomType, roomId))
    const { where = {}, full = false } = query
    const { order, limit } = search
    const rooms = claim === undefined || claim.includes(roomType) ? null : claim
    const key = canonicalJson([where, order, limit, full, rooms] as Json)
    return this.#copyOf(list).watch(key, search, watcher)
  }

  /** Checks a query without reading its list. Throws `InvalidQuery` where `rooms` rejects. */
  check(roomType: string, query: RoomQuery): void {
    const listing = this.#environment.listingOf(roomType)
    if (listing === undefined)
      throw new InvalidQuery(`room_type is ${roomType}: there is no such room type`, 'unknown_room_type')
    if (listing === null)
      throw new InvalidQuery(`room_type is ${roomType}: it has no list, since its definition has no listing`)
    const fault = this.#fieldsOf(listing.data).fault(query)
    if (fault) throw fault
  }

  stop(): void {
    for (const copy of this.#copies.values()) copy.stop()
    this.#copies.clear()
  }

  #sum(count: (copy: ListCopy) => number): number {
    let sum = 0
    for (const copy of this.#copies.values()) sum += count(copy)
    return sum
  }

  #fieldsOf(schema: object): ListFields {
    const fields = this.#fields.get(schema) ?? new ListFields(schema)
    this.#fields.set(schema, fields)
    return fields
  }

  #copyOf({ projectId, roomType }: RoomList): ListCopy {
    const list = `${projectId}/${roomType}`
    let copy = this.#copies.get(list)
    if (!copy) {
      copy = new ListCopy(list, this.#environment, this.#slices, () => this.#copies.delete(list))
      this.#copies.set(list, copy)
    }
    return copy
  }

  #search({ roomType }: RoomList, query: RoomQuery, allows: (roomId: string) => boolean): Search {
    const { isGone } = this.#environment
    this.check(roomType, query)
    const matches = rowMatcher(query)
    return {
      matches: (row) => matches(row) && (row.node_id === null || !isGone(row.node_id)) && allows(row.room_id),
      order: query.order ?? 'fullest',
      limit: query.limit ?? DEFAULT_LIMIT,
      comparisonsPerRow: 1 + Object.keys(query.where ?? {}).length,
    }
  }
}

/** Client of a watch. */
export interface Watcher {
  /** Returns true if it can pay for an evaluation of its query. */
  readonly canPay: () => boolean
  /** Pays for an evaluation. `comparisons`: see `QueryResult`. */
  readonly pay: (comparisons: number) => void
  readonly changed: (rows: readonly StoredRow[]) => void
  /** The query looks at too many rows. The client has to end the watch. */
  readonly failed: (error: InvalidQuery) => void
}

/** A query that clients watch, with its result. */
interface WatchedQuery {
  readonly search: Search
  readonly watches: Set<Watch>
  /** Last result. Undefined: none yet. */
  rows: readonly StoredRow[] | undefined
  /** True if the result may have changed. */
  due: boolean
  /** The evaluation under way. */
  evaluation: Promise<void> | undefined
}

/** A watch of one client. */
interface Watch {
  readonly watcher: Watcher
  /** The result of the last call. Undefined: none yet. */
  shown: readonly StoredRow[] | undefined
  /** Rate of the calls. */
  readonly calls: RateLimit
}

/** Milliseconds between two polls of a list. */
export const POLL_MS = 500
/** Time for which a copy is kept after its last query, in milliseconds. */
export const KEPT_MS = 60_000
/** Calls of a watch: at most after every second poll, even if the first was a little late. */
const CALL_RATE: Rate = { perSecond: 1 / 0.95, burst: 1 }
/** Rows in one answer of the store: a few milliseconds of work. */
const PAGE = 200
/** Rows that a query looks at before other work runs: about a millisecond with 20 conditions. */
const SLICE_ROWS = 1000

/** A node's copy of one list. It polls the store for changes while it is in use, and evaluates watched queries after each poll. */
class ListCopy {
  readonly #environment: DirectoryEnvironment
  readonly #list: string
  readonly #onUnused: () => void
  readonly #slices: Slices
  /** By their canonical text. */
  readonly #watched = new Map<string, WatchedQuery>()
  readonly #forgetReturn: () => void
  #rows = new Rows()
  #loaded = false
  #cursor = ''
  /** Number of times that the store came back. */
  #returns = 0
  #polling: Promise<void> | undefined
  #failing = false
  #usedAt: number
  /** The ended nodes with rows, as of the last poll. */
  #gone = ''
  #cancel: () => void
  #stopped = false

  /** `onUnused`: called when the copy has stopped because it is no longer used. */
  constructor(list: string, environment: DirectoryEnvironment, slices: Slices, onUnused: () => void) {
    const { clock, store } = environment
    this.#list = list
    this.#environment = environment
    this.#onUnused = onUnused
    this.#slices = slices
    this.#usedAt = clock.monotonic()
    // A promoted replica may lack changes that this copy has, and may have other changes under the same numbers.
    this.#forgetReturn = store.onReturn(() => {
      this.#returns++
      this.#cursor = ''
    })
    this.#cancel = this.#schedule()
  }

  get size(): number {
    return this.#rows.size
  }

  get watches(): number {
    let count = 0
    for (const { watches } of this.#watched.values()) count += watches.size
    return count
  }

  get watchedQueries(): number {
    return this.#watched.size
  }

  /** Answers a query. Rejects with `StoreUnavailable` if there is no copy yet and the store is unavailable. */
  async query(search: Search, after?: Position): Promise<QueryResult> {
    await this.#load()
    return this.#find(search, after)
  }

  /** `key`: equal for equal queries. */
  watch(key: string, search: Search, watcher: Watcher): () => void {
    const query = this.#watched.get(key) ?? {
      search,
      watches: new Set(),
      rows: undefined,
      due: true,
      evaluation: undefined,
    }
    this.#watched.set(key, query)
    const watch: Watch = {
      watcher,
      shown: undefined,
      calls: new RateLimit(this.#environment.clock, CALL_RATE),
    }
    query.watches.add(watch)
    this.#load()
      .then(() => this.#evaluate(query))
      .then(
        () => this.#show(query, watch),
        () => undefined, // The next poll may succeed.
      )
    return () => {
      query.watches.delete(watch)
      if (query.watches.size === 0 && this.#watched.get(key) === query) this.#watched.delete(key)
      this.#usedAt = this.#environment.clock.monotonic()
    }
  }

  async #load(): Promise<void> {
    this.#usedAt = this.#environment.clock.monotonic()
    if (!this.#loaded) await this.#poll()
  }

  /** Looks at the rows in slices, so that other work runs in between. A row that changes its place between two slices may be missed. */
  async #find(search: Search, after?: Position): Promise<QueryResult> {
    const { clock, metrics, maxRowsPerQuery } = this.#environment
    const rows = this.#rows
    const found = new Map<string, StoredRow>()
    let looked = 0
    const slice = (from?: Position): Position | undefined => {
      const began = clock.monotonic()
      const limit = search.limit - found.size
      const part = rows.find({ ...search, limit }, from, Math.min(SLICE_ROWS, maxRowsPerQuery - looked))
      metrics.listQueryDuration.observe((clock.monotonic() - began) / 1000)
      looked += part.looked
      for (const row of part.rows) found.set(row.room_id, row)
      return part.last
    }
    let last = slice(after)
    while (last && looked < maxRowsPerQuery) {
      const from = last
      last = await this.#slices.run(() => slice(from))
    }
    if (last) metrics.stoppedQueries.inc()
    return {
      rows: [...found.values()],
      looked,
      comparisons: looked * search.comparisonsPerRow,
      stoppedAt: last,
    }
  }

  stop(): void {
    this.#stopped = true
    this.#watched.clear()
    this.#forgetReturn()
    this.#cancel()
  }

  #schedule(): () => void {
    const { clock } = this.#environment
    return clock.schedule(untilNext(clock, POLL_MS), () => void this.#tick())
  }

  async #tick(): Promise<void> {
    if (this.#watched.size === 0 && this.#environment.clock.monotonic() - this.#usedAt >= KEPT_MS) {
      this.stop()
      this.#onUnused()
      return
    }
    await this.#poll().catch(() => undefined)
    if (this.#stopped) return
    this.#noticeGoneNodes()
    if (this.#loaded) await this.#callWatches()
    if (this.#stopped) return
    this.#cancel = this.#schedule()
  }

  /** Evaluates the queries whose results may have changed, and calls the watches that do not have the result yet. */
  async #callWatches(): Promise<void> {
    const queries = [...this.#watched.values()]
    // After the end of a node, all are due.
    const due = queries.filter((query) => query.due)
    await Promise.all(due.map((query) => this.#slices.run(() => this.#evaluate(query))))
    const calls = queries.flatMap((query) =>
      [...query.watches].filter(({ shown }) => shown !== query.rows).map((watch) => ({ query, watch })),
    )
    await Promise.all(calls.map(({ query, watch }) => this.#slices.run(() => this.#show(query, watch))))
  }

  #poll(): Promise<void> {
    this.#polling ??= this.#read().finally(() => {
      this.#polling = undefined
    })
    return this.#polling
  }

  async #read(): Promise<void> {
    const { log, metrics } = this.#environment
    try {
      await this.#readChanges()
      this.#failing = false
    } catch (error) {
      metrics.failedListPolls.inc()
      if (!this.#failing) log.warn({ err: error, list: this.#list }, 'poll of a list failed')
      this.#failing = true
      throw error
    }
  }

  /** A restarted list replaces the copy when all of it has been read. Until then the old copy answers. */
  async #readChanges(): Promise<void> {
    const returns = this.#returns
    let [cursor, rows, hasMore] = [this.#cursor, this.#rows, true]
    while (hasMore) {
      const page = await this.#environment.store.listings.changes(this.#list, cursor, PAGE)
      if (page.restarted) rows = new Rows()
      for (const room of page.rooms) this.#apply(rows, room)
      cursor = page.cursor
      hasMore = page.more
    }
    if (rows !== this.#rows) for (const query of this.#watched.values()) query.due = true
    this.#rows = rows
    this.#loaded = true
    if (returns === this.#returns) this.#cursor = cursor
  }

  #apply(rows: Rows, { roomId, value }: ListedRoom): void {
    const before = this.#rows.get(roomId)
    let row = value && decodeRow(value)
    if (value && !row) this.#environment.log.debug({ room_id: roomId }, 'row of a room cannot be read')
    // Owners write unchanged rows again before they expire. Keep the old object for an equal row, because results are compared by them.
    if (before && row && JSON.stringify(before) === JSON.stringify(row)) row = before
    rows.set(roomId, row)
    if (before !== row)
      for (const query of this.#watched.values())
        query.due ||= query.evaluation !== undefined || concerns(query, before, row)
  }

  /** Makes the watched queries due if a node with rows has ended: its rows are no longer results, although they are unchanged. */
  #noticeGoneNodes(): void {
    if (this.#watched.size === 0) return
    const nodes = new Set<string>()
    for (const { node_id: nodeId } of this.#rows.values()) if (nodeId !== null) nodes.add(nodeId)
    const gone = [...nodes].filter(this.#environment.isGone).sort().join()
    if (gone !== this.#gone) for (const query of this.#watched.values()) query.due = true
    this.#gone = gone
  }

  /** Evaluates a query if its result may have changed, and if one of its watches can pay. Otherwise after the next poll. */
  #evaluate(query: WatchedQuery): Promise<void> {
    if (!query.due && !query.evaluation) return Promise.resolve()
    query.evaluation ??= this.#evaluateNow(query).finally(() => {
      query.evaluation = undefined
    })
    return query.evaluation
  }

  async #evaluateNow(query: WatchedQuery): Promise<void> {
    const { watches, search } = query
    const payer = [...watches].find(({ watcher }) => watcher.canPay())
    if (!payer) return
    query.due = false
    const result = await this.#find(search)
    payer.watcher.pay(result.comparisons)
    // At the end, so that another watch pays for the next evaluation.
    if (watches.delete(payer)) watches.add(payer)
    if (result.stoppedAt) this.#fail(query, result)
    else if (!query.rows || !isSame(query.rows, result.rows)) query.rows = result.rows
  }

  /** The query looks at too many rows. */
  #fail({ watches }: WatchedQuery, result: QueryResult): void {
    const error = tooManyRows(result)
    for (const { watcher } of [...watches]) watcher.failed(error)
  }

  #show({ rows, watches }: WatchedQuery, watch: Watch): void {
    if (!rows || watch.shown === rows || !watches.has(watch) || !watch.calls.take()) return
    watch.shown = rows
    watch.watcher.changed(rows)
  }
}

/** Returns true if a changed row can change the result: it was part of it, or it matches now and comes before its end. */
function concerns({ search, rows = [] }: WatchedQuery, before?: StoredRow, after?: StoredRow): boolean {
  if (before && rows.includes(before)) return true
  if (!after || !search.matches(after)) return false
  const last = rows.at(-1)
  return rows.length < search.limit || !last || isBefore(search.order, after, last)
}

const isSame = (one: readonly StoredRow[], other: readonly StoredRow[]): boolean =>
  one.length === other.length && one.every((row, index) => row === other[index])
