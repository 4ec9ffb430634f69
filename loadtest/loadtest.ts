import { createHistogram, type Histogram, type RecordableHistogram } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Client, connect, RoomfulError } from '../client/index.ts'
import { type Clock, timestamp } from '../shared/clock.ts'
import { randomToken } from '../shared/ids.ts'
import { systemRandom } from '../shared/random.ts'
import type { Credentials, Issuer } from './issuer.ts'
import { bottlenecks, judge, wentWrong } from './judge.ts'
import type { LocalService } from './local.ts'
import { type MetricsSource, Scraper } from './metrics.ts'
import type { RunOptions } from './options.ts'
import { newestOf } from './players/client.ts'
import { withinTimeLimit } from './players/pace.ts'
import { SdkClients } from './players/sdk.ts'
import { checksOf, Failures, mergeFindings, violatedChecks } from './players/tally.ts'
import { type Everywhere, Threads, type WorkerReport, watchLoop } from './players/worker.ts'
import {
  type Check,
  type Counts,
  type Figure,
  type Incident,
  NO_VALUES,
  noCounts,
  type Percentiles,
  type RunResult,
  type Second,
  type Timing,
} from './result.ts'
import { dryRun, type RunContext, type Scenario } from './scenario.ts'
import { quantile } from './text.ts'
import type { LiveView } from './view.ts'

/** The service under load. */
export interface Target {
  readonly issuer: Issuer
  readonly wsUrls: readonly string[]
  readonly metrics: readonly MetricsSource[]
  /** With `--local`. */
  readonly local: LocalService | undefined
  readonly description: string
}

interface LoadTestOptions {
  readonly options: RunOptions
  readonly target: Target
  readonly view: Pick<LiveView, 'phase' | 'update' | 'incident'>
  readonly clock: Clock
  readonly machine: RunResult['machine']
  /** Interrupts the run. */
  readonly signal: AbortSignal
}

/** Time limit for the answers to the last messages. */
const ANSWERS_SECONDS = 10
/** The same after an interruption, while a person waits. */
const INTERRUPTED_ANSWERS_SECONDS = 3
/** Longer times are recorded as this value. */
const LONGEST_MS = 600_000

type Histograms = Partial<Record<Timing, RecordableHistogram>>

/** Records durations with three significant digits, in microseconds. */
function record(histograms: Histograms, timing: Timing, ms: number): void {
  histograms[timing] ??= createHistogram({ lowest: 1, highest: LONGEST_MS * 1000, figures: 3 })
  histograms[timing].record(Math.min(LONGEST_MS * 1000, Math.max(1, Math.round(ms * 1000))))
}

/** Values of a histogram in milliseconds. */
function percentilesOf(histogram: Histogram | undefined): Percentiles {
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

const allPercentiles = (histograms: Histograms): Second['timings'] =>
  Object.fromEntries(
    Object.entries(histograms).map(([timing, histogram]) => [timing, percentilesOf(histogram)]),
  )

/** Runs a scenario, and records the actions of its clients and the service: for each second, for each phase, and in total. */
export class LoadTest implements RunContext {
  readonly runs: number
  readonly roomType: string
  readonly clock: Clock
  readonly issuer: Issuer
  readonly clients: Everywhere
  readonly sdk: SdkClients
  readonly #threads: Threads
  readonly #deps: LoadTestOptions
  readonly #scraper: Scraper
  readonly #start: number
  readonly #readLoop = watchLoop()
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
  // Of the current second.
  #counts = noCounts()
  #second: Histograms = {}
  #lateMs = 0
  #cpuSeconds = cpuSeconds()
  /** Serializes the reports of the threads. */
  #gathering: Promise<void> = Promise.resolve()
  #ticking = Promise.resolve()
  #cancelTick = () => {}

  constructor(deps: LoadTestOptions) {
    const { options, target, clock, signal } = deps
    this.#deps = deps
    this.#start = clock.monotonic()
    this.#scraper = new Scraper(target.metrics, clock)
    const interrupted = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason))
      if (signal.aborted) reject(signal.reason)
    })
    interrupted.catch(() => undefined)
    const { wsUrls, issuer } = target
    this.runs = options.runs
    this.roomType = options.roomType
    this.clock = clock
    this.issuer = issuer
    this.#threads = new Threads(interrupted)
    this.clients = this.#threads.interruptible
    this.sdk = new SdkClients({ wsUrls, issuer, clock, interrupted })
  }

  /** Resolves with the result, also of a failed or interrupted run. It is called once. */
  async run(): Promise<RunResult> {
    const { options, target, clock, signal, machine } = this.#deps
    const { scenario, values, runs } = options
    const startedAt = timestamp(clock.now())
    const plan = await dryRun(scenario, values, runs, target.local?.nodes ?? [])
    this.#runSeconds = plan.seconds
    // First reading of the counters.
    await this.#scraper.read()
    this.#tick(1)
    const failures: string[] = []
    let interrupted = false
    await this.#play(scenario, plan.clients).catch((error: Error) => {
      if (signal.aborted) interrupted = true
      else failures.push(error.message)
    })
    await this.#finish(interrupted ? INTERRUPTED_ANSWERS_SECONDS : ANSWERS_SECONDS).catch((error: Error) =>
      failures.push(error.message),
    )
    this.#cancelTick()
    await this.#threads.end()
    return resultOf(options, plan.seconds, machine, startedAt, {
      seconds: this.#at,
      interrupted,
      failure: failures[0],
      target: target.description,
      totals: this.#totals,
      timings: allPercentiles(this.#timings),
      seconds_log: this.#log,
      incidents: this.#incidents,
      checks: this.#checks,
      failures: this.#failures.list,
      figures: this.#figures,
      bottleneck: bottlenecks(this.#log, machine.cores),
    })
  }

  // Context of the scenario.

  get local(): LocalService {
    const { local } = this.#deps.target
    if (!local) throw new Error('the processes of a service that was not started with --local are left alone')
    return local
  }

  async phase<T>(name: string, seconds: number, work: () => Promise<T>): Promise<T> {
    await this.#gather()
    this.#phase = { name, beganAt: this.#at, seconds }
    this.#deps.view.phase(name, seconds, this.#runSeconds)
    const result = await work()
    await this.#gather()
    return result
  }

  incident(text: string): void {
    this.#incidents.push({ at: this.#at, text })
    this.#deps.view.incident(text)
  }

  figure(figure: Figure): void {
    this.#figures.push(figure)
  }

  samples({ values, ...figure }: Parameters<RunContext['samples']>[0]): void {
    if (values.length === 0) return
    const at = (share: number): number => quantile(values, share)
    const samples = { count: values.length, min: at(0), p95: at(0.95), p99: at(0.99), max: at(1) }
    this.#figures.push({ ...figure, value: at(0.5), samples })
  }

  check(check: Check): void {
    this.#checks.push(check)
  }

  timed(timing: Timing, phase: string): Percentiles {
    return percentilesOf(this.#phaseTimings.get(phase)?.[timing])
  }

  async pass(seconds: number): Promise<void> {
    await sleep(seconds * 1000, undefined, { signal: this.#deps.signal })
  }

  // Running and recording.

  /** Seconds since the start. */
  get #at(): number {
    return (this.#deps.clock.monotonic() - this.#start) / 1000
  }

  async #play(scenario: Scenario, clients: number): Promise<void> {
    const { options, target, clock } = this.#deps
    const { roomType, message, seed, threads } = options
    const reach = async (): Promise<Credentials> => {
      const credentials = await target.issuer.issue()
      await preflight(target.wsUrls, roomType, credentials, clock)
      await this.#scraper.reach()
      return credentials
    }
    const credentials = await this.sdk.unlessInterrupted(reach())
    // Runs against one service share a project, but must not share a room.
    const keyPrefix = target.local ? '' : `${randomToken(systemRandom, 6)}-`
    const settings = { wsUrls: target.wsUrls, roomType, keyPrefix, message, seed }
    await this.#threads.open(clients, threads, settings)
    await this.clients.use(credentials)
    await scenario.run(this, options.values)
  }

  /** Stops sending, waits for the last answers and updates, records the last second, and closes all clients. */
  async #finish(withinSeconds: number): Promise<void> {
    const { all } = this.#threads
    await all.stop()
    await all.awaitAnswers({ withinSeconds })
    await all.catchUp(newestOf(await all.newest()), withinSeconds)
    await all.giveUp()
    this.#cancelTick()
    await this.#ticking
    await this.#endSecond()
    const findings = mergeFindings(this.#reports.map((report) => report.findings))
    this.#checks.unshift(...checksOf(findings, this.#deps.options.message !== undefined))
    this.sdk.close()
    await all.close()
  }

  /** Ends the n-th second after n seconds, however late the previous one was recorded. */
  #tick(n: number): void {
    const waitMs = (n - this.#at) * 1000
    this.#cancelTick = this.#deps.clock.schedule(waitMs, () => {
      this.#ticking = this.#endSecond().then(
        () => this.#tick(Math.max(n + 1, Math.floor(this.#at) + 1)),
        // A thread has ended. The call of the scenario rejects too.
        () => undefined,
      )
    })
  }

  async #endSecond(): Promise<void> {
    const { target, view } = this.#deps
    const [at, rss, cpu] = [this.#at, process.memoryUsage.rss(), cpuSeconds()]
    const [servers, threads, faults] = await Promise.all([
      this.#scraper.read(),
      this.#threads.all.loopReading(),
      target.local?.faults(),
      this.#gather(),
    ])
    const loops = [this.#readLoop(), ...threads]
    const second: Second = {
      at,
      phase: this.#phase.name,
      online: this.#reports.reduce((sum, { online }) => sum + online, 0),
      counts: this.#counts,
      timings: allPercentiles(this.#second),
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
    this.#second = {}
    this.#lateMs = 0
    for (const text of faults ?? []) {
      this.incident(text)
      this.#counts.errors += 1
      this.#totals.errors += 1
      this.#failures.add({ code: 'service_broken', count: 1, example: text })
    }
    const { beganAt, seconds } = this.#phase
    view.update(second, seconds === 0 ? 1 : Math.min(1, Math.max(0, (at - beganAt) / seconds)))
    for (const name of this.#reports.flatMap(({ findings }) => violatedChecks(findings))) {
      if (!this.#violated.has(name)) this.incident(`violated: ${name}`)
      this.#violated.add(name)
    }
  }

  /** Adds the reports of the threads. */
  #gather(): Promise<void> {
    this.#gathering = this.#gathering.then(async () => {
      this.#reports = await this.#threads.all.report()
      for (const report of this.#reports) this.#take(report)
    })
    return this.#gathering
  }

  #take({ counts, failures, timings, lateMs }: WorkerReport): void {
    for (const name of Object.keys(counts) as (keyof Counts)[]) {
      this.#counts[name] += counts[name]
      this.#totals[name] += counts[name]
    }
    for (const failure of failures) this.#failures.add(failure)
    const phase = this.#phaseTimings.get(this.#phase.name) ?? {}
    this.#phaseTimings.set(this.#phase.name, phase)
    for (const [timing, all] of Object.entries(timings) as [Timing, readonly number[]][])
      for (const ms of all)
        for (const histograms of [this.#second, this.#timings, phase]) record(histograms, timing, ms)
    this.#lateMs = Math.max(this.#lateMs, lateMs)
  }
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}

type Judged = 'verdicts' | 'passed'

/**
 * Returns the judged result of a run. Without `found`, it is the result of a run whose service did not start. Every run has a result, so
 * that no report of an earlier run counts as its report.
 */
export function resultOf(
  options: RunOptions,
  plannedSeconds: number,
  machine: RunResult['machine'],
  startedAt: string,
  found: Partial<Omit<RunResult, Judged>>,
): RunResult {
  const unjudged: Omit<RunResult, Judged> = {
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
    ...found,
  }
  const result = { ...unjudged, verdicts: judge(options.limits, unjudged) }
  return { ...result, passed: !result.interrupted && !wentWrong(result) }
}

const TIME_LIMIT_MS = 5000
/** A room that no client of a run joins. */
const KEY = 'load-preflight'
const REFUSED = 'A first client could not join a room'

/** Connects to each address and joins a room. Rejects with an Error that says what is wrong and what may help. */
async function preflight(
  wsUrls: readonly string[],
  roomType: string,
  { projectId, token }: Credentials,
  clock: Clock,
): Promise<void> {
  for (const url of wsUrls) {
    let client: Client | undefined
    let unanswered: string | undefined
    try {
      client = await connect(url, {
        projectId,
        token,
        reconnect: false,
        connectTimeoutMs: TIME_LIMIT_MS,
        onError: () => undefined,
      })
      await withinTimeLimit(clock, client.join(roomType, { key: KEY }), (within) => {
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
  too_many_rooms:
    'All players come with one token from one address: put the address of this machine into TRUSTED_PROXIES of the nodes.',
  project_full: 'Start the nodes with a higher MAX_ROOMS_PER_PROJECT, or 0.',
  unauthenticated: 'Do --ws and --control, or --project and --token, belong to the same service?',
  token_expired: 'Give a token that is good for the whole run with --token, or let --control issue one.',
  revoked: 'Give a token under a key that is not revoked with --token, or let --control issue one.',
}
