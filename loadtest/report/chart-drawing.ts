import type { RunResult } from '../result.ts'
import { clock, NONE } from '../view/text.ts'
import type { Chart, Series } from './charts.ts'
import { escaped, figure, table, text } from './html.ts'
import { linear, logarithmic, type Scale } from './scale.ts'
import type { Point, Timeline } from './timeline.ts'

/**
 * Charts as SVG that is complete without any script. The lines are drawn in a box of 1000 × 1000 that stretches with the page, all
 * text beside it in percent, so that one drawing serves every width and no letter is ever stretched.
 */

const BOX = 1000
const MOST_TIMES = 5
/** Most rows of the table behind a chart. */
const MOST_ROWS = 120
/** How far a limit may lie above the highest value and still be worth the space. */
const LIMIT_IN_SIGHT = { linear: 3, log: 30 }

/** What the script shows of a chart where the crosshair is: of each series its texts, and its places from 0 (top) to 1000. */
export interface ChartData {
  readonly series: readonly {
    readonly texts: readonly string[]
    readonly places: readonly (number | null)[]
  }[]
}

/** A chart as a figure: its title, legend, drawing, and its values as a table. `id` is its own on the page. */
export function chartFigure(chart: Chart, id: string, timeline: Timeline, result: RunResult): string {
  const { title, description, series } = chart
  return `<figure class="card chart" id="${id}" data-chart>
<figcaption><h4 id="${id}-title">${escaped(title)}</h4><span class="moment" data-whole="${escaped(chart.whole_is)}">${escaped(chart.whole_is)}</span><p id="${id}-about">${escaped(description)}</p></figcaption>
<div class="legend">${series.map(legendEntry).join('')}</div>
<div class="plot${result.incidents.length > 0 ? ' flagged' : ''}">${strip(timeline, result)}
<svg class="drawing" role="img" aria-labelledby="${id}-title ${id}-about">${drawing(chart, timeline)}</svg>
<div class="reach"></div></div>
${values(chart, timeline)}
</figure>`
}

/** The values of a chart for its script. */
export function chartData(chart: Chart): ChartData {
  const scale = scaleOf(chart)
  return {
    series: chart.series.map(({ points }) => ({
      texts: points.map((point) => pointText(point, chart.write)),
      places: points.map((point) => (point === undefined ? null : y(scale, point.high))),
    })),
  }
}

function legendEntry({ name, look, whole }: Series, i: number): string {
  return `<button type="button" class="entry" data-series="${i}" aria-pressed="true"><i class="key ${look}"></i><span>${escaped(name)}</span><b data-value="${escaped(whole)}">${escaped(whole)}</b></button>`
}

/** Above the lines: the names of the phases, and a flag for each incident. Their places come from `placeRules`. */
function strip(timeline: Timeline, { incidents }: RunResult): string {
  const phases = timeline.phases.map(
    ({ name }, i) =>
      `<span class="phase phase-${i}" title="${escaped(name)}"><span>${escaped(name)}</span></span>`,
  )
  const flags = incidents.map(
    ({ at, text: what }, i) =>
      `<span class="flag incident-${i}" title="${escaped(`${clock(at)} ${what}`)}">${i + 1}</span>`,
  )
  return `<div class="strip" aria-hidden="true">${phases.join('')}${flags.join('')}</div>`
}

/** Where phases and incidents stand, as rules of the style sheet: the page allows no style in its elements. */
export function placeRules(timeline: Timeline, { incidents }: RunResult): string {
  const phases = timeline.phases.map(
    ({ from, to }, i) => `.phase-${i}{left:${from}%;width:${Math.round(100 * (to - from)) / 100}%}`,
  )
  const flags = incidents.map(({ at }, i) => `.incident-${i}{left:${timeline.place(at)}%}`)
  return [...phases, ...flags].join('\n')
}

function drawing(chart: Chart, timeline: Timeline): string {
  const scale = scaleOf(chart)
  const percent = (value: number) => `${Math.round(10_000 * (1 - scale.at(value))) / 100}%`
  const grid = scale.ticks.map(
    (tick) =>
      `<line class="grid" x2="100%" y1="${percent(tick)}" y2="${percent(tick)}"/><text class="tick" x="-8" y="${percent(tick)}" dy=".32em" text-anchor="end">${escaped(chart.tick(tick))}</text>`,
  )
  const limits = limitsInSight(chart).map(
    ({ name, value }) =>
      `<line class="limit" x2="100%" y1="${percent(value)}" y2="${percent(value)}"/><text class="limit-name" x="100%" y="${percent(value)}" dx="-4" dy="-.35em" text-anchor="end">${escaped(`${name} ${chart.write(value)}`)}</text>`,
  )
  const lines = chart.series.map(
    ({ look, points }, i) =>
      `<g class="series ${look}" data-series="${i}">${paths(points, timeline, scale, look)}</g>`,
  )
  return `${grid.join('')}${times(timeline)}<svg class="lines" viewBox="0 0 ${BOX} ${BOX}" preserveAspectRatio="none" width="100%" height="100%">${lines.reverse().join('')}</svg>${limits.join('')}`
}

function times(timeline: Timeline): string {
  const { ticks } = linearTime(timeline.length)
  return ticks
    .map((seconds, i) => {
      const x = timeline.place(seconds)
      const anchor = i === 0 ? 'start' : x > 97 ? 'end' : 'middle'
      return `<text class="tick" x="${x}%" y="100%" dy="1.5em" text-anchor="${anchor}">${clock(seconds)}</text>`
    })
    .join('')
}

/** Round moments on the axis of time: few enough to fit a phone. */
function linearTime(length: number): { readonly ticks: readonly number[] } {
  const step = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600].find(
    (size) => length / size <= MOST_TIMES,
  )
  const size = step ?? Math.ceil(length / MOST_TIMES / 3600) * 3600
  return { ticks: Array.from({ length: Math.floor(length / size) + 1 }, (_, i) => i * size) }
}

function scaleOf(chart: Chart): Scale {
  const { series, limits, scale } = chart
  const points = series.flatMap((each) => each.points.filter((point) => point !== undefined))
  const highs = points.reduce((most, { high }) => Math.max(most, high), 0)
  const sight = highs * LIMIT_IN_SIGHT[scale === 'log' ? 'log' : 'linear']
  const most = limits.reduce((top, { value }) => (value <= sight ? Math.max(top, value) : top), highs)
  if (scale === 'linear') return linear(most)
  if (scale === 'bytes') return linear(most, 1024)
  const lows = points.reduce((least, { low }) => (low > 0 ? Math.min(least, low) : least), most)
  return logarithmic(
    limits.reduce((least, { value }) => Math.min(least, value || least), lows),
    most,
  )
}

function limitsInSight({ limits, series, scale }: Chart) {
  const highs = series
    .flatMap(({ points }) => points)
    .reduce((most, point) => Math.max(most, point?.high ?? 0), 0)
  return limits.filter(({ value }) => value <= highs * LIMIT_IN_SIGHT[scale === 'log' ? 'log' : 'linear'])
}

const y = (scale: Scale, value: number): number => Math.round(10 * BOX * (1 - scale.at(value))) / 10

/**
 * The line through the points, and where several seconds are one point, a band behind it from their lowest to their highest value. Gaps
 * stay gaps; a point between two of them is a dot.
 */
function paths(points: readonly Point[], timeline: Timeline, scale: Scale, look: string): string {
  const runs: { readonly x: number; readonly high: number; readonly low: number }[][] = []
  points.forEach((point, i) => {
    if (point === undefined) return
    if (i === 0 || points[i - 1] === undefined) runs.push([])
    const x = Math.round(timeline.places[i]! * BOX) / 100
    runs.at(-1)!.push({ x, high: y(scale, point.high), low: y(scale, point.low) })
  })
  const top = (run: (typeof runs)[number]) => run.map(({ x, high }) => `${x} ${high}`).join('L')
  const long = runs.filter((run) => run.length > 1)
  const areas = long.map((run) => `M${top(run)}L${run.at(-1)!.x} ${BOX}L${run[0]!.x} ${BOX}Z`)
  const bands = long.map(
    (run) =>
      `M${top(run)}L${run
        .map(({ x, low }) => `${x} ${low}`)
        .reverse()
        .join('L')}Z`,
  )
  const lines = long.map((run) => `M${top(run)}`)
  const dots = runs.filter((run) => run.length === 1).map((run) => `M${top(run)}h0`)
  return [
    look.includes('filled') ? shape('area', areas) : '',
    timeline.step > 1 ? shape('band', bands) : '',
    shape('line', lines),
    shape('line alone', dots),
  ].join('')
}

const shape = (look: string, parts: readonly string[]): string =>
  parts.length === 0 ? '' : `<path class="${look}" d="${parts.join('')}"/>`

function pointText(point: Point, write: (value: number) => string): string {
  if (point === undefined) return NONE
  const [low, high] = [write(point.low), write(point.high)]
  return low === high ? high : `${low} – ${high}`
}

/** The values as a table: of as many seconds a row as are needed for it to stay readable. */
function values({ title, series, write }: Chart, timeline: Timeline): string {
  const size = Math.max(1, Math.ceil(timeline.moments.length / MOST_ROWS))
  const rows = timeline.moments
    .map((moment, i) => ({ moment, i }))
    .filter(({ i }) => i % size === 0)
    .map(({ moment, i }) => [
      text(clock(moment)),
      text(timeline.phase_names[i]!),
      ...series.map(({ points }) => figure(pointText(merged(points.slice(i, i + size)), write))),
    ])
  const head = [text('at'), text('phase'), ...series.map(({ name }) => figure(name))]
  const seconds = size * timeline.step
  const caption = `${title} over time${seconds > 1 ? `, lowest and highest of each ${seconds} s` : ''}`
  return `<details class="values"><summary>Values</summary>${table(head, rows, caption)}</details>`
}

function merged(points: readonly Point[]): Point {
  const known = points.filter((point) => point !== undefined)
  if (known.length === 0) return undefined
  return {
    low: Math.min(...known.map(({ low }) => low)),
    high: Math.max(...known.map(({ high }) => high)),
  }
}
