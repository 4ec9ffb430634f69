import { describe, expect, it } from 'vitest'
import { type PlannedFault, planFaults } from './plan.ts'

const options = { seconds: 120, nodes: 3, clients: 24, lease_ms: 1000 }
const SEEDS = Array.from({ length: 50 }, (_, seed) => seed)

/** Which nodes are down, cut off or on their way out at a moment. */
const out = (plan: readonly PlannedFault[], atMs: number) =>
  new Set(
    plan
      .filter(({ kind }) => ['kill', 'pause', 'delay', 'blackhole', 'drain'].includes(kind))
      .filter((fault) => fault.at_ms <= atMs && atMs <= fault.at_ms + fault.for_ms)
      .map(({ node }) => node),
  )

describe('the faults of a seed', () => {
  it('are the same each time, and others for another seed', () => {
    expect(planFaults({ ...options, seed: 7 })).toEqual(planFaults({ ...options, seed: 7 }))
    expect(planFaults({ ...options, seed: 7 })).not.toEqual(planFaults({ ...options, seed: 8 }))
  })

  it('leave one node alone at any time, and are over when the run ends', () => {
    for (const seed of SEEDS) {
      const plan = planFaults({ ...options, seed })
      for (const { at_ms: atMs, for_ms: forMs } of plan) {
        expect(out(plan, atMs).size).toBeLessThan(3)
        expect(atMs + forMs).toBeLessThanOrEqual(120_000)
      }
    }
  })

  it('overlap sometimes, and are of every kind within a few seeds', () => {
    const plans = SEEDS.map((seed) => planFaults({ ...options, seed }))
    const overlaps = plans
      .flatMap((plan) => plan.map((fault, i) => [fault, plan[i + 1]] as const))
      .filter(([fault, next]) => next && next.at_ms < fault.at_ms + fault.for_ms)
    expect(overlaps.length).toBeGreaterThan(50)
    expect(new Set(plans.flat().map(({ kind }) => kind)).size).toBe(12)
  })
})
