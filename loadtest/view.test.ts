import { describe, expect, it } from 'vitest'
import { SeededRandom } from '../test/kit/seeded-random.ts'
import { madeUpResult } from '../test/support/load-run.ts'
import { LiveView } from './view.ts'

const { seconds_log: log } = madeUpResult({ seconds: 20, nodes: 2, clients: 100 }, new SeededRandom(3))

class Screen {
  text = ''
  readonly isTTY: boolean
  readonly columns = 100
  readonly rows = 24
  constructor(isTTY: boolean) {
    this.isTTY = isTTY
  }
  write(text: string): void {
    this.text += text
  }
}

describe('LiveView', () => {
  it('writes a line every five seconds, and each event, where there is no terminal', () => {
    const screen = new Screen(false)
    const view = new LiveView(screen)
    view.phase('play', 20, 30)
    for (const second of log.slice(0, 11)) view.update(second, 0.5)
    view.incident('node-2 was\n\x1b[2Jkilled')
    view.close()
    expect(screen.text.trimEnd().split('\n')).toEqual([
      '0:00 phase play, about 0:20',
      expect.stringMatching(
        /^0:05 play: 100 online, .* sent\/s, .* updates\/s, rtt p99 .*, worst pause .*ms/,
      ),
      expect.stringMatching(/^0:10 play: .* busiest server \d+%, 0 errors/),
      '0:11 node-2 was [2Jkilled',
    ])
  })

  it('redraws a block with a progress bar, and shows the cursor again at the end', () => {
    const screen = new Screen(true)
    const view = new LiveView(screen, { NO_COLOR: '1' })
    view.phase('play', 20, 40)
    view.update({ ...log[9]!, counts: { ...log[9]!.counts, errors: 3 } }, 0.5)
    expect(screen.text).toMatch(/run +━+─+ {2}0:10 of about 0:40/)
    expect(screen.text).toContain('3 errors')
    expect(screen.text).toContain('worst pause')
    const height = screen.text.split('\n').length
    screen.text = ''
    view.update(log[10]!, 0.6)
    expect(screen.text, 'begins at the first line of the block').toContain(`\x1b[${height - 1}A`)
    view.close()
    expect(screen.text.endsWith('\x1b[?25h\n')).toBe(true)
  })
})
