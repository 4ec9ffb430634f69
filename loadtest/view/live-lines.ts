import { STRAIN, wasMeasured } from '../bottleneck.ts'
import type { Counts, Second } from '../result.ts'
import { bytes, clock, compact, count, duration, percent } from './text.ts'
import { TIMINGS, timed } from './timings.ts'

/** The lines of the live view. */

export type Style = 'plain' | 'soft' | 'strong' | 'accent' | 'good' | 'warn' | 'bad'

/** Pieces of text, each with its style. */
export type Line = readonly (readonly [Style, string])[]

/** What there is to show. */
export interface Now {
  readonly second: Second
  /** How long it really was, in seconds. */
  readonly length: number
  readonly phase: { readonly name: string; readonly seconds: number; readonly run_seconds: number }
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
const BUSY = 0.85

/** The block of lines for a terminal of so many columns. */
export function block(now: Now, columns: number): Line[] {
  const { second, phase, progress } = now
  const run = phase.run_seconds > 0 ? Math.min(1, second.at / phase.run_seconds) : progress
  const warning = generatorWarning(second)
  return [
    [],
    bar('run', run, `${clock(second.at)} of ${clock(phase.run_seconds)}`, columns),
    bar(phase.name || '…', progress, clock(phase.seconds * progress), columns),
    [],
    ...wrapped(rates(now), columns),
    ...timings(now, columns),
    ...servers(now),
    ...(warning === undefined
      ? []
      : [[['warn', `${'generator'.padEnd(NAME_WIDTH)}${warning}`] as const] satisfies Line]),
  ]
}

/** One line on the seconds since the last one: rates are means, times the worst of them. */
export function plainLine(gathered: readonly Pick<Now, 'second' | 'length'>[]): string {
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
  const cpu = last.servers.map(({ cpu_seconds, seconds }) => cpu_seconds / seconds)
  const busiest = Math.max(0, ...cpu)
  const errors = seconds.reduce((sum, { counts }) => sum + counts.errors, 0)
  const warning = seconds.map(generatorWarning).findLast(Boolean)
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

/** Why the generator itself may be what was measured in a second; undefined: it kept up. */
export function generatorWarning(second: Second): string | undefined {
  if (!wasMeasured(second)) return undefined
  const { event_loop_utilisation, event_loop_delay_ms, late_ms } = second.generator
  if (late_ms > STRAIN.late_ms) return `is late: messages left up to ${duration(late_ms)} after they were due`
  if (event_loop_utilisation > STRAIN.utilisation)
    return `is busy: a thread works ${percent(event_loop_utilisation)} of the time`
  if (event_loop_delay_ms > STRAIN.delay_ms)
    return `stutters: its event loop waits ${duration(event_loop_delay_ms)}`
  return undefined
}

function bar(name: string, share: number, note: string, columns: number): Line {
  const width = Math.max(10, Math.min(48, columns - NAME_WIDTH - note.length - 10))
  const full = Math.round(share * width)
  return [
    ['strong', `${name.slice(0, NAME_WIDTH - 1).padEnd(NAME_WIDTH)}`],
    ['accent', '━'.repeat(full)],
    ['soft', '─'.repeat(width - full)],
    ['plain', ` ${percent(share).padStart(4)}`],
    ['soft', `  ${note}`],
  ]
}

function rates({ second, length }: Now): Line[] {
  const { online, counts } = second
  const shown = RATES.filter(([key], i) => i < 3 || counts[key] > 0)
  return [
    [
      ['soft', 'online '],
      ['strong', count(online)],
    ],
    ...shown.map(
      ([key, word]): Line => [
        ['soft', `${word} `],
        ['plain', `${compact(counts[key] / length)}/s`],
      ],
    ),
    [
      ['soft', 'in '],
      ['plain', `${bytes(counts.bytes_in / length)}/s`],
    ],
    [
      ['soft', 'out '],
      ['plain', `${bytes(counts.bytes_out / length)}/s`],
    ],
    [
      ['soft', 'errors '],
      [counts.errors > 0 ? 'bad' : 'good', `${compact(counts.errors)}/s`],
    ],
  ]
}

/** Cells one after the other, as many in a line as fit. */
function wrapped(cells: readonly Line[], columns: number): Line[] {
  const lines: [Style, string][][] = [[]]
  let used = 0
  for (const cell of cells) {
    const width = cell.reduce((sum, [, text]) => sum + text.length, 0)
    if (used > 0 && used + width + 3 > columns - 1) {
      lines.push([])
      used = 0
    }
    if (used > 0) lines.at(-1)!.push(['plain', '   '])
    lines.at(-1)!.push(...(cell as [Style, string][]))
    used += width + (used > 0 ? 3 : 0)
  }
  return lines
}

function timings({ second, timings: latest, trend }: Now, columns: number): Line[] {
  const rows = timed(latest)
  if (rows.length === 0) return []
  const head = `${''.padEnd(NAME_WIDTH)}${['p50', 'p95', 'p99', 'max'].map((name) => name.padStart(10)).join('')}`
  const room = columns - head.length - 4
  return [
    [],
    [['soft', head]],
    ...rows.map(({ name: timing, values: { p50, p95, p99, max } }): Line => {
      const cells = [p50, p95, p99, max].map((value) => duration(value).padStart(10)).join('')
      // What did not happen in this second is what was last known.
      const style = second.timings[timing]?.count ? 'plain' : 'soft'
      const line: Line = [
        ['strong', timing.padEnd(NAME_WIDTH)],
        [style, cells],
      ]
      return timing === 'rtt' && room >= 8
        ? [...line, ['accent', `  ${sparkline(trend.slice(-room))}`]]
        : line
    }),
  ]
}

/** Values as a row of bars, from 0 to the highest; a space where there is no value. */
export function sparkline(values: readonly number[]): string {
  const most = Math.max(...values)
  return values
    .map((value) => (value <= 0 ? ' ' : LADDER[Math.min(7, Math.floor((value / most) * 8))]!))
    .join('')
}

function servers({ second: { servers: all } }: Now): Line[] {
  if (all.length === 0) return []
  const width = Math.max(NAME_WIDTH, ...all.map(({ name }) => name.length + 2))
  return [
    [],
    [
      [
        'soft',
        `${''.padEnd(width)}${['CPU', 'loop', 'delay', 'memory', 'sessions', 'rooms'].map((name) => name.padStart(9)).join('')}`,
      ],
    ],
    ...all.map((server): Line => {
      const name: readonly [Style, string] = ['strong', server.name.padEnd(width)]
      if (!server.up) return [name, ['bad', '   does not answer']]
      const { event_loop_utilisation, event_loop_delay_ms, rss_bytes, sessions, rooms } = server
      const cpu = server.cpu_seconds / server.seconds
      return [
        name,
        [cpu > BUSY ? 'warn' : 'plain', percent(cpu).padStart(9)],
        [event_loop_utilisation > BUSY ? 'warn' : 'plain', percent(event_loop_utilisation).padStart(9)],
        [
          'plain',
          [duration(event_loop_delay_ms), bytes(rss_bytes), count(sessions), count(rooms)]
            .map((cell) => cell.padStart(9))
            .join(''),
        ],
      ]
    }),
  ]
}
