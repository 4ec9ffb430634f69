import { describe, expect, it } from 'vitest'
import { type ChaosOptions, runChaos } from './harness/chaos.ts'
import { report } from './harness/report.ts'

const SHORT: Omit<ChaosOptions, 'seed'> = {
  seconds: 12,
  nodes: 3,
  clients: 9,
  rooms: 3,
  unfenced: false,
  keep: false,
  say: () => {},
}
const WITHIN_MS = 90_000

describe('a cluster that is broken on purpose', () => {
  it.each([1, 2, 3])('keeps every promise (seed %i)', { timeout: WITHIN_MS }, async (seed) => {
    const options = { ...SHORT, seed }
    const result = await runChaos(options)
    expect(result.violations, report(result, options)).toEqual([])
    expect(result.history.clients.filter(({ kind }) => kind === 'ack').length).toBeGreaterThan(100)
  })
})
