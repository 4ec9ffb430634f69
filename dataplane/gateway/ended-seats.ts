import { setNewest } from '../../shared/newest.ts'
import { type Farewell, type RoomAddress, roomIdOf } from '../traffic.ts'

/**
 * Reasons why seats have ended, for clients that were disconnected. `#remember` in `edge.ts` adds them. If the edge has no reason, the node of
 * the room may have it (`room/departures.ts`).
 */

/** A seat that its room has ended. */
export interface EndedSeat {
  readonly room: RoomAddress
  readonly farewell: Farewell
}

/** Maximum number of ended seats of a session; older ones are dropped. */
const MAX_ENDED = 16

const NONE: ReadonlyMap<string, EndedSeat> = new Map()

/** Seats of one session that their rooms have ended. Each is kept until the client is known to know of it, or joins the room again. */
export class EndedSeats {
  /** By room id, oldest first. Undefined: most sessions have none. */
  #seats: Map<string, EndedSeat> | undefined

  constructor(seats: readonly EndedSeat[] = []) {
    for (const seat of seats) this.add(seat)
  }

  get size(): number {
    return this.#seats?.size ?? 0
  }

  add(seat: EndedSeat): void {
    this.#seats ??= new Map()
    setNewest(this.#seats, roomIdOf(seat.room), seat, MAX_ENDED)
  }

  get(roomId: string): EndedSeat | undefined {
    return this.#seats?.get(roomId)
  }

  /** Drops a seat, because the client has another seat in the room. */
  delete(roomId: string): void {
    this.#seats?.delete(roomId)
  }

  /** Drops all seats except those in these rooms. The client no longer uses the other rooms. */
  keep(roomIds: ReadonlyMap<string, unknown>): void {
    for (const { room } of this) if (!roomIds.has(roomIdOf(room))) this.delete(roomIdOf(room))
  }

  [Symbol.iterator](): IterableIterator<EndedSeat> {
    return (this.#seats ?? NONE).values()
  }
}
