import { type Fact, type Figure, type Findings, isMet } from './figure.ts'

/** Where and when figures were measured. */
export interface Circumstances {
  /** UTC, such as `2026-03-01 14:05`. */
  readonly date: string
  readonly cores: number
  readonly processor: string
  readonly node: string
  readonly redis: string
  /** Of the code. */
  readonly version: string
  /** Runs of each measurement. */
  readonly runs: number
  /** Whether nodes ran the compiled code. */
  readonly built: boolean
  /** Load average over the minutes before, per core: above some 0.3 somebody else was at work too. */
  readonly load_before: number
}

/** The page of the figures, in Markdown. */
export function figuresPage(findings: readonly Findings[], circumstances: Circumstances): string {
  const { date, cores, processor, node, redis, version, runs, built, load_before } = circumstances
  const parts = findings.map(({ title, method, facts, others }) =>
    [`## ${title}`, method, disturbance(others), factTable(facts)].filter(Boolean).join('\n\n'),
  )
  return `${[
    '# Figures',
    'What players see when processes end, and what a cluster costs. Written by `npm run figures`; do not edit, run it again.',
    `Measured ${date} UTC on one machine with ${cores} cores (${processor}), load ${load_before.toFixed(2)} per core before; Node ${node}, Redis ${redis}, roomful ${version}${built ? '' : ', not compiled'}. Real processes on loopback: one Redis (\`appendonly yes\`, \`appendfsync everysec\`), one control process, three nodes with the default configuration (lease 2 s), and the SDK's clients in the measuring process. All of them share the cores, so that a pause includes what they take from each other.`,
    `Pauses: a room (\`sync.rate\` 0) has two members at each node, who send a reliable op every 10 ms. A member's pause is the longest time between two effects of its own ops (acks) from the fault on, less its normal period. n counts members in all ${runs} runs. A percentile is a sample: the smallest that so many samples do not exceed.`,
    `To repeat it: \`npm run figures\`, or some of it: \`npm run figures -- --only ${findings[0]?.name ?? 'kill'} --runs 20\`. It needs a machine that does nothing else.`,
    '## All of them',
    figureTable(findings.flatMap(({ figures }) => figures)),
    ...parts,
  ].join('\n\n')}\n`
}

const disturbance = (others: number | undefined): string =>
  others === undefined ? '' : `Meanwhile other processes took ${Math.round(100 * others)} % of the machine.`

const figureTable = (figures: readonly Figure[]): string =>
  table(
    ['', 'unit', 'runs', 'n', 'p50', 'p95', 'p99', 'max', 'goal', ''],
    figures.map((figure) => {
      const { what, unit, runs, summary, goals = [] } = figure
      return [
        what,
        unit,
        String(runs),
        String(summary.n),
        ...[summary.p50, summary.p95, summary.p99, summary.max].map(short),
        goals.map(({ of, at_most }) => `${of} ≤ ${at_most}`).join(', '),
        verdict(isMet(figure)),
      ]
    }),
  )

const factTable = (facts: readonly Fact[]): string =>
  facts.length === 0
    ? ''
    : table(
        ['', '', 'goal', ''],
        facts.map(({ what, value, unit, at_most }) => [
          what,
          `${short(value)} ${unit}`.trim(),
          at_most === undefined ? '' : `≤ ${at_most}`,
          verdict(at_most === undefined ? undefined : value <= at_most),
        ]),
      )

const verdict = (met: boolean | undefined): string => (met === undefined ? '' : met ? 'met' : '**missed**')

const table = (columns: readonly string[], rows: readonly (readonly string[])[]): string =>
  [columns, columns.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')

/** Three digits that mean something. */
function short(value: number): string {
  const size = Math.abs(value)
  if (size >= 100) return Math.round(value).toLocaleString('en')
  return value.toFixed(Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2)
}
