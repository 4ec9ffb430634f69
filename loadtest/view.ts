import { serverValue } from './metrics.ts'
import { type Second, timed } from './result.ts'
import { clock, count, duration, inUnit, NONE, oneLine } from './text.ts'

/** The part of `process.stdout` that the view uses. */
interface Screen {
  write(text: string): unknown
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
}

const PLAIN_EVERY_SECONDS = 5
const ESC = '\x1b['
const STYLES = { soft: '2', accent: '36', bad: '1;31' } as const

/**
 * Shows a run in the terminal: a block of lines that is redrawn every second, below the events. Without a terminal it writes one line
 * every five seconds. `NO_COLOR` removes the colours.
 */
export class LiveView {
  readonly #screen: Screen
  readonly #colours: boolean
  #phase = { name: '', seconds: 0, runSeconds: 0 }
  #now: { readonly second: Second; readonly progress: number } | undefined
  /** Longest pause so far, in milliseconds. */
  #worstPause = 0
  #errors = 0
  #seconds = 0
  /** Number of lines of the block on the screen. */
  #height = 0

  constructor(screen: Screen, env: Readonly<Record<string, string | undefined>> = {}) {
    this.#screen = screen
    this.#colours = Boolean(screen.isTTY) && !env.NO_COLOR && env.TERM !== 'dumb'
  }

  /** A phase starts. `seconds` and `runSeconds`: expected duration of the phase and of the run. */
  phase(name: string, seconds: number, runSeconds: number): void {
    this.#phase = { name, seconds, runSeconds }
    if (!this.#screen.isTTY)
      this.#screen.write(`${this.#at} phase ${oneLine(name)}, about ${clock(seconds)}\n`)
  }

  /** A second has passed. `progress`: completed fraction of the phase. */
  update(second: Second, progress: number): void {
    this.#now = { second, progress }
    this.#errors += second.counts.errors
    this.#worstPause = Math.max(
      this.#worstPause,
      second.timings.pause?.max ?? 0,
      second.timings.rtt?.max ?? 0,
    )
    this.#seconds += 1
    if (this.#screen.isTTY) this.#draw()
    else if (this.#seconds % PLAIN_EVERY_SECONDS === 0)
      this.#screen.write(`${this.#at} ${oneLine(second.phase)}: ${this.#facts(second).join(', ')}\n`)
  }

  /** Writes an event above the block. */
  incident(text: string): void {
    if (this.#screen.isTTY)
      this.#draw([`${this.#paint('soft', this.#at.padStart(6))}  ${this.#paint('accent', oneLine(text))}`])
    else this.#screen.write(`${this.#at} ${oneLine(text)}\n`)
  }

  /** Leaves the block on the screen, and shows the cursor again. */
  close(): void {
    if (this.#height > 0) this.#screen.write(`${ESC}?7h${ESC}?25h\n`)
    this.#height = 0
  }

  get #at(): string {
    return clock(this.#now?.second.at ?? 0)
  }

  #paint(style: keyof typeof STYLES, text: string): string {
    return this.#colours ? `${ESC}${STYLES[style]}m${text}${ESC}0m` : text
  }

  #facts({ online, counts, timings, servers }: Second): string[] {
    const busiest = Math.max(0, ...servers.map((server) => serverValue(server, 'cpu_seconds')))
    const down = servers.filter(({ up }) => !up).map(({ name }) => `${name} does not answer`)
    const errors = `${count(this.#errors)} errors`
    return [
      `${count(online)} online`,
      `${count(counts.sends)} sent/s`,
      `${count(counts.updates)} updates/s`,
      ...timed(timings).map(({ name, values }) => `${name} p99 ${duration(values.p99)}`),
      `worst pause ${this.#worstPause === 0 ? NONE : duration(this.#worstPause)}`,
      ...(servers.length > 0 ? [`busiest server ${inUnit(busiest, '%')}`] : []),
      ...[errors, ...down].map((text, i) => (i > 0 || this.#errors > 0 ? this.#paint('bad', text) : text)),
    ]
  }

  #bar(name: string, share: number, note: string): string {
    const width = Math.max(10, Math.min(40, (this.#screen.columns || 80) - 40))
    const full = Math.round(Math.min(1, share) * width)
    const bar = `${'━'.repeat(full)}${'─'.repeat(width - full)}`
    return `${name.slice(0, 16).padEnd(18)}${this.#paint('accent', bar)}  ${note}`
  }

  #block(): string[] {
    if (!this.#now) return []
    const { second, progress } = this.#now
    const { name, seconds, runSeconds } = this.#phase
    const done = runSeconds > 0 ? second.at / runSeconds : progress
    return [
      '',
      this.#bar('run', done, `${this.#at} of about ${clock(runSeconds)}`),
      this.#bar(oneLine(name) || '…', progress, `of about ${clock(seconds)}`),
      '',
      ...wrapped(this.#facts(second), this.#screen.columns || 80),
    ]
  }

  /** Redraws the block in one write, so that it does not flicker, and cuts it at the end of the screen. `above` stays above it. */
  #draw(above: readonly string[] = []): void {
    const lines = this.#block().slice(0, Math.max(1, (this.#screen.rows || 50) - 2))
    const start = this.#height > 1 ? `\r${ESC}${this.#height - 1}A` : '\r'
    const body = [...above, ...lines].map((line) => `${line}${ESC}K`).join('\n')
    const end = lines.length === 0 ? '\n' : ''
    this.#screen.write(`${ESC}?2026h${ESC}?25l${ESC}?7l${start}${body}${end}${ESC}J${ESC}?2026l`)
    this.#height = lines.length
  }
}

/** Returns as many cells of a line as fit. */
function wrapped(cells: readonly string[], columns: number): string[] {
  const lines: string[] = []
  for (const cell of cells) {
    const longer = `${lines.at(-1)}   ${cell}`
    if (lines.length > 0 && longer.length < columns) lines[lines.length - 1] = longer
    else lines.push(cell)
  }
  return lines
}
