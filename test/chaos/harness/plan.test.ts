import { describe, expect, it } from 'vitest'
import { type PlannedFault, planFaults } from './plan.ts'

const options = { seconds: 120, nodes: 3, clients: 24, leaseMs: 1000, control: true }
const plans = () => Array.from({ length: 50 }, (_, seed) => planFaults({ ...options, seed }))

/** Nodes that are down, cut off or draining at a moment. */
const disabledAt = (plan: readonly PlannedFault[], atMs: number) =>
  new Set(
    plan
      .filter(({ kind }) => ['kill', 'pause', 'delay', 'blackhole', 'drain'].includes(kind))
      .filter((fault) => fault.atMs <= atMs && atMs <= fault.atMs + fault.forMs)
      .map(({ node }) => node),
  )

describe('planFaults', () => {
  it('spares at least one node at any time, and ends every fault before the run ends', () => {
    for (const plan of plans()) {
      expect(Math.max(...plan.map(({ atMs }) => disabledAt(plan, atMs).size))).toBeLessThan(3)
      expect(Math.max(...plan.map(({ atMs, forMs }) => atMs + forMs))).toBeLessThanOrEqual(120_000)
    }
  })

  it('draws overlapping faults of all 13 kinds within 50 seeds, and the same faults for the same seed', () => {
    const all = plans()
    const overlaps = all
      .flatMap((plan) => plan.map((fault, i) => [fault, plan[i + 1]] as const))
      .filter(([fault, next]) => next && next.atMs < fault.atMs + fault.forMs)
    expect(overlaps.length).toBeGreaterThan(50)
    expect(new Set(all.flat().map(({ kind }) => kind)).size).toBe(13)
    expect(plans()).toEqual(all)
  })
})
