import { describe, expect, it } from 'vitest'
import { StoreUnavailable } from '../port.ts'
import { bytes, LONG_MS, type OpenStore, opened } from './harness.ts'

export function describeLife(open: OpenStore): void {
  describe('life', () => {
    it('answers a ping and tells the time in milliseconds', async () => {
      const { store } = await opened(open)
      await store.ping()
      const first = await store.time()
      expect(first).toBeGreaterThan(Date.parse('2025-01-01'))
      expect(await store.time()).toBeGreaterThanOrEqual(first)
    })

    it('tells for how long it has been running, and never calls back while it was not lost', async () => {
      const { store } = await opened(open)
      let returns = 0
      const end = store.onReturn(() => returns++)
      const first = await store.uptime()
      expect(first).toBeGreaterThanOrEqual(0)
      expect(await store.uptime()).toBeGreaterThanOrEqual(first)
      expect(returns).toBe(0)
      end()
      end()
    })

    it('rejects every call with StoreUnavailable once closed, and may be closed again', async () => {
      const { store } = await opened(open)
      const fence = { epoch: 1, version: 0 }
      await store.close()
      await store.close()
      const calls = [
        store.ping(),
        store.time(),
        store.records.read(['k']),
        store.records.write([{ remove: 'k' }]),
        store.records.page('i', { limit: 1 }),
        store.rooms.inspect('r'),
        store.rooms.claim('r', 'node_a', 0, LONG_MS),
        store.rooms.commit('r', fence, bytes('x'), LONG_MS),
        store.rooms.snapshot('r', fence, bytes('x'), LONG_MS),
        store.rooms.release('r', fence, { forget: true, ttlMs: LONG_MS }),
        store.rooms.refresh('r', fence, LONG_MS),
        store.bus.publish('c', bytes('x')),
        store.bus.subscribe('c', () => undefined),
        store.bus.listeners(['c']),
        store.locks.withLock('l', { ttlMs: LONG_MS, waitMs: 0 }, async () => 'x'),
        store.uptime(),
      ]
      for (const outcome of await Promise.allSettled(calls)) {
        expect(outcome.status === 'rejected' && outcome.reason).toBeInstanceOf(StoreUnavailable)
      }
    })
  })
}
