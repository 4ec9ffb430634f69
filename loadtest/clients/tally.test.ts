import { expect, it } from 'vitest'
import { newHistogram, Tally } from './tally.ts'

it('gives out what there was since the last time, and begins again', () => {
  const tally = new Tally()
  tally.counts.sends += 2
  tally.late(3)
  tally.late(1)
  tally.fail('queue_full', 'too many wait')
  tally.fail('queue_full', 'too many wait still')
  const first = tally.take()
  expect(first.counts).toMatchObject({ sends: 2, errors: 2, acks: 0 })
  expect(first.lateMs).toBe(3)
  expect(first.failures).toEqual([{ code: 'queue_full', count: 2, example: 'too many wait' }])
  expect(tally.take()).toMatchObject({ counts: { sends: 0, errors: 0 }, failures: [], lateMs: 0 })
})

it('lends its histograms until the next time, while it times on', () => {
  const tally = new Tally()
  const sum = newHistogram()
  for (let second = 1; second <= 3; second++) {
    tally.time('rtt', second)
    const { rtt } = tally.take().timings
    tally.time('rtt', 100 * second)
    expect(rtt?.count).toBe(second === 1 ? 1 : 2)
    sum.add(rtt!)
  }
  sum.add(tally.take().timings.rtt!)
  expect(sum.count).toBe(6)
  expect(sum.min).toBe(1000)
  expect(sum.max / 1000).toBeCloseTo(300, -1)
  expect(tally.take().timings).toEqual({})
})
