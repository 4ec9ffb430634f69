import { expect, test } from 'vitest'
import { SeededRandom } from '../test/support/seeded-random.ts'
import { Backoff } from './backoff.ts'

test('waits are anywhere between nothing and a bound that doubles up to the largest', () => {
  const runs = Array.from({ length: 500 }, (_, seed) => {
    const backoff = new Backoff(new SeededRandom(seed * 7919 + 1), 100, 1000)
    return Array.from({ length: 6 }, () => backoff.next())
  })
  for (const [attempt, bound] of [100, 200, 400, 800, 1000, 1000].entries()) {
    const waits = runs.map((run) => run[attempt]!)
    expect(Math.max(...waits)).toBeLessThanOrEqual(bound)
    expect(Math.max(...waits)).toBeGreaterThan(bound * 0.9)
    expect(Math.min(...waits)).toBeLessThan(bound * 0.1)
  }
})

test('after a success they are short again, and they never overflow', () => {
  const backoff = new Backoff({ bytes: () => new Uint8Array(), float: () => 1 }, 100, 1000)
  for (let i = 0; i < 2000; i++) expect(backoff.next()).toBeLessThanOrEqual(1000)
  backoff.reset()
  expect(backoff.next()).toBe(100)
})
