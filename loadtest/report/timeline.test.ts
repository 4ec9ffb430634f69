import { describe, expect, it } from 'vitest'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import { madeUpResult } from './made-up-result.ts'
import { linear, logarithmic } from './scale.ts'
import { Timeline } from './timeline.ts'

const run = (seconds: number) => madeUpResult({ seconds, nodes: 1, clients: 100 }, new SeededRandom(1))

describe('the timeline', () => {
  it('keeps every second of a short run', () => {
    const timeline = new Timeline(run(100))
    expect(timeline.step).toBe(1)
    expect(timeline.moments).toHaveLength(100)
    expect(timeline.places[0]).toBe(0.5)
    expect(timeline.places.at(-1)).toBe(99.5)
    expect(timeline.phases).toEqual([
      { name: 'connect', from: 0, to: 15 },
      { name: 'play', from: 15, to: 98 },
      { name: 'settle', from: 98, to: 100 },
    ])
  })

  it('loses no peak and no dip of an hour', () => {
    const result = run(3600)
    const timeline = new Timeline(result)
    const points = timeline.points(({ at }) => (at === 1234 ? 99 : at === 2345 ? -1 : 5))
    expect(points.length).toBeLessThanOrEqual(240)
    expect(points.filter((point) => point?.high === 99)).toEqual([{ low: 5, high: 99 }])
    expect(points.filter((point) => point?.low === -1)).toEqual([{ low: -1, high: 5 }])
  })

  it('has a gap where nothing was, and tells how long a second was', () => {
    const seconds_log = run(6).seconds_log.map((second, i) => ({ ...second, at: [1, 2, 5, 6, 7, 7.5][i]! }))
    const timeline = new Timeline({ seconds: 7.5, seconds_log })
    expect(timeline.points(({ at }, length) => (at === 2 ? undefined : length))).toEqual(
      [1, undefined, 3, 1, 1, 0.5].map((value) => value && { low: value, high: value }),
    )
  })

  it('has an axis even when nothing ran', () => {
    const timeline = new Timeline({ seconds: 0, seconds_log: [] })
    expect([timeline.length, timeline.places, timeline.phases]).toEqual([1, [], []])
  })
})

describe('a scale', () => {
  it.each([
    [linear(600), [0, 200, 400, 600]],
    [linear(0.61), [0, 0.2, 0.4, 0.6, 0.8]],
    [linear(0), [0, 0.25, 0.5, 0.75, 1]],
    [linear(1.9 * 1024 ** 2, 1024), [0, 0.5, 1, 1.5, 2].map((size) => size * 1024 ** 2)],
    [logarithmic(3, 81), [2, 5, 10, 20, 50, 100]],
    [logarithmic(0.02, 4000), [0.01, 0.1, 1, 10, 100, 1000, 10_000]],
    [logarithmic(5, 5), [5, 10]],
    [logarithmic(0, 0.05), [0.1, 0.2]],
  ])('%# marks round values', ({ ticks }, expected) => {
    expect(ticks.map((tick) => Number(tick.toPrecision(9)))).toEqual(expected)
  })

  it('places values between its ends, and never beyond', () => {
    const log = logarithmic(1, 100)
    expect([log.at(0), log.at(1), log.at(10), log.at(100), log.at(1000)]).toEqual([0, 0, 0.5, 1, 1])
    expect([linear(100).at(0), linear(100).at(50), linear(100).at(200)]).toEqual([0, 0.5, 1])
  })
})
