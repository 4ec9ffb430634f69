import { pino } from 'pino'
import { expect, inject, it, onTestFinished } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { freshPrefix } from '../../test/support/redis-store.ts'
import { openStore } from './open.ts'

/** Opens a store, and returns its kind and its log lines. */
async function open(redisUrl: string | undefined) {
  const lines: string[] = []
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) })
  const [clock, random] = [new FakeClock(), new SeededRandom()]
  const store = await openStore({ redisUrl, keyPrefix: freshPrefix(), log, clock, random })
  onTestFinished(() => store.close())
  await store.ping()
  return { kind: store.kind, logged: lines.join('') }
}

it('opens the Redis at the URL', async () => {
  expect(await open(inject('redisUrl'))).toEqual({ kind: 'redis', logged: '' })
})

it.each([undefined, ''])('opens a store in memory if the URL is %j, and logs it', async (redisUrl) => {
  const { kind, logged } = await open(redisUrl)
  expect(kind).toBe('memory')
  expect(logged).toContain('only this process can use it')
})
