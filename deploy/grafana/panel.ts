/** The expressions of a panel by what their series are called (`{{label}}` for a label's value). */
type Queries = Readonly<Record<string, string>>

/** What a panel shows; how that looks follows from its kind. */
export interface Panel {
  readonly kind: 'number' | 'lines' | 'areas' | 'heatmap'
  readonly title: string
  /** A unit of Grafana: `short`, `s`, `bytes`, `reqps`, `percentunit` and so on. */
  readonly unit: string
  /** What it means, and what to make of it; shown on request. */
  readonly about: string
  readonly of: Queries
  /** Columns of 24; default: a third for graphs, an eighth for numbers. */
  readonly width?: number
  /** From these values on (in the panel's unit) the colour changes. */
  readonly orange?: number
  readonly red?: number
  /** Shown where nothing has happened yet, which is fine. */
  readonly noValue?: string
  /** The largest value there can be. */
  readonly max?: number
}

const panel =
  (kind: Panel['kind']) =>
  (title: string, unit: string, shown: Omit<Panel, 'kind' | 'title' | 'unit'>): Panel => ({
    kind,
    title,
    unit,
    ...shown,
  })

/** The last value, large. */
export const number = panel('number')
/** Over time. */
export const lines = panel('lines')
/** Over time, stacked. */
export const areas = panel('areas')
/** The buckets of a histogram. */
export const heatmap = panel('heatmap')

/** A heading and the panels under it, in reading order. */
export interface Row {
  readonly title: string
  readonly panels: readonly Panel[]
}

/** Where a panel lies, in columns of 24 and lines. */
interface Place {
  readonly x: number
  readonly y: number
  readonly w: number
  readonly h: number
}

/** The data source that the reader has chosen. */
export const DATASOURCE = { type: 'prometheus', uid: '$datasource' } as const

export const heightOf = ({ kind }: Panel): number => (kind === 'number' ? 4 : 8)

export const widthOf = ({ kind, width = kind === 'number' ? 3 : 8 }: Panel): number => width

/** The panel as Grafana stores it. */
export function panelJson(panel: Panel, id: number, gridPos: Place): object {
  return {
    id,
    type: TYPES[panel.kind],
    title: panel.title,
    description: panel.about,
    datasource: DATASOURCE,
    gridPos,
    targets: Object.entries(panel.of).map(([legend, expr], n) => targetJson(panel, legend, expr, n)),
    fieldConfig: { defaults: fieldJson(panel), overrides: [] },
    options: OPTIONS[panel.kind](panel),
  }
}

const TYPES = { number: 'stat', lines: 'timeseries', areas: 'timeseries', heatmap: 'heatmap' } as const

function targetJson({ kind }: Panel, legend: string, expr: string, n: number): object {
  return {
    refId: String.fromCharCode('A'.charCodeAt(0) + n),
    datasource: DATASOURCE,
    editorMode: 'code',
    expr,
    legendFormat: legend,
    format: kind === 'heatmap' ? 'heatmap' : 'time_series',
    range: kind !== 'number',
    instant: kind === 'number',
  }
}

function fieldJson({ kind, unit, orange, red, noValue, max }: Panel): object {
  const thresholds = Object.entries({ orange, red }).flatMap(([color, value]) =>
    value === undefined ? [] : [{ value, color }],
  )
  const graph = kind === 'lines' || kind === 'areas'
  return {
    unit,
    ...(graph && { min: 0, custom: lineJson(kind, thresholds.length > 0) }),
    ...(max !== undefined && { max }),
    ...(noValue !== undefined && { noValue }),
    color: kind === 'number' ? { mode: 'thresholds' } : { mode: 'palette-classic' },
    thresholds: {
      mode: 'absolute',
      steps: [{ color: kind === 'number' ? 'text' : 'transparent', value: null }, ...thresholds],
    },
  }
}

const lineJson = (kind: 'lines' | 'areas', limits: boolean): object => ({
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineWidth: 1,
  fillOpacity: kind === 'areas' ? 25 : 0,
  showPoints: 'never',
  spanNulls: false,
  stacking: { mode: kind === 'areas' ? 'normal' : 'none', group: 'A' },
  thresholdsStyle: { mode: limits ? 'dashed' : 'off' },
})

const graphOptions = ({ of }: Panel): object => ({
  legend: {
    showLegend: true,
    displayMode: 'list',
    placement: 'bottom',
    calcs: Object.keys(of).length > 4 ? [] : ['lastNotNull'],
  },
  tooltip: { mode: 'multi', sort: 'desc' },
})

const OPTIONS: Readonly<Record<Panel['kind'], (panel: Panel) => object>> = {
  number: () => ({
    reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
    colorMode: 'value',
    graphMode: 'none',
    justifyMode: 'center',
    textMode: 'value',
    orientation: 'auto',
    percentChangeColorMode: 'standard',
    showPercentChange: false,
    wideLayout: true,
  }),
  lines: graphOptions,
  areas: graphOptions,
  heatmap: ({ unit }) => ({
    calculate: false,
    cellGap: 1,
    color: {
      mode: 'scheme',
      scheme: 'Oranges',
      scale: 'exponential',
      exponent: 0.5,
      steps: 64,
      reverse: false,
      fill: 'orange',
    },
    filterValues: { le: 1e-9 },
    exemplars: { color: 'rgba(255,0,255,0.7)' },
    showValue: 'never',
    legend: { show: true },
    rowsFrame: { layout: 'auto' },
    tooltip: { mode: 'single', yHistogram: true },
    yAxis: { unit, axisPlacement: 'left' },
  }),
}

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

/** The 50th, 95th and 99th percentile of a histogram of nodes. */
export const percentiles = (histogram: string): Queries =>
  Object.fromEntries(
    [0.5, 0.95, 0.99].map((share) => [`p${share * 100}`, percentile(share, histogram, NODE)]),
  )

/** One percentile of a histogram, of each group of the labels `by`. */
export const percentile = (share: number, histogram: string, selector: string, by = ''): string =>
  `histogram_quantile(${share}, ${rate(`${histogram}_bucket{${selector}}`, by ? `${by}, le` : 'le')})`

/** What share of a counter has these labels; nothing where nothing was counted. */
export const share = (counter: string, selector: string, part: string): string =>
  `${rate(`${counter}{${selector},${part}}`)} / (${rate(`${counter}{${selector}}`)} > 0)`
