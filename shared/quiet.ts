import type { Clock } from './clock.ts'

/** Kinds that are remembered; beyond that all start again. */
const MAX_KINDS = 1000

/** Lets something of each kind pass once in `quietMs`, such as a log line about an error that repeats. */
export class Quiet {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #quietMs: number
  readonly #kinds = new Map<string, { readonly until: number; suppressed: number }>()

  constructor(clock: Pick<Clock, 'monotonic'>, quietMs: number) {
    this.#clock = clock
    this.#quietMs = quietMs
  }

  /** How many of this kind were suppressed since one passed; undefined: this one is suppressed too. */
  pass(kind: string): number | undefined {
    const now = this.#clock.monotonic()
    const last = this.#kinds.get(kind)
    if (last && now < last.until) {
      last.suppressed++
      return undefined
    }
    if (this.#kinds.size >= MAX_KINDS) this.#kinds.clear()
    this.#kinds.set(kind, { until: now + this.#quietMs, suppressed: 0 })
    return last?.suppressed ?? 0
  }
}
