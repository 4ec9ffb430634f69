import { type Clock, untilNext } from '../clock.ts'
import { randomToken } from '../ids.ts'
import type { Logger } from '../log.ts'
import type { Random } from '../random.ts'
import { type Store, StoreUnavailable } from './port.ts'

/** Dependencies of StoreDataWatch. */
interface StoreDataWatchParts {
  readonly store: Pick<Store, 'records' | 'onReturn'>
  /** Key of the mark. It lies in the slot of the data that this plane cannot do without. */
  readonly key: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

/** Milliseconds between two looks at a store that was there all the time: FLUSHALL ends no connection. */
const LOOK_MS = 10_000
/** Milliseconds for which a loss is reported. */
const REPORTED_MS = 3_600_000

/**
 * Notices that the store no longer holds the data that this process knew. The first process of a deployment writes a random mark that never
 * expires. A process that finds no mark, or another one, reports a loss; it then goes by the new mark. A restored backup has the earlier mark.
 */
export class StoreDataWatch {
  readonly #parts: StoreDataWatchParts
  /** Every mark that this process has found, the present one last. */
  #marks: string[] = []
  #lostAt: number | undefined
  #cancel: () => void = () => undefined
  #forgetReturn: () => void = () => undefined
  #stopped = false

  constructor(parts: StoreDataWatchParts) {
    this.#parts = parts
  }

  /** True for an hour after a loss, unless the earlier data is back. */
  get lost(): boolean {
    return this.#lostAt !== undefined && this.#parts.clock.monotonic() - this.#lostAt < REPORTED_MS
  }

  /** Looks at the store, and resolves with whether its data is lost. Never rejects. */
  async checkLost(): Promise<boolean> {
    await this.#look()
    return this.lost
  }

  /** Resolves after the first look. Looks again every 10 s, and each time the store can be reached again. Never rejects. */
  async start(): Promise<void> {
    this.#forgetReturn = this.#parts.store.onReturn(() => void this.#look())
    await this.#turn()
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
    this.#forgetReturn()
  }

  async #turn(): Promise<void> {
    await this.#look()
    const { clock } = this.#parts
    if (!this.#stopped) this.#cancel = clock.schedule(untilNext(clock, LOOK_MS), () => void this.#turn())
  }

  async #look(): Promise<void> {
    const { log } = this.#parts
    try {
      this.#found(await this.#mark())
    } catch (error) {
      // Whoever needs the store reports the failure.
      if (!(error instanceof StoreUnavailable))
        log.warn({ err: error }, 'the mark of the store cannot be read')
    }
  }

  async #mark(): Promise<string> {
    const { store, key, random } = this.#parts
    for (;;) {
      const [record] = await store.records.read([key])
      if (record) return new TextDecoder().decode(record.value)
      const value = new TextEncoder().encode(randomToken(random, 16))
      // Another process may be faster; then its mark is the one.
      await store.records.write([{ put: key, value, ifVersion: 0 }])
    }
  }

  #found(mark: string): void {
    const { clock, log } = this.#parts
    const known = this.#marks.indexOf(mark)
    if (known === -1) {
      this.#marks.push(mark)
      if (this.#marks.length === 1) return
      this.#lostAt = clock.monotonic()
      log.error('the store lost its data')
    } else if (known < this.#marks.length - 1) {
      this.#marks = this.#marks.slice(0, known + 1)
      this.#lostAt = undefined
      log.warn('the store has its earlier data again')
    }
  }
}
