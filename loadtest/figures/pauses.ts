import { percentile } from './statistics.ts'

/** How long before the fault the normal period is looked for, milliseconds. */
const NORMAL_MS = 500

/**
 * The pause that a member saw: the longest time between two effects of its own messages that ends after `from`, less the median time
 * between two effects in the half second before. `effects` are moments in order, `from` that of the fault, `until` that of the end of
 * the watch, which counts as an effect when it is what the member still waits for. Milliseconds, never below 0.
 */
export function pauseOf(
  effects: readonly number[],
  { from, until }: { from: number; until: number },
): number {
  const before = effects.filter((at) => at <= from && at > from - NORMAL_MS)
  const normal = gaps(before).length > 0 ? percentile(gaps(before), 0.5) : 0
  const since = effects.filter((at) => at > from && at < until)
  const seen = [effects.findLast((at) => at <= from) ?? from, ...since, until]
  return Math.max(0, Math.max(...gaps(seen)) - normal)
}

const gaps = (moments: readonly number[]): number[] =>
  moments.slice(1).map((moment, i) => moment - (moments[i] ?? moment))
