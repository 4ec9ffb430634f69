import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { runScript } from '../support/program.ts'
import { ATTACKS } from './attacks.ts'

const RUN = fileURLToPath(new URL('./run.ts', import.meta.url))

/** For a second each, since what must not be possible shows at once. How slow the players became is for longer runs on a quiet machine. */
test('a service stands every attack, and its players play on', { timeout: 240_000 }, async () => {
  const run = runScript(RUN, ['--seconds', '1'])
  await run.ended
  const lines = run.output().split('\n')
  expect(lines.filter((line) => line.includes('BROKEN'))).toEqual([])
  expect(lines.at(-2)).toMatch(new RegExp(`of ${ATTACKS.length} attacks were stood`))
})
