import type { Histogram } from 'node:perf_hooks'
import type { Percentiles } from './result.ts'

export const NO_VALUES: Percentiles = { count: 0, mean: 0, p50: 0, p90: 0, p95: 0, p99: 0, p999: 0, max: 0 }

/** The values of a histogram of microseconds, in milliseconds. */
export function percentilesOf(histogram: Histogram): Percentiles {
  if (histogram.count === 0) return NO_VALUES
  const ms = (percent: number): number => histogram.percentile(percent) / 1000
  return {
    count: histogram.count,
    mean: histogram.mean / 1000,
    p50: ms(50),
    p90: ms(90),
    p95: ms(95),
    p99: ms(99),
    p999: ms(99.9),
    max: histogram.max / 1000,
  }
}
