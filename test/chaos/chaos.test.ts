import { describe, expect, it } from 'vitest'
import { type ChaosOptions, runChaos } from './harness/chaos.ts'
import { report } from './harness/report.ts'

const SHORT: Omit<ChaosOptions, 'seed'> = {
  seconds: 8,
  nodes: 3,
  clients: 9,
  rooms: 3,
  unfenced: false,
  keep: false,
  say: () => {},
}
const WITHIN_MS = 90_000

/** Its faults come between a node's commit and the store, and last longer than the lease. */
const UNFENCED_SEED = 129

describe('a cluster that is broken on purpose', () => {
  it.each([1, 2, 3])('keeps every promise (seed %i)', { timeout: WITHIN_MS }, async (seed) => {
    const options = { ...SHORT, seed }
    const result = await runChaos(options)
    expect(result.violations, report(result, options)).toEqual([])
    expect(result.history.clients.filter(({ kind }) => kind === 'ack').length).toBeGreaterThan(100)
  })

  it('is found out when its store does not fence', { timeout: WITHIN_MS }, async () => {
    const options = { ...SHORT, seed: UNFENCED_SEED, seconds: 9, clients: 12, rooms: 6, unfenced: true }
    const { violations } = await runChaos(options)
    expect(violations.map(({ name }) => name)).toContain('stale_commit')
  })
})
