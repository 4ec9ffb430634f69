import { type Clock, untilNext } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import { counter, gauge, histogram, type Metrics } from '../../shared/metrics.ts'
import type { Random } from '../../shared/random.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'
import { Slices } from '../../shared/slices.ts'
import type { ListedRoom, Store } from '../../shared/store/port.ts'
import {
  DEFAULT_LIMIT,
  decodeRow,
  InvalidQuery,
  isBefore,
  type Position,
  type RoomQuery,
  Rows,
  rowMatcher,
  type Search,
  type StoredRow,
} from './rows.ts'

/** Metrics of a node's copies of lists of rooms. */
export const DIRECTORY_METRICS = {
  listedRows: gauge('service_directory_rows', 'Rows in the copies of lists of rooms that this node keeps.'),
  listQueryDuration: histogram(
    'service_directory_query_duration_seconds',
    'Time of a query in the copy of a list. The event loop does nothing else during it.',
  ),
  listWatchers: gauge('service_directory_watchers', 'Queries whose results this node watches for clients.'),
  placements: counter(
    'service_placements_total',
    'Requests of `joinOrCreate` for a room. At the placer of the list: it has chosen a listed room (listed), or a room without a row (new). At the edge of the player: no placer has answered within 8 s (failed).',
    { result: ['listed', 'new', 'failed'] },
  ),
  failedListPolls: counter(
    'service_directory_failed_polls_total',
    'Reads of changes of a list of rooms that failed. The node continues to answer from its copy.',
  ),
}

export type DirectoryMetrics = Metrics<typeof DIRECTORY_METRICS>

/** Dependencies of a node's lists of rooms. */
export interface DirectoryEnvironment {
  readonly nodeId: string
  readonly store: Pick<Store, 'listings' | 'onReturn' | 'records' | 'bus'>
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly metrics: DirectoryMetrics
  /** Returns true if a node has ended, or is unknown. */
  readonly isGone: (nodeId: string) => boolean
  /** Returns the `listing` of a room type. Null: the room type has no list. Undefined: this node has no such room type. */
  readonly listingOf: (roomType: string) => { readonly data: object } | null | undefined
  /** True: this node does not renew its leases as a placer, so that another node becomes the placer before this one ends. */
  readonly draining: () => boolean
}

interface ListEnvironment
  extends Pick<DirectoryEnvironment, 'clock' | 'log' | 'metrics' | 'isGone' | 'listingOf'> {
  readonly store: Pick<Store, 'listings' | 'onReturn'>
}

/** Rooms of one type in one project. */
export interface RoomList {
  readonly projectId: string
  readonly roomType: string
}

/** A node's local copies of lists, which answer queries. A list is read at its first query, and kept for a minute after its last. */
export class Directory {
  readonly #environment: ListEnvironment
  readonly #copies = new Map<string, ListCopy>()

  constructor(environment: ListEnvironment) {
    const { metrics } = environment
    this.#environment = environment
    metrics.listedRows.read(() => this.#sum(({ size }) => size))
    metrics.listWatchers.read(() => this.#sum(({ watchers }) => watchers))
  }

  /**
   * Returns the matching rows, in order. `allows`: whether the token's `rooms` claim covers a room id. `after`: only rows behind this one. Rejects
   * with `InvalidQuery` for a field that is missing in the room type's `listing.data`, and for a room type without a list. Rejects with
   * `StoreUnavailable` if there is no copy of the list and the store is unavailable.
   */
  async rooms(
    list: RoomList,
    query: RoomQuery,
    allows: (roomId: string) => boolean,
    after?: Position,
  ): Promise<readonly StoredRow[]> {
    const search = this.#search(list, query, allows)
    const rows = await this.#copyOf(list).rows()
    const { clock, metrics } = this.#environment
    const began = clock.monotonic()
    const found = rows.find(search, after)
    metrics.listQueryDuration.observe((clock.monotonic() - began) / 1000)
    return found
  }

  /**
   * Calls `callback` with the rows immediately, and at most once a second after changes of the result. Throws the errors with which `rooms` rejects,
   * except `StoreUnavailable`: the first call then waits for the store. The returned function ends the watch.
   */
  watch(
    list: RoomList,
    query: RoomQuery,
    allows: (roomId: string) => boolean,
    callback: WatchCallback,
  ): () => void {
    const search = this.#search(list, query, allows)
    return this.#copyOf(list).watch(search, callback)
  }

  /** Checks a query without reading its list. Throws `InvalidQuery` where `rooms` rejects. */
  check(roomType: string, { where = {} }: RoomQuery): void {
    const listing = this.#environment.listingOf(roomType)
    if (listing === undefined)
      throw new InvalidQuery(`room_type is ${roomType}: there is no such room type`, 'unknown_room_type')
    if (listing === null)
      throw new InvalidQuery(`room_type is ${roomType}: it has no list, since its definition has no listing`)
    const fields = fieldsOf(listing.data)
    const unknown = fields && Object.keys(where).find((field) => !fields.includes(field))
    if (unknown !== undefined)
      throw new InvalidQuery(`where.${unknown} is no field of the list: the fields are ${fields!.join(', ')}`)
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

  #copyOf({ projectId, roomType }: RoomList): ListCopy {
    const list = `${projectId}/${roomType}`
    let copy = this.#copies.get(list)
    if (!copy) {
      copy = new ListCopy(list, this.#environment, () => this.#copies.delete(list))
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
    }
  }
}

/** Names of the fields of a schema: valibot has `entries`, and zod `shape`. Undefined: the schema has neither. */
function fieldsOf(schema: object): readonly string[] | undefined {
  const fields = 'entries' in schema ? schema.entries : 'shape' in schema ? schema.shape : undefined
  return typeof fields === 'object' && fields !== null ? Object.keys(fields) : undefined
}

type WatchCallback = (rows: readonly StoredRow[]) => void

interface Watcher {
  readonly search: Search
  readonly callback: WatchCallback
  /** Last result. Undefined: none yet. */
  rows: readonly StoredRow[] | undefined
  /** True if the result may have changed. */
  due: boolean
  /** Rate of the calls. */
  readonly calls: RateLimit
}

/** Milliseconds between two polls of a list. */
export const POLL_MS = 500
/** Time for which a copy is kept after its last query, in milliseconds. */
export const KEPT_MS = 60_000
/** Calls of a watcher: at most after every second poll, even if the first was a little late. */
const CALL_RATE: Rate = { perSecond: 1 / 0.95, burst: 1 }
/** Rows in one answer of the store: a few milliseconds of work. */
const PAGE = 200

/** A node's copy of one list. It polls the store for changes while it is in use, and evaluates watchers after each poll. */
class ListCopy {
  readonly #environment: ListEnvironment
  readonly #list: string
  readonly #onUnused: () => void
  /** The evaluation of watchers. */
  readonly #slices: Slices
  readonly #watchers = new Set<Watcher>()
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
  constructor(list: string, environment: ListEnvironment, onUnused: () => void) {
    const { clock, store } = environment
    this.#list = list
    this.#environment = environment
    this.#onUnused = onUnused
    this.#slices = new Slices(clock)
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

  get watchers(): number {
    return this.#watchers.size
  }

  /** Resolves with the rows. Rejects with `StoreUnavailable` if there is no copy yet and the store is unavailable. */
  async rows(): Promise<Rows> {
    this.#usedAt = this.#environment.clock.monotonic()
    if (!this.#loaded) await this.#poll()
    return this.#rows
  }

  watch(search: Search, callback: WatchCallback): () => void {
    const watcher: Watcher = {
      search,
      callback,
      rows: undefined,
      due: true,
      calls: new RateLimit(this.#environment.clock, CALL_RATE),
    }
    this.#watchers.add(watcher)
    this.rows().then(
      () => this.#evaluate(watcher),
      () => undefined, // The next poll may succeed.
    )
    return () => {
      this.#watchers.delete(watcher)
      this.#usedAt = this.#environment.clock.monotonic()
    }
  }

  stop(): void {
    this.#stopped = true
    this.#watchers.clear()
    this.#forgetReturn()
    this.#cancel()
  }

  #schedule(): () => void {
    const { clock } = this.#environment
    return clock.schedule(untilNext(clock, POLL_MS), () => void this.#tick())
  }

  async #tick(): Promise<void> {
    if (this.#watchers.size === 0 && this.#environment.clock.monotonic() - this.#usedAt >= KEPT_MS) {
      this.stop()
      this.#onUnused()
      return
    }
    await this.#poll().catch(() => undefined)
    if (this.#stopped) return
    this.#noticeGoneNodes()
    // After the end of a node, all watchers are due.
    const due = this.#loaded ? [...this.#watchers].filter((watcher) => watcher.due) : []
    await Promise.all(due.map((watcher) => this.#slices.run(() => this.#evaluate(watcher))))
    if (this.#stopped) return
    this.#cancel = this.#schedule()
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
    if (rows !== this.#rows) for (const watcher of this.#watchers) watcher.due = true
    this.#rows = rows
    this.#loaded = true
    if (returns === this.#returns) this.#cursor = cursor
  }

  #apply(rows: Rows, { roomId, value }: ListedRoom): void {
    const before = this.#rows.get(roomId)
    let row = value && decodeRow(value)
    if (value && !row) this.#environment.log.debug({ room_id: roomId }, 'row of a room cannot be read')
    // Owners write unchanged rows again before they expire. Keep the old object for an equal row, because watchers compare objects.
    if (before && row && JSON.stringify(before) === JSON.stringify(row)) row = before
    rows.set(roomId, row)
    if (before !== row) for (const watcher of this.#watchers) watcher.due ||= concerns(watcher, before, row)
  }

  /** Makes the watchers due if a node with rows has ended: its rows are no longer results, although they are unchanged. */
  #noticeGoneNodes(): void {
    if (this.#watchers.size === 0) return
    const nodes = new Set<string>()
    for (const { node_id: nodeId } of this.#rows.values()) if (nodeId !== null) nodes.add(nodeId)
    const gone = [...nodes].filter(this.#environment.isGone).sort().join()
    if (gone !== this.#gone) for (const watcher of this.#watchers) watcher.due = true
    this.#gone = gone
  }

  #evaluate(watcher: Watcher): void {
    if (!watcher.due || watcher.calls.waitMs() > 0 || !this.#watchers.has(watcher)) return
    watcher.due = false
    const rows = this.#rows.find(watcher.search)
    if (watcher.rows && isSame(watcher.rows, rows)) return
    watcher.rows = rows
    watcher.calls.take()
    watcher.callback(rows)
  }
}

/** Returns true if a changed row can change the result: it was part of it, or it matches now and comes before its end. */
function concerns({ search, rows = [] }: Watcher, before?: StoredRow, after?: StoredRow): boolean {
  if (before && rows.includes(before)) return true
  if (!after || !search.matches(after)) return false
  const last = rows.at(-1)
  return rows.length < search.limit || !last || isBefore(search.order, after, last)
}

const isSame = (one: readonly StoredRow[], other: readonly StoredRow[]): boolean =>
  one.length === other.length && one.every((row, index) => row === other[index])
