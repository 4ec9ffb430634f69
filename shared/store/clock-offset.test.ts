import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { ClockOffset } from './clock-offset.ts'

/** A process whose clock is `aheadMs` ahead of the store's, which takes `rttMs` to answer. */
function compared(aheadMs: number, rttMs = 0) {
  const clock = new FakeClock()
  const lines: string[] = []
  const store = { aheadMs, fails: false }
  const time = async (): Promise<number> => {
    if (store.fails) throw new Error('gone')
    const answer = clock.now() - store.aheadMs
    if (rttMs > 0) clock.advance(rttMs)
    return answer
  }
  const log = pino({ base: null }, { write: (line) => void lines.push(JSON.parse(line).msg) })
  return { clock, lines, store, offset: new ClockOffset({ store: { time }, clock, log }) }
}

const settled = () => new Promise((resolve) => setImmediate(resolve))

describe('ClockOffset', () => {
  it.each([
    [0, undefined],
    [30_000, undefined],
    [-29_000, undefined],
    [31_000, "the clock of this process is 31 s ahead of the store's: set both by NTP"],
    [-3_600_000, "the clock of this process is 3600 s behind the store's: set both by NTP"],
  ])('of %d ms is wrong: %s', async (aheadMs, wrong) => {
    const { offset } = compared(aheadMs)
    await offset.measure()
    expect([offset.ms, offset.wrong]).toEqual([aheadMs, wrong])
  })

  it('does not take a slow answer for a wrong clock', async () => {
    const { offset } = compared(0, 40_000)
    await offset.measure()
    expect([Math.abs(offset.ms), offset.wrong]).toEqual([0, undefined])
  })

  it('is logged when it passes 30 s, since the process is not ready from there on', async () => {
    const { lines, store, offset } = compared(6000)
    for (const aheadMs of [6000, -40_000, 40_000, 20_000]) {
      store.aheadMs = aheadMs
      await offset.measure()
    }
    expect(lines).toEqual([
      "clock differs from the store's: set both by NTP",
      'clock is wrong, the process is not ready: set both by NTP',
      "clock differs from the store's: set both by NTP",
    ])
  })

  it('is measured every 10 s, and logged when it passes 5 s and when it is gone', async () => {
    const { clock, lines, store, offset } = compared(6000)
    offset.start()
    await settled()
    store.fails = true
    clock.advance(10_000)
    await settled()
    expect([offset.ms, lines]).toEqual([6000, ["clock differs from the store's: set both by NTP"]])
    store.fails = false
    store.aheadMs = 0
    clock.advance(10_000)
    await settled()
    expect(offset.ms).toBe(0)
    expect(lines.at(-1)).toBe("clock agrees with the store's again")
    offset.stop()
    store.aheadMs = 60_000
    clock.advance(60_000)
    await settled()
    expect(offset.ms).toBe(0)
  })
})
