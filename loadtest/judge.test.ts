import { describe, expect, it } from 'vitest'
import { SeededRandom } from '../test/kit/seeded-random.ts'
import { madeUpResult } from '../test/support/load-run.ts'
import { bottlenecks, judge, LIMIT_KINDS, LIMIT_OPTIONS, limitHelp, limitsOf, wentWrong } from './judge.ts'
import { readValues, type Texts } from './option-kinds.ts'
import { type GeneratorSecond, noCounts, type RunResult, type Second } from './result.ts'

const run = (but: Partial<RunResult> = {}) =>
  madeUpResult({ seconds: 40, nodes: 3, clients: 200, but }, new SeededRandom(5))
const limitsFrom = (texts: Texts) => limitsOf(readValues(LIMIT_OPTIONS, texts))
const verdict = (name: string, value: string, result = run()) =>
  judge(limitsFrom({ [name]: value }), result)[0]!

describe('limits', () => {
  it('reads durations, percentages, sizes and numbers in their units', () => {
    const limits = limitsFrom({
      'max-rtt-p99': '150ms',
      'max-connect-max': '1.5s',
      'max-pause-p50': '2 min',
      'max-cpu': '80%',
      'max-rss': '1.5GB',
      'min-rate': '500/s',
      'max-errors': '0',
      seconds: '30',
    })
    expect(limits).toEqual({
      'max-rtt-p99': 150,
      'max-connect-max': 1500,
      'max-pause-p50': 120_000,
      'max-cpu': 80,
      'max-rss': 1.5 * 1024 ** 3,
      'min-rate': 500,
      'max-errors': 0,
    })
  })

  it('names every wrong limit, its value, and what would be right', () => {
    expect(() =>
      limitsFrom({ 'max-rtt-p99': '150', 'max-cpu': '0.8', 'max-errors': 'few', 'min-rate': '-1' }),
    ).toThrow(
      [
        '--max-rtt-p99 is "150"; expected: a duration with its unit, such as 150ms or 1.5s',
        '--max-errors is "few"; expected: a plain number, such as 0',
        '--max-cpu is "0.8"; expected: a percentage, such as 80%',
        '--min-rate is "-1"; expected: a number per second, such as 500',
      ].join('\n'),
    )
  })

  it('holds up to the limit, and is broken above it', () => {
    const { p99 } = run().timings.rtt!
    expect(verdict('max-rtt-p99', `${p99}ms`)).toMatchObject({
      held: true,
      actual: p99,
      limit: p99,
      unit: 'ms',
    })
    expect(verdict('max-rtt-p99', `${p99 - 0.01}ms`)).toMatchObject({ held: false })
    expect(verdict('min-online', '200')).toMatchObject({ held: true, actual: 200 })
    expect(verdict('min-online', '201')).toMatchObject({ held: false })
  })

  it('does not hold for a value that was never measured', () => {
    const nothing = { count: 0, mean: 0, p50: 0, p90: 0, p95: 0, p99: 0, p999: 0, max: 0 }
    expect(verdict('max-pause-p99', '1s')).toMatchObject({ held: false, actual: undefined })
    expect(verdict('max-rtt-p99', '1s', run({ timings: { rtt: nothing } }))).toMatchObject({ held: false })
    const unseen = run({ seconds_log: run().seconds_log.map((second) => ({ ...second, servers: [] })) })
    for (const name of ['max-cpu', 'max-rss', 'max-event-loop-delay', 'max-resyncs'])
      expect(
        verdict(
          name,
          name === 'max-rss' ? '9GB' : name === 'max-cpu' ? '90%' : name === 'max-resyncs' ? '9' : '9s',
          unseen,
        ),
      ).toMatchObject({ held: false, actual: undefined })
    for (const name of ['min-rate', 'min-updates', 'min-online'])
      expect(verdict(name, '0', run({ seconds_log: [] }))).toMatchObject({ held: false })
  })

  it('is open for a value that an interrupted run could still have measured or reached', () => {
    const interrupted = run({ interrupted: true })
    expect(verdict('max-pause-p99', '1s', interrupted).held).toBeUndefined()
    expect(verdict('min-online', '201', interrupted)).toMatchObject({ held: undefined, actual: 200 })
    expect(verdict('min-online', '200', interrupted).held).toBe(true)
    expect(verdict('max-rtt-p99', '0.1ms', interrupted).held).toBe(false)
  })

  it('averages CPU over ten seconds of the busiest server, whatever the length of a second', () => {
    const secondsLog = run().seconds_log.map((second, i) => ({
      ...second,
      // Reported every two seconds. node-2 is busy in entries 10 to 19, and node-1 in one entry.
      at: 2 * (i + 1),
      servers: second.servers.map((server) => ({
        ...server,
        up: true,
        cpu_seconds:
          server.name === 'node-2' && i >= 10 && i < 20 ? 1.8 : server.name === 'node-1' && i === 5 ? 2 : 0.2,
      })),
    }))
    expect(verdict('max-cpu', '91%', run({ seconds_log: secondsLog })).actual).toBeCloseTo(90)
  })

  it('averages rates over the time in which there was something to send', () => {
    const { seconds_log: secondsLog } = run()
    const playing = secondsLog.filter(({ counts }) => counts.sends > 0)
    const acks = playing.reduce((sum, { counts }) => sum + counts.acks, 0)
    expect(playing.length).toBeLessThan(secondsLog.length)
    expect(verdict('min-rate', '1').actual).toBeCloseTo(acks / playing.length)
    const slow = secondsLog.map((second) => ({ ...second, at: second.at * 2 }))
    expect(verdict('min-rate', '1', run({ seconds_log: slow })).actual).toBeCloseTo(acks / playing.length / 2)
  })

  it('fail a run if a check or a limit is broken, or a failure is not allowed', () => {
    const failed = { ...run().totals, errors: 3 }
    const broken = run().checks.map((check) => ({ ...check, violations: 1 }))
    const unchecked = run().checks.map((check) => ({ ...check, violations: undefined }))
    expect(wentWrong(run())).toBe(false)
    expect(wentWrong(run({ interrupted: true }))).toBe(false)
    expect(wentWrong(run({ checks: unchecked }))).toBe(false)
    expect(wentWrong(run({ checks: broken }))).toBe(true)
    expect(wentWrong(run({ failure: 'no room type "load"' }))).toBe(true)
    expect(wentWrong(run({ totals: failed }))).toBe(true)
    const judged = (errors: string) =>
      run({
        totals: failed,
        verdicts: judge(limitsFrom({ 'max-errors': errors }), run({ totals: failed })),
      })
    expect(wentWrong(judged('3'))).toBe(false)
    expect(wentWrong(judged('2'))).toBe(true)
  })

  it('are all in the help', () => {
    const help = limitHelp().flat().join(' ')
    for (const [name, { timing }] of Object.entries(LIMIT_KINDS))
      for (const word of timing ? [timing, name.split('-').at(-1)!] : [name]) expect(help).toContain(word)
  })
})

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
  it('is not the limit while it has idle time', () => {
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

  it('does not count as busy for the work of two seconds in one entry', () => {
    const long = log([{ cpu_seconds: 1.95 }, { cpu_seconds: 1.95 }]).map((second) => ({
      ...second,
      at: 2 * second.at,
    }))
    expect(bottlenecks(long, 2)).toEqual([])
  })

  it('does not count as busy before the first client', () => {
    const busy = log([{ event_loop_utilisation: 1 }, { event_loop_utilisation: 1 }, {}])
    const start = busy.map((second, index) => (index < 2 ? { ...second, online: 0 } : second))
    expect(bottlenecks(start, 2)).toEqual([])
  })

  it('does not count as busy after a single second, such as the first', () => {
    expect(bottlenecks(log([{ event_loop_delay_ms: 300 }, {}, {}]), 2)).toEqual([])
  })
})
