import type { Clock } from '../../clock.ts'
import type { ListedRoom, ListingChanges, Listings } from '../port.ts'
import { REMOVED_ROW_MS, requireLimit, requireRoomTtl } from '../rules.ts'

interface Row extends ListedRoom {
  /** Number of the change that wrote the row. */
  readonly change: number
  /** Monotonic milliseconds. */
  readonly expiresAt: number
}

interface List {
  /** Time at which the list was made: it differs from that of a list of the same name in an earlier store. */
  readonly generation: number
  /** Number of changes so far. */
  changes: number
  /** Rows by room id, in the order of their changes. */
  readonly rows: Map<string, Row>
  purgedAt: number
}

/** Milliseconds between two purges of a list that no one reads. */
const PURGE_MS = 1000

/** `Listings` in this process' memory, by `clock.monotonic()`. */
export class MemoryListings implements Listings {
  readonly #clock: Clock
  readonly #requireOpen: () => void
  readonly #lists = new Map<string, List>()

  constructor(clock: Clock, requireOpen: () => void) {
    this.#clock = clock
    this.#requireOpen = requireOpen
  }

  async write(
    name: string,
    room: ListedRoom,
    ttlMs: number,
    by = Number.POSITIVE_INFINITY,
  ): Promise<boolean> {
    this.#requireOpen()
    requireRoomTtl(ttlMs)
    if (this.#clock.now() > by) return false
    const now = this.#clock.monotonic()
    let list = this.#lists.get(name)
    if (!list) {
      list = { generation: this.#clock.now(), changes: 0, rows: new Map(), purgedAt: now }
      this.#lists.set(name, list)
    }
    if (now - list.purgedAt >= PURGE_MS) this.#purge(list)
    const last = list.rows.get(room.roomId)
    if (last && (last.epoch > room.epoch || (last.epoch === room.epoch && last.version > room.version)))
      return false
    put(list, room, now + (room.value ? ttlMs : REMOVED_ROW_MS))
    return true
  }

  async changes(name: string, cursor: string, limit: number): Promise<ListingChanges> {
    this.#requireOpen()
    requireLimit(limit)
    const list = this.#lists.get(name)
    if (list) this.#purge(list)
    if (!list || list.rows.size === 0) {
      this.#lists.delete(name)
      return { cursor: '', rooms: [], restarted: true, more: false }
    }
    const now = this.#clock.monotonic()
    let [generation, after, since] = cursor.split(':').map(Number) as [number, number, number]
    const restarted = generation !== list.generation || now - since >= REMOVED_ROW_MS
    if (restarted) [generation, after, since] = [list.generation, 0, now]
    const rows = [...list.rows.values()].filter(({ change }) => change > after)
    const more = rows.length > limit
    const page = rows.slice(0, limit)
    return {
      cursor: `${generation}:${page.at(-1)?.change ?? after}:${more ? since : now}`,
      rooms: page.map(({ roomId, epoch, version, value }) => ({
        roomId,
        epoch,
        version,
        value: value?.slice(),
      })),
      restarted,
      more,
    }
  }

  /** An expired row loses its value; an expired row without a value goes. */
  #purge(list: List): void {
    const now = this.#clock.monotonic()
    list.purgedAt = now
    for (const row of [...list.rows.values()]) {
      if (row.expiresAt > now) continue
      if (row.value) put(list, { ...row, value: undefined }, now + REMOVED_ROW_MS)
      else list.rows.delete(row.roomId)
    }
  }
}

function put(list: List, { roomId, epoch, version, value }: ListedRoom, expiresAt: number): void {
  // Deleted first, so that the map stays in the order of changes.
  list.rows.delete(roomId)
  const change = ++list.changes
  list.rows.set(roomId, { roomId, epoch, version, value: value?.slice(), change, expiresAt })
}
