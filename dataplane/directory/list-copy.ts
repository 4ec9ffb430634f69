import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Clock, untilNext } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { ListedRoom, Store } from '../../shared/store/port.ts'
import type { DirectoryMetrics } from './metrics.ts'
import { decodeRow, type StoredRow } from './row.ts'
import { isBefore, Rows, type Search } from './rows.ts'

/** Dependencies of ListCopy. */
export interface ListCopyParts {
  readonly store: Pick<Store, 'listings' | 'onReturn'>
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: DirectoryMetrics
  /** Whether a node has ended, or is not known. */
  readonly isGone: (nodeId: string) => boolean
}

export type WatchCallback = (rows: readonly StoredRow[]) => void

interface Watcher {
  readonly search: Search
  readonly callback: WatchCallback
  /** Last result. Undefined: none yet. */
  rows: readonly StoredRow[] | undefined
  /** True: the result may have changed. */
  due: boolean
  /** Monotonic milliseconds. */
  calledAt: number
}

/** Milliseconds between two polls of a list. */
export const POLL_MS = 500
/** Milliseconds after its last query for which a copy is kept. */
export const KEPT_MS = 60_000
/** Minimum milliseconds between two calls of a watcher: every second poll, also if the first of them was a little late. */
const CALL_MS = 950
/** Milliseconds of the event loop that watchers take at a time. */
const SLICE_MS = 5
/** Rows in one answer of the store: a few milliseconds of work. */
const PAGE = 200

/** A node's copy of one list. It polls the store for changes while it is in use, and evaluates watchers after each poll. */
export class ListCopy {
  readonly #parts: ListCopyParts
  readonly #list: string
  readonly #onUnused: () => void
  readonly #watchers = new Set<Watcher>()
  readonly #forgetReturn: () => void
  #rows = new Rows()
  #loaded = false
  #cursor = ''
  /** Number of returns of the store. */
  #returns = 0
  #polling: Promise<void> | undefined
  #failing = false
  #usedAt: number
  /** Nodes of rows that have ended, as of the last poll. */
  #gone = ''
  #cancel: () => void
  #stopped = false

  /** `onUnused`: called when the copy has stopped because nothing uses it. */
  constructor(list: string, parts: ListCopyParts, onUnused: () => void) {
    const { clock, store } = parts
    this.#list = list
    this.#parts = parts
    this.#onUnused = onUnused
    this.#usedAt = clock.monotonic()
    // A promoted replica can lack changes that this copy has, and have others under the same numbers.
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

  /** Resolves with the rows. Rejects with `StoreUnavailable` when there is no copy yet and the store is away. */
  async rows(): Promise<Rows> {
    this.#usedAt = this.#parts.clock.monotonic()
    if (!this.#loaded) await this.#poll()
    return this.#rows
  }

  watch(search: Search, callback: WatchCallback): () => void {
    const watcher: Watcher = {
      search,
      callback,
      rows: undefined,
      due: true,
      calledAt: Number.NEGATIVE_INFINITY,
    }
    this.#watchers.add(watcher)
    this.rows().then(
      () => this.#evaluate(watcher),
      () => undefined, // The next poll may succeed.
    )
    return () => {
      this.#watchers.delete(watcher)
      this.#usedAt = this.#parts.clock.monotonic()
    }
  }

  stop(): void {
    this.#stopped = true
    this.#watchers.clear()
    this.#forgetReturn()
    this.#cancel()
  }

  #schedule(): () => void {
    const { clock } = this.#parts
    return clock.schedule(untilNext(clock, POLL_MS), () => void this.#tick())
  }

  async #tick(): Promise<void> {
    if (this.#watchers.size === 0 && this.#parts.clock.monotonic() - this.#usedAt >= KEPT_MS) {
      this.stop()
      this.#onUnused()
      return
    }
    await this.#poll().catch(() => undefined)
    if (this.#stopped) return
    this.#noticeGoneNodes()
    if (this.#loaded) await this.#evaluateAll()
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
    const { log, metrics } = this.#parts
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

  /** A list that begins anew replaces the copy when all of it has been read. Until then the old copy answers. */
  async #readChanges(): Promise<void> {
    const returns = this.#returns
    let [cursor, rows, hasMore] = [this.#cursor, this.#rows, true]
    while (hasMore) {
      const page = await this.#parts.store.listings.changes(this.#list, cursor, PAGE)
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
    if (value && !row) this.#parts.log.debug({ room_id: roomId }, 'row of a room cannot be read')
    // Owners write unchanged rows again before they expire. An equal row stays the same object, which watchers compare.
    if (before && row && JSON.stringify(before) === JSON.stringify(row)) row = before
    rows.set(roomId, row)
    if (before !== row) for (const watcher of this.#watchers) watcher.due ||= concerns(watcher, before, row)
  }

  /** Rows of nodes that have ended are no longer results, although the rows are the same. */
  #noticeGoneNodes(): void {
    if (this.#watchers.size === 0) return
    const nodes = new Set<string>()
    for (const { node_id: nodeId } of this.#rows.values()) if (nodeId !== null) nodes.add(nodeId)
    const gone = [...nodes].filter(this.#parts.isGone).sort().join()
    if (gone !== this.#gone) for (const watcher of this.#watchers) watcher.due = true
    this.#gone = gone
  }

  /** After the end of a node all watchers are due: they leave the event loop to others in between. */
  async #evaluateAll(): Promise<void> {
    const { clock } = this.#parts
    let began = clock.monotonic()
    for (const watcher of this.#watchers) {
      this.#evaluate(watcher)
      if (clock.monotonic() - began < SLICE_MS) continue
      await nextTurn()
      began = clock.monotonic()
    }
  }

  #evaluate(watcher: Watcher): void {
    const now = this.#parts.clock.monotonic()
    if (!watcher.due || now - watcher.calledAt < CALL_MS || !this.#watchers.has(watcher)) return
    watcher.due = false
    const rows = this.#rows.find(watcher.search)
    if (watcher.rows && isSame(watcher.rows, rows)) return
    watcher.rows = rows
    watcher.calledAt = now
    watcher.callback(rows)
  }
}

/** Whether a changed row can change the result: it was part of it, or matches now and comes before its end. */
function concerns({ search, rows = [] }: Watcher, before?: StoredRow, after?: StoredRow): boolean {
  if (before && rows.includes(before)) return true
  if (!after || !search.matches(after)) return false
  const last = rows.at(-1)
  return rows.length < search.limit || !last || isBefore(search.order, after, last)
}

const isSame = (one: readonly StoredRow[], other: readonly StoredRow[]): boolean =>
  one.length === other.length && one.every((row, index) => row === other[index])
