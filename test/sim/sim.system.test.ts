import { describe, expect, it } from 'vitest'
import { check } from '../chaos/checker/check.ts'
import { VIOLATIONS, type ViolationName } from '../chaos/checker/history.ts'
import { isFullLength, runLength } from '../support/run-length.ts'
import { FAULT_RUN, FAULTS, type Fault, violationsOf } from './mutations.ts'
import { SimWorld } from './world.ts'

const PATIENCE_MS = 60_000
/** Seeds within which each mistake is found. */
const ENOUGH_SEEDS = 24
const SEARCH_MS = 600_000

const run = (seed: number) => SimWorld.run({ ...FAULT_RUN, seed })

describe('SimWorld', () => {
  it.each([1, 2, 3, 4, 5].slice(0, runLength(2, 5)))(
    'breaks no rule of the checker with the faults of seed %i',
    async (seed) => {
      const { violations } = check(await run(seed))
      expect(violations).toEqual([])
    },
    PATIENCE_MS,
  )

  it(
    'gives the same history for the same seed',
    async () => {
      const [one, other] = [await run(6), await run(6)]
      expect(JSON.stringify(other)).toBe(JSON.stringify(one))
    },
    PATIENCE_MS,
  )

  it('has a mistake for each rule of the checker', () => {
    const found = Object.values<Fault>(FAULTS).flatMap(({ breaks }) => breaks)
    const rules = Object.keys(VIOLATIONS) as ViolationName[]
    expect(rules.filter((rule) => !found.includes(rule))).toEqual([])
  })

  const mistakes: readonly string[] = isFullLength() ? Object.keys(FAULTS) : ['doubled', 'refiring']
  it.each(mistakes)(
    'breaks the rules of the mistake %s',
    async (name) => {
      const fault = (FAULTS as Readonly<Record<string, Fault>>)[name]!
      const found = new Set<ViolationName>()
      for (let seed = 1; seed <= ENOUGH_SEEDS && !fault.breaks.every((rule) => found.has(rule)); seed++)
        for (const rule of await violationsOf(fault, seed)) found.add(rule)
      expect([...found]).toEqual(expect.arrayContaining([...fault.breaks]))
    },
    SEARCH_MS,
  )
})
