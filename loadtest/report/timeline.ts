import type { RunResult, Second } from '../result.ts'
import { lengthOf } from '../view/seconds.ts'

/** The time axis of all charts of a run: seconds, in groups where there are too many to draw. */

/** Most points that are drawn of one line: on a phone, one for each pixel or so. */
const MOST_POINTS = 240

export interface Phase {
  readonly name: string
  /** Percent of the run. */
  readonly from: number
  readonly to: number
}

/** What a line shows in one group of seconds; undefined: nothing was there. */
export type Point = { readonly low: number; readonly high: number } | undefined

export class Timeline {
  /** Of the whole axis, in seconds. */
  readonly length: number
  /** Moments of the points in percent of the axis, from 0 to 100. */
  readonly places: readonly number[]
  /** Seconds since the start, of each point. */
  readonly moments: readonly number[]
  readonly phases: readonly Phase[]
  /** The name of the phase at each point. */
  readonly phase_names: readonly string[]
  /** How many seconds a point stands for. */
  readonly step: number
  readonly #log: RunResult['seconds_log']

  constructor(result: Pick<RunResult, 'seconds' | 'seconds_log'>) {
    this.#log = result.seconds_log
    this.length = Math.max(1, result.seconds, this.#log.at(-1)?.at ?? 0)
    this.step = Math.max(1, Math.ceil(this.#log.length / MOST_POINTS))
    const groups = grouped(this.#log, this.step)
    this.moments = groups.map((group) => group[0]!.at)
    // A group is drawn in its middle: between the end of what was before and its own.
    this.places = groups.map((group, i) =>
      this.place(((groups[i - 1]?.at(-1)?.at ?? 0) + group.at(-1)!.at) / 2),
    )
    this.phase_names = groups.map((group) => group[0]!.phase)
    this.phases = this.#phases()
  }

  /** Percent of the axis at which a moment is. */
  place(seconds: number): number {
    return Math.round(10_000 * Math.min(1, Math.max(0, seconds / this.length))) / 100
  }

  /**
   * A line over the run: of each group of seconds the lowest and the highest value, so that no peak and no dip is lost. `value` is also
   * told how long the second really was.
   */
  points(value: (second: Second, length: number) => number | undefined): Point[] {
    const values = this.#log.map((second, i) => value(second, lengthOf(this.#log, i)))
    return grouped(values, this.step).map((group) => {
      const known = group.filter((each) => each !== undefined)
      return known.length === 0 ? undefined : { low: Math.min(...known), high: Math.max(...known) }
    })
  }

  #phases(): Phase[] {
    const starts = this.#log.flatMap(({ phase }, i) =>
      phase === this.#log[i - 1]?.phase ? [] : [{ name: phase, from: this.place(this.#log[i - 1]?.at ?? 0) }],
    )
    return starts.map((start, i) => ({ ...start, to: starts[i + 1]?.from ?? 100 }))
  }
}

const grouped = <T>(values: readonly T[], size: number): T[][] =>
  Array.from({ length: Math.ceil(values.length / size) }, (_, i) => values.slice(i * size, (i + 1) * size))
