import type { Second } from '../result.ts'
import { block, type Line, type Now, plainLine, type Style } from './live-lines.ts'
import { lengthAfter } from './seconds.ts'
import { clock, oneLine } from './text.ts'

/** What the view writes to: `process.stdout`, or anything like it. */
export interface Screen {
  write(text: string): unknown
  /** Whether lines can be written over. */
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
}

const PLAIN_EVERY_SECONDS = 5
const TREND_SECONDS = 60
const ESC = '\x1b['
const COLOURS: Readonly<Record<Style, string>> = {
  plain: '',
  soft: '2',
  strong: '1',
  accent: '36',
  good: '32',
  warn: '33',
  bad: '1;31',
}

/**
 * A run as it goes, in the terminal: a block of lines that is written over each second, with what happened above it. Where lines cannot
 * be written over it writes one plain line every five seconds instead. Colours unless `NO_COLOR` is set.
 */
export class LiveView {
  readonly #screen: Screen
  readonly #colours: boolean
  #phase = { name: '', seconds: 0, run_seconds: 0 }
  #trend: number[] = []
  #gathered: { readonly second: Second; readonly length: number }[] = []
  #now: Now | undefined
  /** Lines of the block as it stands on the screen. */
  #height = 0

  constructor(screen: Screen, env: Readonly<Record<string, string | undefined>> = {}) {
    this.#screen = screen
    this.#colours = Boolean(screen.isTTY) && !env.NO_COLOR && env.TERM !== 'dumb'
  }

  /** A phase begins that should take `seconds`; the whole run should take `run_seconds`. */
  phase(name: string, seconds: number, run_seconds: number): void {
    this.#flush()
    this.#phase = { name, seconds, run_seconds }
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
    const line: Line = [
      ['soft', `${this.#at.padStart(6)}  `],
      ['accent', oneLine(text)],
    ]
    if (this.#screen.isTTY) this.#draw(this.#painted(line))
    else this.#screen.write(`${this.#at} ${oneLine(text)}\n`)
  }

  /** Leaves the block as it is, with the cursor below. Nothing may be shown afterwards. */
  close(): void {
    this.#flush()
    if (this.#height > 0) this.#screen.write(`${ESC}?25h\n`)
    this.#height = 0
  }

  /** A terminal that nobody has given a size says that it has none. */
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
    this.#screen.write(`${plainLine(this.#gathered)}\n`)
    this.#gathered = []
  }

  /** Writes the block over itself in one piece, so that nothing flickers; `above` stays above it for good. */
  #draw(above?: string): void {
    const lines =
      this.#now === undefined ? [] : block(this.#now, this.#columns).slice(0, Math.max(1, this.#rows - 2))
    const start = this.#height > 1 ? `\r${ESC}${this.#height - 1}A` : '\r'
    const written = [...(above === undefined ? [] : [above]), ...lines.map((line) => this.#painted(line))]
    const body = written.map((line) => `${line}${ESC}K`).join('\n')
    const end = lines.length === 0 ? '\n' : ''
    this.#screen.write(`${ESC}?2026h${ESC}?25l${start}${body}${end}${ESC}J${ESC}?2026l`)
    this.#height = lines.length
  }

  /** A line in colour, no wider than the screen. */
  #painted(line: Line): string {
    let room = this.#columns - 1
    let text = ''
    for (const [style, part] of line) {
      const shown = [...part].slice(0, room).join('')
      room -= [...shown].length
      const code = COLOURS[style]
      text += this.#colours && code !== '' && shown !== '' ? `${ESC}${code}m${shown}${ESC}0m` : shown
    }
    return text
  }
}
