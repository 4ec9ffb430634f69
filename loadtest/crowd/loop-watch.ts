import {
  type EventLoopUtilization,
  type IntervalHistogram,
  monitorEventLoopDelay,
  performance,
} from 'node:perf_hooks'

/** The event loop of one thread in some time. */
export interface LoopReading {
  /** 99th percentile of how late timers fired. */
  readonly delay_ms: number
  /** Share of the time in which it worked, 0–1. */
  readonly utilisation: number
}

const RESOLUTION_MS = 5

/** Watches the event loop of the thread it is made in. */
export class LoopWatch {
  readonly #delay: IntervalHistogram
  #utilisation: EventLoopUtilization

  constructor() {
    this.#delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
    this.#delay.enable()
    this.#utilisation = performance.eventLoopUtilization()
  }

  /** Since the last call. */
  take(): LoopReading {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, this.#utilisation)
    this.#utilisation = now
    const delay_ms = this.#delay.percentile(99) / 1e6 - RESOLUTION_MS
    this.#delay.reset()
    return { delay_ms: Math.max(0, delay_ms), utilisation: utilization }
  }

  close(): void {
    this.#delay.disable()
  }
}
