import uPlot from 'uplot'
import { bytes, clock, compact, inUnit, NONE, type Unit } from '../../text.ts'
import type { PageData } from '../page.ts'

/** The script of the report: draws the charts with uPlot, whose crosshair stands at the same moment in all of them. */

type ChartData = PageData['charts'][number]

const { at, phases, incidents, charts }: PageData = JSON.parse(
  document.getElementById('data')?.textContent ?? '',
)
const HEIGHT = 220
const COLOURS = 8

/** As short as an axis needs it. */
function onAxis(value: number, unit: Unit): string {
  if (unit === '') return compact(value)
  if (unit === '/s') return `${compact(value)}/s`
  if (unit === 'bytes/s') return `${bytes(value)}/s`
  return unit === 'ms' && value < 1000 ? `${compact(value)} ms` : inUnit(value, unit)
}

/** A colour of the style sheet as it is now, by day or by night. */
function colour(name: string): string {
  const probe = document.body.appendChild(document.createElement('i'))
  probe.style.color = `var(--${name})`
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

/** Behind the lines: the phases, in turn shaded, and where something happened. */
function drawBackground({ ctx, bbox, valToPos }: uPlot): void {
  const place = (seconds: number): number => Math.max(bbox.left, valToPos(seconds, 'x', true))
  ctx.save()
  ctx.beginPath()
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height)
  ctx.clip()
  ctx.font = `${11 * devicePixelRatio}px system-ui`
  ctx.textBaseline = 'top'
  for (const [i, { name, from, to }] of phases.entries()) {
    const [left, width] = [place(from), place(to) - place(from)]
    ctx.fillStyle = colour('band')
    if (i % 2 === 0) ctx.fillRect(left, bbox.top, width, bbox.height)
    ctx.fillStyle = colour('soft')
    if (ctx.measureText(name).width < width - 8) ctx.fillText(name, left + 4, bbox.top + 4)
  }
  ctx.fillStyle = ctx.strokeStyle = colour('warn')
  for (const [i, seconds] of incidents.entries()) {
    ctx.fillRect(place(seconds), bbox.top, devicePixelRatio, bbox.height)
    ctx.fillText(String(i + 1), place(seconds) + 4, bbox.top + 18 * devicePixelRatio)
  }
  ctx.restore()
}

/** Before the lines: the limits that were given. */
function drawLimits({ ctx, bbox, valToPos, scales }: uPlot, { limits, unit }: ChartData): void {
  ctx.save()
  ctx.fillStyle = ctx.strokeStyle = colour('bad')
  ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio])
  ctx.font = `600 ${11 * devicePixelRatio}px system-ui`
  ctx.textAlign = 'right'
  for (const { name, value } of limits) {
    if (value > (scales.y?.max ?? 0)) continue
    const y = valToPos(value, 'y', true)
    ctx.beginPath()
    ctx.moveTo(bbox.left, y)
    ctx.lineTo(bbox.left + bbox.width, y)
    ctx.stroke()
    ctx.fillText(`${name} ${inUnit(value, unit)}`, bbox.left + bbox.width - 4, y - 4)
  }
  ctx.restore()
}

function plot(element: HTMLElement, chart: ChartData): uPlot {
  const { unit, log } = chart
  const axis = { stroke: colour('soft'), grid: { stroke: colour('grid') }, ticks: { show: false } }
  const series = chart.series.map(
    ({ name, values }, i): uPlot.Series => ({
      label: name,
      stroke: colour(log ? name : `c${i % COLOURS}`),
      ...(i >= COLOURS && { dash: [5, 3] }),
      width: 1.75,
      points: { show: values.filter((value) => value !== null).length < 3 },
      value: (_, value: number | null) => (value === null ? NONE : inUnit(value, unit)),
    }),
  )
  return new uPlot(
    {
      width: element.clientWidth,
      height: HEIGHT,
      cursor: { sync: { key: 'report' }, y: false, drag: { x: true, y: false } },
      scales: {
        x: { time: false },
        y: log ? { distr: 3 } : { range: (_, _min, max) => [0, max * 1.05 || 1] },
      },
      axes: [
        { ...axis, values: (_, all) => all.map(clock) },
        {
          ...axis,
          size: 64,
          values: (_, all) => all.map((value: number | null) => (value === null ? '' : onAxis(value, unit))),
          ...(unit.startsWith('bytes') && { incrs: Array.from({ length: 50 }, (_, i) => 2 ** i) }),
        },
      ],
      series: [
        { label: 'at', value: (_, value: number | null) => (value === null ? '' : clock(value)) },
        ...series,
      ],
      hooks: { drawClear: [drawBackground], draw: [(self) => drawLimits(self, chart)] },
    },
    [at as number[], ...chart.series.map(({ values }) => values as (number | null)[])],
    element,
  )
}

/** Draws all charts, again when day turns to night or their width changes; arrow keys move the crosshair of every chart. */
function draw(elements: readonly HTMLElement[]): void {
  const drawAll = (): uPlot[] => elements.map((element, i) => plot(element, charts[i]!))
  let plots = drawAll()
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const each of plots) each.destroy()
    plots = drawAll()
  })
  const observer = new ResizeObserver(() => {
    for (const [i, each] of plots.entries()) each.setSize({ width: elements[i]!.clientWidth, height: HEIGHT })
  })
  observer.observe(elements[0]!)
  const steps: Readonly<Record<string, number>> = {
    ArrowLeft: -1,
    ArrowRight: 1,
    PageUp: -10,
    PageDown: 10,
    Home: -at.length,
    End: at.length,
  }
  const move = (event: KeyboardEvent): void => {
    const step = steps[event.key]
    if (step === undefined) return
    event.preventDefault()
    const now = plots[0]?.cursor.idx ?? (step > 0 ? -1 : at.length)
    const index = Math.min(at.length - 1, Math.max(0, now + step))
    for (const each of plots) each.setCursor({ left: each.valToPos(at[index]!, 'x'), top: 0 })
  }
  for (const element of elements) element.addEventListener('keydown', move)
}

const elements = [...document.querySelectorAll<HTMLElement>('[data-plot]')]
if (elements.length > 0) draw(elements)
