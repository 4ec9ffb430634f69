import type { Clock } from '../../shared/clock.ts'
import type { Room } from './room.ts'

/** Rates over less time than this say little. */
const SHORTEST_MS = 900

/** How fast each room's seq grows: nothing is counted for it, it compares what it saw at the last sample. */
export class UpdateRates {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #seen = new WeakMap<Room, { seq: number; per_second: number | null }>()
  #sampled_at = Number.NEGATIVE_INFINITY

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** Looks at all rooms, unless that was just done: several may ask at once. */
  sample(rooms: Iterable<Room>): void {
    const now = this.#clock.monotonic()
    const seconds = (now - this.#sampled_at) / 1000
    if (seconds * 1000 < SHORTEST_MS) return
    this.#sampled_at = now
    for (const room of rooms) {
      const { seq } = room.delivered
      const seen = this.#seen.get(room)
      if (!seen) this.#seen.set(room, { seq, per_second: null })
      else {
        // A resync may take a room back.
        seen.per_second = Math.max(0, Math.round((10 * (seq - seen.seq)) / seconds) / 10)
        seen.seq = seq
      }
    }
  }

  /** Updates a second between the last two samples; null: the room was not here at the first. */
  of(room: Room): number | null {
    return this.#seen.get(room)?.per_second ?? null
  }
}
