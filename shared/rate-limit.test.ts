import { describe, expect, it } from 'vitest'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { RateLimits } from './rate-limit.ts'

describe('a rate limit', () => {
  it('lets a burst through, then says how long to wait, then the rate', () => {
    const clock = new FakeClock()
    const limit = new RateLimits(clock, { perSecond: 2, burst: 3 }).of('a')
    expect([1, 2, 3, 4].map(() => limit.take())).toEqual([true, true, true, false])
    expect(limit.waitMs()).toBeCloseTo(500)
    clock.advance(500)
    expect([1, 2].map(() => limit.take())).toEqual([true, false])
    clock.advance(60_000)
    expect([1, 2, 3, 4].map(() => limit.take())).toEqual([true, true, true, false])
  })

  it('owes no more than its debt, and says how much it took', () => {
    const clock = new FakeClock()
    const limit = new RateLimits(clock, { perSecond: 2, burst: 3, debt: 4 }).of('a')
    expect([limit.charge(5), limit.charge(5), limit.charge(5)]).toEqual([5, 2, 0])
    expect(limit.waitMs()).toBeCloseTo(2500)
    limit.charge(-5)
    expect(limit.left).toBeCloseTo(1)
  })

  it('counts each caller apart, however many there are', () => {
    const clock = new FakeClock()
    const limits = new RateLimits(clock, { perSecond: 1, burst: 1 })
    for (let at = 0; at < 25_000; at++) expect(limits.take(`caller ${at}`)).toBe(true)
    expect([limits.take('caller 0'), limits.take('caller 24999')]).toEqual([false, false])
  })
})
