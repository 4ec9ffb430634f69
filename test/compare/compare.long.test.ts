import { expect, test } from 'vitest'
import { measure, measureTogether } from './measure.ts'
import { startServer } from './processes.ts'
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
  const figures = await measure({ server: 'bare', scenario: { ...tiny, nodes: 2 } }, options)
  expectFigures(figures)
  expect(figures.crossing).toBeGreaterThan(0)
  expect(figures.crossing).toBeLessThan(1)
  expect(figures.redis).toBeGreaterThan(0)
  expect(figures.commands).toBeGreaterThan(0)
  const direct = await measure({ server: 'roomful', scenario: { ...tiny, nodes: 2, direct: true } }, options)
  expectFigures(direct)
  expect(direct.crossing).toBe(0)
})

test('measureTogether has the figures of two servers, whose clients play at the same time', async () => {
  const both = (['bare', 'roomful'] as const).map((server) => ({ server, scenario: tiny }))
  const figures = await measureTogether(both, options)
  expect(figures).toHaveLength(2)
  for (const each of figures) expectFigures(each)
})

test('measure has the memory of each further client', async () => {
  const { live, further } = await measure({ server: 'bare', scenario: { ...tiny, kind: 'memory' } }, options)
  expect([live, further].every(Number.isFinite)).toBe(true)
})

test('measure has the cost of clients that are cut and resume, and the longest stall of it', async () => {
  const resumes = { ...SCENARIOS.find(({ name }) => name === 'resumes')!, clients: 20, perRoom: 5 }
  const { cost, back, stall } = await measure({ server: 'roomful', scenario: resumes }, options)
  expect(cost).toBeGreaterThan(0)
  expect(back).toBeGreaterThan(0)
  expect(stall).toBeGreaterThan(0)
})

test('measure has the cost of secrets in layers', async () => {
  const layers = { ...SCENARIOS.find(({ name }) => name === 'layers')!, clients: 20, perRoom: 5 }
  const { delivered, cost } = await measure({ server: 'roomful', scenario: layers }, options)
  expect(delivered).toBeGreaterThan(0)
  expect(cost).toBeGreaterThan(0)
})

test('measure has the cost of listed rooms, and of the clients that find them', async () => {
  const lobby = { ...SCENARIOS.find(({ name }) => name === 'lobby')!, clients: 20 }
  const { cost, finding } = await measure({ server: 'roomful', scenario: lobby }, options)
  expect(cost).toBeGreaterThan(0)
  expect(finding).toBeGreaterThan(0)
})

test('measure has the cost of a spectator that joins a room of players', async () => {
  const spectators = { ...SCENARIOS.find(({ name }) => name === 'spectators')!, arrivals: 20 }
  for (const scenario of [spectators, { ...spectators.against![0]!, clients: 5, arrivals: 15 }])
    expect((await measure({ server: 'roomful', scenario: scenario }, options)).cost).toBeGreaterThan(0)
})

test('measure has the figures of a server whose core is shared with spinning processes', async () => {
  const starved: Scenario = { ...tiny, kind: 'starved' }
  const figures = await measure({ server: 'roomful', scenario: starved }, options)
  expectFigures(figures)
  expect(figures.core).toBeGreaterThan(0)
  expect(figures.recovered).toBeGreaterThanOrEqual(0)
})

test('a sample of a server that has ended fails, and names the server', async () => {
  const server = await startServer({ server: 'bare', scenario: tiny }, false)
  await server.stop()
  await expect(server.sample()).rejects.toThrow('the server bare ended with SIGKILL')
})
