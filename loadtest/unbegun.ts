import { timestamp } from '../shared/clock.ts'
import { noCounts } from './crowd/tally.ts'
import type { RunOptions } from './options.ts'
import { optionsTold } from './options-told.ts'
import type { RunResult } from './result.ts'
import { hasPassed, judge } from './thresholds.ts'

export interface UnbegunRun {
  readonly options: RunOptions
  readonly planned_seconds: number
  readonly machine: RunResult['machine']
  /** Milliseconds since 1970. */
  readonly now: number
  /** Why it did not begin; undefined: it was interrupted. */
  readonly failure: string | undefined
}

/** The result of a run whose service never served: there is one of every run, so that no report of an earlier one is taken for it. */
export function unbegun({ options, planned_seconds, machine, now, failure }: UnbegunRun): RunResult {
  const { scenario, target, limits } = options
  const result = {
    scenario: scenario.name,
    meaning: scenario.meaning,
    options: optionsTold(options),
    started_at: timestamp(now),
    seconds: 0,
    planned_seconds,
    interrupted: failure === undefined,
    failure,
    machine,
    target: `a service of ${target === 1 ? '1 node' : `${target} nodes`}, which did not start`,
    totals: noCounts(),
    timings: {},
    seconds_log: [],
    incidents: [],
    checks: [],
    failures: [],
    figures: [],
    bottleneck: [],
  }
  const judged = { ...result, verdicts: judge(limits, result) }
  return { ...judged, passed: hasPassed(judged) }
}
