import { describe, expect, it } from 'vitest'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { isOwn, UnhandledErrors } from './unhandled.ts'

const at = (...places: string[]): Error =>
  Object.assign(new Error('boom'), {
    stack: `Error: boom\n${places.map((place) => `    at ${place}`).join('\n')}`,
  })
const OWN = `run (${import.meta.url.replace('unhandled.test.ts', 'store/open.ts')}:12:3)`
const NODE = 'listOnTimeout (node:internal/timers:581:17)'
const ROOM = 'Timeout._onTimeout (file:///srv/rooms/duel.ts:4:9)'

describe('isOwn', () => {
  it.each([
    ['own code that a timer has called', at(OWN, NODE), true],
    ['room code that a timer has called', at(ROOM, NODE), false],
    ['own code that room code has called', at(OWN, ROOM, NODE), false],
    ['a room that was loaded from a data URL', at('handle (data:text/javascript,abc:1:1)', OWN), false],
    [
      'an error event without a listener',
      at('TCPConnectWrap.afterConnect [as oncomplete] (node:net:1607:16)'),
      false,
    ],
    ['something that is no Error', 'boom', false],
  ])('%s', (_, error, own) => {
    expect(isOwn(error)).toBe(own)
  })
})

describe('UnhandledErrors', () => {
  function setup(roomCode = false) {
    const clock = new FakeClock()
    const lines: string[] = []
    const counts: string[] = []
    const unhandled = new UnhandledErrors({
      clock,
      log: { error: (_: unknown, text: string) => void lines.push(text) } as never,
      count: (kind) => void counts.push(kind),
      roomCode: () => roomCode,
    })
    return { clock, lines, counts, unhandled }
  }

  it('lets the process continue after every rejection, and logs the same one once in ten seconds', () => {
    const { clock, lines, counts, unhandled } = setup()
    for (let n = 0; n < 3; n++) unhandled.rejection(at(OWN))
    clock.advance(10_000)
    unhandled.rejection(at(OWN))
    expect([counts.length, lines.length]).toEqual([4, 2])
  })

  it('ends the process only after an exception of its own code', () => {
    const { unhandled, counts } = setup()
    expect([unhandled.exception(at(OWN)), unhandled.exception(at(ROOM))]).toEqual([false, true])
    expect(counts).toEqual(['exception'])
  })

  it('leaves errors of room code to the node', () => {
    const { unhandled, counts, lines } = setup(true)
    unhandled.rejection(at(OWN))
    expect([unhandled.exception(at(OWN)), counts, lines]).toEqual([true, [], []])
  })
})
