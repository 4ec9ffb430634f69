import { createHistogram, type Histogram, type RecordableHistogram } from 'node:perf_hooks'
import {
  type Counting,
  type Counts,
  type Failure,
  NO_VALUES,
  noCounts,
  type Percentiles,
  type Timing,
} from '../result.ts'

type Writable<T> = { -readonly [K in keyof T]: T[K] }

/** Adds `more` to `counts`. */
export function addCounts(counts: Counting, more: Counts): void {
  for (const name of Object.keys(counts) as (keyof Counts)[]) counts[name] += more[name]
}

/** Longer times are recorded as this. */
const LONGEST_MS = 600_000

/** A histogram of durations in microseconds, good to three digits. It can be sent to another thread, and then is the same one there. */
export const newHistogram = (): RecordableHistogram =>
  createHistogram({ lowest: 1, highest: LONGEST_MS * 1000, figures: 3 })

export type Histograms = Partial<Record<Timing, RecordableHistogram>>

/** The values of a histogram of microseconds, in milliseconds. */
export function percentilesOf(histogram: Histogram | undefined): Percentiles {
  if (histogram === undefined || histogram.count === 0) return NO_VALUES
  const ms = (percent: number): number => histogram.percentile(percent) / 1000
  return {
    count: histogram.count,
    mean: histogram.mean / 1000,
    p50: ms(50),
    p90: ms(90),
    p95: ms(95),
    p99: ms(99),
    p999: ms(99.9),
    max: histogram.max / 1000,
  }
}

/** Failures by code. */
export class Failures {
  readonly #byCode = new Map<string, Writable<Failure>>()

  add({ code, count, example }: Failure): void {
    const known = this.#byCode.get(code)
    if (known) known.count += count
    else this.#byCode.set(code, { code, count, example })
  }

  get list(): readonly Failure[] {
    return [...this.#byCode.values()]
  }
}

/** What was counted and timed since the last call of `take`. */
export interface Tallied {
  readonly counts: Counts
  readonly timings: Histograms
  readonly failures: readonly Failure[]
  /** How late the latest message was sent. */
  readonly lateMs: number
}

/** Counts and times what the clients of one thread do. */
export class Tally {
  counts = noCounts()
  #failures = new Failures()
  #lateMs = 0
  #timings: Histograms = {}
  /** Given out with the last `take`; the caller's until the next. */
  #lent: Histograms = {}

  time(timing: Timing, ms: number): void {
    this.#timings[timing] ??= newHistogram()
    this.#timings[timing].record(Math.min(LONGEST_MS * 1000, Math.max(1, Math.round(ms * 1000))))
  }

  /** A message was sent so long after it was due. */
  late(ms: number): void {
    if (ms > this.#lateMs) this.#lateMs = ms
  }

  /** So many failures at once. */
  fail(code: string, example: string, times = 1): void {
    this.counts.errors += times
    this.#failures.add({ code, count: times, example })
  }

  /** What there was since the last call. The histograms may be read until the next call. */
  take(): Tallied {
    const taken = {
      counts: this.counts,
      timings: Object.fromEntries(Object.entries(this.#timings).filter(([, { count }]) => count > 0)),
      failures: this.#failures.list,
      lateMs: this.#lateMs,
    }
    const free = this.#lent
    for (const histogram of Object.values(free)) histogram.reset()
    this.#lent = this.#timings
    this.#timings = free
    this.counts = noCounts()
    this.#failures = new Failures()
    this.#lateMs = 0
    return taken
  }
}
