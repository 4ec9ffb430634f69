import { expect, it } from 'vitest'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import { describeStore } from '../testing/conformance.ts'
import { ExpiringMap } from './expiring-map.ts'
import { memoryStore } from './memory.ts'

describeStore('the memory store', async () => {
  const clock = new FakeClock()
  return {
    store: memoryStore({ clock }),
    elapse: async (ttlMs, seen) => {
      clock.advance(ttlMs - 1)
      expect(await seen()).toBe(false)
      clock.advance(1)
      expect(await seen()).toBe(true)
    },
  }
})

it('does not keep expired entries that no one asks for again', () => {
  const clock = new FakeClock()
  const map = new ExpiringMap<number>(clock)
  for (let n = 0; n < 1000; n++) map.set(`short ${n}`, n, 10)
  clock.advance(10)
  for (let n = 0; n < 1000; n++) map.set(`long ${n}`, n, 10_000)
  expect(map.size).toBe(1000)
})
