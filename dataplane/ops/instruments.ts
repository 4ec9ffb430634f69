import { Counter, Histogram, type Registry } from 'prom-client'

/** Adds to one series of a counter. */
export type Add = (amount?: number) => void

const FAST = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

/** Makes counters and histograms of one registry whose series are looked up once, not at each count. */
export class Instruments {
  readonly #registers: Registry[]

  constructor(registry: Registry) {
    this.#registers = [registry]
  }

  counter(name: string, help: string): Add {
    const counter = new Counter({ name, help, registers: this.#registers })
    return (amount = 1) => counter.inc(amount)
  }

  /** A counter by one label. Every value it can have is there from the start, at 0, so that rates and alerts have a first point. */
  counterBy<V extends string>(
    name: string,
    help: string,
    label: string,
    values: readonly V[],
  ): Record<V, Add> {
    const counter = new Counter({ name, help, labelNames: [label], registers: this.#registers })
    const series = values.map((value): [V, Add] => {
      const child = counter.labels({ [label]: value })
      child.inc(0)
      return [value, (amount = 1) => child.inc(amount)]
    })
    return Object.fromEntries(series) as Record<V, Add>
  }

  /** A histogram of seconds. */
  seconds(name: string, help: string, buckets: number[] = FAST): (seconds: number) => void {
    const histogram = new Histogram({ name, help, buckets, registers: this.#registers })
    return (seconds) => histogram.observe(seconds)
  }
}
