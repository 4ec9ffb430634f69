import type { Counts, RunResult, Second } from '../result.ts'

/**
 * How long a second of the log really was, in seconds: a busy generator tells it late, and the last one is cut short. `before`: the one
 * before it; undefined: it is the first.
 */
export function lengthAfter(second: Second, before: Second | undefined): number {
  const length = second.at - (before?.at ?? 0)
  return length > 0 ? length : 1
}

/** The same of the i-th second of a log. */
export const lengthOf = (log: readonly Second[], i: number): number => lengthAfter(log[i]!, log[i - 1])

/** How many of something there were each second, on average over the seconds in which there were any; undefined: there were none. */
export function averageRate({ totals, seconds_log }: RunResult, key: keyof Counts): number | undefined {
  let busy = 0
  for (const [i, { counts }] of seconds_log.entries()) if (counts[key] > 0) busy += lengthOf(seconds_log, i)
  return busy === 0 ? undefined : totals[key] / busy
}
