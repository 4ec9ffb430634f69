import { describe, expect, it } from 'vitest'
import { check } from '../chaos/checker/check.ts'
import { runLength } from '../support/run-length.ts'
import { MUTATIONS } from './mutations.ts'
import { SimWorld } from './world.ts'

/** Smaller than what `npm run sim` runs, so that many seeds take little time. */
const SMALL = { seconds: 15, nodes: 3, clients: 9, rooms: 3, direct: false }
const PATIENCE_MS = 60_000
/** So many seeds have to show a mistake, from the given one on. */
const ENOUGH_SEEDS = 12

const run = (seed: number, mutation?: string) =>
  SimWorld.run({ ...SMALL, seed, ...(mutation !== undefined && { mutation: MUTATIONS[mutation]! }) })

describe('the simulated world', () => {
  it.each([1, 2, 3, 4, 5].slice(0, runLength(2, 5)))(
    'keeps every promise through the faults of seed %i',
    async (seed) => {
      const { violations } = check(await run(seed))
      expect(violations).toEqual([])
    },
    PATIENCE_MS,
  )

  it(
    'goes the same way again with the same seed',
    async () => {
      const [one, other] = [await run(6), await run(6)]
      expect(JSON.stringify(other)).toBe(JSON.stringify(one))
    },
    PATIENCE_MS,
  )

  // The explorer finds each of them, too.
  const mistakes = [
    ['unfenced', 'stale_commit', 3],
    ['refiring', 'timer_twice', 3],
    ['trusting', 'acted_without_lease', 3],
    ['repeating', 'version_gap', 16],
    ['hopeful', 'stale_commit', 3],
    ['grabbing', 'epoch_claimed_twice', 3],
    ['forgetful', 'timer_lost', 3],
  ] as const
  it.each(mistakes.slice(0, runLength(2, mistakes.length)))(
    'finds the mistake %s (%s, from seed %i on)',
    async (mutation, violation, first) => {
      const found = async (seed: number) =>
        check(await run(seed, mutation)).violations.some(({ name }) => name === violation)
      let seed: number = first
      while (seed < first + ENOUGH_SEEDS && !(await found(seed))) seed++
      expect(seed).toBeLessThan(first + ENOUGH_SEEDS)
    },
    PATIENCE_MS,
  )
})
