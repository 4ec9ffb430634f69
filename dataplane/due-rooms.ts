import type { Clock } from '../shared/clock.ts'
import type { Logger } from '../shared/log.ts'
import type { Random } from '../shared/random.ts'
import { Semaphore } from '../shared/semaphore.ts'
import { StoreUnavailable } from '../shared/store/port.ts'

/** A room that is due in an index of the store. */
interface DueRoom {
  /** `project/type:key`. */
  readonly room: string
}

/** Dependencies and bounds of `DueRooms`. */
interface DueRoomsEnvironment<Due extends DueRoom> {
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** Number of parts of the index. */
  readonly parts: number
  /** Maximum number of rooms of one part for which `work` is under way. */
  readonly maxRunning: number
  /** Maximum time between two looks at the index, in milliseconds. The minimum is half of it. */
  readonly everyMs: number
  /** Takes due rooms of a part, at most `limit`. The store defers them, so that other nodes do not take them as well. */
  readonly take: (part: number, limit: number) => Promise<readonly Due[]>
  /** Returns false if the room must wait although there is a place. It is due again later. Default: no room must. */
  readonly mayBegin?: (part: number, due: Due) => boolean
  /** Work for one room. If it fails, the room is due again later. */
  readonly work: (due: Due) => Promise<void>
}

/** One part of the index. */
class Part {
  readonly index: number
  readonly places: Semaphore
  isRead = false
  /** The part must be read again after the present read. */
  again = false
  /** Rooms may be due for which there was no place. */
  isFull = false

  constructor(index: number, maxRunning: number) {
    this.index = index
    this.places = new Semaphore(maxRunning)
  }
}

/**
 * Takes due rooms from an index in the store, which all nodes share, and works on them: a bounded number at the same time. The index is read at
 * random intervals, and again when there may be more rooms and a place for them.
 */
export class DueRooms<Due extends DueRoom> {
  readonly #environment: DueRoomsEnvironment<Due>
  readonly #parts: readonly Part[]
  /** Reads and rooms that are under way. */
  readonly #active = new Set<Promise<void>>()
  #cancel: (() => void) | undefined
  #stopped = false

  constructor(environment: DueRoomsEnvironment<Due>) {
    const { parts, maxRunning } = environment
    this.#environment = environment
    this.#parts = Array.from({ length: parts }, (_, index) => new Part(index, maxRunning))
  }

  /** Reads all parts after an interval, and again after each further one. */
  start(): void {
    const { clock, random, everyMs } = this.#environment
    if (this.#stopped) return
    // Random, so that nodes which have started together read at different times.
    this.#cancel = clock.schedule(everyMs * (0.5 + random.float() / 2), () => {
      for (const part of this.#parts) this.#read(part)
      this.start()
    })
  }

  /** Rooms of a part may be due now. */
  look(part: number): void {
    this.#read(this.#parts[part]!)
  }

  /** Takes no more rooms. Resolves when the work under way has ended. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#cancel?.()
    while (this.#active.size > 0) await Promise.all(this.#active)
  }

  #read(part: Part): void {
    part.again = part.isRead
    if (part.isRead || this.#stopped) return
    part.isRead = true
    this.#track(this.#take(part), () => {
      part.isRead = false
      if (part.again) this.#read(part)
    })
  }

  /** Never rejects. */
  async #take(part: Part): Promise<void> {
    const { take, log } = this.#environment
    const limit = part.places.free
    part.isFull = limit <= 0
    if (part.isFull) return
    try {
      const rooms = await take(part.index, limit)
      for (const due of rooms)
        if (this.#environment.mayBegin?.(part.index, due) ?? true) this.#begin(part, due)
        else part.isFull = true
      if (rooms.length === limit) part.again = true
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) log.error({ err: error }, 'due rooms not read')
    }
  }

  #begin(part: Part, due: Due): void {
    const { work, log } = this.#environment
    const run = async (): Promise<void> => {
      try {
        await work(due)
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) log.error({ err: error, room: due.room }, 'due room failed')
      }
    }
    this.#track(part.places.run(run)!, () => {
      if (part.isFull) this.#read(part)
    })
  }

  #track(promise: Promise<void>, done: () => void): void {
    const tracked = promise.finally(() => {
      this.#active.delete(tracked)
      done()
    })
    this.#active.add(tracked)
  }
}
