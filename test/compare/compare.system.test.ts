import { expect, onTestFinished, test } from 'vitest'
import { startRedis } from '../support/redis-server.ts'
import { measure } from './measure.ts'
import type { Figures } from './report.ts'
import { SCENARIOS, type Scenario } from './scenarios.ts'

/** Few clients for a second: that there are figures, not what they are. */
const tiny: Scenario = { ...SCENARIOS.find(({ name }) => name === 'arena')!, clients: 20, perRoom: 5 }
const options = { seconds: 1, warmSeconds: 1, repeats: 0, built: false, tell: () => {} }

function expectFigures(figures: Figures): void {
  expect(figures.delivered).toBeGreaterThan(0)
  expect(figures.cost).toBeGreaterThan(0)
  expect(figures.p99).toBeGreaterThan(0)
  // A float32 for each coordinate of a player that moved, at least.
  expect(figures.bytes).toBeGreaterThan(8)
}

test('the same rooms on two nodes of one Redis are measured together, also when clients go where their rooms are', async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  // What Redis itself costs is not asked here: it may run in a container, where its process cannot be seen.
  const on = { ...options, redis: { url: redis.url, pid: process.pid } }
  const figures = await measure('bare', { ...tiny, nodes: 2 }, on)
  expectFigures(figures)
  expect(figures.crossing).toBeGreaterThan(0)
  expect(figures.crossing).toBeLessThan(1)
  const direct = await measure('roomful', { ...tiny, nodes: 2, direct: true }, on)
  expectFigures(direct)
  expect(direct.crossing).toBe(0)
})

test('rooms in a list, and clients that find them, are measured together', async () => {
  const lobby = { ...SCENARIOS.find(({ name }) => name === 'lobby')!, clients: 20 }
  const { cost, finding } = await measure('roomful', lobby, options)
  expect(cost).toBeGreaterThan(0)
  expect(finding).toBeGreaterThan(0)
})
