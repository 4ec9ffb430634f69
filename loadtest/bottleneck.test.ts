import { describe, expect, it } from 'vitest'
import { bottlenecks } from './bottleneck.ts'
import { type GeneratorSecond, noCounts, type Second } from './result.ts'

const CALM: GeneratorSecond = {
  event_loop_delay_ms: 2,
  event_loop_utilisation: 0.3,
  late_ms: 1,
  cpu_seconds: 0.5,
  rss_bytes: 1e8,
}
const log = (seconds: readonly Partial<GeneratorSecond>[]): Second[] =>
  seconds.map((generator, index) => ({
    at: index + 1,
    phase: 'play',
    online: 10,
    counts: noCounts(),
    timings: {},
    generator: { ...CALM, ...generator },
    servers: [],
  }))

describe('the generator', () => {
  it('was not the limit while it had time', () => {
    expect(bottlenecks(log([{}, {}, {}]), 2)).toEqual([])
  })

  it.each([
    [{ event_loop_utilisation: 0.97 }, 'a thread was up to 97 % busy'],
    [{ event_loop_delay_ms: 45 }, 'timers fired up to 45 ms late'],
    [{ late_ms: 80 }, 'messages left up to 80 ms after they were due'],
    [{ cpu_seconds: 1.95 }, 'it used 1.9 of the 2 cores'],
  ])('may have been, with %o', (strained, reason) => {
    const [told, ...more] = bottlenecks(log([{}, strained, strained]), 2)
    expect(told).toContain(reason)
    expect(told).toContain('in 2 of 3 seconds')
    expect(more).toEqual([])
  })

  it('is not blamed for what it used in a second that lasted two', () => {
    const long = log([{ cpu_seconds: 1.95 }, { cpu_seconds: 1.95 }]).map((second) => ({
      ...second,
      at: 2 * second.at,
    }))
    expect(bottlenecks(long, 2)).toEqual([])
  })

  it('is not blamed for the time before the first client', () => {
    const busy = log([{ event_loop_utilisation: 1 }, { event_loop_utilisation: 1 }, {}])
    const start = busy.map((second, index) => (index < 2 ? { ...second, online: 0 } : second))
    expect(bottlenecks(start, 2)).toEqual([])
  })

  it('is not blamed for a single second, such as the one it starts in', () => {
    expect(bottlenecks(log([{ event_loop_delay_ms: 300 }, {}, {}]), 2)).toEqual([])
  })
})
