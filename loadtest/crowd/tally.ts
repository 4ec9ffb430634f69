import { createHistogram, type RecordableHistogram } from 'node:perf_hooks'
import type { Counts, Failure, Timing } from '../result.ts'

type Writable<T> = { -readonly [K in keyof T]: T[K] }

/** Counts that go up. */
export type Counting = Writable<Counts>

export const noCounts = (): Counting => ({
  connects: 0,
  joins: 0,
  leaves: 0,
  sends: 0,
  acks: 0,
  updates: 0,
  events: 0,
  resumes: 0,
  retries: 0,
  bytes_in: 0,
  bytes_out: 0,
  errors: 0,
})

/** Adds `more` to `counts`. */
export function addCounts(counts: Counting, more: Counts): void {
  for (const name of Object.keys(counts) as (keyof Counts)[]) counts[name] += more[name]
}

/** Longer times are written down as this. */
const LONGEST_MS = 600_000

/** A histogram of durations in microseconds, good to three digits. It can be sent to another thread, and then is the same one there. */
export const newHistogram = (): RecordableHistogram =>
  createHistogram({ lowest: 1, highest: LONGEST_MS * 1000, figures: 3 })

/** Failures by code. */
export class Failures {
  readonly #by_code = new Map<string, Writable<Failure>>()

  add({ code, count, example }: Failure): void {
    const known = this.#by_code.get(code)
    if (known) known.count += count
    else this.#by_code.set(code, { code, count, example })
  }

  get list(): readonly Failure[] {
    return [...this.#by_code.values()]
  }
}

export type Histograms = Partial<Record<Timing, RecordableHistogram>>

/** What was counted and timed since the last time somebody asked. */
export interface Tallied {
  readonly counts: Counts
  readonly timings: Histograms
  readonly failures: readonly Failure[]
  /** How late the latest message left. */
  readonly late_ms: number
}

/** Counts and times what the clients of one thread do. */
export class Tally {
  counts = noCounts()
  #failures = new Failures()
  #late_ms = 0
  #timings: Histograms = {}
  /** Given out with the last `take`; theirs until the next. */
  #lent: Histograms = {}

  time(timing: Timing, ms: number): void {
    let histogram = this.#timings[timing]
    if (!histogram) {
      histogram = newHistogram()
      this.#timings[timing] = histogram
    }
    histogram.record(Math.min(LONGEST_MS * 1000, Math.max(1, Math.round(ms * 1000))))
  }

  /** A message left so long after it was due. */
  late(ms: number): void {
    if (ms > this.#late_ms) this.#late_ms = ms
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
      late_ms: this.#late_ms,
    }
    const free = this.#lent
    for (const histogram of Object.values(free)) histogram.reset()
    this.#lent = this.#timings
    this.#timings = free
    this.counts = noCounts()
    this.#failures = new Failures()
    this.#late_ms = 0
    return taken
  }
}
