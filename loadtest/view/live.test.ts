import { describe, expect, it } from 'vitest'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { madeUpResult } from '../../test/support/load-run.ts'
import { LiveView, sparkline } from './live.ts'

const { seconds_log: secondsLog } = madeUpResult({ seconds: 30, nodes: 3, clients: 600 }, new SeededRandom(2))

/** A terminal that knows the few orders the view gives, and holds what is to be seen. */
class Terminal {
  readonly isTTY = true
  readonly columns: number
  readonly rows: number
  lines: string[] = ['']
  raw = ''
  #row = 0
  #column = 0
  /** Whether lines are cut off where the screen ends. */
  #cuts = false

  constructor(columns: number, rows = 40) {
    this.columns = columns
    this.rows = rows
  }

  write(text: string): void {
    this.raw += text
    // biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal's orders begin with one
    for (const [piece] of text.matchAll(/\x1b\[\??[\d;]*[A-Za-z]|./gsu)) this.#obey(piece)
  }

  #obey(piece: string): void {
    if (piece === '\n') {
      this.#row++
      this.#column = 0
      this.lines[this.#row] ??= ''
    } else if (piece === '\r') this.#column = 0
    else if (piece.startsWith('\x1b')) this.#order(piece)
    else {
      const line = (this.lines[this.#row] ?? '').padEnd(this.#column)
      this.lines[this.#row] = line.slice(0, this.#column) + piece + line.slice(this.#column + 1)
      this.#column++
      if (this.#column > this.columns && !this.#cuts)
        throw new Error(`a line wraps at ${this.columns} columns`)
    }
  }

  #order(order: string): void {
    if (order.endsWith('?7l')) this.#cuts = true
    const number = Number(/\d+/.exec(order)?.[0] ?? 1)
    if (order.endsWith('A')) this.#row = Math.max(0, this.#row - number)
    else if (order.endsWith('K')) this.lines[this.#row] = this.lines[this.#row]!.slice(0, this.#column)
    else if (order.endsWith('J')) {
      this.lines[this.#row] = this.lines[this.#row]!.slice(0, this.#column)
      this.lines.length = this.#row + 1
    }
  }
}

function watch(view: LiveView): void {
  view.phase('connect', 5, 30)
  for (const second of secondsLog.slice(0, 5)) view.update(second, second.at / 5)
  view.phase('play', 25, 30)
  view.incident('node-2 was told to end')
  for (const second of secondsLog.slice(5)) view.update(second, (second.at - 5) / 25)
  view.incident('all is\nover \x1b[2J')
  view.close()
}

describe('the live view', () => {
  it('shows one block that is written over, with what happened above it', () => {
    const terminal = new Terminal(100)
    watch(new LiveView(terminal))
    const screen = terminal.lines.join('\n')
    expect(terminal.lines.slice(0, 2)).toEqual(['  0:05  node-2 was told to end', '  0:30  all is over [2J'])
    expect(screen.match(/^run /gm)).toHaveLength(1)
    expect(screen).toMatch(/^run +━+ 100% {2}0:30 of 0:30$/m)
    expect(screen).toMatch(/^play +━+ 100%/m)
    expect(screen).toMatch(/^online 600 {3}sent \d+(\.\d)?k\/s {3}acked/m)
    expect(screen).toMatch(/^rtt +\d.* ms +\d.* ms +\d.* ms +\d.* ms {2}[ ▁▂▃▄▅▆▇█]+$/m)
    expect(screen).toMatch(/^connect +\d.* ms/m)
    expect(screen).toMatch(/^node-3 +\d+% +\d+% +.* ms +\d+ MB +200 +20$/m)
    expect(screen).not.toContain('generator')
  })

  it('shows how far the phase and the run are, and rates per second however long a second was', () => {
    const terminal = new Terminal(80)
    const view = new LiveView(terminal)
    view.phase('play', 10, 60)
    view.update({ ...secondsLog[14]!, at: 15 }, 0.5)
    view.update({ ...secondsLog[15]!, at: 15 + 1 / 2, counts: { ...secondsLog[15]!.counts, sends: 80 } }, 0.5)
    expect(terminal.lines.join('\n')).toMatch(/ {3}sent 160\/s {3}/)
    expect(terminal.lines.join('\n')).toMatch(/^run +━+─+ {2}26% {2}0:16 of 1:00$/m)
    expect(terminal.lines.join('\n')).toMatch(/^play +(━+)(─+) {2}50% {2}0:05$/m)
  })

  it('says when the generator cannot keep up, and which server does not answer', () => {
    const terminal = new Terminal(100)
    const view = new LiveView(terminal)
    const second = secondsLog[20]!
    const servers = second.servers.map((server, i) => ({ ...server, up: i !== 1 }))
    view.update({ ...second, servers, generator: { ...second.generator, late_ms: 180 } }, 0.5)
    expect(terminal.lines.join('\n')).toMatch(/^generator .*180 ms after they were due/m)
    expect(terminal.lines.join('\n')).toMatch(/^node-2 +does not answer$/m)
  })

  it('fits narrow and low terminals', () => {
    const terminal = new Terminal(40, 10)
    const view = new LiveView(terminal)
    view.phase('a phase with a long name', 10, 60)
    view.update(secondsLog[20]!, 0.5)
    view.update(secondsLog[21]!, 0.6)
    expect(terminal.lines.length).toBeLessThan(10)
  })

  it('takes a usual size for that of a terminal which has none', () => {
    let text = ''
    const view = new LiveView({ write: (piece: string) => (text += piece), isTTY: true, columns: 0, rows: 0 })
    view.phase('play', 10, 60)
    view.update(secondsLog[20]!, 0.5)
    expect(text).toContain('0:21 of 1:00')
    expect(text).toContain('node-3')
  })

  it('uses colours unless NO_COLOR says otherwise', () => {
    const colours = (env: Record<string, string>) => {
      const terminal = new Terminal(100)
      watch(new LiveView(terminal, env))
      return terminal.raw.includes('\x1b[36m')
    }
    expect([colours({}), colours({ NO_COLOR: '1' }), colours({ NO_COLOR: '' })]).toEqual([true, false, true])
  })

  it('writes a plain line every five seconds, and one when a phase ends, where lines cannot be written over', () => {
    let text = ''
    watch(new LiveView({ write: (piece: string) => (text += piece) }))
    const lines = text.trimEnd().split('\n')
    expect(text).not.toContain('\x1b')
    expect(lines.map((line) => line.split(/[:,] /)[0])).toEqual([
      '0:00 phase connect',
      '0:05 connect',
      '0:05 phase play',
      '0:05 node-2 was told to end',
      '0:10 play',
      '0:15 play',
      '0:20 play',
      '0:25 play',
      '0:30 settle',
      '0:30 all is over [2J',
    ])
    expect(lines[4]).toMatch(
      /^0:10 play: 600 online, [23],\d{3} sent\/s, .*rtt p50 .* ms p99 .* ms, busiest server \d+%, 0 errors$/,
    )
  })

  it('draws a trend from 0 to its highest value', () => {
    expect(sparkline([0, 1, 4, 8])).toBe(' ▂▅█')
    expect(sparkline([])).toBe('')
  })
})
