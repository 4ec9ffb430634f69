import type {
  Claim,
  Fence,
  Quarantine,
  Reservation,
  RoomOwner,
  RoomQuota,
  RoomRecords,
} from '../../../shared/store/port.ts'

const ASK_AGAIN_MS = 50
/** As long as any fault between a node and its store lasts. */
const ATTEMPTS = 400

/**
 * Room records without the fence, to see chaos find out: whoever writes is given the fence that stands, as soon as the store says which
 * that is, so that a node that has lost its room writes on as if it still had it.
 */
export class UnfencedRooms implements RoomRecords {
  readonly #rooms: RoomRecords

  constructor(rooms: RoomRecords) {
    this.#rooms = rooms
  }

  async inspect(room: string): Promise<RoomOwner | undefined> {
    return this.#rooms.inspect(room)
  }

  reserve(room: string, principal: string, quota: RoomQuota, ttlMs: number): Promise<Reservation> {
    return this.#rooms.reserve(room, principal, quota, ttlMs)
  }

  claim(room: string, owner: string, expectedEpoch: number, ttlMs: number): Promise<Claim | undefined> {
    return this.#rooms.claim(room, owner, expectedEpoch, ttlMs)
  }

  noteStuck(room: string, epoch: number, note: Uint8Array, ttlMs: number): Promise<boolean> {
    return this.#rooms.noteStuck(room, epoch, note, ttlMs)
  }

  recall(room: string, owner: string, epoch: number, ttlMs: number): Promise<boolean> {
    return this.#rooms.recall(room, owner, epoch, ttlMs)
  }

  commit(room: string, fence: Fence, entry: Uint8Array, ttlMs: number): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) => this.#rooms.commit(room, standing, entry, ttlMs))
  }

  snapshot(room: string, fence: Fence, snapshot: Uint8Array, ttlMs: number): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) => this.#rooms.snapshot(room, standing, snapshot, ttlMs))
  }

  release(room: string, fence: Fence, options: { forget: boolean; ttlMs: number }): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) => this.#rooms.release(room, standing, options))
  }

  quarantine(room: string, fence: Fence, quarantine: Quarantine): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) => this.#rooms.quarantine(room, standing, quarantine))
  }

  refresh(room: string, fence: Fence, ttlMs: number): Promise<boolean> {
    return this.#unfenced(room, fence, (standing) => this.#rooms.refresh(room, standing, ttlMs))
  }

  async #unfenced(
    room: string,
    fence: Fence,
    write: (standing: Fence) => Promise<boolean>,
  ): Promise<boolean> {
    const once = async () => {
      const found = await this.#standing(room)
      return write(found ? { epoch: found.epoch, version: found.version } : fence)
    }
    // A write that was on its way while another one came before it was fenced: it is made again.
    return (await once()) || (await once())
  }

  async #standing(room: string): Promise<RoomOwner | undefined> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#rooms.inspect(room)
      } catch (error) {
        if (attempt === ATTEMPTS) throw error
        await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS))
      }
    }
  }
}
