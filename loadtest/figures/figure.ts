import type { Summary } from './statistics.ts'

/** What is to be reached: the value of a percentile, or of the whole. */
export interface Goal {
  readonly of: 'p50' | 'p99' | 'max'
  readonly at_most: number
}

/** One line of a table: a set of samples of one quantity. */
export interface Figure {
  readonly what: string
  readonly unit: string
  /** How often the thing was done; a run may give several samples. */
  readonly runs: number
  readonly summary: Summary
  readonly goals?: readonly Goal[]
}

/** One quantity that is no distribution. */
export interface Fact {
  readonly what: string
  readonly value: number
  readonly unit: string
  readonly at_most?: number
}

/** What one measurement found. */
export interface Findings {
  readonly name: string
  readonly title: string
  /** How it was measured, for whoever doubts it. */
  readonly method: string
  readonly figures: readonly Figure[]
  readonly facts: readonly Fact[]
  /** The share of the machine that processes of others took meanwhile, 0–1; undefined: the system does not tell. */
  readonly others?: number | undefined
}

/** Whether every goal of a figure is reached; undefined: it has none. */
export function isMet({ goals = [], summary }: Figure): boolean | undefined {
  if (goals.length === 0) return undefined
  return goals.every(({ of, at_most }) => summary[of] <= at_most)
}
