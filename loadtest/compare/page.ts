import { html } from 'hono/html'
import { type Content, columns, type Part, standalonePage, table } from '../report/page.ts'
import { COLUMNS, type Column, type Comparison, cellsOf, type Row } from './report.ts'

/** The comparison as a page: of each scenario its bars and its table. */

/** What is drawn; the rest is in the tables. */
const DRAWN: readonly Column['name'][] = [
  'cost',
  'delivered',
  'p99',
  'joinsPerSecond',
  'clients',
  'rss',
  'held',
]
const ACCENT = '#2f5bd8'
/** Sizes in the drawing. */
const [WIDTH, BAR, GAP, NAME] = [420, 20, 8, 110] as const

/** `facts`: when and on what it was measured. */
export const comparisonPage = (comparisons: readonly Comparison[], facts: string): Promise<string> =>
  standalonePage(
    {
      title: 'roomful compared',
      colour: ACCENT,
      kind: 'roomful',
      heading: 'The same load, side by side',
      about:
        'Each server in a process of its own on one core, the load generator on another, measured in turn; medians. CPU is that of the server.',
      facts,
      lead: '',
      footer: html`<a href="results.json">results.json</a> beside this file has every run.`,
    },
    comparisons.map(partOf),
  )

function partOf(comparison: Comparison): Part {
  const { name, meaning, per } = comparison.scenario
  const [head = [], ...rows] = cellsOf(comparison)
  const drawn = COLUMNS.filter((column) => DRAWN.includes(column.name))
  return {
    id: name,
    title: name,
    about: `${meaning}; CPU per ${per}`,
    content: html`<div class="charts">${drawn.map((column) => bars(column, comparison.rows))}</div>${table(
      name,
      columns([''], head.slice(1)),
      rows,
    )}`,
  }
}

/** A bar for each row that has the figure. */
function bars({ name, title, text }: Column, all: readonly Row[]): Content {
  const rows = all.flatMap((row) =>
    row.figures[name] === undefined ? [] : [{ ...row, value: row.figures[name] }],
  )
  if (rows.length === 0) return ''
  const most = Math.max(...rows.map(({ value }) => value)) || 1
  const height = rows.length * (BAR + GAP)
  return html`<figure class="card"><figcaption><h4>${title}</h4></figcaption><svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${rows.map((row) => `${row.name} ${text(row.value)}`).join(', ')}" fill="currentColor" font-size="13">${rows.map(
    (row, i) => {
      const top = i * (BAR + GAP)
      const width = (Math.max(0, row.value) / most) * (WIDTH - NAME - 60)
      return html`<text x="0" y="${top + 15}">${row.name}</text><rect x="${NAME}" y="${top}" width="${width.toFixed(1)}" height="${BAR}" rx="3" fill="var(--c${i})"/><text x="${NAME + width + 6}" y="${top + 15}">${text(row.value)}</text>`
    },
  )}</svg></figure>`
}
