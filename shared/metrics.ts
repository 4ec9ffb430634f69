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
 * Metrics as declarations. Each folder has a table of them, and `registerMetrics` turns it into counters, gauges and histograms. The
 * reference page is generated from the registered metrics (`npm run docs`).
 *
 *     export const LOBBY_METRICS = {
 *       entries: counter('service_lobby_entries_total', 'Players who came in.', { by: ['invitation', 'search'] }),
 *     }
 *     const metrics = registerMetrics(registry, LOBBY_METRICS)
 *     metrics.entries.inc({ by: 'search' })
 */

/** Upper bounds in seconds of the histograms of durations: from a write to a store in the same network to the longest tolerable wait. */
export const LATENCY_BUCKETS: readonly number[] = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
]

/** Label whose values are not known in advance. See `OPEN_LABEL_LIMIT`. */
export const OPEN: readonly string[] = []

/**
 * Maximum number of values of an open label. Further values are counted as `other`, because clients choose some values and could create
 * unlimited series.
 */
const OPEN_LABEL_LIMIT = 200

/** Names of labels, each with all possible values, or `OPEN`. */
export type Labels = Readonly<Record<string, readonly string[]>>
type ValuesOf<L extends Labels> = { readonly [N in keyof L]: L[N][number] }
type Arguments<L extends Labels, Rest extends unknown[]> = keyof L extends never
  ? Rest
  : [labels: ValuesOf<L>, ...Rest]

/** A metric before its registration. Exported because the declarations of the build name it. */
export interface Declaration<K extends string, L extends Labels> {
  readonly kind: K
  readonly name: string
  readonly help: string
  readonly labels: L
  /** For histograms: upper bounds. */
  readonly buckets?: readonly number[]
}

type NoLabels = Readonly<Record<never, never>>

/**
 * A value that only grows. If the values of its labels are known, its series exist from the start with the value 0, so that rates and
 * alerts have a first point.
 */
export const counter = <const L extends Labels = NoLabels>(
  name: string,
  help: string,
  labels?: L,
): Declaration<'counter', NoInfer<L>> => declare('counter', name, help, labels)

/** A value that goes up and down. It is set after a change, or read at each scrape. */
export const gauge = <const L extends Labels = NoLabels>(
  name: string,
  help: string,
  labels?: L,
): Declaration<'gauge', NoInfer<L>> => declare('gauge', name, help, labels)

/** A distribution of durations in seconds. */
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
  /** Adds an amount, by default 1, to the series of these labels. It is cheap enough for every message, and does not throw. */
  inc(...args: Arguments<L, [amount?: number]>): void
}

export interface Gauge<L extends Labels = NoLabels> {
  set(...args: Arguments<L, [value: number]>): void
  /** Reads the value at each scrape. For a gauge with labels: all of its series. */
  read(value: () => Reading<L>): void
}

type Reading<L extends Labels> = keyof L extends never
  ? number
  : Iterable<readonly [labels: ValuesOf<L>, value: number]>

export interface Histogram<L extends Labels = NoLabels> {
  /** Adds one duration. It is cheap enough for every message, and does not throw. */
  observe(...args: Arguments<L, [seconds: number]>): void
}

type AnyDeclaration = Declaration<'counter' | 'gauge' | 'histogram', Labels>
type Declarations = Readonly<Record<string, AnyDeclaration>>

/** The metrics of a table of declarations. */
export type Metrics<T extends Declarations> = { readonly [N in keyof T]: Instrument<T[N]> }
type Instrument<D> =
  D extends Declaration<'counter', infer L>
    ? Counter<L>
    : D extends Declaration<'gauge', infer L>
      ? Gauge<L>
      : D extends Declaration<'histogram', infer L>
        ? Histogram<L>
        : never

/** Registers declarations. `known`: values of open labels, by label, whose counters exist from the start. */
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

/** Counts in plain numbers until a scrape. Counting happens for every message and update, a scrape only every few seconds. */
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
 * Number of durations of a series that are buffered before they are sorted into buckets, unless a scrape comes first. Sorting them one at a
 * time, between other work, costs ten times as much.
 */
const KEPT_DURATIONS = 128

/** Durations of one series that are not yet in its buckets. */
class KeptDurations {
  readonly #series: { observe(seconds: number): void }
  readonly #seconds = new Float64Array(KEPT_DURATIONS)
  #count = 0

  constructor(series: { observe(seconds: number): void }) {
    this.#series = series
  }

  observe(seconds: number): void {
    this.#seconds[this.#count++] = seconds
    if (this.#count === KEPT_DURATIONS) this.flush()
  }

  /** Sorts the buffered durations into the buckets. */
  flush(): void {
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
      for (const kept of series) kept.flush()
    },
  })
  const keep = (of: { observe(seconds: number): void }): KeptDurations => {
    const kept = new KeptDurations(of)
    series.push(kept)
    return kept
  }
  if (Object.keys(labels).length === 0) {
    return keep(one)
  }
  const find = seriesBy(labels, (values) => keep(one.labels(values)))
  return { observe: (values: LabelValues, seconds: number) => find(values).observe(seconds) }
}

/** Series in nested maps, by the value of each label: a lookup creates no key. */
type Branch<S> = Map<string, Branch<S> | S>

/** Returns the series of these label values. Creates it at the first lookup. */
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
  let last: LabelValues | undefined
  let lastSeries: S | undefined
  return (values) => {
    // Mostly the series of the call before.
    let isLast = last !== undefined
    for (const name of names) isLast &&= values[name] === last![name]
    if (isLast) return lastSeries!
    last = values
    lastSeries = find(values)
    if (lastSeries === undefined) {
      const bounded = Object.fromEntries(names.map((name) => [name, bound(name, values[name]!)]))
      lastSeries = find(bounded) ?? add(bounded)
    }
    return lastSeries
  }
}

/** Returns all combinations of the known values. None if one of the labels has no known value. */
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

/**
 * Metrics of Node that are not registered: a scrape would visit every socket, which takes 50 ms for ten thousand. `service_connections` has
 * the same information.
 */
const PER_HANDLE = ['handles', 'requests', 'resources'].flatMap((what) => [
  `${PREFIX}nodejs_active_${what}`,
  `${PREFIX}nodejs_active_${what}_total`,
])

/** For these the library wakes the process a hundred times a second. `service_event_loop_delay_seconds` has more details for a node. */
const BY_WAKING = ['min', 'max', 'mean', 'stddev', 'p50', 'p90', 'p99'].map(
  (what) => `${PREFIX}nodejs_eventloop_lag_${what}_seconds`,
)
/** The library has no option that disables this one. */
const WAKING_MS = 3_600_000

/**
 * Registers Node's metrics of the process, and the number of dropped lines of `log`. The cost of a scrape does not depend on the number of
 * open sockets, and there is no cost between scrapes.
 */
export function processMetrics(registry: Registry, log: Logger): Metrics<typeof PROCESS_METRICS> {
  const metrics = registerMetrics(registry, PROCESS_METRICS)
  new PromCounter({
    name: `${PREFIX}log_lines_dropped_total`,
    help: 'Log lines lost because stdout accepted no more, for example on a full disk.',
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
      // A failure of this value must not fail the scrape.
      if (count !== undefined) this.set(count)
    },
  })
  return metrics
}

const PROCESS_METRICS = {
  unhandled: counter(
    'service_unhandled_errors_total',
    'Unhandled rejections and exceptions that belong to no room.',
    { kind: ['rejection', 'exception'] },
  ),
}

async function openFiles(): Promise<number> {
  const { size } = await stat(OPEN_FILES)
  // Linux before 6.2 reports 0. The directory handle of the listing itself is counted too.
  return size > 0 ? size : (await readdir(OPEN_FILES)).length - 1
}
