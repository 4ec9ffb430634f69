import type { Random } from '../../../shared/random.ts'

/** The value at each scrape; undefined: there was none. */
export type Samples = (number | undefined)[]

export type Labels = Readonly<Record<string, string>>

/** A restart of one process, in seconds of the recording: it drains, is gone, and is back with counters at 0. */
export interface Restart {
  readonly drainsAt: number
  readonly goneAt: number
  readonly backAt: number
}

/** What of a process is scraped: `up` says how it is. */
export interface Process {
  readonly labels: Labels
  readonly restart?: Restart | undefined
}

/** Whether a process answers at a moment. */
export const isUp = ({ restart }: Process, at: number): boolean =>
  !restart || at < restart.goneAt || at >= restart.backAt

/** `name{a="b"}`, as Prometheus writes a series. */
export const seriesName = (name: string, labels: Labels): string =>
  `${name}{${Object.entries(labels)
    .map(([label, value]) => `${label}=${JSON.stringify(value)}`)
    .join(',')}}`

/** Series as Prometheus would have recorded them, one sample every `step` seconds. */
export class Recording {
  readonly series = new Map<string, Samples>()
  readonly #moments: readonly number[]
  readonly #step: number
  readonly #random: Random

  constructor({ seconds, step }: { seconds: number; step: number }, random: Random) {
    this.#step = step
    this.#moments = Array.from({ length: Math.floor(seconds / step) + 1 }, (_, n) => n * step)
    this.#random = random
  }

  /** A gauge of a process: `read` at each moment it answers. */
  gauge(process: Process, name: string, labels: Labels, read: (at: number) => number): void {
    this.#add(process, name, labels, (at) => (isUp(process, at) ? read(at) : undefined))
  }

  /** A gauge that is Prometheus' own, and so there while the process is not. */
  scraped(process: Process, name: string, read: (at: number) => number): void {
    this.#add(process, name, {}, read)
  }

  /** A counter that grows by `perSecond`, more or less, from wherever it may be. */
  counter(process: Process, name: string, labels: Labels, perSecond: (at: number) => number): void {
    let count = Math.floor(this.#random.float() * 1e6)
    this.#add(process, name, labels, (at) => {
      if (!isUp(process, at)) {
        count = 0
        return undefined
      }
      count += this.#some(perSecond(at))
      return count
    })
  }

  /**
   * A histogram of durations that are distributed log-normally: `median` seconds, and `spread` as the standard deviation of the
   * logarithm. 0.7 makes the 99th percentile five times the median.
   */
  histogram(
    process: Process,
    name: string,
    labels: Labels,
    shape: {
      readonly buckets: readonly number[]
      readonly perSecond: (at: number) => number
      readonly median: (at: number) => number
      readonly spread: number
    },
  ): void {
    const bounds = [...shape.buckets, Number.POSITIVE_INFINITY]
    const counts = bounds.map(() => 0)
    const rows: Samples[] = bounds.map(() => [])
    for (const at of this.#moments) {
      if (!isUp(process, at)) counts.fill(0)
      else {
        const observed = this.#some(shape.perSecond(at))
        for (const [n, bound] of bounds.entries())
          counts[n]! += observed * normal(Math.log(bound / shape.median(at)) / shape.spread)
      }
      for (const [n, row] of rows.entries()) row.push(isUp(process, at) ? counts[n] : undefined)
    }
    for (const [n, bound] of bounds.entries()) {
      const le = Number.isFinite(bound) ? `${bound}` : '+Inf'
      const nameOfBucket = seriesName(`${name}_bucket`, { ...labels, ...process.labels, le })
      this.series.set(nameOfBucket, rows[n]!)
    }
  }

  #add(process: Process, name: string, labels: Labels, read: (at: number) => number | undefined): void {
    this.series.set(seriesName(name, { ...labels, ...process.labels }), this.#moments.map(read))
  }

  /** How many there are in one step, with the noise of real traffic. */
  #some(perSecond: number): number {
    return perSecond * this.#step * (0.75 + this.#random.float() / 2)
  }
}

/** The standard normal distribution function, to 1e-4 (logistic approximation by Bowling et al., 2009). */
const normal = (x: number): number => 1 / (1 + Math.exp(-(0.07056 * x ** 3 + 1.5976 * x)))
