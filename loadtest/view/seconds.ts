import type { Second } from '../result.ts'

/** How long a second of the log really was, in seconds: a busy generator tells it late, and the last one is cut short. */
export function lengthOf(log: readonly Second[], i: number): number {
  const length = log[i]!.at - (log[i - 1]?.at ?? 0)
  return length > 0 ? length : 1
}
