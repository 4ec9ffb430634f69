import { type RoomRecords, type Store, StoreUnavailable } from '../../../shared/store/port.ts'

/** What happens to the writes of rooms. */
type Mood = 'fine' | 'slow' | 'silent' | 'deaf'

/**
 * A store whose room writes can be held back (`slow`), lost on the way (`deaf`: not done, no answer) or left without an answer
 * (`silent`: done, no answer).
 */
export class TestStore {
  readonly store: Store
  mood: Mood = 'fine'
  /** Writes of rooms that were asked for. */
  writes = 0
  readonly #held: (() => void)[] = []
  #rooms: () => RoomRecords

  constructor(inner: Store) {
    const write =
      <A extends unknown[]>(call: (...args: A) => Promise<boolean>) =>
      async (...args: A): Promise<boolean> => {
        this.writes++
        if (this.mood === 'deaf') throw new StoreUnavailable('the test store is deaf')
        if (this.mood === 'slow') await new Promise<void>((go) => this.#held.push(go))
        const done = await call(...args)
        if (this.mood === 'silent') throw new StoreUnavailable('the test store is silent')
        return done
      }
    const rooms = new Proxy({} as RoomRecords, {
      get: (_, name) => {
        const records = this.#rooms()
        const call = records[name as keyof RoomRecords] as (...args: unknown[]) => unknown
        return call.bind(records)
      },
    })
    this.#rooms = () => inner.rooms
    this.store = {
      ...inner,
      kind: inner.kind,
      records: inner.records,
      bus: inner.bus,
      locks: inner.locks,
      time: () => inner.time(),
      uptime: () => inner.uptime(),
      onReturn: (callback) => inner.onReturn(callback),
      ping: () => inner.ping(),
      close: () => inner.close(),
      rooms: {
        inspect: async (room) => {
          if (this.mood === 'silent' || this.mood === 'deaf')
            throw new StoreUnavailable(`the test store is ${this.mood}`)
          return rooms.inspect(room)
        },
        reserve: (...args) => rooms.reserve(...args),
        claim: (...args) => rooms.claim(...args),
        recall: (...args) => rooms.recall(...args),
        noteStuck: (...args) => rooms.noteStuck(...args),
        commit: write((...args: Parameters<typeof rooms.commit>) => rooms.commit(...args)),
        snapshot: write((...args: Parameters<typeof rooms.snapshot>) => rooms.snapshot(...args)),
        release: write((...args: Parameters<typeof rooms.release>) => rooms.release(...args)),
        quarantine: write((...args: Parameters<typeof rooms.quarantine>) => rooms.quarantine(...args)),
        refresh: write((...args: Parameters<typeof rooms.refresh>) => rooms.refresh(...args)),
      },
    }
  }

  /** From now on the records of rooms are these: of another store, say. */
  follow(rooms: () => RoomRecords): void {
    this.#rooms = rooms
  }

  /** Writes that wait. */
  get held(): number {
    return this.#held.length
  }

  /** Lets the oldest waiting write through. */
  let(): void {
    this.#held.shift()?.()
  }
}
