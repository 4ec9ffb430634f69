import type { CountedRoom, Store } from '../../shared/store/port.ts'
import type { ClusterNodes } from './nodes.ts'

/** One page of rooms without owner. */
export interface OwnerlessPage {
  readonly rooms: readonly CountedRoom[]
  /** The next page begins behind it; undefined: there is none. */
  readonly next: CountedRoom | undefined
}

/** Rooms that are looked at together, and at most for one page: most rooms of a project have an owner. */
const BATCH = 100
const MOST_LOOKED_AT = 2000

/** Rooms that no living node has: those that sleep, wait for a timer, or whose owner has died. The store has a record of each. */
export class OwnerlessRooms {
  readonly #store: Pick<Store, 'rooms' | 'time'>
  readonly #nodes: Pick<ClusterNodes, 'judge'>

  constructor(store: Pick<Store, 'rooms' | 'time'>, nodes: Pick<ClusterNodes, 'judge'>) {
    this.#store = store
    this.#nodes = nodes
  }

  /**
   * At most `limit` of a project, those first that expire first, behind `after` when given. A page may have fewer, or none, and still a
   * next one. Rejects with `StoreUnavailable`.
   */
  async page(projectId: string, limit: number, after?: CountedRoom): Promise<OwnerlessPage> {
    const now = await this.#store.time()
    const rooms: CountedRoom[] = []
    let last = after
    for (let looked = 0; looked < MOST_LOOKED_AT; looked += BATCH) {
      const batch = await this.#store.rooms.counted(projectId, { limit: BATCH, ...(last && { after: last }) })
      const ownerless = await Promise.all(
        batch.map(({ roomId, until }) => until > now && this.#isOwnerless(`${projectId}/${roomId}`)),
      )
      for (const [n, room] of batch.entries()) {
        if (rooms.length === limit) return { rooms, next: last }
        if (ownerless[n]) rooms.push(room)
        last = room
      }
      if (batch.length < BATCH) return { rooms, next: undefined }
    }
    return { rooms, next: last }
  }

  async #isOwnerless(name: string): Promise<boolean> {
    const found = await this.#store.rooms.inspect(name)
    if (!found) return false
    return found.owner === null || (await this.#nodes.judge(found.owner)) === 'dead'
  }
}
