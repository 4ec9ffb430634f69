import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import { LATENCY_BUCKETS } from '../../shared/latency-buckets.ts'

/** Adds to one series of a counter. */
export type Add = (amount?: number) => void

/** More room types than anybody installs: what comes after them is counted as `other`, so that nobody can make series without end. */
const MOST_ROOM_TYPES = 200

/** Makes counters and histograms of one registry whose series are looked up once, not at each count. */
export class Instruments {
  readonly #registers: Registry[]
  readonly #room_types: readonly string[]

  /** `room_types`: those that are installed; their counters are there from the start. */
  constructor(registry: Registry, room_types: readonly string[] = []) {
    this.#registers = [registry]
    this.#room_types = room_types
  }

  counter(name: string, help: string): Add {
    return this.#tallies(name, help, [])({})
  }

  /** A counter by one label. Every value it can have is there from the start, at 0, so that rates and alerts have a first point. */
  counterBy<V extends string>(
    name: string,
    help: string,
    label: string,
    values: readonly V[],
  ): Record<V, Add> {
    const tally = this.#tallies(name, help, [label])
    return Object.fromEntries(values.map((value) => [value, tally({ [label]: value })])) as Record<V, Add>
  }

  /** A histogram of seconds. */
  seconds(
    name: string,
    help: string,
    buckets: readonly number[] = LATENCY_BUCKETS,
  ): (seconds: number) => void {
    const histogram = new Histogram({ name, help, buckets: [...buckets], registers: this.#registers })
    return (seconds) => histogram.observe(seconds)
  }

  /** A gauge that is set when its value changes. */
  gauge(name: string, help: string): (value: number) => void {
    const gauge = new Gauge({ name, help, registers: this.#registers })
    return (value) => gauge.set(value)
  }

  /** A counter by room type, and by a second label when there is one, of which `values` are all there are. */
  counterByRoomType<V extends string = never>(
    name: string,
    help: string,
    label?: string,
    values: readonly V[] = [],
  ): (room_type: string, value?: V) => void {
    const labelNames = label === undefined ? ['room_type'] : ['room_type', label]
    const tally = this.#tallies(name, help, labelNames)
    const named = bounded((room_type) => ({ room_type, series: new Map<V | undefined, Add>() }))
    const adding = (room_type: string, value?: V): Add => {
      const { room_type: known, series } = named(room_type)
      let add = series.get(value)
      if (!add) {
        add = tally({ room_type: known, ...(label !== undefined && { [label]: value }) })
        series.set(value, add)
      }
      return add
    }
    for (const room_type of this.#room_types)
      for (const value of label === undefined ? [undefined] : values) adding(room_type, value)
    return (room_type, value) => adding(room_type, value)()
  }

  /** A histogram of seconds by room type. */
  secondsByRoomType(name: string, help: string): (room_type: string, seconds: number) => void {
    const histogram = new Histogram({
      name,
      help,
      labelNames: ['room_type'],
      buckets: [...LATENCY_BUCKETS],
      registers: this.#registers,
    })
    const series = bounded((room_type) => histogram.labels({ room_type }))
    return (room_type, seconds) => series(room_type).observe(seconds)
  }

  /**
   * A counter whose series are plain numbers until somebody asks: counting happens for every message and update, a scrape every few
   * seconds. Returns what makes a series of the given labels, starting at 0.
   */
  #tallies(name: string, help: string, labelNames: string[]): (labels: Record<string, string>) => Add {
    const series: { readonly labels: Record<string, string>; count: number }[] = []
    new Counter({
      name,
      help,
      labelNames,
      registers: this.#registers,
      collect() {
        this.reset()
        for (const { labels, count } of series) this.inc(labels, count)
      },
    })
    return (labels) => {
      const tally = { labels, count: 0 }
      series.push(tally)
      return (amount = 1) => {
        tally.count += amount
      }
    }
  }
}

/** Makes and keeps one value per room type, and one more for all types beyond the most there can be. */
function bounded<T>(make: (room_type: string) => T): (room_type: string) => T {
  const made = new Map<string, T>()
  return (room_type) => {
    const name = made.has(room_type) || made.size < MOST_ROOM_TYPES ? room_type : 'other'
    let value = made.get(name)
    if (value === undefined) {
      value = make(name)
      made.set(name, value)
    }
    return value
  }
}
