import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { runScript } from '../support/program.ts'
import { ATTACKS } from './attacks.ts'

const RUN = fileURLToPath(new URL('./run.ts', import.meta.url))

/** Each attack takes a second: a broken promise shows early. Longer runs on a quiet machine measure how much slower players become. */
test('a service withstands every attack, and its players continue', { timeout: 900_000 }, async () => {
  const run = runScript(RUN, ['--seconds', '1'])
  await run.ended
  const lines = run.output().split('\n')
  expect(lines.filter((line) => line.includes('BROKEN'))).toEqual([])
  expect(lines.at(-2)).toMatch(new RegExp(`withstood .* of ${ATTACKS.length} attacks`))
})
