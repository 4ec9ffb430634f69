import {
  type EventLoopUtilization,
  type IntervalHistogram,
  monitorEventLoopDelay,
  performance,
} from 'node:perf_hooks'
import type { Clock } from '../../shared/clock.ts'

/** The event loop of one thread in some time. */
export interface LoopReading {
  /** 99th percentile of how late timers fired. */
  readonly delayMs: number
  /** Share of the time in which it worked, 0–1. */
  readonly utilisation: number
}

const RESOLUTION_MS = 5

/** Measures the event loop of the thread it is made in. */
export class LoopMeter {
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
    const delayMs = this.#delay.percentile(99) / 1e6 - RESOLUTION_MS
    this.#delay.reset()
    return { delayMs: Math.max(0, delayMs), utilisation: utilization }
  }

  close(): void {
    this.#delay.disable()
  }
}

const EVERY_MS = 10

/**
 * Knows when its thread last read its sockets. A thread that is busy, or that the machine does not let run, sees late what came in time:
 * what it sees came after its last poll, but it cannot tell by how much.
 */
export class PollWatch {
  readonly #clock: Clock
  #polledAt: number
  #cancel = () => {}
  #closed = false

  constructor(clock: Clock) {
    this.#clock = clock
    this.#polledAt = clock.now()
    this.#poll()
  }

  /** Milliseconds since 1970: everything that had arrived by then has been read. */
  get polledAt(): number {
    return this.#polledAt
  }

  close(): void {
    this.#closed = true
    this.#cancel()
  }

  /** The event loop polls between its timers and its immediates, and hands out everything that has arrived before the latter. */
  #poll(): void {
    const beganAt = this.#clock.now()
    setImmediate(() => {
      this.#polledAt = beganAt
      if (!this.#closed) this.#cancel = this.#clock.schedule(EVERY_MS, () => this.#poll())
    })
  }
}
