import type { Second } from '../result.ts'

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
