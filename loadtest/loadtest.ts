import type { RecordableHistogram } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Client, connect, RoomfulError } from '../client/index.ts'
import { type Clock, timestamp } from '../shared/clock.ts'
import { bottlenecks } from './bottleneck.ts'
import { checksOf, mergeFindings, violatedChecks } from './checks.ts'
import { type Credentials, withinPatience } from './clients/client.ts'
import { Clients, type Issuer } from './clients/clients.ts'
import { LoopMeter } from './clients/loop.ts'
import { addCounts, Failures, type Histograms, newHistogram, percentilesOf } from './clients/tally.ts'
import type { WorkerReport } from './clients/worker.ts'
import { judge, succeeded } from './limits.ts'
import type { LocalService } from './local.ts'
import { type MetricsSource, Scraper } from './metrics.ts'
import type { RunOptions } from './options.ts'
import {
  type Check,
  type Counting,
  type Figure,
  type Incident,
  noCounts,
  type Percentiles,
  type RunResult,
  type Second,
  type Timing,
} from './result.ts'
import { dryRun, type RunContext, type Scenario } from './scenario.ts'
import type { LiveView } from './view/live.ts'

/** What the load is put on. */
export interface Target {
  readonly issuer: Issuer
  readonly wsUrls: readonly string[]
  readonly metrics: readonly MetricsSource[]
  /** With `--local`. */
  readonly local: LocalService | undefined
  /** The addresses, and what is behind them where that is known. */
  readonly description: string
}

interface LoadTestOptions {
  readonly options: RunOptions
  readonly target: Target
  readonly view: Pick<LiveView, 'phase' | 'update' | 'incident'>
  readonly clock: Clock
  readonly machine: RunResult['machine']
  /** Fires when the run is to end before its time. */
  readonly signal: AbortSignal
}

/** How long what was sent may take to be acked once nothing is sent any more. */
const SETTLE_SECONDS = 10
/** The same after an interruption: someone waits. */
const SETTLE_INTERRUPTED_SECONDS = 3

/** Plays a scenario, and records what its clients and the service did: second by second, phase by phase, and in all. */
export class LoadTest implements RunContext {
  readonly clients: Clients
  readonly #parts: LoadTestOptions
  readonly #scraper: Scraper
  readonly #start: number
  /** Rejects when the run is interrupted. */
  readonly #interruption: Promise<never>
  readonly #loop = new LoopMeter()
  readonly #totals = noCounts()
  readonly #timings: Histograms = {}
  readonly #phaseTimings = new Map<string, Histograms>()
  readonly #failures = new Failures()
  readonly #log: Second[] = []
  readonly #figures: Figure[] = []
  readonly #checks: Check[] = []
  readonly #incidents: Incident[] = []
  readonly #violated = new Set<string>()
  #phase = { name: 'start', beganAt: 0, seconds: 0 }
  #runSeconds = 0
  #reports: readonly WorkerReport[] = []
  /** Of the present second. */
  #counts: Counting = noCounts()
  #second: Histograms = {}
  #lateMs = 0
  #cpuSeconds = cpuSeconds()
  /** One at a time: what a thread lends out is lent until it is asked again. */
  #gathering: Promise<void> = Promise.resolve()
  #ticking = Promise.resolve()
  #cancelTick = () => {}

  constructor(parts: LoadTestOptions) {
    const { options, target, clock, signal } = parts
    this.#parts = parts
    this.#start = clock.monotonic()
    this.#scraper = new Scraper(target.metrics, clock)
    this.#interruption = new Promise((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason))
      if (signal.aborted) reject(signal.reason)
    })
    this.#interruption.catch(() => undefined)
    const { roomType, message, seed, threads } = options
    this.clients = new Clients({
      settings: { wsUrls: target.wsUrls, roomType, message, seed },
      threads,
      issuer: target.issuer,
      clock,
      interrupted: this.#interruption,
    })
  }

  /** Resolves with what was found, also when it could not go on or was interrupted. To be called once. */
  async run(): Promise<RunResult> {
    const { options, target, clock, signal } = this.#parts
    const { scenario, values, runs } = options
    const startedAt = timestamp(clock.now() - this.#at * 1000)
    const plan = await dryRun(scenario, values, runs, target.local?.nodes ?? [])
    this.#runSeconds = plan.seconds
    // What the counters of the servers begin with.
    await this.#scraper.read()
    this.#tick(1)
    const failures: string[] = []
    let interrupted = false
    const failed = (error: unknown): void => {
      if (signal.aborted) interrupted = true
      else failures.push(error instanceof Error ? error.message : String(error))
    }
    await this.#play(scenario, plan.clients).catch(failed)
    await this.#finish(interrupted ? SETTLE_INTERRUPTED_SECONDS : SETTLE_SECONDS).catch((error: Error) =>
      failures.push(error.message),
    )
    this.#cancelTick()
    this.#loop.close()
    await this.clients.end()
    const result = {
      ...emptyResult(options, plan.seconds, this.#parts.machine, startedAt),
      seconds: this.#at,
      interrupted,
      failure: failures[0],
      target: target.description,
      totals: this.#totals,
      timings: times(this.#timings),
      seconds_log: this.#log,
      incidents: this.#incidents,
      checks: this.#checks,
      failures: this.#failures.list,
      figures: this.#figures,
      bottleneck: bottlenecks(this.#log, this.#parts.machine.cores),
    }
    return judged(options, result)
  }

  // What a scenario acts with.

  get runs(): number {
    return this.#parts.options.runs
  }

  get roomType(): string {
    return this.#parts.options.roomType
  }

  get local(): LocalService {
    const { local } = this.#parts.target
    if (!local) throw new Error('the processes of a service that was not started with --local are left alone')
    return local
  }

  get signal(): AbortSignal {
    return this.#parts.signal
  }

  async phase<T>(name: string, seconds: number, work: () => Promise<T>): Promise<T> {
    await this.#gather()
    this.#phase = { name, beganAt: this.#at, seconds }
    this.#parts.view.phase(name, seconds, this.#runSeconds)
    const result = await work()
    await this.#gather()
    return result
  }

  incident(text: string): void {
    this.#incidents.push({ at: this.#at, text })
    this.#parts.view.incident(text)
  }

  figure(figure: Figure): void {
    this.#figures.push(figure)
  }

  samples({ values, ...figure }: Parameters<RunContext['samples']>[0]): void {
    if (values.length === 0) return
    const sorted = values.toSorted((a, b) => a - b)
    const at = (share: number): number => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!
    const samples = { count: sorted.length, min: sorted[0]!, p95: at(0.95), p99: at(0.99), max: at(1) }
    this.#figures.push({ ...figure, value: at(0.5), samples })
  }

  check(check: Check): void {
    this.#checks.push(check)
  }

  timed(timing: Timing, phase: string): Percentiles {
    return percentilesOf(this.#phaseTimings.get(phase)?.[timing])
  }

  async pass(seconds: number): Promise<void> {
    await sleep(seconds * 1000, undefined, { signal: this.signal })
  }

  // How it is played and recorded.

  /** Seconds since the start. */
  get #at(): number {
    return (this.#parts.clock.monotonic() - this.#start) / 1000
  }

  async #play(scenario: Scenario, clients: number): Promise<void> {
    const { options, target, clock } = this.#parts
    const looked = target.issuer
      .issue()
      .then((credentials) =>
        preflight({ wsUrls: target.wsUrls, roomType: options.roomType, credentials, clock }),
      )
      .then(() => this.#scraper.reach())
    await Promise.race([looked, this.#interruption])
    await this.clients.open(clients)
    await scenario.run(this, options.values)
  }

  /** What was sent is waited for, the last second recorded, and all clients say goodbye. */
  async #finish(withinSeconds: number): Promise<void> {
    await this.clients.finish(withinSeconds)
    this.#cancelTick()
    await this.#ticking
    await this.#endSecond()
    const findings = mergeFindings(this.#reports.map((report) => report.findings))
    this.#checks.unshift(...checksOf(findings, this.#parts.options.message !== undefined))
    await this.clients.close()
  }

  /** The n-th second ends when n seconds are over, however late the one before was recorded. */
  #tick(n: number): void {
    const waitMs = (n - this.#at) * 1000
    this.#cancelTick = this.#parts.clock.schedule(waitMs, () => {
      this.#ticking = this.#endSecond().then(
        () => this.#tick(Math.max(n + 1, Math.floor(this.#at) + 1)),
        // A thread is gone, and the scenario hears of it as well.
        () => undefined,
      )
    })
  }

  async #endSecond(): Promise<void> {
    const { target, view } = this.#parts
    const [at, rss, cpu] = [this.#at, process.memoryUsage.rss(), cpuSeconds()]
    const [servers, threads, faults] = await Promise.all([
      this.#scraper.read(),
      this.clients.loopReadings(),
      target.local?.faults(),
      this.#gather(),
    ])
    const loops = [this.#loop.take(), ...threads]
    const second: Second = {
      at,
      phase: this.#phase.name,
      online: this.#reports.reduce((sum, { online }) => sum + online, 0),
      counts: this.#counts,
      timings: times(this.#second),
      generator: {
        event_loop_delay_ms: Math.max(...loops.map(({ delayMs }) => delayMs)),
        event_loop_utilisation: Math.max(...loops.map(({ utilisation }) => utilisation)),
        late_ms: this.#lateMs,
        cpu_seconds: cpu - this.#cpuSeconds,
        rss_bytes: rss,
      },
      servers,
    }
    this.#log.push(second)
    this.#cpuSeconds = cpu
    this.#counts = noCounts()
    for (const histogram of Object.values(this.#second)) histogram.reset()
    this.#lateMs = 0
    for (const { text, grave } of faults ?? []) {
      this.incident(text)
      if (grave) this.#fail(text)
    }
    const { beganAt, seconds } = this.#phase
    // A phase may have begun while the second was put together.
    const progress = seconds === 0 ? 1 : (at - beganAt) / seconds
    view.update(second, Math.min(1, Math.max(0, progress)))
    this.#reportViolations()
  }

  /** Adds a failure of the service, and not of a client. */
  #fail(example: string): void {
    this.#counts.errors += 1
    this.#totals.errors += 1
    this.#failures.add({ code: 'service_broken', count: 1, example })
  }

  #reportViolations(): void {
    for (const { findings } of this.#reports)
      for (const name of violatedChecks(findings)) {
        if (this.#violated.has(name)) continue
        this.#violated.add(name)
        this.incident(`violated: ${name}`)
      }
  }

  /** Takes what the threads have. */
  #gather(): Promise<void> {
    this.#gathering = this.#gathering.then(async () => {
      this.#reports = await this.clients.report()
      for (const report of this.#reports) this.#take(report)
    })
    return this.#gathering
  }

  #take(report: WorkerReport): void {
    addCounts(this.#counts, report.counts)
    addCounts(this.#totals, report.counts)
    for (const failure of report.failures) this.#failures.add(failure)
    const phase = this.#phaseTimings.get(this.#phase.name) ?? {}
    this.#phaseTimings.set(this.#phase.name, phase)
    for (const [timing, histogram] of Object.entries(report.timings) as [Timing, RecordableHistogram][])
      for (const sum of [this.#second, this.#timings, phase]) {
        sum[timing] ??= newHistogram()
        sum[timing].add(histogram)
      }
    this.#lateMs = Math.max(this.#lateMs, report.lateMs)
  }
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}

const times = (histograms: Histograms): Second['timings'] =>
  Object.fromEntries(
    Object.entries(histograms).flatMap(([timing, histogram]) =>
      histogram.count === 0 ? [] : [[timing, percentilesOf(histogram)]],
    ),
  )

type Unjudged = Omit<RunResult, 'verdicts' | 'passed'>

/** The result of a run whose service never served: there is one of every run, so that no report of an earlier one is taken for it. */
export const emptyResult = (
  options: RunOptions,
  plannedSeconds: number,
  machine: RunResult['machine'],
  startedAt: string,
): Unjudged => ({
  scenario: options.scenario.name,
  meaning: options.scenario.meaning,
  options: options.told,
  started_at: startedAt,
  seconds: 0,
  planned_seconds: plannedSeconds,
  interrupted: false,
  failure: undefined,
  machine,
  target: 'a service that did not start',
  totals: noCounts(),
  timings: {},
  seconds_log: [],
  incidents: [],
  checks: [],
  failures: [],
  figures: [],
  bottleneck: [],
})

/** A result with the verdicts on its limits. */
export function judged({ limits }: RunOptions, result: Unjudged): RunResult {
  const verdicts = judge(limits, result)
  return { ...result, verdicts, passed: succeeded({ ...result, verdicts }) }
}

/** What can be reached at all is reached within this. */
const PATIENCE_MS = 5000
/** A room that no client of a run joins. */
const KEY = 'load-preflight'
const REFUSED = 'A first client could not join a room'

interface PreflightOptions {
  readonly wsUrls: readonly string[]
  readonly roomType: string
  readonly credentials: Credentials
  readonly clock: Clock
}

/** Connects once to each address and joins a room, so that what cannot work is told at once. Rejects with an Error that tells it in full. */
export async function preflight({ wsUrls, roomType, credentials, clock }: PreflightOptions): Promise<void> {
  const { projectId, token } = credentials
  for (const url of wsUrls) {
    let client: Client | undefined
    let unanswered: string | undefined
    try {
      client = await connect(url, {
        projectId,
        token,
        reconnect: false,
        connectTimeoutMs: PATIENCE_MS,
        onError: () => undefined,
      })
      await withinPatience(clock, client.join(roomType, { key: KEY }), (within) => {
        unanswered = `it had no answer ${within}.`
        client?.close()
      })
    } catch (error) {
      if (unanswered !== undefined) throw new Error(`${REFUSED} at ${url}: ${unanswered}`)
      throw new Error(explained(error, url, roomType), { cause: error })
    } finally {
      client?.close()
    }
  }
}

function explained(error: unknown, url: string, roomType: string): string {
  if (!(error instanceof RoomfulError)) return String(error)
  if (error.code === 'unknown_room_type' && roomType === 'load')
    return `The service at ${url} has no room type "load", which this load test plays in. Start its nodes with ROOMS_DIR=loadtest/rooms (or put loadtest/rooms/load.ts into the folder they have), or name a room type of yours with --room-type and --message.`
  if (error.code === 'connection_failed')
    return `No client can connect to ${url}: ${error.message} Is the service running? --ws says where it is; --local 3 starts one.`
  const hint = HINTS[error.code]
  const message = error.message.replace(/\.+$/, '.')
  return `${REFUSED} at ${url}: ${message} (${error.code})${hint === undefined ? '' : ` ${hint}`}`
}

const HINTS: Readonly<Record<string, string>> = {
  overloaded:
    'If that does not pass, look whether the node reaches its CONTROL_URL, with the INTERNAL_TOKEN that control has.',
  rate_limited: 'All players come with one token: start the nodes with NEW_ROOMS_PER_MINUTE=0.',
  project_full: 'Start the nodes with a higher MAX_ROOMS_PER_PROJECT, or 0.',
  unauthenticated: 'Do --ws and --control, or --project and --token, belong to the same service?',
  token_expired: 'Give a token that is good for the whole run with --token, or let --control issue one.',
  key_revoked: 'Give a token under a key that is not revoked with --token, or let --control issue one.',
}
