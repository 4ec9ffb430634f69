import type { RoomQuery, StoredRow } from '../../../dataplane/directory/rows.ts'

/** The row of `arena:<key>`. */
export const listedRow = (key: string, changes: Partial<StoredRow> = {}): StoredRow => ({
  room_id: `arena:${key}`,
  room_type: 'arena',
  key,
  members: 1,
  max_members: null,
  reserved: 0,
  created_at: '2026-10-01T12:00:00.000Z',
  data: { map: 'desert' },
  node_id: 'node_1',
  code: 'K7QX2M',
  ...changes,
})

/** A directory with one list, which a test fills. */
export class TestLists {
  /** Rows of the list. */
  all: readonly StoredRow[] = []
  /** What the next query fails with. */
  failure: Error | undefined
  /** False: watches get no list. */
  answers = true
  readonly queries: unknown[] = []
  readonly watchers = new Set<() => void>()

  readonly rooms = async (
    list: { readonly projectId: string; readonly roomType: string },
    query: RoomQuery,
    allows: (roomId: string) => boolean,
  ): Promise<readonly StoredRow[]> => {
    this.queries.push([list, query])
    if (this.failure) throw this.failure
    return this.all.filter(({ room_id: roomId }) => allows(roomId))
  }

  readonly watch = (
    list: { readonly projectId: string; readonly roomType: string },
    query: RoomQuery,
    allows: (roomId: string) => boolean,
    callback: (rows: readonly StoredRow[]) => void,
  ): (() => void) => {
    this.queries.push([list, query])
    const call = () => this.answers && callback(this.all.filter(({ room_id: roomId }) => allows(roomId)))
    this.watchers.add(call)
    call()
    return () => void this.watchers.delete(call)
  }

  /** The list has these rows from now on. */
  change(...rows: readonly StoredRow[]): void {
    this.all = rows
    for (const call of this.watchers) call()
  }
}
