import { expect, test } from 'vitest'
import { measure } from './measure.ts'
import { SCENARIOS, type Scenario } from './scenarios.ts'

/** Few clients for a second: that there are figures, not what they are. */
const tiny: Scenario = { ...SCENARIOS.find(({ name }) => name === 'arena')!, clients: 20, perRoom: 5 }
const options = { seconds: 1, repeats: 0, built: false, tell: () => {} }

test.each(['bare', 'roomful'] as const)('%s is measured', async (server) => {
  const figures = await measure(server, tiny, options)
  expect(figures.delivered).toBeGreaterThan(0.5)
  expect(figures.cost).toBeGreaterThan(0)
  expect(figures.p99).toBeGreaterThan(0)
  // A float32 for each coordinate of a player that moved, at least.
  expect(figures.bytes).toBeGreaterThan(8)
})
