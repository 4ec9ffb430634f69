import { afterAll, beforeAll, expect, test } from 'vitest'
import { ATTACKS } from './attacks.ts'
import { Siege } from './siege.ts'

/** How long each attack goes on: what it must not be able to do shows at once. `npm run attack` goes on longer, and looks at the clock. */
const SECONDS = 1

let siege: Siege
beforeAll(async () => {
  siege = await Siege.begin()
})
afterAll(() => siege?.end())

test.each(ATTACKS)('$name: $holds', { timeout: 120_000 }, async (attack) => {
  const { broken } = await siege.assault(attack, SECONDS)
  expect(broken).toEqual([])
})
