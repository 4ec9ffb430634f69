import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { html, raw } from 'hono/html'
import { hasBegun, type Judgement, judgementsOf, outcomeOf, timingTable, totalText } from '../judge.ts'
import { SHOWN_FIGURES, serverValue } from '../metrics.ts'
import { figureText, lengthOf, type RunResult, type Second, TIMINGS } from '../result.ts'
import { clock, count, duration, inUnit, NONE } from '../text.ts'

type Html = ReturnType<typeof html>
type Content = Html | string

/** A chart over time. */
interface Chart {
  readonly group: string
  readonly title: string
  readonly unit: string
  readonly log: boolean
  /** One value for each second. Null: there was none. */
  readonly series: readonly { readonly name: string; readonly values: readonly (number | null)[] }[]
  readonly limits: readonly { readonly name: string; readonly value: number }[]
}

/** Value of a line in a second of this length. */
type Line = (second: Second, length: number) => number | undefined

/** Returns every chart with values above zero. */
function chartsOf({ seconds_log: log, verdicts }: RunResult): Chart[] {
  const chart = (
    group: string,
    title: string,
    unit: string,
    lines: Readonly<Record<string, Line>>,
    limited: readonly (string | undefined)[] = [],
  ): Chart => {
    const series = Object.entries(lines).map(([name, line]) => ({
      name,
      values: log.map((second, i) => {
        const value = line(second, lengthOf(log, i))
        return value === undefined ? null : Number(value.toPrecision(4))
      }),
    }))
    return {
      group,
      title,
      unit,
      log: group === 'Latency',
      series: series.filter(({ values }) => values.some((value) => value !== null && value > 0)),
      limits: verdicts
        .map(({ threshold, limit }) => ({ name: threshold.slice(2), value: limit }))
        .filter(({ name }) => limited.includes(name)),
    }
  }
  const rates = (...names: (keyof Second['counts'])[]) =>
    Object.fromEntries(
      names.map((name): [string, Line] => [name, ({ counts }, length) => counts[name] / length]),
    )
  const servers = [...new Set(log.flatMap((second) => second.servers.map(({ name }) => name)))]
  const shown = ['p50', 'p95', 'p99', 'max'] as const
  return [
    ...TIMINGS.map(({ name, title }) => {
      const lines = shown.map((of): [string, Line] => [of, ({ timings }) => timings[name]?.[of]])
      const limits = shown.map((of) => `max-${name}-${of}`)
      return chart('Latency', title, 'ms', Object.fromEntries(lines), limits)
    }),
    chart('Load', 'Clients online', '', { online: ({ online }) => online }, ['min-online']),
    chart('Load', 'Messages', '/s', rates('sends', 'acks'), ['min-rate']),
    chart('Load', 'Updates', '/s', rates('updates', 'events'), ['min-updates']),
    chart('Load', 'Connections', '/s', rates('connects', 'joins', 'leaves', 'resumes', 'retries')),
    chart('Load', 'Traffic', 'B/s', rates('bytes_in', 'bytes_out')),
    chart('Load', 'Failures', '/s', rates('errors')),
    ...SHOWN_FIGURES.map(({ name: figure, title, unit, limit }) => {
      const lines = servers.map((name): [string, Line] => [
        name,
        (second) => {
          const server = second.servers.find((each) => each.name === name)
          return server?.up ? serverValue(server, figure) : undefined
        },
      ])
      return chart('Servers', title, unit === 'bytes' ? 'B' : unit, Object.fromEntries(lines), [limit])
    }),
    chart('Load generator', 'Delay', 'ms', {
      'event loop delay': ({ generator }) => generator.event_loop_delay_ms,
      'latest message': ({ generator }) => generator.late_ms,
    }),
    chart('Load generator', 'CPU', '%', {
      'busiest thread': ({ generator }) => 100 * generator.event_loop_utilisation,
      'whole process': ({ generator }, length) => (100 * generator.cpu_seconds) / length,
    }),
  ].filter(({ series }) => series.length > 0)
}

function table(head: readonly string[], rows: readonly (readonly Content[])[]): Content {
  if (rows.length === 0) return ''
  return html`<div class="scroll card" tabindex="0"><table class="data"><thead><tr>${head.map((title) => html`<th scope="col">${title}</th>`)}</tr></thead><tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`
}

const section = (title: string, ...content: readonly Content[]): Content =>
  content.some((each) => each !== '') ? html`<section><h2>${title}</h2>${content}</section>` : ''

const bullets = (lines: readonly string[]): Content =>
  lines.length === 0 ? '' : html`<ul>${lines.map((line) => html`<li>${line}</li>`)}</ul>`

/** Returns the checks or the limits, broken ones first. */
function judgements(result: RunResult, kind: 'check' | 'limit'): Content {
  const order = ['broken', 'kept', 'open']
  const marks = { broken: '✗ broken', kept: '✓ kept', open: '– open' }
  const rows = judgementsOf(result)
    .filter((each) => each.kind === kind)
    .toSorted((a, b) => order.indexOf(a.state) - order.indexOf(b.state))
    .map(({ state, name, meaning, note, found, examples }: Judgement) => [
      html`<span class="${state}">${marks[state]}</span>`,
      html`<b>${name}</b>${kind === 'check' ? html`<br><span class="soft">${meaning}</span>` : ''}${bullets(examples)}`,
      note,
      found,
    ])
  return table(['', kind, '', 'found'], rows)
}

function tiles(result: RunResult): Content {
  const { timings, totals, seconds_log: log, figures } = result
  if (!hasBegun(result)) return ''
  const busiest = Math.max(
    0,
    ...log.flatMap((second) => second.servers.map((server) => serverValue(server, 'cpu_seconds'))),
  )
  const all = [
    ['Clients online', count(log.reduce((most, { online }) => Math.max(most, online), 0))],
    ['Round trip p99', timings.rtt?.count ? duration(timings.rtt.p99) : NONE],
    ['Messages', totalText(result, 'sends')],
    ['Updates', totalText(result, 'updates')],
    ['Failures', count(totals.errors)],
    ...(totals.retries > 0 ? [['Retries', count(totals.retries)]] : []),
    ...(busiest > 0 ? [['Busiest server', inUnit(busiest, '%')]] : []),
    ...figures.map((figure) => [figure.name, figureText(figure)]),
  ]
  return html`<section class="grid tiles">${all.map(([name, value]) => html`<div class="card"><span class="soft">${name}</span><strong>${value}</strong></div>`)}</section>`
}

function figureOf({ title, series, unit }: Chart, log: readonly Second[]): Content {
  const rows = log.map(({ at, phase }, i) => [
    clock(at),
    phase,
    ...series.map(({ values }) => (values[i] === null ? NONE : String(values[i]))),
  ])
  return html`<figure class="card"><figcaption><b>${title}</b></figcaption><div data-chart></div><details><summary>Values</summary>${table(['at', 'phase', ...series.map(({ name }) => `${name} ${unit}`)], rows)}</details></figure>`
}

const hash = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`

/** Style and script of the page, with uPlot in both. */
function assets(): { style: string; script: string } {
  const plot = dirname(createRequire(import.meta.url).resolve('uplot'))
  const read = (file: string): string => readFileSync(file, 'utf8')
  const own = (ending: string): string => read(join(import.meta.dirname, `page.${ending}`))
  return {
    style: `${read(join(plot, 'uPlot.min.css'))}\n${own('css')}`,
    script: `${read(join(plot, 'uPlot.iife.min.js'))}\n${own('js')}`,
  }
}

/** Returns JSON for a script element. No text in it can end the element. */
const jsonData = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c')

/**
 * Returns the report of a run as one HTML file. Its content security policy allows only its style and its script. Everything except the
 * charts is visible without the script.
 */
export function reportPage(result: RunResult): string {
  const { scenario, meaning, target, options, machine, incidents, failures, seconds_log: log } = result
  const { word, sentence, reasons } = outcomeOf(result)
  const charts = chartsOf(result)
  const { style, script } = assets()
  const policy = `default-src 'none'; style-src ${hash(style)}; script-src ${hash(script)}; base-uri 'none'; form-action 'none'`
  const phases = log.flatMap(({ phase }, i) =>
    phase === log[i - 1]?.phase ? [] : [{ name: phase, from: log[i - 1]?.at ?? 0 }],
  )
  const data = {
    at: log.map(({ at }) => at),
    phases: phases.map((each, i) => ({ ...each, to: phases[i + 1]?.from ?? log.at(-1)!.at })),
    incidents: incidents.map(({ at }) => at),
    charts,
  }
  const [timingTitles = [], ...times] = timingTable(result)
  const given = Object.entries(options).map(([name, value]) => [`--${name}`, value])
  const setup = Object.entries({ target, ...machine, ...Object.fromEntries(given) })
  const groups = [...new Set(charts.map(({ group }) => group))]
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${scenario} ${word} · roomful load test</title>
<style>${raw(style)}</style>
</head>
<body>
<header><p class="soft">roomful load test</p><h1>${scenario}</h1><p>${meaning}</p><p class="soft">${result.started_at.replace('T', ' ').slice(0, 16)} UTC · ${clock(result.seconds)} · ${target}</p></header>
<main>
<section class="card verdict ${word}"><h2>${word[0]!.toUpperCase()}${word.slice(1)}</h2><p>${sentence}</p>${bullets(reasons)}</section>
${result.bottleneck.length === 0 ? '' : html`<section class="card verdict interrupted"><h2>The load generator may have been the limit</h2>${bullets(result.bottleneck)}</section>`}
${tiles(result)}
${section(
  'Failures',
  table(
    ['code', 'first message', 'times'],
    failures.map(({ code, count: times, example }) => [code, example, count(times)]),
  ),
)}
${section('Checks', judgements(result, 'check'))}
${section('Limits', judgements(result, 'limit'))}
${section('Timings', table(timingTitles, times))}
${incidents.length === 0 ? '' : html`<section><h2>Events</h2><ol>${incidents.map(({ at, text }) => html`<li>${clock(at)} ${text}</li>`)}</ol></section>`}
${groups.map((name) =>
  section(
    name,
    name === 'Latency'
      ? html`<p class="soft">Logarithmic. Drag to zoom; a double click shows everything again.</p>`
      : '',
    html`<div class="grid">${charts.filter(({ group }) => group === name).map((chart) => figureOf(chart, log))}</div>`,
  ),
)}
${section(
  'Setup',
  table(
    ['', ''],
    setup.map(([name, value]) => [name, String(value)]),
  ),
)}
</main>
<footer><a href="report.json">report.json</a> and <a href="junit.xml">junit.xml</a> beside this file hold the same for machines.</footer>
<script type="application/json" id="data">${raw(jsonData(data))}</script>
<script>${raw(script)}</script>
</body>
</html>
`
  return String(page)
}
