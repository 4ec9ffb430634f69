// The script of the report: draws the charts with uPlot, whose crosshair stands at the same moment in all of them.

const { at, phases, incidents, charts } = JSON.parse(document.getElementById('data').textContent)
const HEIGHT = 220
const COLOURS = 8

const number = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 })
const stepped = (steps) => (value) => {
  const [size, unit] = steps.find(([from]) => Math.abs(value) >= from) ?? steps.at(-1)
  return `${number.format(value / size)}${unit}`
}
const bytes = stepped([
  [1024 ** 3, ' GB'],
  [1024 ** 2, ' MB'],
  [1024, ' KB'],
  [1, ' B'],
])
const count = stepped([
  [1e6, 'M'],
  [1000, 'k'],
  [1, ''],
])
const WRITE = {
  count,
  rate: (value) => `${count(value)}/s`,
  bytes,
  byterate: (value) => `${bytes(value)}/s`,
  share: (value) => `${number.format(value * 100)}%`,
  ms: stepped([
    [60_000, ' min'],
    [1000, ' s'],
    [1, ' ms'],
  ]),
}
const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.round(seconds) % 60).padStart(2, '0')}`

/** A colour of the style sheet as it is now, by day or by night. */
function colour(name) {
  const probe = document.body.appendChild(document.createElement('i'))
  probe.style.color = `var(--${name})`
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

/** Behind the lines: the phases, in turn shaded, and where something happened. */
function drawBackground({ ctx, bbox, valToPos }) {
  const place = (seconds) => Math.max(bbox.left, valToPos(seconds, 'x', true))
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
function drawLimits({ ctx, bbox, valToPos, scales }, { limits, unit }) {
  ctx.save()
  ctx.fillStyle = ctx.strokeStyle = colour('bad')
  ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio])
  ctx.font = `600 ${11 * devicePixelRatio}px system-ui`
  ctx.textAlign = 'right'
  for (const { name, value } of limits) {
    if (value > scales.y.max) continue
    const y = valToPos(value, 'y', true)
    ctx.beginPath()
    ctx.moveTo(bbox.left, y)
    ctx.lineTo(bbox.left + bbox.width, y)
    ctx.stroke()
    ctx.fillText(`${name} ${WRITE[unit](value)}`, bbox.left + bbox.width - 4, y - 4)
  }
  ctx.restore()
}

function plot(element, chart) {
  const write = WRITE[chart.unit]
  const axis = { stroke: colour('soft'), grid: { stroke: colour('grid') }, ticks: { show: false } }
  const isBytes = chart.unit.startsWith('byte')
  const series = chart.series.map(({ name }, i) => ({
    label: name,
    stroke: colour(chart.log ? name : `c${i % COLOURS}`),
    dash: i >= COLOURS ? [5, 3] : undefined,
    width: 1.75,
    points: { show: chart.series[i].values.filter((value) => value !== null).length < 3 },
    value: (_, value) => (value === null || value === undefined ? '–' : write(value)),
  }))
  return new uPlot(
    {
      width: element.clientWidth,
      height: HEIGHT,
      cursor: { sync: { key: 'report' }, y: false, drag: { x: true, y: false } },
      scales: {
        x: { time: false },
        y: chart.log ? { distr: 3 } : { range: (_, _min, max) => [0, max * 1.05 || 1] },
      },
      axes: [
        { ...axis, values: (_, all) => all.map(clock) },
        {
          ...axis,
          size: 64,
          values: (_, all) => all.map((value) => (value === null ? '' : write(value))),
          ...(isBytes && { incrs: Array.from({ length: 50 }, (_, i) => 2 ** i) }),
        },
      ],
      series: [{ label: 'at', value: (_, value) => (value === null ? '' : clock(value)) }, ...series],
      hooks: { drawClear: [drawBackground], draw: [(self) => drawLimits(self, chart)] },
    },
    [at, ...chart.series.map(({ values }) => values)],
    element,
  )
}

const elements = [...document.querySelectorAll('[data-plot]')]
let plots = []

function drawAll() {
  for (const each of plots) each.destroy()
  plots = elements.map((element, i) => plot(element, charts[i]))
}

/** Arrow keys move the crosshair of every chart. */
function move(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -at.length, End: at.length }[
    event.key
  ]
  if (step === undefined) return
  event.preventDefault()
  const now = plots[0].cursor.idx ?? (step > 0 ? -1 : at.length)
  const index = Math.min(at.length - 1, Math.max(0, now + step))
  for (const each of plots) each.setCursor({ left: each.valToPos(at[index], 'x'), top: 0 }, true, false)
}

if (plots.length === 0 && elements.length > 0) {
  drawAll()
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll)
  const observer = new ResizeObserver(() => {
    for (const [i, each] of plots.entries()) each.setSize({ width: elements[i].clientWidth, height: HEIGHT })
  })
  observer.observe(elements[0])
  for (const element of elements) element.addEventListener('keydown', move)
}
