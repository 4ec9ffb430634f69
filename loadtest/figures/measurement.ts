import type { Findings } from './figure.ts'

/** What a measurement is told. */
export interface Measuring {
  /** How often it does the thing. */
  readonly runs: number
  /** Says how far it is: one short text after the other. */
  readonly progress: (text: string) => void
}

/** Something that can be measured by itself, on a cluster of its own. */
export interface Measurement {
  /** What `--only` calls it. */
  readonly name: string
  /** Longer than this, for one run, and it hangs; milliseconds. */
  readonly most_ms_per_run: number
  run(measuring: Measuring): Promise<Findings>
}
