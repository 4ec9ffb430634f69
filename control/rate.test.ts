import { describe, expect, it } from 'vitest'
import { FakeClock } from '../test/support/fake-clock.ts'
import { RateLimiter } from './rate.ts'

describe('a rate limiter', () => {
  it('lets a burst through, then says how long to wait, then the rate', () => {
    const clock = new FakeClock()
    const limiter = new RateLimiter(clock, { per_second: 2, burst: 3 })
    expect([1, 2, 3].map(() => limiter.take('a'))).toEqual([0, 0, 0])
    expect(limiter.take('a')).toBeCloseTo(0.5)
    clock.advance(500)
    expect(limiter.take('a')).toBe(0)
    expect(limiter.take('a')).toBeCloseTo(0.5)
    clock.advance(60_000)
    expect([1, 2, 3].map(() => limiter.take('a'))).toEqual([0, 0, 0])
    expect(limiter.take('a')).toBeGreaterThan(0)
  })

  it('counts each caller apart, however many there are', () => {
    const clock = new FakeClock()
    const limiter = new RateLimiter(clock, { per_second: 1, burst: 1 })
    for (let at = 0; at < 25_000; at++) expect(limiter.take(`caller ${at}`)).toBe(0)
    expect(limiter.take('caller 0')).toBeGreaterThan(0)
    expect(limiter.take('caller 24999')).toBeGreaterThan(0)
  })
})
