/** Draws the charts of the report with uPlot. Their crosshairs move together. */
const { at, phases, incidents, charts } = JSON.parse(document.getElementById('data').textContent)
const HEIGHT = 220
const COLOURS = 6
const NUMBER = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 })

const text = (value, unit) => (value == null ? '–' : `${NUMBER.format(value)}${unit && ` ${unit}`}`)
const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, '0')}`

/** Returns a colour of the style sheet, which depends on the colour scheme. */
function colour(name) {
  const probe = document.body.appendChild(document.createElement('i'))
  probe.style.color = `var(--${name})`
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

/** Shades every second phase, and marks incidents with their numbers. */
function drawBackground({ ctx, bbox, valToPos }) {
  const place = (seconds) =>
    Math.min(bbox.left + bbox.width, Math.max(bbox.left, valToPos(seconds, 'x', true)))
  ctx.save()
  ctx.font = `${11 * devicePixelRatio}px system-ui`
  ctx.textBaseline = 'top'
  for (const [i, { name, from, to }] of phases.entries()) {
    const width = place(to) - place(from)
    ctx.fillStyle = colour('band')
    if (i % 2 === 0) ctx.fillRect(place(from), bbox.top, width, bbox.height)
    ctx.fillStyle = colour('soft')
    if (ctx.measureText(name).width < width - 8) ctx.fillText(name, place(from) + 4, bbox.top + 4)
  }
  ctx.fillStyle = colour('warn')
  for (const [i, seconds] of incidents.entries()) {
    ctx.fillRect(place(seconds), bbox.top, devicePixelRatio, bbox.height)
    ctx.fillText(String(i + 1), place(seconds) + 4, bbox.top + 18 * devicePixelRatio)
  }
  ctx.restore()
}

function draw(element, { unit, log, series, limits }) {
  const axis = { stroke: colour('soft'), grid: { stroke: colour('line') }, ticks: { show: false } }
  const value = (_, each) => text(each, unit)
  const lines = series.map(({ name }, i) => ({
    label: name,
    stroke: colour(`c${i % COLOURS}`),
    dash: i >= COLOURS ? [5, 3] : undefined,
    value,
  }))
  const limited = limits.map((limit) => ({
    label: limit.name,
    stroke: colour('bad'),
    dash: [8, 4],
    auto: false,
    value,
  }))
  const options = {
    width: element.clientWidth,
    height: HEIGHT,
    cursor: { sync: { key: 'report' }, y: false },
    scales: { x: { time: false }, y: log ? { distr: 3 } : { range: (_, _min, max) => [0, max * 1.05 || 1] } },
    axes: [
      { ...axis, values: (_, all) => all.map(clock) },
      { ...axis, size: 72, values: (_, all) => all.map((each) => (each == null ? '' : text(each, unit))) },
    ],
    series: [{ label: 'at', value: (_, each) => (each == null ? '' : clock(each)) }, ...lines, ...limited],
    hooks: { drawClear: [drawBackground] },
  }
  const levels = limits.map((limit) => at.map(() => limit.value))
  return new uPlot(options, [at, ...series.map(({ values }) => values), ...levels], element)
}

const elements = [...document.querySelectorAll('[data-chart]')]
const drawAll = () => elements.map((element, i) => draw(element, charts[i]))
let plots = drawAll()
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const plot of plots) plot.destroy()
  plots = drawAll()
})
addEventListener('resize', () => {
  for (const [i, plot] of plots.entries()) plot.setSize({ width: elements[i].clientWidth, height: HEIGHT })
})
