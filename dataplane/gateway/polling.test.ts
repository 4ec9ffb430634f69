import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { Polling } from './polling.ts'

describe('a turn of the event loop that reads sockets', () => {
  it('has a number of its own from when it takes long, and none while it does not', () => {
    const clock = new FakeClock()
    const ends: (() => void)[] = []
    const polling = new Polling(clock, (end) => ends.push(end))
    const turn = (ms: number): (number | undefined)[] => {
      const seen = []
      for (let at = 0; at < ms; at += 2) {
        seen.push(polling.longTurn)
        clock.advance(2)
      }
      for (const end of ends.splice(0)) end()
      return [...new Set(seen)]
    }
    for (let times = 0; times < 20; times++) expect(turn(8)).toEqual([undefined])
    clock.advance(20)
    const [none, first, ...others] = turn(30)
    expect([none, typeof first, others]).toEqual([undefined, 'number', []])
    clock.advance(20)
    const second = turn(30)[1]
    expect(typeof second).toBe('number')
    expect(second).not.toBe(first)
  })
})
