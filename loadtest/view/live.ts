import { availableParallelism } from 'node:os'
import { stripVTControlCharacters } from 'node:util'
import { bottleneckOf } from '../bottleneck.ts'
import { SERVER_COLUMNS, serverValue } from '../metrics.ts'
import { type Counts, lengthAfter, type Second, TIMINGS, timed } from '../result.ts'
import { alignedRows, bytes, clock, compact, count, duration, inUnit, oneLine, percent } from '../text.ts'

/** What the view writes to: `process.stdout`, or anything like it. */
interface Screen {
  write(text: string): unknown
  /** Whether lines can be written over. */
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
}

const PLAIN_EVERY_SECONDS = 5
const TREND_SECONDS = 60
const ESC = '\x1b['
const STYLES = {
  soft: '2',
  strong: '1',
  accent: '36',
  good: '32',
  warn: '33',
  bad: '1;31',
} as const

/** Text in a style, or as it is where there are no colours. */
type Paint = (style: keyof typeof STYLES | 'plain', text: string) => string

/**
 * A run as it goes, in the terminal: a block of lines that is written over each second, with what happened above it. Where lines cannot
 * be written over it writes one plain line every five seconds instead. Colours unless `NO_COLOR` is set.
 */
export class LiveView {
  readonly #screen: Screen
  readonly #cores: number
  readonly #paint: Paint
  #phase = { name: '', seconds: 0, runSeconds: 0 }
  #trend: number[] = []
  #gathered: { readonly second: Second; readonly length: number }[] = []
  #now: Now | undefined
  /** Lines of the block as it stands on the screen. */
  #height = 0

  constructor(
    screen: Screen,
    env: Readonly<Record<string, string | undefined>> = {},
    cores = availableParallelism(),
  ) {
    this.#screen = screen
    this.#cores = cores
    const colours = Boolean(screen.isTTY) && !env.NO_COLOR && env.TERM !== 'dumb'
    this.#paint = (style, text) =>
      colours && style !== 'plain' && text !== '' ? `${ESC}${STYLES[style]}m${text}${ESC}0m` : text
  }

  /** A phase begins that should take `seconds`; the whole run should take `runSeconds`. */
  phase(name: string, seconds: number, runSeconds: number): void {
    this.#flush()
    this.#phase = { name, seconds, runSeconds }
    if (!this.#screen.isTTY)
      this.#screen.write(`${this.#at} phase ${oneLine(name)}, about ${clock(seconds)}\n`)
  }

  /** A second has passed; `progress`: how much of the phase is done, 0–1. */
  update(second: Second, progress: number): void {
    this.#trend = [...this.#trend, second.timings.rtt?.p99 ?? 0].slice(-TREND_SECONDS)
    this.#now = {
      second,
      length: lengthAfter(second, this.#now?.second),
      phase: this.#phase,
      progress: Math.min(1, Math.max(0, progress)),
      trend: this.#trend,
      timings: { ...this.#now?.timings, ...second.timings },
    }
    if (this.#screen.isTTY) {
      this.#draw()
      return
    }
    this.#gathered.push(this.#now)
    if (this.#gathered.length >= PLAIN_EVERY_SECONDS) this.#flush()
  }

  /** Something happened that is worth a line of its own. */
  incident(text: string): void {
    const line = `${this.#paint('soft', `${this.#at.padStart(6)}  `)}${this.#paint('accent', oneLine(text))}`
    if (this.#screen.isTTY) this.#draw([line])
    else this.#screen.write(`${this.#at} ${oneLine(text)}\n`)
  }

  /** Leaves the block as it is, with the cursor below. Nothing may be shown afterwards. */
  close(): void {
    this.#flush()
    if (this.#height > 0) this.#screen.write(`${ESC}?7h${ESC}?25h\n`)
    this.#height = 0
  }

  /** A terminal that no one has given a size says that it has none. */
  get #columns(): number {
    return this.#screen.columns || 80
  }

  get #rows(): number {
    return this.#screen.rows || 50
  }

  get #at(): string {
    return clock(this.#now?.second.at ?? 0)
  }

  #flush(): void {
    if (this.#gathered.length === 0) return
    this.#screen.write(`${plainLine(this.#gathered, this.#cores)}\n`)
    this.#gathered = []
  }

  /** Writes the block over itself in one piece, so that nothing flickers, and cut off where the screen ends; `above` stays above it for good. */
  #draw(above: readonly string[] = []): void {
    const lines =
      this.#now === undefined
        ? []
        : block(this.#now, this.#columns, this.#cores, this.#paint).slice(0, Math.max(1, this.#rows - 2))
    const start = this.#height > 1 ? `\r${ESC}${this.#height - 1}A` : '\r'
    const body = [...above, ...lines].map((line) => `${line}${ESC}K`).join('\n')
    const end = lines.length === 0 ? '\n' : ''
    this.#screen.write(`${ESC}?2026h${ESC}?25l${ESC}?7l${start}${body}${end}${ESC}J${ESC}?2026l`)
    this.#height = lines.length
  }
}

/** What there is to show. */
interface Now {
  readonly second: Second
  /** How long it really was, in seconds. */
  readonly length: number
  readonly phase: { readonly name: string; readonly seconds: number; readonly runSeconds: number }
  /** How much of the phase is done, 0–1. */
  readonly progress: number
  /** The 99th percentile of rtt in each of the last seconds; 0: nothing was timed. */
  readonly trend: readonly number[]
  /** The latest values of every timing, of this second or an earlier one. */
  readonly timings: Second['timings']
}

const RATES: readonly (readonly [keyof Counts, string])[] = [
  ['sends', 'sent'],
  ['acks', 'acked'],
  ['updates', 'updates'],
  ['events', 'events'],
  ['connects', 'connects'],
  ['joins', 'joins'],
  ['leaves', 'leaves'],
  ['resumes', 'resumes'],
  ['retries', 'retries'],
]
const LADDER = '▁▂▃▄▅▆▇█'
const NAME_WIDTH = 10
/** Percent of a core or an event loop. */
const BUSY = 85

/** The block of lines for a terminal of so many columns. */
function block(now: Now, columns: number, cores: number, paint: Paint): string[] {
  const { second, phase, progress } = now
  const run = phase.runSeconds > 0 ? Math.min(1, second.at / phase.runSeconds) : progress
  const warning = bottleneckOf(second, now.length, cores)
  const bar = (name: string, share: number, note: string): string => {
    const width = Math.max(10, Math.min(48, columns - NAME_WIDTH - note.length - 10))
    const full = Math.round(share * width)
    const label = paint('strong', name.slice(0, NAME_WIDTH - 1).padEnd(NAME_WIDTH))
    const line = `${paint('accent', '━'.repeat(full))}${paint('soft', '─'.repeat(width - full))}`
    return `${label}${line} ${percent(share).padStart(4)}${paint('soft', `  ${note}`)}`
  }
  return [
    '',
    bar('run', run, `${clock(second.at)} of ${clock(phase.runSeconds)}`),
    bar(phase.name || '…', progress, clock(phase.seconds * progress)),
    '',
    ...wrapped(rates(now, paint), columns),
    ...timings(now, columns, paint),
    ...servers(second, paint),
    ...(warning === undefined ? [] : [paint('warn', `${'generator'.padEnd(NAME_WIDTH)}${warning}`)]),
  ]
}

/** One line on the seconds since the last one: rates are means, times the worst of them. */
function plainLine(gathered: readonly Pick<Now, 'second' | 'length'>[], cores: number): string {
  const seconds = gathered.map(({ second }) => second)
  const total = gathered.reduce((sum, { length }) => sum + length, 0)
  const last = seconds.at(-1)!
  const rate = (of: keyof Counts) => seconds.reduce((sum, { counts }) => sum + counts[of], 0) / total
  const shown = RATES.filter(([key]) => rate(key) > 0).map(([key, word]) => `${count(rate(key))} ${word}/s`)
  const times = TIMINGS.flatMap(({ name: timing }) => {
    const all = seconds.flatMap((second) => second.timings[timing] ?? []).filter((values) => values.count > 0)
    const worst = (of: 'p50' | 'p99') => duration(Math.max(...all.map((values) => values[of])))
    return all.length === 0 ? [] : [`${timing} p50 ${worst('p50')} p99 ${worst('p99')}`]
  })
  const cpu = last.servers.map(({ cpu_seconds: cpuSeconds, seconds }) => cpuSeconds / seconds)
  const busiest = Math.max(0, ...cpu)
  const errors = seconds.reduce((sum, { counts }) => sum + counts.errors, 0)
  const warning = gathered.map(({ second, length }) => bottleneckOf(second, length, cores)).findLast(Boolean)
  const parts = [
    `${clock(last.at)} ${last.phase}: ${count(last.online)} online`,
    ...shown,
    ...times,
    ...(last.servers.length > 0 ? [`busiest server ${percent(busiest)}`] : []),
    `${count(errors)} errors`,
    ...(warning === undefined ? [] : [`generator: ${warning}`]),
  ]
  return parts.join(', ')
}

function rates({ second, length }: Now, paint: Paint): string[] {
  const { online, counts } = second
  const shown = RATES.filter(([key], i) => i < 3 || counts[key] > 0)
  return [
    `${paint('soft', 'online ')}${paint('strong', count(online))}`,
    ...shown.map(([key, word]) => `${paint('soft', `${word} `)}${compact(counts[key] / length)}/s`),
    `${paint('soft', 'in ')}${bytes(counts.bytes_in / length)}/s`,
    `${paint('soft', 'out ')}${bytes(counts.bytes_out / length)}/s`,
    `${paint('soft', 'errors ')}${paint(counts.errors > 0 ? 'bad' : 'good', `${compact(counts.errors)}/s`)}`,
  ]
}

/** Cells one after the other, as many in a line as fit. */
function wrapped(cells: readonly string[], columns: number): string[] {
  const lines: string[] = []
  for (const cell of cells) {
    const longer = `${lines.at(-1)}   ${cell}`
    if (lines.length > 0 && stripVTControlCharacters(longer).length < columns)
      lines[lines.length - 1] = longer
    else lines.push(cell)
  }
  return lines
}

function timings({ second, timings: latest, trend }: Now, columns: number, paint: Paint): string[] {
  const rows = timed(latest)
  if (rows.length === 0) return []
  const shown = ['p50', 'p95', 'p99', 'max'] as const
  const [head = '', ...lines] = alignedRows([
    [''.padEnd(NAME_WIDTH), ...shown.map((statistic) => statistic.padStart(8))],
    ...rows.map(({ name, values }) => [name, ...shown.map((statistic) => duration(values[statistic]))]),
  ])
  const room = columns - head.length - 4
  const painted = rows.map(({ name }, i) => {
    // What did not happen in this second is what was last known.
    const line = paint(second.timings[name]?.count ? 'plain' : 'soft', lines[i]!)
    return name === 'rtt' && room >= 8
      ? `${line}${paint('accent', `  ${sparkline(trend.slice(-room))}`)}`
      : line
  })
  return ['', paint('soft', head), ...painted]
}

/** Values as a row of bars, from 0 to the highest; a space where there is no value. */
export function sparkline(values: readonly number[]): string {
  const most = Math.max(...values)
  return values
    .map((value) => (value <= 0 ? ' ' : LADDER[Math.min(7, Math.floor((value / most) * 8))]!))
    .join('')
}

function servers({ servers: all }: Second, paint: Paint): string[] {
  if (all.length === 0) return []
  const [head = '', ...lines] = alignedRows([
    [''.padEnd(NAME_WIDTH), ...SERVER_COLUMNS.map(({ column }) => column.padStart(7))],
    ...all.map((server) => [
      server.name,
      ...SERVER_COLUMNS.map(({ name, unit }) => inUnit(serverValue(server, name), unit)),
    ]),
  ])
  const painted = all.map((server, i) => {
    if (!server.up) return `${server.name.padEnd(NAME_WIDTH)}${paint('bad', '   does not answer')}`
    const busiest = Math.max(
      serverValue(server, 'cpu_seconds'),
      serverValue(server, 'event_loop_utilisation'),
    )
    return paint(busiest > BUSY ? 'warn' : 'plain', lines[i]!)
  })
  return ['', paint('soft', head), ...painted]
}
