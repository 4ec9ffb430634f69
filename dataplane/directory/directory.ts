import { ListCopy, type ListCopyParts, type WatchCallback } from './list-copy.ts'
import { DEFAULT_LIMIT, InvalidQuery, type RoomQuery, rowMatcher } from './query.ts'
import type { StoredRow } from './row.ts'
import type { Position, Search } from './rows.ts'

/** Rooms of one type in one project. */
export interface RoomList {
  readonly projectId: string
  readonly roomType: string
}

/** Dependencies of Directory. */
export interface DirectoryParts extends ListCopyParts {
  /** Returns the `listing` of a room type. Null: the type has none. Undefined: this node has no such type. */
  readonly listingOf: (roomType: string) => { readonly data: object } | null | undefined
}

/** A node's local copies of lists, which answer queries. A list is read at its first query, and kept for a minute after its last. */
export class Directory {
  readonly #parts: DirectoryParts
  readonly #copies = new Map<string, ListCopy>()

  constructor(parts: DirectoryParts) {
    const { metrics } = parts
    this.#parts = parts
    metrics.listedRows.read(() => this.#sum(({ size }) => size))
    metrics.listWatchers.read(() => this.#sum(({ watchers }) => watchers))
  }

  /**
   * Returns the rows that match, in order. `allows`: whether the token's `rooms` claim covers a room id. `after`: only rows behind this one.
   * Rejects with `InvalidQuery` for a field that the room type's `listing.data` does not have and for a room type without a list, and with
   * `StoreUnavailable` when there is no copy and the store is away.
   */
  async rooms(
    list: RoomList,
    query: RoomQuery,
    allows: (roomId: string) => boolean,
    after?: Position,
  ): Promise<readonly StoredRow[]> {
    const search = this.#search(list, query, allows)
    const rows = await this.#copyOf(list).rows()
    const { clock, metrics } = this.#parts
    const began = clock.monotonic()
    const found = rows.find(search, after)
    metrics.listQueryDuration.observe((clock.monotonic() - began) / 1000)
    return found
  }

  /**
   * Calls back with the rows now, and again at most once a second after a change of the result. Throws as `rooms` rejects, except
   * `StoreUnavailable`: then the first call comes when the store can be reached. The returned function ends it.
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

  /** Throws `InvalidQuery` as `rooms` rejects. Reads no list. */
  check(roomType: string, { where = {} }: RoomQuery): void {
    const listing = this.#parts.listingOf(roomType)
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
      copy = new ListCopy(list, this.#parts, () => this.#copies.delete(list))
      this.#copies.set(list, copy)
    }
    return copy
  }

  #search({ roomType }: RoomList, query: RoomQuery, allows: (roomId: string) => boolean): Search {
    const { isGone } = this.#parts
    this.check(roomType, query)
    const matches = rowMatcher(query)
    return {
      matches: (row) => matches(row) && (row.node_id === null || !isGone(row.node_id)) && allows(row.room_id),
      order: query.order ?? 'fullest',
      limit: query.limit ?? DEFAULT_LIMIT,
    }
  }
}

/** Names of the fields of a schema. Undefined: the schema does not tell them. Valibot has `entries`, and zod `shape`. */
function fieldsOf(schema: object): readonly string[] | undefined {
  const fields = 'entries' in schema ? schema.entries : 'shape' in schema ? schema.shape : undefined
  return typeof fields === 'object' && fields !== null ? Object.keys(fields) : undefined
}
