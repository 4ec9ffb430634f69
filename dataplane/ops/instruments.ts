import { Counter, Gauge, Histogram, type Registry } from 'prom-client'

/** Adds to one series of a counter. */
export type Add = (amount?: number) => void

/** More room types than anybody installs: what comes after them is counted as `other`, so that nobody can make series without end. */
const MOST_ROOM_TYPES = 200

const FAST = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

/** Makes counters and histograms of one registry whose series are looked up once, not at each count. */
export class Instruments {
  readonly #registers: Registry[]

  constructor(registry: Registry) {
    this.#registers = [registry]
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
  seconds(name: string, help: string, buckets: number[] = FAST): (seconds: number) => void {
    const histogram = new Histogram({ name, help, buckets, registers: this.#registers })
    return (seconds) => histogram.observe(seconds)
  }

  /** A gauge that is set when its value changes. */
  gauge(name: string, help: string): (value: number) => void {
    const gauge = new Gauge({ name, help, registers: this.#registers })
    return (value) => gauge.set(value)
  }

  /** A counter by room type, and by a second label when there is one. Its series appear with their first count. */
  counterByRoomType<V extends string = never>(
    name: string,
    help: string,
    label?: string,
  ): (room_type: string, value?: V) => void {
    const labelNames = label === undefined ? ['room_type'] : ['room_type', label]
    const tally = this.#tallies(name, help, labelNames)
    const named = bounded((room_type) => ({ room_type, series: new Map<V | undefined, Add>() }))
    return (room_type, value) => {
      const { room_type: known, series } = named(room_type)
      let add = series.get(value)
      if (!add) {
        add = tally({ room_type: known, ...(label !== undefined && { [label]: value }) })
        series.set(value, add)
      }
      add()
    }
  }

  /** A histogram of seconds by room type. */
  secondsByRoomType(name: string, help: string): (room_type: string, seconds: number) => void {
    const histogram = new Histogram({
      name,
      help,
      labelNames: ['room_type'],
      buckets: FAST,
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
