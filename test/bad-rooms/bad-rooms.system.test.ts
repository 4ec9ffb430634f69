import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { runScript } from '../support/program.ts'
import { runLength } from '../support/run-length.ts'

const RUN = fileURLToPath(new URL('./run.ts', import.meta.url))
/** Required percentage of acks in time. The two ends of nodes weigh more in a short run than in a run of ten minutes. */
const SHARE = '80'

/**
 * 6 s for each kind, with bad code in `onMessage` and `onTick`. `test/stuck-turn.integration.test.ts` tests loops, and `npm run bad-rooms`
 * all kinds and hooks.
 */
describe('A cluster with bad room code', () => {
  it.each(['rejection', 'exit'].slice(0, runLength(1, 2)))(
    'survives %s: at most two nodes end, honest players continue, no message ends two nodes',
    { timeout: 240_000 },
    async (kind) => {
      const words = ['--kinds', kind, '--hooks', 'onMessage,onTick', '--seconds', '6', '--share', SHARE]
      const run = runScript(RUN, words)
      await run.ended
      const lines = run.output().split('\n')
      expect(lines.filter((line) => line.includes('MISSED'))).toEqual([])
      expect(lines.at(-2), run.output()).toBe('1 of 1 kinds met all goals')
    },
  )
})
