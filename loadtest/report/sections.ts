import type { Check, RunResult, Second } from '../result.ts'
import { averageRate, lengthOf } from '../view/seconds.ts'
import { bytes, clock, count, digits, duration, inUnit, NONE, percent } from '../view/text.ts'
import { timed } from '../view/timings.ts'
import { type Cell, escaped, figure, table, text, unbroken } from './html.ts'
import { hasBegun, outcomeOf, plural } from './verdict.ts'

/** The parts of the page that are words and tables. */

/** A part of the page under a heading; one with no content is left out. */
export interface Part {
  readonly id: string
  readonly title: string
  readonly about: string
  readonly content: string
}

/** A part as HTML. */
export const partSection = ({ id, title, about, content }: Part): string =>
  `<section id="${id}" aria-labelledby="${id}-heading"><h2 id="${id}-heading">${escaped(title)}</h2><p class="about">${escaped(about)}</p>${content}</section>`

const MARKS = { passed: '✓', failed: '✗', interrupted: '‖' }
const HEADINGS = { passed: 'Passed', failed: 'Failed', interrupted: 'Interrupted' }

/** The first thing to read: what the run comes to, and why. */
export function verdictBand(result: RunResult): string {
  const { word, sentence, reasons } = outcomeOf(result)
  return `<section class="verdict ${word}" aria-label="Verdict">
<span class="mark" aria-hidden="true">${MARKS[word]}</span>
<div><h2>${HEADINGS[word]}</h2><p>${escaped(sentence)}</p>${howFar(result)}${bullets(reasons)}</div>
</section>${bottleneck(result)}`
}

function howFar({ interrupted, seconds, planned_seconds }: RunResult): string {
  if (!interrupted) return ''
  const share = seconds / Math.max(1, seconds, planned_seconds)
  return `<progress value="${share.toFixed(3)}" aria-label="How much of its time the run has had">${percent(share)}</progress>`
}

function bottleneck(result: RunResult): string {
  if (result.bottleneck.length === 0) return ''
  return `<section class="verdict warned" aria-label="Warning">
<span class="mark" aria-hidden="true">!</span>
<div><h2>The load generator may have been the limit</h2><p>What is slow below may be the generator, not the service. Give it more threads or a machine of its own.</p>${bullets(result.bottleneck)}</div>
</section>`
}

const bullets = (lines: readonly string[]): string =>
  lines.length === 0 ? '' : `<ul>${lines.map((line) => `<li>${unbroken(line)}</li>`).join('')}</ul>`

/** The figures most people come for. */
export function keyFigures(result: RunResult): string {
  const { timings, totals, seconds_log, figures } = result
  if (!hasBegun(result)) return ''
  const online = seconds_log.reduce((most, second) => Math.max(most, second.online), 0)
  const { rtt, connect } = timings
  const rate = (key: 'sends' | 'updates') => {
    const average = averageRate(result, key)
    return average === undefined ? 'none' : `${digits(average)}/s on average`
  }
  const cpu = highestCpu(seconds_log)
  const tiles = [
    tile('Clients', count(online), 'online at once'),
    rtt?.count
      ? tile('Round trip p99', duration(rtt.p99), `p50 ${duration(rtt.p50)} · max ${duration(rtt.max)}`)
      : '',
    connect?.count
      ? tile(
          'Connect p99',
          duration(connect.p99),
          `p50 ${duration(connect.p50)} · max ${duration(connect.max)}`,
        )
      : '',
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
    ...figures.map(({ name, value, unit }) => tile(name, inUnit(value, unit), 'of this scenario')),
  ].filter(Boolean)
  return `<section class="tiles by-${columns(tiles.length)}" aria-label="Key figures">${tiles.join('')}</section>`
}

/** As many tiles in a row that the last row is full, or nearly. */
function columns(tiles: number): number {
  const missing = (width: number) => (width - (tiles % width)) % width
  return [5, 4, 6, 3].reduce((best, width) => (missing(width) < missing(best) ? width : best))
}

/** Of any server in any second, as a share of a core. */
const highestCpu = (log: readonly Second[]): number =>
  log.reduce(
    (most, { servers: all }) =>
      all.reduce((value, server) => Math.max(value, server.cpu_seconds / server.seconds), most),
    0,
  )

const tile = (name: string, value: string, note: string, bad = false): string =>
  `<div class="card tile${bad ? ' bad' : ''}"><h3>${escaped(name)}</h3><strong>${escaped(value)}</strong><small>${unbroken(note)}</small></div>`

/** What was promised, and whether it was kept. */
export function checks({ checks: all, interrupted }: RunResult): Part {
  const rows = byWeight(all).map((check) => [
    { html: badge(check, interrupted) },
    { html: `<b>${escaped(check.name)}</b><p>${escaped(check.meaning)}</p>${examples(check)}` },
    { ...figure(check.violations === undefined ? NONE : count(check.violations)), of: 'violations' },
    { ...text(check.note), of: 'looked at' },
  ])
  return {
    id: 'checks',
    title: 'Checks',
    about: interrupted
      ? 'Promises of the service, as far as they were looked at until the run was interrupted.'
      : 'Promises of the service that were looked at while it was under load.',
    content: table([text(''), text('promise'), figure('violations'), text('looked at')], rows, 'Checks'),
  }
}

/** What was broken first, and what nothing is known of last. */
const byWeight = (all: readonly Check[]): Check[] => all.toSorted((a, b) => weight(a) - weight(b))

const weight = ({ violations }: Check): number => (violations === undefined ? 2 : violations === 0 ? 1 : 0)

function badge({ violations }: Check, interrupted: boolean): string {
  if (violations === undefined) return mark('unknown', '–', 'not checked')
  if (violations > 0) return mark('bad', '✗', 'broken')
  return interrupted ? mark('unknown', '✓', 'kept so far') : mark('good', '✓', 'kept')
}

const mark = (look: string, sign: string, word: string): string =>
  `<span class="badge ${look}"><span aria-hidden="true">${sign}</span> ${word}</span>`

const examples = ({ examples: all }: Check): string =>
  all.length === 0
    ? ''
    : `<details open><summary>${plural(all.length, 'example')}</summary><pre>${escaped(all.join('\n'))}</pre></details>`

/** The limits that were given. */
export function limits({ verdicts, interrupted }: RunResult): Part {
  const rows = verdicts.map(({ threshold, limit, actual, unit, held }): Cell[] => [
    { html: heldBadge(held, interrupted) },
    { html: `<code>${escaped(threshold)}</code>` },
    { ...figure(actual === undefined ? 'nothing measured' : inUnit(actual, unit)), of: 'was' },
    { ...figure(inUnit(limit, unit)), of: 'allowed' },
  ])
  return {
    id: 'limits',
    title: 'Limits',
    about: 'What was given on the command line.',
    content: table([text(''), text('limit'), figure('was'), figure('allowed')], rows, 'Limits'),
  }
}

function heldBadge(held: boolean | undefined, interrupted: boolean): string {
  if (held === undefined) return mark('unknown', '–', 'not reached')
  if (!held) return mark('bad', '✗', 'broken')
  return interrupted ? mark('unknown', '✓', 'held so far') : mark('good', '✓', 'held')
}

/** What failed, by kind. */
export function failures({ failures: all }: RunResult): Part {
  const rows = all.map(({ code, count: times, example }) => [
    { html: `<code>${escaped(code)}</code>` },
    { ...figure(count(times)), of: 'times' },
    { ...text(example), of: 'first message' },
  ])
  return {
    id: 'failures',
    title: 'Failures',
    about: 'Of each kind, the message of the first.',
    content: table([text('code'), figure('times'), text('first message')], rows, 'Failures'),
  }
}

/** How long everything took, over the whole run. */
export function timings({ timings: all }: RunResult): Part {
  const known = timed(all)
  const columns = ['mean', 'p50', 'p90', 'p95', 'p99', 'p999', 'max'] as const
  const rows = known.map(({ name, values }) => [
    text(name),
    figure(count(values.count)),
    ...columns.map((column) => figure(duration(values[column]))),
  ])
  const head = [
    text(''),
    figure('count'),
    ...columns.map((column) => figure(column === 'p999' ? 'p99.9' : column)),
  ]
  return {
    id: 'timings',
    title: 'Timings',
    about: 'Over the whole run, from when each thing was due.',
    content: table(head, rows, 'Timings'),
  }
}

/** What each server used. */
export function servers({ seconds_log }: RunResult): Part {
  const names = [...new Set(seconds_log.flatMap(({ servers: all }) => all.map(({ name }) => name)))]
  const rows = names.map((name) => {
    const all = seconds_log.flatMap((second, i) =>
      second.servers
        .filter((server) => server.name === name)
        .map((server) => ({ ...server, length: lengthOf(seconds_log, i) })),
    )
    const up = all.filter((server) => server.up)
    const most = (value: (server: (typeof up)[number]) => number) => Math.max(0, ...up.map(value))
    const sum = (of: typeof up, value: (server: (typeof up)[number]) => number) =>
      of.reduce((total, server) => total + value(server), 0)
    // What a kind of process does not tell of itself is 0 all the time.
    const told = (write: (value: number) => string, value: (server: (typeof up)[number]) => number) => {
      const highest = most(value)
      return figure(highest === 0 ? NONE : write(highest))
    }
    const length = (of: typeof up) => sum(of, (server) => server.length)
    const cpu = sum(up, (server) => server.cpu_seconds)
    return [
      text(name),
      figure(`${digits(cpu)} s`),
      figure(percent(cpu / Math.max(1, length(up)))),
      figure(percent(most((server) => server.cpu_seconds / server.seconds))),
      told(percent, (server) => server.event_loop_utilisation),
      told(duration, (server) => server.event_loop_delay_ms),
      figure(bytes(most((server) => server.rss_bytes))),
      figure(count(most((server) => server.sessions))),
      figure(count(most((server) => server.rooms))),
      figure(count(sum(up, (server) => server.resyncs))),
      figure(all.length === up.length ? NONE : `${Math.round(length(all) - length(up))} s`),
    ]
  })
  const head = [
    'CPU time',
    'CPU mean',
    'CPU peak',
    'loop peak',
    'loop delay',
    'memory',
    'sessions',
    'rooms',
    'resyncs',
    'down',
  ]
  return {
    id: 'servers',
    title: 'Servers',
    about: 'From the metrics of each process, once a second; 100% of CPU is one core.',
    content: table([text(''), ...head.map(figure)], rows, 'Servers'),
  }
}

/** What happened when: the numbers are those of the flags on the charts. */
export function incidents({ incidents: all }: RunResult): string {
  if (all.length === 0) return ''
  const items = all.map(({ at, text: what }) => `<li><time>${clock(at)}</time> ${escaped(what)}</li>`)
  return `<ol class="incidents" aria-label="What happened">${items.join('')}</ol>`
}

/** With what the run was made, so that it can be made again. */
export function circumstances(result: RunResult): Part {
  const { options, machine, target, started_at, seconds, planned_seconds, interrupted } = result
  const rows = Object.entries({
    target,
    'started at': started_at,
    duration: interrupted
      ? `${digits(seconds)} s of about ${digits(Math.max(seconds, planned_seconds))} s`
      : `${digits(seconds)} s`,
    roomful: machine.roomful,
    'node.js': machine.node,
    'cores of the generator': String(machine.cores),
  })
  const list = (entries: readonly (readonly [string, string])[]) =>
    `<dl>${entries.map(([name, value]) => `<div><dt>${escaped(name)}</dt><dd>${escaped(value)}</dd></div>`).join('')}</dl>`
  return {
    id: 'run',
    title: 'The run',
    about: 'Under what circumstances, and with which options.',
    content: `<div class="card pair">${list(rows)}${list(Object.entries(options).map(([name, value]) => [`--${name}`, value]))}</div>`,
  }
}
