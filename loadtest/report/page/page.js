// The script of the report: a crosshair that shows the values of one moment in all charts, and lines that can be switched off.

const { places, moments, charts } = JSON.parse(document.getElementById('data').textContent)
const SVG = 'http://www.w3.org/2000/svg'
const figures = [...document.querySelectorAll('[data-chart]')].map(attach)

/** The point at which the crosshair stands; -1: nowhere. */
let chosen = -1

function attach(figure) {
  const drawing = figure.querySelector('.drawing')
  const cross = document.createElementNS(SVG, 'line')
  cross.setAttribute('class', 'cross')
  cross.setAttribute('y2', '100%')
  drawing.append(cross)
  const series = charts[figure.id].series.map((data, i) => {
    const entry = figure.querySelector(`.entry[data-series="${i}"]`)
    const group = figure.querySelector(`.series[data-series="${i}"]`)
    const dot = document.createElementNS(SVG, 'circle')
    dot.setAttribute('class', group.getAttribute('class').replace('series', 'dot'))
    dot.setAttribute('r', '4')
    drawing.append(dot)
    entry.addEventListener('click', () => {
      const shown = entry.getAttribute('aria-pressed') !== 'true'
      entry.setAttribute('aria-pressed', String(shown))
      group.classList.toggle('off', !shown)
      dot.classList.toggle('off', !shown)
    })
    return {
      ...data,
      name: entry.querySelector('span').textContent,
      dot,
      value: entry.querySelector('[data-value]'),
    }
  })
  const reach = figure.querySelector('.reach')
  reach.tabIndex = 0
  reach.setAttribute('role', 'slider')
  reach.setAttribute('aria-label', `Moment in ${figure.querySelector('h4').textContent}`)
  reach.setAttribute('aria-valuemin', '0')
  reach.setAttribute('aria-valuemax', String(Math.max(0, places.length - 1)))
  reach.setAttribute('aria-valuenow', '0')
  reach.addEventListener('pointermove', (event) => choose(nearest(event, reach)))
  reach.addEventListener('pointerdown', (event) => choose(nearest(event, reach)))
  reach.addEventListener('pointerleave', (event) => {
    if (event.pointerType === 'mouse') choose(-1)
  })
  reach.addEventListener('keydown', (event) => move(event))
  reach.addEventListener('blur', () => choose(-1))
  return { cross, series, reach, moment: figure.querySelector('.moment') }
}

function nearest(event, element) {
  const { left, width } = element.getBoundingClientRect()
  const place = (100 * (event.clientX - left)) / width
  let best = places.length - 1
  for (let i = 0; i < places.length; i++)
    if (Math.abs(places[i] - place) < Math.abs(places[best] - place)) best = i
  return best
}

function move(event) {
  const last = places.length - 1
  const target = {
    ArrowLeft: Math.max(0, chosen - 1),
    ArrowRight: Math.min(last, chosen + 1),
    PageUp: Math.max(0, chosen - 10),
    PageDown: Math.min(last, chosen + 10),
    Home: 0,
    End: last,
    Escape: -1,
  }[event.key]
  if (target === undefined) return
  event.preventDefault()
  choose(target)
}

/** Puts the crosshair of every chart at a point, or takes it away. */
function choose(point) {
  if (point === chosen) return
  chosen = point
  for (const { cross, series, reach, moment } of figures) {
    const shown = point >= 0
    cross.classList.toggle('on', shown)
    moment.textContent = shown ? moments[point] : moment.dataset.whole
    moment.classList.toggle('on', shown)
    for (const { texts, places: heights, dot, value } of series) {
      value.textContent = shown ? texts[point] : value.dataset.value
      dot.classList.toggle('on', shown && heights[point] !== null)
      if (!shown || heights[point] === null) continue
      dot.setAttribute('cx', `${places[point]}%`)
      dot.setAttribute('cy', `${heights[point] / 10}%`)
    }
    if (!shown) continue
    cross.setAttribute('x1', `${places[point]}%`)
    cross.setAttribute('x2', `${places[point]}%`)
    reach.setAttribute('aria-valuenow', String(point))
    const values = series.map(({ name, texts }) => `${name} ${texts[point]}`)
    reach.setAttribute('aria-valuetext', `${moments[point]}: ${values.join(', ')}`)
  }
}
