import { describe, expect, it } from 'vitest'
import type { Locks } from '../port.ts'
import { LONG_MS, type OpenStore, opened, SHORT_MS } from './harness.ts'

/** Takes a lock and keeps it until `release` is called; resolves once it is held. */
async function held(locks: Locks, name: string, ttlMs: number) {
  let release: () => void = () => undefined
  let ended: Promise<unknown> = Promise.resolve()
  await new Promise<void>((taken) => {
    const work = () =>
      new Promise<void>((resolve) => {
        release = resolve
        taken()
      })
    ended = locks.withLock(name, { ttlMs, waitMs: 0 }, work)
  })
  return {
    release: async () => {
      release()
      await ended
    },
  }
}

const NOW = { ttlMs: LONG_MS, waitMs: 0 }

export function describeLocks(open: OpenStore): void {
  describe('locks', () => {
    it('gives what the work gives, or what it throws, and is free afterwards', async () => {
      const { locks } = (await opened(open)).store
      expect(await locks.withLock('l', NOW, async () => 'done')).toBe('done')
      const failing = locks.withLock('l', NOW, () => Promise.reject(new Error('the work failed')))
      await expect(failing).rejects.toThrow('the work failed')
      expect(await locks.withLock('l', NOW, async () => 'again')).toBe('again')
    })

    it('lets nobody else work under the same name, and everybody under another', async () => {
      const { locks } = (await opened(open)).store
      const lock = await held(locks, 'l', LONG_MS)
      let worked = false
      const other = locks.withLock('l', NOW, async () => {
        worked = true
        return 'done'
      })
      expect([await other, worked]).toEqual([undefined, false])
      expect(await locks.withLock('other', NOW, async () => 'done')).toBe('done')
      await lock.release()
      expect(await locks.withLock('l', NOW, async () => 'done')).toBe('done')
    })

    it('waits for the lock as long as it was told to', async () => {
      const { locks } = (await opened(open)).store
      const lock = await held(locks, 'l', LONG_MS)
      const waiting = locks.withLock('l', { ttlMs: LONG_MS, waitMs: LONG_MS }, async () => 'done')
      await lock.release()
      expect(await waiting).toBe('done')
    })

    it('has one holder at a time, however many want it', async () => {
      const { locks } = (await opened(open)).store
      let [holders, most, turns] = [0, 0, 0]
      const work = async () => {
        most = Math.max(most, ++holders)
        await locks.withLock('elsewhere', NOW, async () => undefined)
        holders--
        turns++
      }
      const options = { ttlMs: LONG_MS, waitMs: LONG_MS }
      await Promise.all(Array.from({ length: 8 }, () => locks.withLock('l', options, work)))
      expect([most, turns]).toEqual([1, 8])
    })

    it('runs out, and is then not taken from whoever holds it next', async () => {
      const { store, elapse } = await opened(open)
      const { locks } = store
      const late = await held(locks, 'l', SHORT_MS)
      await elapse(SHORT_MS, async () => {
        const free = await locks.withLock('l', { ttlMs: LONG_MS, waitMs: 0 }, async () => 'free')
        return free !== undefined
      })
      const next = await held(locks, 'l', LONG_MS)
      await late.release()
      expect(await locks.withLock('l', NOW, async () => 'done')).toBeUndefined()
      await next.release()
    })

    it('refuses times that are none', async () => {
      const { locks } = (await opened(open)).store
      const work = async () => 'done'
      await expect(locks.withLock('l', { ttlMs: 0, waitMs: 0 }, work)).rejects.toThrow('ttl_ms is 0')
      await expect(locks.withLock('l', { ttlMs: 1, waitMs: -1 }, work)).rejects.toThrow('wait_ms is -1')
    })
  })
}
