import { expect, it } from 'vitest'
import { pauseOf } from './pauses.ts'

const every = (period: number, from: number, until: number): number[] =>
  Array.from({ length: Math.floor((until - from) / period) }, (_, i) => from + i * period)

it('is the longest gap, less the normal one', () => {
  const effects = [...every(10, 0, 1000), ...every(10, 1400, 2000)]
  expect(pauseOf(effects, { from: 995, until: 2000 })).toBe(400)
})

it('finds a pause that begins long after the fault', () => {
  const effects = [...every(10, 0, 3000), ...every(10, 3500, 4000)]
  expect(pauseOf(effects, { from: 1000, until: 4000 })).toBe(500)
})

it('does not blame the fault for what was before it', () => {
  const effects = [...every(10, 0, 200), ...every(10, 900, 2000)]
  expect(pauseOf(effects, { from: 1000, until: 2000 })).toBe(0)
})

it('counts a member that waits to the end', () => {
  expect(pauseOf(every(10, 0, 1000), { from: 995, until: 6000 })).toBe(5000)
})

it('counts effects that come thick after a pause as no pause', () => {
  const effects = [...every(10, 0, 1000), 1500, 1500, 1500, ...every(10, 1500, 2000)]
  expect(pauseOf(effects, { from: 1000, until: 2000 })).toBe(500)
})
