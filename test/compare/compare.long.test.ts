import { expect, onTestFinished, test } from 'vitest'
import { startRedis } from '../support/redis-server.ts'
import { measure } from './measure.ts'
import type { Figures } from './report.ts'
import { SCENARIOS, type Scenario } from './scenarios.ts'

/** A small load, because the tests check that the figures exist and not their values. */
const tiny: Scenario = { ...SCENARIOS.find(({ name }) => name === 'arena')!, clients: 20, perRoom: 5 }
const options = { seconds: 1, warmSeconds: 1, repeats: 0, built: false, report: () => {} }

function expectFigures(figures: Figures): void {
  expect(figures.delivered).toBeGreaterThan(0)
  expect(figures.cost).toBeGreaterThan(0)
  expect(figures.p99).toBeGreaterThan(0)
  // A float32 for each coordinate of a player that moved, at least.
  expect(figures.bytes).toBeGreaterThan(8)
}

test('measure has all figures of rooms on two nodes with one Redis, with and without direct connections', async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  // Not the pid of Redis, which may run in a container. The test does not check the cost of Redis.
  const on = { ...options, redis: { url: redis.url, pid: process.pid } }
  const figures = await measure('bare', { ...tiny, nodes: 2 }, on)
  expectFigures(figures)
  expect(figures.crossing).toBeGreaterThan(0)
  expect(figures.crossing).toBeLessThan(1)
  const direct = await measure('roomful', { ...tiny, nodes: 2, direct: true }, on)
  expectFigures(direct)
  expect(direct.crossing).toBe(0)
})

test('measure has the cost of listed rooms, and of the clients that find them', async () => {
  const lobby = { ...SCENARIOS.find(({ name }) => name === 'lobby')!, clients: 20 }
  const { cost, finding } = await measure('roomful', lobby, options)
  expect(cost).toBeGreaterThan(0)
  expect(finding).toBeGreaterThan(0)
})
