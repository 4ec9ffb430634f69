import { type Counts, type Failure, noCounts, type Timing } from '../result.ts'

/** Failures by code, with the first message of each. */
export class Failures {
  readonly #byCode = new Map<string, { code: string; count: number; example: string }>()

  add({ code, count, example }: Failure): void {
    const known = this.#byCode.get(code)
    if (known) known.count += count
    else this.#byCode.set(code, { code, count, example })
  }

  get list(): readonly Failure[] {
    return [...this.#byCode.values()]
  }
}

/** Counts and durations since the last `take`. Plain data. */
export interface Tallied {
  readonly counts: Counts
  /** Milliseconds. */
  readonly timings: Readonly<Partial<Record<Timing, readonly number[]>>>
  readonly failures: readonly Failure[]
  /** The longest time from when a message was due to when it was sent. */
  readonly lateMs: number
}

/** Counts and times what the clients of one thread do. */
export class Tally {
  counts = noCounts()
  lateMs = 0
  #failures = new Failures()
  #timings: Partial<Record<Timing, number[]>> = {}

  time(timing: Timing, ms: number): void {
    this.#timings[timing] ??= []
    this.#timings[timing].push(ms)
  }

  fail(code: string, example: string, times = 1): void {
    this.counts.errors += times
    this.#failures.add({ code, count: times, example })
  }

  /** Returns everything since the last call. */
  take(): Tallied {
    const { counts, lateMs } = this
    const taken = { counts, lateMs, timings: this.#timings, failures: this.#failures.list }
    this.counts = noCounts()
    this.lateMs = 0
    this.#timings = {}
    this.#failures = new Failures()
    return taken
  }
}
