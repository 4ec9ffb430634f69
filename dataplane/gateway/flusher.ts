import type { GatewayMetrics } from './metrics.ts'

/** Something with bytes to write; returns how many it wrote. */
export interface Flushable {
  flush(): number
}

/** Runs `callback` when the present turn of the event loop is over. */
export type Defer = (callback: () => void) => void

/**
 * Behind every promise continuation of the present turn, and before any other input or output: what rooms, acks and answers say in one
 * turn is in one write, and none of it waits for other sockets.
 */
export const endOfTurn: Defer = (callback) => queueMicrotask(() => process.nextTick(callback))

/** Writes each outbox that got something, once per turn. */
export class Flusher {
  readonly #defer: Defer
  readonly #metrics: GatewayMetrics
  #waiting: Flushable[] = []

  constructor(defer: Defer, metrics: GatewayMetrics) {
    this.#defer = defer
    this.#metrics = metrics
  }

  /** To be flushed at the end of this turn. */
  add(outbox: Flushable): void {
    if (this.#waiting.push(outbox) === 1) this.#defer(this.#run)
  }

  /** Flushes one outbox without waiting for the end of the turn. */
  now(outbox: Flushable): void {
    const bytes = outbox.flush()
    if (bytes > 0) this.#count(1, bytes)
  }

  #run = (): void => {
    const waiting = this.#waiting
    this.#waiting = []
    let bytes = 0
    let writes = 0
    for (const outbox of waiting) {
      const written = outbox.flush()
      if (written === 0) continue
      bytes += written
      writes += 1
    }
    if (writes > 0) this.#count(writes, bytes)
  }

  #count(writes: number, bytes: number): void {
    this.#metrics.socketWrites.inc(writes)
    this.#metrics.writtenBytes.inc(bytes)
  }
}
