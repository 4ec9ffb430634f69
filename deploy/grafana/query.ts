import type { Queries } from './panel.ts'

/** The nodes, and the control processes, that the reader has chosen. */
export const NODE = 'instance=~"$node"'
export const CONTROL = 'instance=~"$control"'
/** Both: for what every process tells. */
export const ANY = 'instance=~"$node|$control"'

/** Without what probes and Prometheus ask. */
export const CALLS = `${CONTROL},route!~"/readyz|/healthz|/metrics"`

/** How fast a counter grows, per second: `sum by (by)`, or the sum of all where `by` is empty. */
export const rate = (series: string, by = ''): string =>
  `sum${by && ` by (${by})`} (rate(${series}[$__rate_interval]))`

/** The 50th, 95th and 99th percentile of a histogram. */
export const percentiles = (histogram: string, selector: string): Queries =>
  Object.fromEntries(
    [0.5, 0.95, 0.99].map((share) => [`p${share * 100}`, percentile(share, histogram, selector)]),
  )

/** One percentile of a histogram, of each group of the labels `by`. */
export const percentile = (share: number, histogram: string, selector: string, by = ''): string =>
  `histogram_quantile(${share}, ${rate(`${histogram}_bucket{${selector}}`, by ? `${by}, le` : 'le')})`

/** What share of a counter has these labels; nothing where nothing was counted. */
export const share = (counter: string, selector: string, part: string): string =>
  `${rate(`${counter}{${selector},${part}}`)} / (${rate(`${counter}{${selector}}`)} > 0)`
