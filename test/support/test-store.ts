import { type Clock, sleep } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import {
  type Lease,
  type LeaseRenewal,
  type Records,
  type RoomRecords,
  type Store,
  type StoredRecord,
  StoreUnavailable,
  type Write,
} from '../../shared/store/port.ts'

/** Records behind a connection that is slow, breaks, or loses answers, as the test wants it. */
export class TestRecords implements Records {
  /** Everything that was written, oldest first: keys. */
  readonly written: string[] = []
  /** Nothing gets through while set. */
  down = false
  /** The next so many writes and renewals take place, and their answers are lost. */
  answersLost = 0
  /** Each way takes up to this long, a random time for each call. */
  delayMs = 0
  /** How often something was read. */
  reads = 0
  /** How often something was written, a lease among it. */
  writes = 0
  /** How many writes are under way. */
  writing = 0
  /** How many were at the most. */
  mostWriting = 0
  #records: Records
  readonly #clock: Clock
  readonly #random: Pick<Random, 'float'>

  /** Without `random` every way takes `delayMs`. */
  constructor(records: Records, clock: Clock, random: Pick<Random, 'float'> = { float: () => 1 }) {
    this.#records = records
    this.#clock = clock
    this.#random = random
  }

  /** Other records stand behind the connection from now on, as when a store comes back without its data. */
  replace(records: Records): void {
    this.#records = records
  }

  read(keys: readonly string[]): Promise<(StoredRecord | undefined)[]> {
    return this.#through(() => {
      this.reads += 1
      return this.#records.read(keys)
    })
  }

  async write(writes: readonly Write[]): Promise<boolean> {
    this.writing += 1
    this.mostWriting = Math.max(this.mostWriting, this.writing)
    try {
      return await this.#write(async () => {
        const done = await this.#records.write(writes)
        for (const write of writes) if ('put' in write && done) this.written.push(write.put)
        return done
      })
    } finally {
      this.writing -= 1
    }
  }

  renewLease(renewal: LeaseRenewal): Promise<Lease> {
    return this.#write(() => this.#records.renewLease(renewal))
  }

  page(index: string, options: { before?: string; limit: number }): Promise<string[]> {
    return this.#through(() => this.#records.page(index, options))
  }

  #write<T>(work: () => Promise<T>): Promise<T> {
    return this.#through(async () => {
      this.writes += 1
      const answer = await work()
      if (this.answersLost === 0) return answer
      this.answersLost -= 1
      throw new StoreUnavailable('the answer was lost')
    })
  }

  async #through<T>(work: () => Promise<T>): Promise<T> {
    if (this.down) throw new StoreUnavailable('the store is down')
    await this.#way()
    const answer = await work()
    await this.#way()
    return answer
  }

  async #way(): Promise<void> {
    if (this.delayMs === 0) return
    const delayMs = this.#random.float() * this.delayMs
    await sleep(this.#clock, delayMs)
  }
}

/** What happens to the writes of rooms. */
type Mood = 'fine' | 'slow' | 'silent' | 'deaf' | 'refusing'

/**
 * A store whose room writes can be held back (`slow`), lost on the way (`deaf`: not done, no answer), left without an answer
 * (`silent`: done, no answer) or refused (`refusing`: not done, an error that is none of the port's).
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
        if (this.mood === 'refusing') throw new Error('NOPERM')
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
      wakeups: {
        set: async (...args) => {
          if (this.mood === 'deaf') throw new StoreUnavailable('the test store is deaf')
          await inner.wakeups.set(...args)
          if (this.mood === 'silent') throw new StoreUnavailable('the test store is silent')
        },
        take: (...args) => inner.wakeups.take(...args),
      },
      notices: inner.notices,
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
        read: (...args) => rooms.read(...args),
        reserve: (...args) => rooms.reserve(...args),
        claim: (...args) => rooms.claim(...args),
        open: async (...args) => {
          if (this.mood === 'silent' || this.mood === 'deaf')
            throw new StoreUnavailable(`the test store is ${this.mood}`)
          return rooms.open(...args)
        },
        recall: (...args) => rooms.recall(...args),
        noteStuck: (...args) => rooms.noteStuck(...args),
        removeNote: (...args) => rooms.removeNote(...args),
        commit: write((...args: Parameters<typeof rooms.commit>) => rooms.commit(...args)),
        snapshot: write((...args: Parameters<typeof rooms.snapshot>) => rooms.snapshot(...args)),
        release: write((...args: Parameters<typeof rooms.release>) => rooms.release(...args)),
        quarantine: write((...args: Parameters<typeof rooms.quarantine>) => rooms.quarantine(...args)),
        refresh: write((...args: Parameters<typeof rooms.refresh>) => rooms.refresh(...args)),
        counted: (...args) => rooms.counted(...args),
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
