import { createHash } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { html, raw } from 'hono/html'
import { SERVER_COLUMNS, serverValue } from '../metrics.ts'
import {
  averageRate,
  lengthOf,
  type RunResult,
  type Second,
  STATISTICS,
  statisticTitle,
  timed,
} from '../result.ts'
import { clock, count, digits, duration, figureText, inUnit, NONE, percent } from '../text.ts'
import { type Chart, chartsOf } from './charts.ts'
import { hasBegun, type Judgement, judgementsOf, outcomeOf } from './outcome.ts'

type Html = ReturnType<typeof html>
export type Content = Html | string

const COLOURS = { passed: '#1a7f4b', failed: '#b3261e', interrupted: '#9a5b00' }
const HEADINGS = { passed: '✓ Passed', failed: '✗ Failed', interrupted: '‖ Interrupted' }
/** Most rows of the table behind a chart. */
const MOST_ROWS = 120

/** The style and the script of the page, each with what it needs of uPlot, which draws the charts: the page loads nothing. */
async function bundle(): Promise<{ style: string; script: string }> {
  const { outputFiles } = await build({
    entryPoints: ['report.css', 'report.ts'].map((name) =>
      fileURLToPath(new URL(`./page/${name}`, import.meta.url)),
    ),
    bundle: true,
    minify: true,
    write: false,
    outdir: 'page',
    format: 'iife',
    target: 'es2023',
    legalComments: 'none',
    logLevel: 'silent',
  })
  const [style = '', script = ''] = ['.css', '.js'].map(
    (ending) => outputFiles.find(({ path }) => path.endsWith(ending))?.text,
  )
  return { style, script }
}

/** What the script draws. */
export interface PageData {
  readonly at: readonly number[]
  readonly phases: readonly { readonly name: string; readonly from: number; readonly to: number }[]
  readonly incidents: readonly number[]
  readonly charts: readonly Pick<Chart, 'unit' | 'log' | 'series' | 'limits'>[]
}

const hash = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`

/** A value as JSON that may stand in a script element: nothing in it can end the element. */
const jsonData = (value: unknown): string =>
  JSON.stringify(value)
    .replaceAll('<', '\\u003c')
    .replaceAll('\u2028', '\\u2028')
    .replaceAll('\u2029', '\\u2029')

/** What a page says besides its parts. */
interface PageFrame {
  readonly title: string
  /** Of its icon. */
  readonly colour: string
  /** Above the heading: what kind of page it is. */
  readonly kind: string
  readonly heading: string
  readonly about: string
  readonly facts: string
  /** What comes before the parts. */
  readonly lead: Content
  readonly footer: Content
  /** What the script draws; undefined: it is left out. */
  readonly data?: PageData
}

/**
 * A page as one HTML file that asks for nothing else: style, script and figures are in it, and its content security policy lets it
 * run and load nothing but those. All but the lines of the charts is there without the script. Parts without content are left out.
 */
export async function standalonePage(frame: PageFrame, all: readonly Part[]): Promise<string> {
  const { title, colour, kind, heading, about, facts, lead, footer, data } = frame
  const parts = all.filter(({ content }) => content !== '')
  const { style, script } = await bundle()
  const policy = `default-src 'none'; style-src ${hash(style)}; script-src ${data ? hash(script) : "'none'"}; img-src data:; base-uri 'none'; form-action 'none'`
  const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><circle cx="4" cy="4" r="4" fill="${colour}"/></svg>`
  const page = await html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="data:image/svg+xml,${encodeURIComponent(icon)}">
<style>${raw(style)}</style>
</head>
<body>
<header>
<p class="soft">${kind}</p>
<h1>${heading}</h1>
<p class="about">${about}</p>
<p class="soft facts">${facts}</p>
</header>
<nav aria-label="Parts">${parts.map(({ id, title }) => html`<a href="#${id}">${title}</a>`)}</nav>
<main>
${lead}
${parts.map(
  ({ id, title, about, content }) =>
    html`<section id="${id}" aria-labelledby="${id}-heading"><h2 id="${id}-heading">${title}</h2><p class="about">${about}</p>${content}</section>`,
)}
</main>
<footer>${footer}</footer>
${data ? html`<script type="application/json" id="data">${raw(jsonData(data))}</script>\n<script>${raw(script)}</script>\n` : ''}</body>
</html>
`
  return String(page)
}

/** The report of a run. */
export function reportPage(result: RunResult): Promise<string> {
  const charts = chartsOf(result)
  const { word } = outcomeOf(result)
  return standalonePage(
    {
      title: `${result.scenario} ${word} · roomful load test`,
      colour: COLOURS[word],
      kind: 'roomful load test',
      heading: result.scenario,
      about: result.meaning,
      facts: `${result.started_at.replace('T', ' ').slice(0, 16)} UTC · ${length(result)} · ${result.target}`,
      lead: html`${verdict(result)}\n${keyFigures(result)}`,
      footer: html`<a href="report.json">report.json</a> and <a href="junit.xml">junit.xml</a> beside this file hold the same for machines.`,
      data: {
        at: result.seconds_log.map(({ at }) => at),
        phases: phasesOf(result.seconds_log),
        incidents: result.incidents.map(({ at }) => at),
        charts: charts.map(({ group: _group, title: _title, about: _about, ...drawn }) => drawn),
      },
    },
    [
      failures(result),
      judgements(result, 'check'),
      judgements(result, 'limit'),
      timings(result),
      overTime(result, charts),
      servers(result),
      circumstances(result),
    ],
  )
}

/** A part of the page under a heading; one with no content is left out. */
export interface Part {
  readonly id: string
  readonly title: string
  readonly about: string
  readonly content: Content
}

interface Column {
  readonly title: string
  /** Figures stand to the right. */
  readonly number?: boolean
}

/** Text columns, and those of figures behind them. */
export const columns = (texts: readonly string[], figures: readonly string[]): Column[] => [
  ...texts.map((title) => ({ title })),
  ...figures.map((title) => ({ title, number: true })),
]

/** A table that scrolls where it is too large; a `stacked` one puts cells below each other on a phone. Without rows it is empty. */
export function table(
  caption: string,
  head: readonly Column[],
  rows: readonly (readonly Content[])[],
  stacked = false,
): Content {
  if (rows.length === 0) return ''
  const cell = (content: Content, { title, number }: Column) =>
    html`<td class="${number ? 'number' : ''}"${stacked && title !== '' ? html` data-of="${title}"` : ''}>${content}</td>`
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${caption}"><table class="${stacked ? 'stacked' : ''}"><thead><tr>${head.map(({ title, number }) => html`<th scope="col" class="${number ? 'number' : ''}">${title}</th>`)}</tr></thead><tbody>${rows.map((row) => html`<tr>${row.map((content, i) => cell(content, head[i]!))}</tr>`)}</tbody></table></div>`
}

const bullets = (lines: readonly string[]): Content =>
  lines.length === 0 ? '' : html`<ul>${lines.map((line) => html`<li>${line}</li>`)}</ul>`

/** The first thing to read: what the run comes to, and why. */
function verdict(result: RunResult): Html {
  const { word, sentence, reasons } = outcomeOf(result)
  const { interrupted, seconds, planned_seconds: plannedSeconds, bottleneck } = result
  const share = seconds / Math.max(1, seconds, plannedSeconds)
  return html`<section class="verdict ${word}" aria-label="Verdict"><h2>${HEADINGS[word]}</h2><p>${sentence}</p>${
    interrupted
      ? html`<progress value="${share.toFixed(3)}" aria-label="How much of its time the run has had"></progress>`
      : ''
  }${bullets(reasons)}</section>${
    bottleneck.length === 0
      ? ''
      : html`<section class="verdict warned" aria-label="Warning"><h2>The load generator may have been the limit</h2><p>What is slow below may be the generator, not the service. Give it more threads or a machine of its own.</p>${bullets(bottleneck)}</section>`
  }`
}

/** The figures most people come for. */
function keyFigures(result: RunResult): Content {
  const { timings: all, totals, seconds_log: secondsLog, figures } = result
  if (!hasBegun(result)) return ''
  const tile = (name: string, value: string, note = '', bad = false) =>
    html`<div class="card tile${bad ? ' bad' : ''}"><h3>${name}</h3><strong>${value}</strong><small class="soft">${note}</small></div>`
  const rate = (key: 'sends' | 'updates') => {
    const average = averageRate(result, key)
    return average === undefined ? 'none' : `${digits(average)}/s on average`
  }
  const time = (name: string, values: RunResult['timings']['rtt']) =>
    values?.count
      ? tile(`${name} p99`, duration(values.p99), `p50 ${duration(values.p50)} · max ${duration(values.max)}`)
      : ''
  const online = secondsLog.reduce((most, second) => Math.max(most, second.online), 0)
  const cpu = secondsLog
    .flatMap((second) => second.servers)
    .reduce((most, server) => Math.max(most, server.cpu_seconds / server.seconds), 0)
  const played = totals.connects > 0 || totals.errors > 0
  return html`<section class="tiles" aria-label="Key figures">${
    played
      ? [
          tile('Clients', count(online), 'online at once'),
          time('Round trip', all.rtt),
          time('Connect', all.connect),
          tile('Messages', count(totals.sends), rate('sends')),
          tile('Updates', count(totals.updates), rate('updates')),
          tile(
            'Failures',
            count(totals.errors),
            totals.errors === 0 ? 'of any kind' : 'see below',
            totals.errors > 0,
          ),
          totals.retries > 0 ? tile('Retries', count(totals.retries), 'attempts to connect again') : '',
          cpu > 0 ? tile('Busiest server', percent(cpu), 'of a core, in its worst second') : '',
        ]
      : ''
  }${figures.map((figure) => {
    const text = figureText(figure)
    const value = inUnit(figure.value, figure.unit)
    return tile(figure.name, value, text === value ? 'of this scenario' : text.slice(value.length))
  })}</section>`
}

const JUDGED = {
  check: {
    id: 'checks',
    title: 'Checks',
    about: 'Promises of the service that were looked at while it was under load.',
    names: { kept: '✓ kept', broken: '✗ broken', open: '– not checked' },
  },
  limit: {
    id: 'limits',
    title: 'Limits',
    about: 'What was given on the command line.',
    names: { kept: '✓ held', broken: '✗ broken', open: '– not reached' },
  },
} as const

/** What was promised or limited, and whether that was kept; what was broken first, and what nothing is known of last. */
function judgements(result: RunResult, kind: 'check' | 'limit'): Part {
  const { names, ...part } = JUDGED[kind]
  const order = ['broken', 'kept', 'open']
  const badge = (state: Judgement['state']): Html => {
    const look = { kept: result.interrupted ? '' : 'good', broken: 'bad', open: '' }[state]
    const so = state === 'kept' && result.interrupted ? ' so far' : ''
    return html`<span class="badge ${look}">${names[state]}${so}</span>`
  }
  const rows = judgementsOf(result)
    .filter((each) => each.kind === kind)
    .toSorted((a, b) => order.indexOf(a.state) - order.indexOf(b.state))
    .map(({ state, name, meaning, note, found, examples }) => [
      badge(state),
      html`<b>${name}</b>${kind === 'check' ? html`<p>${meaning}</p>` : ''}${examples.length === 0 ? '' : html`<pre>${examples.join('\n')}</pre>`}`,
      note,
      found,
    ])
  return { ...part, content: table(part.title, columns(['', kind, ''], ['found']), rows, true) }
}

/** What failed, by kind. */
function failures({ failures: all }: RunResult): Part {
  const rows = all.map(({ code, count: times, example }) => [code, example, count(times)])
  return {
    id: 'failures',
    title: 'Failures',
    about: 'Of each kind, the message of the first.',
    content: table('Failures', columns(['code', 'first message'], ['times']), rows, true),
  }
}

/** How long everything took, over the whole run. */
function timings({ timings: all }: RunResult): Part {
  const rows = timed(all).map(({ name, values }) => [
    name,
    count(values.count),
    ...STATISTICS.map((statistic) => duration(values[statistic])),
  ])
  return {
    id: 'timings',
    title: 'Timings',
    about: 'Over the whole run, from when each thing was due.',
    content: table('Timings', columns([''], ['count', ...STATISTICS.map(statisticTitle)]), rows),
  }
}

/** What each server used. */
function servers({ seconds_log: log }: RunResult): Part {
  const names = [...new Set(log.flatMap((second) => second.servers.map(({ name }) => name)))]
  const rows = names.map((name) => {
    const all = log.flatMap((second, i) =>
      second.servers
        .filter((server) => server.name === name)
        .map((server) => ({ ...server, length: lengthOf(log, i) })),
    )
    const up = all.filter((server) => server.up)
    const sum = (of: 'cpu_seconds' | 'resyncs' | 'length', from = up): number =>
      from.reduce((total, server) => total + server[of], 0)
    const down = sum('length', all) - sum('length')
    // What a kind of process does not report is 0 all the time.
    const peaks = SERVER_COLUMNS.map(({ name: figure, unit }) => {
      const peak = Math.max(0, ...up.map((server) => serverValue(server, figure)))
      return peak === 0 ? NONE : inUnit(peak, unit)
    })
    return [
      name,
      `${digits(sum('cpu_seconds'))} s`,
      percent(sum('cpu_seconds') / Math.max(1, sum('length'))),
      ...peaks,
      count(sum('resyncs')),
      down > 0 ? `${Math.round(down)} s` : NONE,
    ]
  })
  const peaks = SERVER_COLUMNS.map(({ column }) => `${column} peak`)
  return {
    id: 'servers',
    title: 'Servers',
    about: 'From the metrics of each process, once a second; 100% of CPU is one core.',
    content: table('Servers', columns([''], ['CPU time', 'CPU mean', ...peaks, 'resyncs', 'down']), rows),
  }
}

/** The charts, and what happened when. */
function overTime(result: RunResult, charts: readonly Chart[]): Part {
  const { incidents, seconds_log: log } = result
  const groups = [...new Set(charts.map(({ group }) => group))]
  const figure = (chart: Chart) =>
    html`<figure class="card"><figcaption><h4>${chart.title}</h4><p class="about">${chart.about}</p></figcaption><div data-plot tabindex="0" role="group" aria-label="${chart.title}; arrow keys move through time"></div><details><summary>Values</summary>${values(chart, log)}</details></figure>`
  return {
    id: 'timeline',
    title: 'Over time',
    about:
      log.length === 0
        ? 'The run ended before its first second: there is nothing to draw.'
        : 'Second by second. Shaded: the phases of the run; upright lines: what happened. Drag over a part to see more of it; a name in the legend switches its line.',
    content: html`${
      incidents.length === 0
        ? ''
        : html`<ol class="incidents" aria-label="What happened">${incidents.map(({ at, text }) => html`<li>${clock(at)} ${text}</li>`)}</ol>`
    }${groups.map((name) => {
      const all = charts.filter(({ group }) => group === name)
      return html`<h3 class="group">${name}</h3><div class="charts">${all.map(figure)}</div>`
    })}`,
  }
}

/** The values of a chart as a table: of as many seconds a row as are needed for it to stay readable, lowest and highest. */
function values({ title, series }: Chart, log: readonly Second[]): Content {
  const size = Math.max(1, Math.ceil(log.length / MOST_ROWS))
  const cell = (all: readonly (number | null)[]): string => {
    const known = all.filter((value) => value !== null)
    if (known.length === 0) return NONE
    const [low, high] = [Math.min(...known), Math.max(...known)].map(String)
    return low === high ? high! : `${low} – ${high}`
  }
  const rows = log.flatMap((second, i) =>
    i % size > 0
      ? []
      : [[clock(second.at), second.phase, ...series.map((each) => cell(each.values.slice(i, i + size)))]],
  )
  return table(
    title,
    columns(
      ['at', 'phase'],
      series.map(({ name }) => name),
    ),
    rows,
  )
}

/** From where to where each phase was, in seconds. */
function phasesOf(log: readonly Second[]): { name: string; from: number; to: number }[] {
  const starts = log.flatMap(({ phase }, i) =>
    phase === log[i - 1]?.phase ? [] : [{ name: phase, from: log[i - 1]?.at ?? 0 }],
  )
  return starts.map((start, i) => ({ ...start, to: starts[i + 1]?.from ?? log.at(-1)!.at }))
}

/** With what the run was made, so that it can be made again. */
function circumstances(result: RunResult): Part {
  const {
    options,
    machine,
    target,
    started_at: startedAt,
    seconds,
    planned_seconds: plannedSeconds,
    interrupted,
  } = result
  const about = interrupted ? ` of about ${digits(Math.max(seconds, plannedSeconds))} s` : ''
  const rows = {
    target,
    'started at': startedAt,
    duration: `${digits(seconds)} s${about}`,
    roomful: machine.roomful,
    'node.js': machine.node,
    'cores of the generator': String(machine.cores),
  }
  const list = (entries: readonly (readonly [string, string])[]) =>
    html`<dl>${entries.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`
  return {
    id: 'run',
    title: 'The run',
    about: 'Under what circumstances, and with which options.',
    content: html`<div class="card pair">${list(Object.entries(rows))}${list(Object.entries(options).map(([name, value]) => [`--${name}`, value]))}</div>`,
  }
}

/** `0:31 min`, or how much of it an interrupted run has done. */
function length({ seconds, planned_seconds: plannedSeconds, interrupted }: RunResult): string {
  const longest = interrupted ? Math.max(seconds, plannedSeconds) : seconds
  const told = interrupted ? `${clock(seconds)} of ${clock(longest)}` : clock(seconds)
  return `${told} ${longest < 3600 ? 'min' : 'h'}`
}
