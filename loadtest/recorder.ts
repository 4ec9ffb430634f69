import type { RecordableHistogram } from 'node:perf_hooks'
import { type LoopReading, LoopWatch } from './crowd/loop-watch.ts'
import type { SquadReport } from './crowd/squad.ts'
import { addCounts, type Counting, Failures, type Histograms, newHistogram, noCounts } from './crowd/tally.ts'
import { NO_VALUES, percentilesOf } from './percentiles.ts'
import type { Counts, Failure, Percentiles, Second, ServerSecond, Timing } from './result.ts'

/** What this process used since its start. */
export interface Usage {
  readonly cpu_seconds: number
  readonly rss_bytes: number
}

export interface RecorderParts {
  /** What each thread did since it was asked last. */
  readonly report: () => Promise<readonly SquadReport[]>
  /** How busy each thread was since it was asked last. */
  readonly strain: () => Promise<readonly LoopReading[]>
  readonly servers: () => Promise<readonly ServerSecond[]>
  readonly usage: () => Usage
}

type Times = Partial<Record<Timing, Percentiles>>

/** Puts together what the threads and the service did: second by second, phase by phase, and in all. */
export class Recorder {
  readonly #parts: RecorderParts
  readonly #loop = new LoopWatch()
  readonly #totals = noCounts()
  readonly #timings: Histograms = {}
  readonly #phases = new Map<string, Histograms>()
  readonly #failures = new Failures()
  readonly #log: Second[] = []
  #phase = 'start'
  #counts: Counting = noCounts()
  #second: Histograms = {}
  #online = 0
  #late_ms = 0
  #cpu_seconds: number
  #breaches: SquadReport['breaches'][] = []
  /** One at a time: what a thread lends out is lent until it is asked again. */
  #gathering: Promise<void> = Promise.resolve()

  constructor(parts: RecorderParts) {
    this.#parts = parts
    this.#cpu_seconds = parts.usage().cpu_seconds
  }

  get totals(): Counts {
    return this.#totals
  }

  get failures(): readonly Failure[] {
    return this.#failures.list
  }

  get timings(): Times {
    return times(this.#timings)
  }

  get log(): readonly Second[] {
    return this.#log
  }

  /** Of each thread, how often what may not be was seen up to now. */
  get breaches(): readonly SquadReport['breaches'][] {
    return this.#breaches
  }

  /** What comes from here on belongs to the phase of this name. Resolves when everything before is written down. */
  async enter(phase: string): Promise<void> {
    await this.gather()
    this.#phase = phase
  }

  /** What was timed in a phase, up to the last time that was gathered. */
  timed(timing: Timing, phase: string): Percentiles {
    const histogram = this.#phases.get(phase)?.[timing]
    return histogram ? percentilesOf(histogram) : NO_VALUES
  }

  /** Takes what the threads have. */
  gather(): Promise<void> {
    this.#gathering = this.#gathering.then(async () => {
      const reports = await this.#parts.report()
      for (const report of reports) this.#take(report)
      this.#online = reports.reduce((sum, { online }) => sum + online, 0)
      this.#breaches = reports.map(({ breaches }) => breaches)
    })
    return this.#gathering
  }

  /** Ends a second, now; `at`: seconds since the start. */
  async second(at: number): Promise<Second> {
    const { cpu_seconds, rss_bytes } = this.#parts.usage()
    const [servers, threads] = await Promise.all([this.#parts.servers(), this.#parts.strain(), this.gather()])
    const loops = [this.#loop.take(), ...threads]
    const second: Second = {
      at,
      phase: this.#phase,
      online: this.#online,
      counts: this.#counts,
      timings: times(this.#second),
      generator: {
        event_loop_delay_ms: Math.max(...loops.map(({ delay_ms }) => delay_ms)),
        event_loop_utilisation: Math.max(...loops.map(({ utilisation }) => utilisation)),
        late_ms: this.#late_ms,
        cpu_seconds: cpu_seconds - this.#cpu_seconds,
        rss_bytes,
      },
      servers,
    }
    this.#log.push(second)
    this.#cpu_seconds = cpu_seconds
    this.#counts = noCounts()
    for (const histogram of Object.values(this.#second)) histogram.reset()
    this.#late_ms = 0
    return second
  }

  /** Adds a failure that is not that of a client. */
  fail(code: string, example: string): void {
    this.#counts.errors += 1
    this.#totals.errors += 1
    this.#failures.add({ code, count: 1, example })
  }

  close(): void {
    this.#loop.close()
  }

  #take(report: SquadReport): void {
    addCounts(this.#counts, report.counts)
    addCounts(this.#totals, report.counts)
    for (const failure of report.failures) this.#failures.add(failure)
    const phase = this.#phases.get(this.#phase) ?? {}
    this.#phases.set(this.#phase, phase)
    for (const [timing, histogram] of Object.entries(report.timings) as [Timing, RecordableHistogram][])
      for (const sum of [this.#second, this.#timings, phase]) {
        sum[timing] ??= newHistogram()
        sum[timing].add(histogram)
      }
    this.#late_ms = Math.max(this.#late_ms, report.late_ms)
  }
}

const times = (histograms: Histograms): Times =>
  Object.fromEntries(
    Object.entries(histograms).flatMap(([timing, histogram]) =>
      histogram.count === 0 ? [] : [[timing, percentilesOf(histogram)]],
    ),
  )
