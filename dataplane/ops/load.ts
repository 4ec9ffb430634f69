import { type EventLoopUtilization, performance } from 'node:perf_hooks'
import type { Clock } from '../../shared/clock.ts'
import type { Metrics } from '../../shared/metrics.ts'
import type { NODE_METRICS } from '../metrics.ts'

/** How busy a node's process is. */
export interface Load {
  /** Share of the last interval in which the event loop was busy, 0–1. */
  readonly event_loop_utilisation: number
  /** Longest delay of a timer in the last interval, milliseconds. */
  readonly event_loop_delay_ms: number
  /** Memory the process occupies. */
  readonly rss_bytes: number
}

const PROBE_MS = 20
const INTERVAL_MS = 1000

/** Timers this late, or inputs that have waited for so long: the event loop is behind. */
const BEHIND_MS = 30
/** Behind for so much longer than not, and rooms slow down by one step more; not behind for so much longer, and it is one less. */
const SLOWER_AFTER_MS = 200
const FASTER_AFTER_MS = 1000
/** Rooms are slowed down so far at most: of 20 updates a second 8 are left. What is too much then is not handled any more. */
const MOST = 2.5
const MOST_STEPS = 3
/** At most slowed down and still behind for so long: overloaded. */
const OVERLOADED_AFTER_MS = 1000
/** What one look counts at most: one block of the event loop, however long, is no reason to slow down. */
const LOOK_MS = 100

/**
 * By how much the rooms of a node slow down so that its event loop keeps up. Adds up the time in which the loop is behind, less that in
 * which it is not: a burst, a garbage collection or one slow turn changes nothing, and what stands does.
 */
export class SlowdownController {
  #steps = 0
  #overloaded = false
  /** The time behind, less the time not behind, since the last step. */
  #behindMs = 0
  #lookedAt: number | undefined

  /** How many times as long as asked for the intervals of flushes and ticks are to be, 1–2.5. */
  get factor(): number {
    return MOST ** (this.#steps / MOST_STEPS)
  }

  /** Whether the node is asked for more than it can do, however slow its rooms are. */
  get overloaded(): boolean {
    return this.#overloaded
  }

  /** The event loop is so many milliseconds behind at this moment of the monotonic clock. */
  observe(lagMs: number, now: number): void {
    const passedMs = Math.min(LOOK_MS, now - (this.#lookedAt ?? now))
    this.#lookedAt = now
    this.#behindMs += lagMs > BEHIND_MS ? passedMs : -passedMs
    if (this.#steps < MOST_STEPS && this.#behindMs >= SLOWER_AFTER_MS) this.#step(1)
    else if (this.#behindMs >= OVERLOADED_AFTER_MS) {
      this.#overloaded = true
      this.#behindMs = OVERLOADED_AFTER_MS
    } else if (this.#steps === 0) this.#behindMs = Math.max(0, this.#behindMs)
    else if (this.#behindMs <= -FASTER_AFTER_MS) this.#step(-1)
  }

  #step(by: 1 | -1): void {
    this.#steps += by
    this.#behindMs = 0
    if (by < 0) this.#overloaded = false
  }
}

/** Measures the load of this process from `start` to `stop`, in intervals of one second. */
export class LoadMeter {
  readonly #clock: Clock
  readonly #metrics: Metrics<typeof NODE_METRICS>
  readonly #slowdown = new SlowdownController()
  /** For how long the inputs that are next have waited, milliseconds. */
  readonly #waitedMs: () => number
  #intervalStart = 0
  #mark: EventLoopUtilization = performance.eventLoopUtilization()
  #utilisation = 0
  #delayMs = 0
  #longestMs = 0
  #cancel: (() => void) | undefined

  constructor(clock: Clock, metrics: Metrics<typeof NODE_METRICS>, waitedMs: () => number = () => 0) {
    this.#clock = clock
    this.#waitedMs = waitedMs
    this.#metrics = metrics
    metrics.eventLoopUtilisation.read(() => this.eventLoopUtilisation)
    metrics.slowdown.read(() => this.slowdown)
    metrics.overloaded.read(() => Number(this.overloaded))
  }

  start(): void {
    if (this.#cancel) return
    this.#intervalStart = this.#clock.monotonic()
    this.#mark = performance.eventLoopUtilization()
    this.#probe()
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }

  /** Over the last whole interval. Reads no file, unlike the memory. */
  get eventLoopUtilisation(): number {
    return round(this.#utilisation, 3)
  }

  /** How many times as long as asked for the intervals of flushes and ticks of all rooms are to be; 1 while the event loop keeps up. */
  get slowdown(): number {
    return this.#slowdown.factor
  }

  /** Whether that is not enough: old inputs are not handled any more, and newcomers are refused. */
  get overloaded(): boolean {
    return this.#slowdown.overloaded
  }

  /** The load over the last whole interval. */
  read(): Load {
    return {
      event_loop_utilisation: this.eventLoopUtilisation,
      event_loop_delay_ms: round(this.#delayMs, 1),
      rss_bytes: process.memoryUsage.rss(),
    }
  }

  #probe(): void {
    const due = this.#clock.monotonic() + PROBE_MS
    this.#cancel = this.#clock.schedule(PROBE_MS, () => {
      const now = this.#clock.monotonic()
      const lateMs = Math.max(0, now - due)
      this.#metrics.eventLoopDelay.observe(lateMs / 1000)
      this.#longestMs = Math.max(this.#longestMs, lateMs)
      this.#slowdown.observe(Math.max(lateMs, this.#waitedMs()), now)
      if (now - this.#intervalStart >= INTERVAL_MS) this.#endInterval(now)
      this.#probe()
    })
  }

  #endInterval(now: number): void {
    const mark = performance.eventLoopUtilization()
    this.#utilisation = performance.eventLoopUtilization(mark, this.#mark).utilization
    this.#mark = mark
    this.#delayMs = this.#longestMs
    this.#longestMs = 0
    this.#intervalStart = now
  }
}

const round = (value: number, digits: number): number => Number(value.toFixed(digits))
