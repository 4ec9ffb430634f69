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

/** Their faults come between a node's commit and the store, and last longer than the lease. */
const UNFENCED_SEEDS = [129, 383, 6]

describe('a cluster that is broken on purpose', () => {
  it.each([1, 2, 3])('keeps every promise (seed %i)', { timeout: WITHIN_MS }, async (seed) => {
    const options = { ...SHORT, seed }
    const result = await runChaos(options)
    expect(result.violations, report(result, options)).toEqual([])
    expect(result.history.clients.filter(({ kind }) => kind === 'ack').length).toBeGreaterThan(100)
  })

  it('is found out when its store does not fence', { timeout: 2 * WITHIN_MS }, async () => {
    const found = new Set<string>()
    // What a fault meets is the machine's to decide: a seed may pass by chance, all of them do not.
    for (const seed of UNFENCED_SEEDS) {
      const { violations } = await runChaos({
        ...SHORT,
        seed,
        seconds: 9,
        clients: 12,
        rooms: 6,
        unfenced: true,
      })
      for (const { name } of violations) found.add(name)
      if (found.has('stale_commit')) break
    }
    expect([...found]).toContain('stale_commit')
  })
})
