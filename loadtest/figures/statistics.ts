/** What is told of a set of samples. */
export interface Summary {
  readonly n: number
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

/**
 * The value that the share `p` (0–1) of the samples does not exceed: the smallest sample of which that is true, never one between two
 * samples. NaN of no samples.
 */
export function percentile(samples: readonly number[], p: number): number {
  const sorted = [...samples].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(p * sorted.length) - 1)] ?? Number.NaN
}

/** The summary of samples in any order. */
export const summarize = (samples: readonly number[]): Summary => ({
  n: samples.length,
  p50: percentile(samples, 0.5),
  p95: percentile(samples, 0.95),
  p99: percentile(samples, 0.99),
  max: percentile(samples, 1),
})

/** `values` in groups of `size`, in their order; what does not fill a group is left out. */
export const inBlocks = (values: readonly number[], size: number): number[][] =>
  Array.from({ length: Math.floor(values.length / size) }, (_, i) => values.slice(i * size, (i + 1) * size))
