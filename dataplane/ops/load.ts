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

const PROBE_MS = 50
const INTERVAL_MS = 1000

/** Measures the load of this process from `start` to `stop`, in intervals of one second. */
export class LoadMeter {
  readonly #clock: Clock
  readonly #metrics: Metrics<typeof NODE_METRICS>
  #intervalStart = 0
  #mark: EventLoopUtilization = performance.eventLoopUtilization()
  #utilisation = 0
  #delayMs = 0
  #longestMs = 0
  #cancel: (() => void) | undefined

  constructor(clock: Clock, metrics: Metrics<typeof NODE_METRICS>) {
    this.#clock = clock
    this.#metrics = metrics
    metrics.eventLoopUtilisation.read(() => this.eventLoopUtilisation)
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
