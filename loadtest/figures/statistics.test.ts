import { describe, expect, it } from 'vitest'
import { inBlocks, percentile, summarize } from './statistics.ts'

describe('percentiles', () => {
  it('are samples, the smallest that so many do not exceed', () => {
    const samples = Array.from({ length: 100 }, (_, i) => 100 - i)
    expect(summarize(samples)).toEqual({ n: 100, p50: 50, p95: 95, p99: 99, max: 100 })
  })

  it('of a few samples lean to the worse side', () => {
    expect(percentile([3, 1], 0.5)).toBe(1)
    expect(percentile([3, 1, 2], 0.5)).toBe(2)
    expect(percentile([1, 2, 3, 50], 0.99)).toBe(50)
  })

  it('are not told of nothing', () => {
    expect(summarize([]).p50).toBeNaN()
  })
})

it('leaves out what does not fill a block', () => {
  expect(inBlocks([1, 2, 3, 4, 5], 2)).toEqual([
    [1, 2],
    [3, 4],
  ])
})
