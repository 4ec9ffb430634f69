import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { RunResult } from '../result.ts'
import { clock } from '../view/text.ts'
import { chartData, chartFigure, placeRules } from './chart-drawing.ts'
import { type Chart, chartsOf } from './charts.ts'
import { escaped, jsonData } from './html.ts'
import {
  checks,
  circumstances,
  failures,
  incidents,
  keyFigures,
  limits,
  partSection,
  servers,
  timings,
  verdictBand,
} from './sections.ts'
import { Timeline } from './timeline.ts'
import { outcomeOf } from './verdict.ts'

const COLOURS = { passed: '#1a7f4b', failed: '#b3261e', interrupted: '#9a5b00' }

/** In this order: later ones change what earlier ones say. */
const STYLES = ['base.css', 'verdict.css', 'tables.css', 'charts.css', 'narrow.css']

/** A file of the page. */
const part = (name: string): string => readFileSync(new URL(`./page/${name}`, import.meta.url), 'utf8')

/**
 * The report as one HTML file that asks for nothing else: style, script and figures are in it, and its content security policy lets it
 * run and load nothing but those. It is complete without the script, which adds the crosshair and switches lines on and off.
 */
export function reportPage(result: RunResult): string {
  const timeline = new Timeline(result)
  const charts = chartsOf(result, timeline).map((chart, i) => ({ chart, id: `chart-${i}` }))
  const script = part('page.js')
  const style = [...STYLES.map(part), placeRules(timeline, result)].join('\n')
  const policy = `default-src 'none'; style-src '${hash(style)}'; script-src '${hash(script)}'; img-src data:; base-uri 'none'; form-action 'none'`
  const { word } = outcomeOf(result)
  const parts = [
    failures(result),
    checks(result),
    limits(result),
    timings(result),
    {
      id: 'timeline',
      title: 'Over time',
      about: about(timeline),
      content: `${incidents(result)}${groups(charts, timeline, result)}`,
    },
    servers(result),
    circumstances(result),
  ].filter((part) => part.content !== '')
  const data = {
    places: timeline.places,
    moments: timeline.moments.map((moment, i) => `${clock(moment)} ${timeline.phase_names[i]}`),
    charts: Object.fromEntries(charts.map(({ chart, id }) => [id, chartData(chart)])),
  }
  const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><circle cx="4" cy="4" r="4" fill="${COLOURS[word]}"/></svg>`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escaped(`${result.scenario} ${word} · roomful load test`)}</title>
<link rel="icon" href="data:image/svg+xml,${encodeURIComponent(icon)}">
<style>${style}</style>
</head>
<body>
<header>
<p class="product">roomful load test</p>
<h1>${escaped(result.scenario)}</h1>
<p class="about">${escaped(result.meaning)}</p>
<p class="facts"><time datetime="${escaped(result.started_at)}">${escaped(result.started_at.replace('T', ' ').slice(0, 16))} UTC</time> · ${length(result)} · ${escaped(result.target)}</p>
</header>
<nav aria-label="Parts">${parts.map(({ id, title }) => `<a href="#${id}">${title}</a>`).join('')}</nav>
<main>
${verdictBand(result)}
${keyFigures(result)}
${parts.map(partSection).join('\n')}
</main>
<footer><a href="report.json">report.json</a> and <a href="junit.xml">junit.xml</a> beside this file hold the same for machines.</footer>
<script type="application/json" id="data">${jsonData(data)}</script>
<script type="module">${script}</script>
</body>
</html>
`
}

/** `0:31 min`, or how much of it an interrupted run has done. */
function length({ seconds, planned_seconds, interrupted }: RunResult): string {
  const longest = interrupted ? Math.max(seconds, planned_seconds) : seconds
  const told = interrupted ? `${clock(seconds)} of ${clock(longest)}` : clock(seconds)
  return `${told} ${longest < 3600 ? 'min' : 'h'}`
}

function about({ step, moments }: Timeline): string {
  if (moments.length === 0) return 'The run ended before its first second: there is nothing to draw.'
  return step === 1
    ? 'Second by second. Shaded: the phases of the run; flags: what happened.'
    : `Each point is ${step} seconds: the line is their highest value, the band reaches down to their lowest. Shaded: the phases of the run; flags: what happened.`
}

function groups(
  charts: readonly { readonly chart: Chart; readonly id: string }[],
  timeline: Timeline,
  result: RunResult,
): string {
  const names = [...new Set(charts.map(({ chart }) => chart.group))]
  return names
    .map((name) => {
      const own = charts.filter(({ chart }) => chart.group === name)
      return `<h3 class="group">${escaped(name)}</h3><div class="charts">${own.map(({ chart, id }) => chartFigure(chart, id, timeline, result)).join('\n')}</div>`
    })
    .join('\n')
}

const hash = (text: string): string => `sha256-${createHash('sha256').update(text).digest('base64')}`
