import { type Clock, untilNext } from '../clock.ts'
import type { Logger } from '../log.ts'
import { gauge } from '../metrics.ts'
import type { Store } from './port.ts'

/** How often the clocks are compared, milliseconds. */
const EVERY_MS = 10_000
/** Above this difference, tokens of short lives and lists of times go wrong: it is logged, and there is an alert. */
const LOGGED_MS = 5000
/** Above this difference, a process refuses good tokens, or issues tokens that others refuse. */
export const CLOCK_WRONG_MS = 30_000

/** Gauge of the difference, of both planes. */
export const CLOCK_OFFSET = gauge(
  'service_clock_offset_seconds',
  'How far the clock of the process is ahead of the store’s; negative: behind.',
)

/** Difference between the clock of this process and that of the store, which all processes share. Measured every 10 s. */
export class ClockOffset {
  readonly #store: Pick<Store, 'time'>
  readonly #clock: Clock
  readonly #log: Logger
  #ms = 0
  #told: 'agrees' | 'differs' | 'wrong' = 'agrees'
  #cancel = () => {}
  #stopped = false

  constructor({ store, clock, log }: { store: Pick<Store, 'time'>; clock: Clock; log: Logger }) {
    this.#store = store
    this.#clock = clock
    this.#log = log
  }

  /** Starts to measure. */
  start(): void {
    void this.measure().then(() => {
      if (this.#stopped) return
      this.#cancel = this.#clock.schedule(untilNext(this.#clock, EVERY_MS), () => this.start())
    })
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
  }

  /** Milliseconds by which this clock is ahead at least; negative: behind. 0 before the first answer. */
  get ms(): number {
    return this.#ms
  }

  /** Why the process must not serve; undefined: its clock is good enough. */
  get wrong(): string | undefined {
    const seconds = Math.round(Math.abs(this.#ms) / 1000)
    if (Math.abs(this.#ms) <= CLOCK_WRONG_MS) return undefined
    return `the clock of this process is ${seconds} s ${this.#ms > 0 ? 'ahead of' : 'behind'} the store's: ${REMEDY}`
  }

  /** Asks the store once. Never rejects: without an answer the last difference stays. */
  async measure(): Promise<void> {
    const sentAt = this.#clock.monotonic()
    let storeTime: number
    try {
      storeTime = await this.#store.time()
    } catch {
      return
    }
    // The store read its clock at some moment of the round trip.
    const halfMs = (this.#clock.monotonic() - sentAt) / 2
    const ahead = this.#clock.now() - (storeTime + halfMs)
    this.#ms = Math.sign(ahead) * Math.max(0, Math.abs(ahead) - halfMs)
    const wrong = Math.abs(this.#ms) > CLOCK_WRONG_MS
    const state = wrong ? 'wrong' : Math.abs(this.#ms) > LOGGED_MS ? 'differs' : 'agrees'
    if (state === this.#told) return
    this.#told = state
    const fields = { offset_ms: Math.round(this.#ms) }
    if (state === 'wrong') this.#log.error(fields, `clock is wrong, the process is not ready: ${REMEDY}`)
    else if (state === 'differs') this.#log.warn(fields, `clock differs from the store's: ${REMEDY}`)
    else this.#log.info(fields, "clock agrees with the store's again")
  }
}

const REMEDY = 'set both by NTP'
