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

/** Records with a connection that a test can delay, break, or let lose answers. */
export class TestRecords implements Records {
  /** Keys of all successful puts, oldest first. */
  readonly written: string[] = []
  /** True: every call rejects with `StoreUnavailable`. */
  down = false
  /** Number of coming writes and renewals that succeed and whose answers are lost. */
  answersLost = 0
  /** Longest delay of each direction, milliseconds. The delay of a call is random. */
  delayMs = 0
  /** Number of reads. */
  reads = 0
  /** Number of writes and renewals of leases. */
  writes = 0
  /** Number of writes without an answer. */
  writing = 0
  /** Largest value of `writing`. */
  mostWriting = 0
  #records: Records
  readonly #clock: Clock
  readonly #random: Pick<Random, 'float'>

  /** Without `random`, each direction takes `delayMs`. */
  constructor(records: Records, clock: Clock, random: Pick<Random, 'float'> = { float: () => 1 }) {
    this.#records = records
    this.#clock = clock
    this.#random = random
  }

  /** Replaces the records, as if the store had restarted without its data. */
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
    await this.#delay()
    const answer = await work()
    await this.#delay()
    return answer
  }

  async #delay(): Promise<void> {
    if (this.delayMs === 0) return
    const delayMs = this.#random.float() * this.delayMs
    await sleep(this.#clock, delayMs)
  }
}

/**
 * Fault of the writes of rooms. `slow`: a write waits for `let`. `deaf`: a write is not done and has no answer. `silent`: a write is done
 * and has no answer. `refusing`: a write is not done and rejects with an error other than `StoreUnavailable`.
 */
type Mood = 'fine' | 'slow' | 'silent' | 'deaf' | 'refusing'

/** A store whose `mood` injects a fault into the writes of rooms. */
export class TestStore {
  readonly store: Store
  mood: Mood = 'fine'
  /** Number of attempted writes of rooms. */
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
        commit: write((...args: Parameters<typeof rooms.commit>) => rooms.commit(...args)),
        snapshot: write((...args: Parameters<typeof rooms.snapshot>) => rooms.snapshot(...args)),
        release: write((...args: Parameters<typeof rooms.release>) => rooms.release(...args)),
        quarantine: write((...args: Parameters<typeof rooms.quarantine>) => rooms.quarantine(...args)),
        refresh: write((...args: Parameters<typeof rooms.refresh>) => rooms.refresh(...args)),
        counted: (...args) => rooms.counted(...args),
      },
    }
  }

  /** Replaces the records of rooms, for example by those of another store. */
  follow(rooms: () => RoomRecords): void {
    this.#rooms = rooms
  }

  /** Number of waiting writes. */
  get held(): number {
    return this.#held.length
  }

  /** Lets the oldest waiting write continue. */
  let(): void {
    this.#held.shift()?.()
  }
}
