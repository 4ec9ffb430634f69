import { describe, expect, it } from 'vitest'
import { check } from '../chaos/checker/check.ts'
import { VIOLATIONS, type ViolationName } from '../chaos/checker/history.ts'
import { runLength } from '../support/run-length.ts'
import { FAULT_RUN, FAULTS, type Fault, violationsOf } from './mutations.ts'
import { SimWorld } from './world.ts'

const PATIENCE_MS = 60_000
/** So many seeds have to show a mistake, from the given one on. */
const ENOUGH_SEEDS = 12

const run = (seed: number) => SimWorld.run({ ...FAULT_RUN, seed })

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

  it('has a mistake for every rule of the checker', () => {
    const found = Object.values<Fault>(FAULTS).flatMap(({ breaks }) => breaks)
    const rules = Object.keys(VIOLATIONS) as ViolationName[]
    expect(rules.filter((rule) => !found.includes(rule))).toEqual([])
  })

  // `npm run sim -- --mutations` goes through all of them.
  const mistakes = [
    ['doubled', 1],
    ['refiring', 1],
    ['unfenced', 3],
    ['repeating', 16],
    ['renaming', 1],
  ] as const
  it.each(mistakes.slice(0, runLength(2, mistakes.length)))(
    'finds the mistake %s (from seed %i on)',
    async (name, first) => {
      const { breaks } = FAULTS[name]
      const found = async (seed: number) => (await violationsOf(FAULTS[name], seed)).has(breaks[0])
      let seed: number = first
      while (seed < first + ENOUGH_SEEDS && !(await found(seed))) seed++
      expect(seed).toBeLessThan(first + ENOUGH_SEEDS)
    },
    PATIENCE_MS,
  )
})
