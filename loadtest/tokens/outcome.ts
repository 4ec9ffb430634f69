import { median } from '../bench/report.ts'
import type { Served } from './callers.ts'

/** Who signs: the baseline, the project's built-in pair, or a key's own. */
export type Way = 'bare' | 'project' | 'key'

/** What one window of one way gave. */
export interface Window extends Served {
  /** CPU time of the server processes in the window, all together, milliseconds. */
  readonly cpu_ms: number
}

/** What all rounds of one way say: medians. */
export interface Outcome {
  readonly way: Way
  readonly tokens_per_second: number
  readonly p50_ms: number
  readonly p95_ms: number
  readonly p99_ms: number
  readonly cpu_ms_per_token: number
  /** CPU time of a token by that of a bare one of the same round. */
  readonly ratio_to_bare: number
  readonly ratio_min: number
  readonly ratio_max: number
  readonly callers_busy: number
}

const cost = ({ cpu_ms, tokens }: Window): number => cpu_ms / tokens

/** The medians of the rounds of `way`; `windows` are those of all ways, in the order in which they were measured. */
export function summarizeRounds(way: Way, windows: readonly (Window & { readonly way: Way })[]): Outcome {
  const own = windows.filter((window) => window.way === way)
  const bare = windows.filter((window) => window.way === 'bare')
  const of = (value: (window: Window) => number): number => median(own.map(value))
  const ratios = own.map((window, round) => cost(window) / cost(bare[round]!))
  return {
    way,
    tokens_per_second: of(({ tokens, seconds }) => tokens / seconds),
    p50_ms: of(({ latency }) => latency.p50),
    p95_ms: of(({ latency }) => latency.p95),
    p99_ms: of(({ latency }) => latency.p99),
    cpu_ms_per_token: of(cost),
    ratio_to_bare: median(ratios),
    ratio_min: Math.min(...ratios),
    ratio_max: Math.max(...ratios),
    callers_busy: of(({ callers_busy }) => callers_busy),
  }
}
