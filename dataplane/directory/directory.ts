import type { RoomQuery } from './query.ts'
import type { StoredRow } from './row.ts'

/** Rooms of one type in one project. */
export interface RoomList {
  readonly projectId: string
  readonly roomType: string
}

/** A node's local copies of lists, which answer queries. */
export interface Directory {
  /**
   * Returns the rows that match, in order. `allows`: whether the token's `rooms` claim covers a room id. Rejects with `InvalidQuery` for a
   * field that the room type's `listing.data` does not have and for a room type without a list, and with `StoreUnavailable` when there is no copy and the store is away.
   */
  rooms(list: RoomList, query: RoomQuery, allows: (roomId: string) => boolean): Promise<readonly StoredRow[]>
  /**
   * Calls back with the rows now, and again at most once a second after a change of the result. Throws as `rooms` rejects, except
   * `StoreUnavailable`: then the first call comes when the store can be reached. The returned function ends it.
   */
  watch(
    list: RoomList,
    query: RoomQuery,
    allows: (roomId: string) => boolean,
    callback: (rows: readonly StoredRow[]) => void,
  ): () => void
  stop(): void
}
