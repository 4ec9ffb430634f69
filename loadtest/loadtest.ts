import { type Clock, timestamp } from '../shared/clock.ts'
import { bottlenecks } from './bottleneck.ts'
import { brokenName, checksOf } from './checks.ts'
import { type Issuer, ThreadedCrowd } from './crowd/crowd.ts'
import type { BreachKind } from './crowd/findings.ts'
import type { WatchedService } from './local/mishaps.ts'
import type { MetricsSource, RunOptions } from './options.ts'
import { optionsTold } from './options-told.ts'
import { preflight } from './preflight.ts'
import { Recorder, type Usage } from './recorder.ts'
import { rehearse } from './rehearsal.ts'
import type { Incident, RunResult, Second } from './result.ts'
import { Scraper } from './scraper.ts'
import { RunStage } from './stage.ts'
import { hasPassed, judge } from './thresholds.ts'
import { unlessAborted } from './unless-aborted.ts'

/** What the load is put on. */
export interface Target {
  readonly issuer: Issuer
  readonly ws_urls: readonly string[]
  readonly metrics: readonly MetricsSource[]
  /** With `--local`. */
  readonly local: WatchedService | undefined
  /** The addresses, and what is behind them where that is known. */
  readonly description: string
}

/** Who looks on while it runs. */
export interface Spectacle {
  phase(name: string, seconds: number, run_seconds: number): void
  update(second: Second, progress: number): void
  incident(text: string): void
}

export interface LoadTestParts {
  readonly options: RunOptions
  readonly target: Target
  readonly view: Spectacle
  readonly clock: Clock
  readonly usage: () => Usage
  readonly machine: RunResult['machine']
  /** Fires when the run is to end before its time. */
  readonly signal: AbortSignal
}

/** How long what was sent may take to be acked once nobody sends any more. */
const SETTLE_SECONDS = 10
/** The same after an interruption: somebody waits. */
const SETTLE_INTERRUPTED_SECONDS = 3

/** Plays a scenario and resolves with what was found, also when it could not go on or was interrupted. */
export class LoadTest {
  readonly #parts: LoadTestParts
  readonly #crowd: ThreadedCrowd
  readonly #recorder: Recorder
  readonly #stage: RunStage
  readonly #scraper: Scraper
  readonly #broken = new Set<BreachKind>()
  #phase = { began_at: 0, seconds: 0 }
  #run_seconds = 0
  /** The scenario did not come to its end since the run was interrupted. */
  #interrupted = false
  #ticking = Promise.resolve()
  #cancelTick = () => {}

  constructor(parts: LoadTestParts) {
    const { options, target, clock, usage, signal, view } = parts
    const { room_type, message, seed, threads, values } = options
    this.#parts = parts
    this.#crowd = new ThreadedCrowd({
      settings: { ws_urls: target.ws_urls, room_type, message, seed },
      threads,
      issuer: target.issuer,
      clock,
      signal,
    })
    this.#scraper = new Scraper(target.metrics, clock)
    this.#recorder = new Recorder({
      report: () => this.#crowd.report(),
      strain: () => this.#crowd.strain(),
      servers: () => this.#scraper.read(),
      usage,
    })
    this.#stage = new RunStage({
      values,
      crowd: this.#crowd,
      local: target.local,
      recorder: this.#recorder,
      clock,
      signal,
      on_phase: (name, seconds) => {
        this.#phase = { began_at: this.#stage.at, seconds }
        view.phase(name, seconds, this.#run_seconds)
      },
      on_incident: ({ text }: Incident) => view.incident(text),
    })
  }

  async run(): Promise<RunResult> {
    const { options, target, clock, signal } = this.#parts
    const { scenario, values } = options
    const started_at = timestamp(clock.now() - this.#stage.at * 1000)
    let failure: string | undefined
    const prospect = await rehearse(scenario, values, target.local?.nodes ?? [])
    this.#run_seconds = prospect.seconds
    // What the counters of the servers begin with.
    await this.#scraper.read()
    this.#tick(1)
    try {
      await unlessAborted(signal, this.#look())
      await this.#crowd.open(prospect.clients)
      await scenario.run(this.#stage)
    } catch (error) {
      if (!signal.aborted) failure = error instanceof Error ? error.message : String(error)
      else this.#interrupted = true
    }
    const result = await this.#finish(started_at).catch((error: Error) => {
      failure ??= error.message
      return this.#result(started_at)
    })
    await this.#crowd.end()
    return this.#judged({ ...result, failure })
  }

  /** Whether the service can be played at all. */
  async #look(): Promise<void> {
    const { options, target, clock } = this.#parts
    const { ws_urls, issuer } = target
    const credentials = await issuer.issue()
    await preflight({ ws_urls, room_type: options.room_type, credentials, clock })
    await this.#scraper.reach()
  }

  /** What was sent is waited for, the last second told, and everybody says goodbye. */
  async #finish(started_at: string): Promise<Unjudged> {
    await this.#crowd.finish(this.#interrupted ? SETTLE_INTERRUPTED_SECONDS : SETTLE_SECONDS)
    this.#cancelTick()
    await this.#ticking
    await this.#second()
    const checks = checksOf(await this.#crowd.findings(), this.#parts.options.message !== undefined)
    const result = { ...this.#result(started_at), checks: [...checks, ...this.#stage.checks] }
    await this.#crowd.leave()
    return result
  }

  #result(started_at: string): Unjudged {
    const { options, target, machine } = this.#parts
    const { scenario } = options
    const { totals, timings, log, failures } = this.#recorder
    const { figures, checks, incidents } = this.#stage
    this.#cancelTick()
    this.#recorder.close()
    return {
      scenario: scenario.name,
      meaning: scenario.meaning,
      options: optionsTold(options),
      started_at,
      seconds: this.#stage.at,
      planned_seconds: this.#run_seconds,
      interrupted: this.#interrupted,
      failure: undefined,
      machine,
      target: target.description,
      totals,
      timings,
      seconds_log: log,
      incidents,
      checks,
      failures,
      figures,
      bottleneck: bottlenecks(log, machine.cores),
    }
  }

  #judged(result: Unjudged): RunResult {
    const judged = { ...result, verdicts: judge(this.#parts.options.limits, result) }
    return { ...judged, passed: hasPassed(judged) }
  }

  /** The n-th second ends when n seconds are over, however late the one before was told. */
  #tick(n: number): void {
    const wait_ms = (n - this.#stage.at) * 1000
    this.#cancelTick = this.#parts.clock.schedule(wait_ms, () => {
      this.#ticking = this.#second().then(
        () => this.#tick(Math.max(n + 1, Math.floor(this.#stage.at) + 1)),
        // A thread is gone, and the scenario hears of it as well.
        () => undefined,
      )
    })
  }

  async #second(): Promise<void> {
    const looking = this.#parts.target.local?.mishaps()
    const second = await this.#recorder.second(this.#stage.at)
    for (const { text, grave } of (await looking) ?? []) {
      this.#stage.incident(text)
      if (grave) this.#recorder.fail('service_broken', text)
    }
    const { began_at, seconds } = this.#phase
    // A phase may have begun while the second was put together.
    const progress = seconds === 0 ? 1 : (second.at - began_at) / seconds
    this.#parts.view.update(second, Math.min(1, Math.max(0, progress)))
    for (const breaches of this.#recorder.breaches)
      for (const [kind, count] of Object.entries(breaches) as [BreachKind, number][]) {
        if (count === 0 || this.#broken.has(kind)) continue
        this.#broken.add(kind)
        this.#stage.incident(`broken: ${brokenName(kind)}`)
      }
  }
}

type Unjudged = Omit<RunResult, 'verdicts' | 'passed'>
