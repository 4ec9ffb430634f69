import { readdir, stat } from 'node:fs/promises'
import {
  collectDefaultMetrics,
  Counter as PromCounter,
  Gauge as PromGauge,
  Histogram as PromHistogram,
  Registry,
} from 'prom-client'
import { droppedLines, type Logger } from './log.ts'

/**
 * Metrics as declarations: a folder has a table of them, and `registerMetrics` makes of it what the folder counts with. The reference page
 * is written from what is registered (`npm run docs`).
 *
 *     export const LOBBY_METRICS = {
 *       entries: counter('service_lobby_entries_total', 'Players who came in.', { by: ['invitation', 'search'] }),
 *     }
 *     const metrics = registerMetrics(registry, LOBBY_METRICS)
 *     metrics.entries.inc({ by: 'search' })
 */

/** Upper bounds in seconds of the histograms of durations: from a write to a store next door, to what no one waits for. */
export const LATENCY_BUCKETS: readonly number[] = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
]

/** The values of a label that are known only when they come; see `OPEN_LABEL_LIMIT`. */
export const OPEN: readonly string[] = []

/** Clients choose some values of open labels. What comes after so many is counted as `other`, so that they cannot make series without end. */
const OPEN_LABEL_LIMIT = 200

/** The names of labels, each with all values it can have, or `OPEN`. */
export type Labels = Readonly<Record<string, readonly string[]>>
type ValuesOf<L extends Labels> = { readonly [N in keyof L]: L[N][number] }
type Arguments<L extends Labels, Rest extends unknown[]> = keyof L extends never
  ? Rest
  : [labels: ValuesOf<L>, ...Rest]

/** A metric before it is registered. */
export interface Declaration<K extends string, L extends Labels> {
  readonly kind: K
  readonly name: string
  readonly help: string
  readonly labels: L
  /** Of histograms: upper bounds. */
  readonly buckets?: readonly number[]
}

export type NoLabels = Readonly<Record<never, never>>

/**
 * A count that only grows. Its series are there from the start, at 0, where the values of its labels are known, so that rates and alerts
 * have a first point.
 */
export const counter = <const L extends Labels = NoLabels>(
  name: string,
  help: string,
  labels?: L,
): Declaration<'counter', NoInfer<L>> => declare('counter', name, help, labels)

/** A value that goes up and down: set when it changes, or read at each scrape. */
export const gauge = <const L extends Labels = NoLabels>(
  name: string,
  help: string,
  labels?: L,
): Declaration<'gauge', NoInfer<L>> => declare('gauge', name, help, labels)

/** A distribution of seconds. */
export const histogram = <const L extends Labels = NoLabels>(
  name: string,
  help: string,
  labels?: L,
  buckets: readonly number[] = LATENCY_BUCKETS,
): Declaration<'histogram', NoInfer<L>> => ({ ...declare('histogram', name, help, labels), buckets })

const declare = <K extends string, L extends Labels>(
  kind: K,
  name: string,
  help: string,
  labels = {} as L,
): Declaration<K, L> => ({ kind, name, help, labels })

export interface Counter<L extends Labels = NoLabels> {
  /** Adds an amount, by default 1, to the series of these labels. Cheap enough for every message; does not throw. */
  inc(...args: Arguments<L, [amount?: number]>): void
}

export interface Gauge<L extends Labels = NoLabels> {
  set(...args: Arguments<L, [value: number]>): void
  /** Has the value read at each scrape; of a gauge with labels, all its series. */
  read(value: () => Reading<L>): void
}

type Reading<L extends Labels> = keyof L extends never
  ? number
  : Iterable<readonly [labels: ValuesOf<L>, value: number]>

export interface Histogram<L extends Labels = NoLabels> {
  /** Adds one duration. Cheap enough for every message; does not throw. */
  observe(...args: Arguments<L, [seconds: number]>): void
}

type AnyDeclaration = Declaration<'counter' | 'gauge' | 'histogram', Labels>
export type Declarations = Readonly<Record<string, AnyDeclaration>>

/** What code counts with, of declarations. */
export type Metrics<T extends Declarations> = { readonly [N in keyof T]: Instrument<T[N]> }
type Instrument<D> =
  D extends Declaration<'counter', infer L>
    ? Counter<L>
    : D extends Declaration<'gauge', infer L>
      ? Gauge<L>
      : D extends Declaration<'histogram', infer L>
        ? Histogram<L>
        : never

/** Registers what is declared. `known`: values of open labels, by label, whose counters are there from the start. */
export function registerMetrics<T extends Declarations>(
  registry: Registry,
  declarations: T,
  known: Labels = {},
): Metrics<T> {
  const make = { counter: makeCounter, gauge: makeGauge, histogram: makeHistogram }
  const made = Object.entries(declarations).map(([key, declaration]) => [
    key,
    make[declaration.kind](registry, declaration, known),
  ])
  return Object.fromEntries(made) as Metrics<T>
}

type LabelValues = Readonly<Record<string, string>>

/** Counts in plain numbers until a scrape asks: counting happens for every message and update, a scrape every few seconds. */
function makeCounter(registry: Registry, { name, help, labels }: AnyDeclaration, known: Labels) {
  const series: { readonly labels: LabelValues; count: number }[] = []
  new PromCounter({
    name,
    help,
    labelNames: Object.keys(labels),
    registers: [registry],
    collect() {
      this.reset()
      for (const { labels, count } of series) this.inc(labels, count)
    },
  })
  const keep = (values: LabelValues) => {
    const one = { labels: values, count: 0 }
    series.push(one)
    return one
  }
  if (Object.keys(labels).length === 0) {
    const only = keep({})
    return {
      inc: (amount = 1) => {
        only.count += amount
      },
    }
  }
  const find = seriesBy(labels, keep)
  for (const values of combinations(labels, known)) find(values)
  return {
    inc: (values: LabelValues, amount = 1) => {
      find(values).count += amount
    },
  }
}

function makeGauge(registry: Registry, { name, help, labels }: AnyDeclaration) {
  let read: (() => number | Iterable<readonly [LabelValues, number]>) | undefined
  const gauge = new PromGauge({
    name,
    help,
    labelNames: Object.keys(labels),
    registers: [registry],
    collect() {
      const now = read?.()
      if (now === undefined) return
      if (typeof now === 'number') {
        this.set(now)
        return
      }
      this.reset()
      for (const [values, value] of now) this.set(values, value)
    },
  })
  return {
    set: (...args: [number] | [LabelValues, number]) => {
      if (args.length === 1) gauge.set(args[0])
      else gauge.set(...args)
    },
    read: (value: NonNullable<typeof read>) => {
      read = value
    },
  }
}

/**
 * So many durations of a series are kept before they are sorted into buckets, unless a scrape asks: one at a time, between other work, that
 * costs ten times as much.
 */
const KEPT_DURATIONS = 128

/** The durations of one series that are not in its buckets yet. */
class KeptDurations {
  readonly #series: { observe(seconds: number): void }
  readonly #seconds = new Float64Array(KEPT_DURATIONS)
  #count = 0

  constructor(series: { observe(seconds: number): void }) {
    this.#series = series
  }

  observe(seconds: number): void {
    this.#seconds[this.#count++] = seconds
    if (this.#count === KEPT_DURATIONS) this.settle()
  }

  settle(): void {
    for (let i = 0; i < this.#count; i++) this.#series.observe(this.#seconds[i]!)
    this.#count = 0
  }
}

function makeHistogram(registry: Registry, { name, help, labels, buckets = [] }: AnyDeclaration) {
  const series: KeptDurations[] = []
  const one = new PromHistogram({
    name,
    help,
    labelNames: Object.keys(labels),
    buckets: [...buckets],
    registers: [registry],
    collect() {
      for (const kept of series) kept.settle()
    },
  })
  const keep = (of: { observe(seconds: number): void }): KeptDurations => {
    const kept = new KeptDurations(of)
    series.push(kept)
    return kept
  }
  if (Object.keys(labels).length === 0) {
    const kept = keep(one)
    return { observe: (seconds: number) => kept.observe(seconds) }
  }
  const find = seriesBy(labels, (values) => keep(one.labels(values)))
  return { observe: (values: LabelValues, seconds: number) => find(values).observe(seconds) }
}

/** Series by the value of the first label, in each of those by that of the next, and so on: a look-up makes no key. */
type Branch<S> = Map<string, Branch<S> | S>

/** Looks a series up by the values of its labels, and makes it when it comes for the first time. */
function seriesBy<S extends object>(
  labels: Labels,
  make: (values: LabelValues) => S,
): (values: LabelValues) => S {
  const names = Object.keys(labels)
  const made: Branch<S> = new Map()
  const open = names.filter((name) => labels[name]!.length === 0)
  const seen = new Map(open.map((name) => [name, new Set<string>()]))
  const bound = (name: string, value: string): string => {
    const values = seen.get(name)
    if (!values || values.has(value)) return value
    if (values.size >= OPEN_LABEL_LIMIT) return 'other'
    values.add(value)
    return value
  }
  const find = (values: LabelValues): S | undefined => {
    let at: Branch<S> | S | undefined = made
    for (const name of names) at = (at as Branch<S> | undefined)?.get(values[name]!)
    return at as S | undefined
  }
  const add = (values: LabelValues): S => {
    const one = make(values)
    let at = made
    for (const name of names.slice(0, -1)) {
      const next = (at.get(values[name]!) ?? new Map()) as Branch<S>
      at.set(values[name]!, next)
      at = next
    }
    at.set(values[names.at(-1)!]!, one)
    return one
  }
  return (values) => {
    const found = find(values)
    if (found !== undefined) return found
    const bounded = Object.fromEntries(names.map((name) => [name, bound(name, values[name]!)]))
    return find(bounded) ?? add(bounded)
  }
}

/** Every combination of the values that are known; none where one of the labels has no known value. */
function combinations(labels: Labels, known: Labels): LabelValues[] {
  let all: LabelValues[] = [{}]
  for (const [name, values] of Object.entries(labels)) {
    const each = values.length > 0 ? values : (known[name] ?? [])
    all = all.flatMap((one) => each.map((value) => ({ ...one, [name]: value })))
  }
  return all
}

const PREFIX = 'service_'
const OPEN_FILES = '/proc/self/fd'

/** A scrape would look at every socket for these, which takes 50 ms where there are ten thousand; `service_connections` says as much. */
const PER_HANDLE = ['handles', 'requests', 'resources'].flatMap((what) => [
  `${PREFIX}nodejs_active_${what}`,
  `${PREFIX}nodejs_active_${what}_total`,
])

/** For these the library wakes the process a hundred times a second; a node tells more of it by `service_event_loop_delay_seconds`. */
const BY_WAKING = ['min', 'max', 'mean', 'stddev', 'p50', 'p90', 'p99'].map(
  (what) => `${PREFIX}nodejs_eventloop_lag_${what}_seconds`,
)
/** There is no way to have none of it. */
const WAKING_MS = 3_600_000

/**
 * Registers Node's own figures of the process, and how many lines of `log` were dropped. A scrape costs the same however many sockets are
 * open, and none costs anything.
 */
export function processMetrics(registry: Registry, log: Logger): Metrics<typeof PROCESS_METRICS> {
  const metrics = registerMetrics(registry, PROCESS_METRICS)
  new PromCounter({
    name: `${PREFIX}log_lines_dropped_total`,
    help: 'Log lines that were lost because stdout took no more: a full disk, a reader that has gone away, or one that does not read.',
    registers: [registry],
    collect() {
      this.reset()
      this.inc(droppedLines(log))
    },
  })
  // A separate registry, because the library never ends its observer of garbage collections, which keeps it in memory. It must not keep
  // `registry`, and with that the whole node.
  const defaults = new Registry()
  collectDefaultMetrics({ register: defaults, prefix: PREFIX, eventLoopMonitoringPrecision: WAKING_MS })
  const name = `${PREFIX}process_open_fds`
  const omitted = new Set([...PER_HANDLE, ...BY_WAKING, name])
  for (const { name } of defaults.getMetricsAsArray())
    if (!omitted.has(name)) registry.registerMetric(defaults.getSingleMetric(name)!)
  // The library's metric lists the files synchronously. Without it, the system does not report them.
  if (!defaults.getSingleMetric(name)) return metrics
  new PromGauge({
    name,
    help: 'Number of open file descriptors.',
    registers: [registry],
    async collect() {
      const count = await openFiles().catch(() => undefined)
      // Whatever becomes of this figure, a scrape succeeds.
      if (count !== undefined) this.set(count)
    },
  })
  return metrics
}

const PROCESS_METRICS = {
  unhandled: counter(
    'service_unhandled_errors_total',
    'Rejections and exceptions that nothing has handled and that cannot be attributed to the code of a room.',
    { kind: ['rejection', 'exception'] },
  ),
}

async function openFiles(): Promise<number> {
  const { size } = await stat(OPEN_FILES)
  // Linux before 6.2 says 0. The one that lists them is among them.
  return size > 0 ? size : (await readdir(OPEN_FILES)).length - 1
}
