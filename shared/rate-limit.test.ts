import { describe, expect, it } from 'vitest'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { RateLimits } from './rate-limit.ts'

describe('a rate limit', () => {
  it('allows a burst, then returns the wait, and then allows the rate', () => {
    const clock = new FakeClock()
    const limit = new RateLimits(clock, { perSecond: 2, burst: 3 }).of('a')
    expect([1, 2, 3, 4].map(() => limit.take())).toEqual([true, true, true, false])
    expect(limit.waitMs()).toBeCloseTo(500)
    clock.advance(500)
    expect([1, 2].map(() => limit.take())).toEqual([true, false])
    clock.advance(60_000)
    expect([1, 2, 3, 4].map(() => limit.take())).toEqual([true, true, true, false])
  })

  it('limits its debt, and returns the taken number', () => {
    const clock = new FakeClock()
    const limit = new RateLimits(clock, { perSecond: 2, burst: 3, debt: 4 }).of('a')
    expect([limit.charge(5), limit.charge(5), limit.charge(5)]).toEqual([5, 2, 0])
    expect(limit.waitMs()).toBeCloseTo(2500)
    limit.charge(-5)
    expect(limit.left).toBeCloseTo(1)
  })

  it('counts each caller separately, for any number of callers', () => {
    const clock = new FakeClock()
    const limits = new RateLimits(clock, { perSecond: 1, burst: 1 })
    const taken = Array.from({ length: 25_000 }, (_, at) => limits.take(`caller ${at}`))
    expect(taken.every((each) => each)).toBe(true)
    expect([limits.take('caller 0'), limits.take('caller 24999')]).toEqual([false, false])
  })
})
