import { type Labels, type Samples, seriesName } from './recording.ts'

/** Recorded series, to be spoilt from a moment on. */
export class Plot {
  readonly #series: Map<string, Samples>
  readonly #step: number
  readonly #from: number
  readonly #lasts: number

  /** In seconds: `step` between samples, the moment `from` which on all is spoilt, and how long that `lasts`: for good, if not given. */
  constructor(
    series: Map<string, Samples>,
    { step, from, lasts = Number.POSITIVE_INFINITY }: { step: number; from: number; lasts?: number },
  ) {
    this.#series = new Map([...series].map(([key, samples]) => [key, [...samples]]))
    this.#step = step
    this.#from = from
    this.#lasts = lasts
  }

  /** What was recorded up to a moment, seconds. */
  until(at: number): Map<string, Samples> {
    return new Map([...this.#series].map(([key, samples]) => [key, samples.slice(0, at / this.#step + 1)]))
  }

  /** Gauges have this value. */
  set(name: string, labels: Labels, value: number): void {
    this.#spoil(name, labels, (sample, since) => (since < this.#lasts ? value : sample))
  }

  /** Counters grow by this much more. */
  raise(name: string, labels: Labels, perSecond: number): void {
    this.#spoil(name, labels, (sample, since) => sample! + Math.min(since, this.#lasts) * perSecond)
  }

  /** Series are there no more. */
  end(name: string, labels: Labels = {}): void {
    this.#spoil(name, labels, () => undefined)
  }

  /** A gauge takes one value after the other, each for a minute, over and over. */
  alternate(name: string, labels: Labels, values: readonly number[]): void {
    this.#spoil(name, labels, (_, since) => values[Math.floor(since / 60) % values.length])
  }

  /** Nothing that a histogram observes is as fast as `bound` any more, seconds. */
  slow(name: string, labels: Labels, bound: number): void {
    for (const key of this.#matching(`${name}_bucket`, labels)) {
      const le = Number(/le="([^"]+)"/.exec(key)![1]!.replace('+Inf', 'Infinity'))
      if (le <= bound) this.#stand(this.#series.get(key)!)
    }
  }

  /** A counter stands still, and goes on from there. */
  #stand(samples: Samples): void {
    const [first, next] = [this.#from, this.#from + this.#lasts].map((at) => Math.round(at / this.#step))
    const [stood, wentOn] = [samples[first!], samples[next!]]
    for (let n = first!; n < samples.length; n++)
      samples[n] = n < next! ? stood : stood! + (samples[n]! - wentOn!)
  }

  #spoil(name: string, labels: Labels, by: (sample: number | undefined, since: number) => Samples[number]) {
    for (const key of this.#matching(name, labels)) {
      const samples = this.#series.get(key)!
      for (let n = this.#from / this.#step; n < samples.length; n++)
        samples[n] = by(samples[n], n * this.#step - this.#from)
    }
  }

  /** The names of all series with these labels, whatever others they have. Throws when there is none: nothing would be planted. */
  #matching(name: string, labels: Labels): string[] {
    const found = [...this.#series.keys()].filter(
      (key) =>
        key.startsWith(`${name}{`) &&
        Object.entries(labels).every(([label, value]) => key.includes(`${label}=${JSON.stringify(value)}`)),
    )
    if (found.length === 0) throw new Error(`nothing was recorded of ${seriesName(name, labels)}`)
    return found
  }
}
