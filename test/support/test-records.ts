import { type Clock, sleep } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import {
  type Lease,
  type LeaseRenewal,
  type Records,
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
