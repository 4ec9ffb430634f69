import { Counter, Gauge, type Registry } from 'prom-client'
import { type Clock, untilNext } from '../clock.ts'
import { randomToken } from '../ids.ts'
import type { Logger } from '../log.ts'
import { counter, gauge, histogram, OPEN, registerMetrics } from '../metrics.ts'
import type { Random } from '../random.ts'
import {
  type Store,
  type StoredRecord,
  type StoreServer,
  StoreUnavailable,
  type StoreVitals,
} from './port.ts'

/** Monitoring of the store by a process: the clock, the data, and the metrics of both. */

/** Interval between comparisons of the clocks, in milliseconds. */
const EVERY_MS = 10_000
/** Above this difference, short-lived tokens and the times in lists are wrong. It is logged, and there is an alert. */
const LOGGED_MS = 5000
/** Above this difference, a process refuses valid tokens, or issues tokens that others refuse. */
const CLOCK_WRONG_MS = 30_000

/** Gauge of the difference, in both planes. */
const CLOCK_OFFSET = gauge(
  'service_clock_offset_seconds',
  'Time by which the clock of the process is ahead of the store’s.',
)

/** Difference between the clock of this process and that of the store, which all processes share. It is measured every 10 s. */
export class ClockOffset {
  readonly #store: Pick<Store, 'time'>
  readonly #clock: Clock
  readonly #log: Logger
  #ms = 0
  #reported: 'agrees' | 'differs' | 'wrong' = 'agrees'
  #cancel = () => {}
  #stopped = false

  constructor({ store, clock, log }: { store: Pick<Store, 'time'>; clock: Clock; log: Logger }) {
    this.#store = store
    this.#clock = clock
    this.#log = log
  }

  /** Starts the measurements. */
  start(): void {
    void this.measure().then(() => {
      if (this.#stopped) return
      this.#cancel = this.#clock.schedule(untilNext(this.#clock, EVERY_MS), () => this.start())
    })
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
  }

  /** Milliseconds by which this clock is ahead at least. Negative: it is behind. 0 before the first answer. */
  get ms(): number {
    return this.#ms
  }

  /** Reason why the process must not serve. Undefined: its clock is good enough. */
  get wrong(): string | undefined {
    const seconds = Math.round(Math.abs(this.#ms) / 1000)
    if (Math.abs(this.#ms) <= CLOCK_WRONG_MS) return undefined
    return `the clock of this process is ${seconds} s ${this.#ms > 0 ? 'ahead of' : 'behind'} the store's: set both by NTP`
  }

  /** Measures once. Never rejects: without an answer, the last difference stays. */
  async measure(): Promise<void> {
    const sentAt = this.#clock.monotonic()
    let storeTime: number
    try {
      storeTime = await this.#store.time()
    } catch {
      return
    }
    // The store read its clock at some moment of the round trip.
    const halfMs = (this.#clock.monotonic() - sentAt) / 2
    const ahead = this.#clock.now() - (storeTime + halfMs)
    this.#ms = Math.sign(ahead) * Math.max(0, Math.abs(ahead) - halfMs)
    const wrong = Math.abs(this.#ms) > CLOCK_WRONG_MS
    const state = wrong ? 'wrong' : Math.abs(this.#ms) > LOGGED_MS ? 'differs' : 'agrees'
    if (state === this.#reported) return
    this.#reported = state
    const fields = { offset_ms: Math.round(this.#ms) }
    if (state === 'wrong')
      this.#log.error(fields, 'clock is wrong, the process is not ready: set both by NTP')
    else if (state === 'differs') this.#log.warn(fields, "clock differs from the store's: set both by NTP")
    else this.#log.info(fields, "clock agrees with the store's again")
  }
}

/** Dependencies of StoreDataWatch. */
interface StoreDataWatchParts {
  readonly store: Pick<Store, 'records' | 'onReturn'>
  /** Key of the mark, in the slot of this plane's most important data. */
  readonly key: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

/** Interval in milliseconds between checks while the store is reachable. FLUSHALL closes no connection. */
const LOOK_MS = 10_000
/** Lifetime in milliseconds of the note about a loss. */
const NOTE_MS = 3_600_000

/** Content of the store: the current mark, and the earlier ones of the note. `lost` undefined: there is no note. */
interface Found {
  readonly mark: string
  readonly lost: readonly string[] | undefined
}

const textOf = ({ value }: StoredRecord): string => new TextDecoder().decode(value)

/**
 * Detects that the store has lost the data that this process knew. The first process of a deployment writes a random mark that never
 * expires. A process that finds no mark, or a different one, uses the new mark from then on, and writes a note about the loss into the
 * store. The note has the earlier marks, tells processes that start later, and expires after an hour. A restored backup contains an earlier
 * mark.
 */
export class StoreDataWatch {
  readonly #parts: StoreDataWatchParts
  readonly #noteKey: string
  /** All marks that this process has found. The last one is current. */
  #marks: string[] = []
  #lost = false
  /** True until the note about a loss that this process has found is stored. */
  #owesNote = false
  #looking: Promise<void> | undefined
  #lookingNext: Promise<void> | undefined
  #cancel: () => void = () => undefined
  #forgetReturn: () => void = () => undefined
  #stopped = false

  constructor(parts: StoreDataWatchParts) {
    this.#parts = parts
    this.#noteKey = `${parts.key}-lost`
  }

  /** True from the discovery of a loss until the earlier data is back, or the note has expired or was deleted. */
  get lost(): boolean {
    return this.#lost
  }

  /** Checks the store. Resolves with true if its data is lost. Never rejects. */
  async checkLost(): Promise<boolean> {
    await this.#look()
    return this.lost
  }

  /** Resolves after the first check. Checks again every 10 s, and each time the store becomes reachable. Never rejects. */
  async start(): Promise<void> {
    this.#forgetReturn = this.#parts.store.onReturn(() => void this.#look())
    await this.#turn()
  }

  stop(): void {
    this.#stopped = true
    this.#cancel()
    this.#forgetReturn()
  }

  async #turn(): Promise<void> {
    await this.#look()
    const { clock } = this.#parts
    if (!this.#stopped) this.#cancel = clock.schedule(untilNext(clock, LOOK_MS), () => void this.#turn())
  }

  /** Checks the store after this call. One check runs at a time, and callers that wait share the next one. */
  #look(): Promise<void> {
    if (this.#looking) {
      this.#lookingNext ??= this.#looking.then(() => {
        this.#lookingNext = undefined
        return this.#look()
      })
      return this.#lookingNext
    }
    this.#looking = this.#lookNow().finally(() => {
      this.#looking = undefined
    })
    return this.#looking
  }

  async #lookNow(): Promise<void> {
    const { log } = this.#parts
    try {
      await this.#compare(await this.#read())
    } catch (error) {
      // Code that needs the store reports the failure.
      if (!(error instanceof StoreUnavailable))
        log.warn({ err: error }, 'the mark of the store cannot be read')
    }
  }

  async #read(): Promise<Found> {
    const { store, key, random } = this.#parts
    for (;;) {
      const [record, note] = await store.records.read([key, this.#noteKey])
      if (record) return { mark: textOf(record), lost: note && textOf(note).split(' ') }
      const value = new TextEncoder().encode(randomToken(random, 16))
      // Another process may be faster. Then its mark is valid.
      await store.records.write([{ put: key, value, ifVersion: 0 }])
    }
  }

  async #compare({ mark, lost }: Found): Promise<void> {
    const { store, log } = this.#parts
    const isNoted = lost !== undefined
    const isFirst = this.#marks.length === 0
    const unknown = (lost ?? []).filter((one) => one !== mark && !this.#marks.includes(one))
    this.#marks.unshift(...unknown)
    const known = this.#marks.indexOf(mark)
    const isNewLoss = known === -1 && !isFirst
    const isBack = known !== -1 && known < this.#marks.length - 1
    if (known === -1) this.#marks.push(mark)
    if (isBack) this.#marks = this.#marks.slice(0, known + 1)
    this.#owesNote = isNewLoss || (this.#owesNote && !isBack)
    const wasLost = this.#lost
    this.#lost = this.#owesNote || (isNoted && !isBack)
    if (isNewLoss || (this.#lost && !wasLost)) log.error('the store lost its data')
    if (isBack) log.warn('the store has its earlier data again')
    // A backup that was taken after a loss contains the note of that time.
    if (isBack && isNoted) await store.records.write([{ remove: this.#noteKey }])
    const value = new TextEncoder().encode(this.#marks.slice(0, -1).join(' '))
    if (this.#owesNote) await store.records.write([{ put: this.#noteKey, value, ttlMs: NOTE_MS }])
    this.#owesNote = false
  }
}

/** Time in milliseconds for which the metrics of the servers are cached. */
const FRESH_MS = 5000

const STORE_METRICS = {
  storeUp: gauge('service_store_up', '1 while the store can be reached.'),
  storeReturns: counter('service_store_returns_total', 'Outages of the store that have ended.'),
  dataLost: gauge(
    'service_store_data_lost',
    '1 after the store lost its data: for an hour, or until the data is back.',
  ),
  commandDuration: histogram(
    'service_store_command_duration_seconds',
    'Time from a command to the answer of the store.',
  ),
  commandFailures: counter(
    'service_store_command_failures_total',
    'Commands that the store refused, or did not answer in time.',
    { failure: ['store_unreachable', 'store_full', 'store_refused'] },
  ),
  commands: counter('service_store_commands_total', 'Commands that the store has answered, by operation.', {
    operation: OPEN,
  }),
  clockOffset: CLOCK_OFFSET,
}

/** Registers a process's view of its store. A scrape sends no command to the store. */
export function storeMetrics(
  registry: Registry,
  store: Pick<Store, 'vitals' | 'onReturn'>,
  {
    clockOffset,
    dataWatch,
  }: { readonly clockOffset: Pick<ClockOffset, 'ms'>; readonly dataWatch: Pick<StoreDataWatch, 'lost'> },
): void {
  const metrics = registerMetrics(registry, STORE_METRICS)
  metrics.clockOffset.read(() => clockOffset.ms / 1000)
  metrics.storeUp.read(() => Number(store.vitals.reachable))
  metrics.dataLost.read(() => Number(dataWatch.lost))
  store.onReturn(() => metrics.storeReturns.inc())
  store.vitals.observe({
    answered(operation, seconds) {
      metrics.commandDuration.observe(seconds)
      metrics.commands.inc({ operation })
    },
    failed: (_operation, _seconds, failure) => metrics.commandFailures.inc({ failure }),
  })
}

/**
 * Registers the metrics that the servers of the store report. A scrape requests them, at most every 5 s. While the servers do not answer,
 * there are no series.
 */
export function storeServerMetrics(registry: Registry, vitals: StoreVitals, clock: Clock): void {
  const ask = remembered(() => askServers(vitals), clock)
  const register = (
    Kind: typeof Gauge | typeof Counter,
    name: string,
    help: string,
    read: (server: StoreServer) => number | undefined,
  ) =>
    new Kind({
      name,
      help,
      labelNames: ['server'],
      registers: [registry],
      async collect() {
        const servers = await ask()
        this.reset()
        for (const server of servers) {
          const value = read(server)
          if (value !== undefined) this.inc({ server: server.name }, value)
        }
      },
    })
  register(
    Gauge,
    'service_redis_used_memory_bytes',
    'Memory that a Redis server uses for data.',
    (server) => server.usedMemoryBytes,
  )
  register(
    Gauge,
    'service_redis_max_memory_bytes',
    'Maximum memory of a Redis server for data (maxmemory). 0: no limit.',
    (server) => server.maxMemoryBytes,
  )
  register(
    Gauge,
    'service_redis_clients',
    'Connections to a Redis server.',
    (server) => server.connectedClients,
  )
  register(
    Counter,
    'service_redis_commands_total',
    'Commands that a Redis server has run, for all of its clients.',
    (server) => server.commandsProcessed,
  )
  register(
    Counter,
    'service_redis_evicted_keys_total',
    'Keys that a Redis server deleted because its memory was full: lost data.',
    (server) => server.evictedKeys,
  )
  register(
    Gauge,
    'service_redis_good_replicas',
    'Replicas of a Redis server that answer within min-replicas-max-lag. Only with min-replicas-to-write above 0.',
    (server) => server.goodReplicas,
  )
  register(
    Gauge,
    'service_redis_restart_loses_data',
    '1: a restart would lose all data, because the user default may not replay the append-only file.',
    (server) => Number(server.restartLosesData),
  )
}

/** Never rejects: a scrape must succeed, and soon, also while the store is unreachable. */
async function askServers(vitals: StoreVitals): Promise<readonly StoreServer[]> {
  if (!vitals.reachable) return []
  return vitals.servers().catch(() => [])
}

/** Returns a function that caches the result of `ask`. */
function remembered<T>(ask: () => Promise<T>, clock: Clock): () => Promise<T> {
  let askedAt = Number.NEGATIVE_INFINITY
  let answer: Promise<T> | undefined
  return () => {
    const now = clock.monotonic()
    if (answer && now - askedAt < FRESH_MS) return answer
    askedAt = now
    answer = ask()
    return answer
  }
}
