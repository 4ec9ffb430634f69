import { describe, expect, it, vi } from 'vitest'
import { type Locks, StoreUnavailable } from '../port.ts'
import { bytes, everyByte, itExpires, LONG_MS, type OpenStore, opened, text } from './harness.ts'
import { describeDueTimes, describeListings, describeNotices } from './lists.ts'
import { describeRecords } from './records.ts'
import { describeRooms } from './rooms.ts'

export type { OpenStore, StoreUnderTest } from './harness.ts'

/** Tests of every adapter of the store port. `open` is called once for each case. */
export function describeStore(name: string, open: OpenStore): void {
  describe(name, () => {
    describeRecords(open)
    describeRooms(open)
    describeDueTimes(open, 'wakeups')
    describeDueTimes(open, 'notices')
    describeNotices(open)
    describeListings(open)
    describeBus(open)
    describeLocks(open)
    describeLife(open)
  })
}

function describeBus(open: OpenStore): void {
  describe('bus', () => {
    it('delivers every message to the subscribers of its channel, in order, and counts the listening processes', async () => {
      const { bus } = (await opened(open)).store
      const heard: string[] = []
      expect(await bus.publish('news', bytes('before anyone listened'))).toBe(0)
      await bus.subscribe('news', (message) => heard.push(`first ${text(message)}`))
      await bus.subscribe('news', (message) => heard.push(`second ${text(message)}`))
      await bus.subscribe('other', (message) => heard.push(`other ${text(message)}`))
      expect(await Promise.all([bus.publish('news', bytes('1')), bus.publish('news', bytes('2'))])).toEqual([
        1, 1,
      ])
      await vi.waitFor(() => expect(heard).toHaveLength(4), 60_000)
      expect(heard).toEqual(['first 1', 'second 1', 'first 2', 'second 2'])
    })

    it('delivers after publish has returned to its caller', async () => {
      const { bus } = (await opened(open)).store
      const steps: string[] = []
      await bus.subscribe('c', () => steps.push('delivered'))
      const publishing = bus.publish('c', bytes('x'))
      steps.push('returned')
      await publishing
      await vi.waitFor(() => expect(steps).toEqual(['returned', 'delivered']), 60_000)
    })

    it('carries every byte value and the empty message, and shares no buffer', async () => {
      const { bus } = (await opened(open)).store
      const heard: Uint8Array[] = []
      await bus.subscribe('c', (message) => message.fill(0))
      await bus.subscribe('c', (message) => heard.push(message))
      const message = everyByte()
      const publishing = bus.publish('c', message)
      message.fill(0)
      await publishing
      await bus.publish('c', new Uint8Array())
      await vi.waitFor(() => expect(heard).toEqual([everyByte(), new Uint8Array()]), 60_000)
    })

    it('ends one subscription and keeps the others', async () => {
      const { bus } = (await opened(open)).store
      const heard: string[] = []
      const end = await bus.subscribe('c', () => heard.push('ended'))
      const endOther = await bus.subscribe('c', (message) => heard.push(`${text(message)}`))
      await end()
      await end()
      expect(await bus.publish('c', bytes('one'))).toBe(1)
      await vi.waitFor(() => expect(heard).toEqual(['one']), 60_000)
      await endOther()
      expect(await bus.publish('c', bytes('two'))).toBe(0)
      await bus.subscribe('c', (message) => heard.push(`again ${text(message)}`))
      expect(await bus.publish('c', bytes('three'))).toBe(1)
      await vi.waitFor(() => expect(heard).toEqual(['one', 'again three']), 60_000)
    })

    it('returns the number of listening processes of each channel, in the given order', async () => {
      const { bus } = (await opened(open)).store
      expect(await bus.listeners([])).toEqual([])
      expect(await bus.listeners(['c', 'd'])).toEqual([0, 0])
      const end = await bus.subscribe('d', () => undefined)
      await bus.subscribe('d', () => undefined)
      expect(await bus.listeners(['c', 'd', 'c'])).toEqual([0, 1, 0])
      await end()
      expect(await bus.listeners(['d'])).toEqual([1])
    })
  })
}

/** Acquires a lock and keeps it until `release` is called. Resolves when it is held. */
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

function describeLocks(open: OpenStore): void {
  describe('locks', () => {
    it('returns the result of the work, or its error, and is free afterwards', async () => {
      const { locks } = (await opened(open)).store
      expect(await locks.withLock('l', NOW, async () => 'done')).toBe('done')
      const failing = locks.withLock('l', NOW, () => Promise.reject(new Error('the work failed')))
      await expect(failing).rejects.toThrow('the work failed')
      expect(await locks.withLock('l', NOW, async () => 'again')).toBe('again')
    })

    it('excludes work under the same name, and no other work', async () => {
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

    it('waits for a lock as long as given', async () => {
      const { locks } = (await opened(open)).store
      const lock = await held(locks, 'l', LONG_MS)
      const waiting = locks.withLock('l', { ttlMs: LONG_MS, waitMs: LONG_MS }, async () => 'done')
      await lock.release()
      expect(await waiting).toBe('done')
    })

    it('has one holder at a time, for any number of waiters', async () => {
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

    itExpires(
      open,
      'runs out, and is then not taken from its next holder',
      async ({ store, elapse }, shortMs) => {
        const { locks } = store
        const late = await held(locks, 'l', shortMs)
        await elapse(shortMs, async () => {
          const free = await locks.withLock('l', { ttlMs: LONG_MS, waitMs: 0 }, async () => 'free')
          return free !== undefined
        })
        const next = await held(locks, 'l', LONG_MS)
        await late.release()
        expect(await locks.withLock('l', NOW, async () => 'done')).toBeUndefined()
        await next.release()
      },
    )

    it('rejects invalid times', async () => {
      const { locks } = (await opened(open)).store
      const work = async () => 'done'
      await expect(locks.withLock('l', { ttlMs: 0, waitMs: 0 }, work)).rejects.toThrow('ttlMs is 0')
      await expect(locks.withLock('l', { ttlMs: 1, waitMs: -1 }, work)).rejects.toThrow('waitMs is -1')
    })
  })
}

function describeLife(open: OpenStore): void {
  describe('life cycle', () => {
    it('answers a ping, and returns the time in milliseconds', async () => {
      const { store } = await opened(open)
      await store.ping()
      const first = await store.time()
      expect(first).toBeGreaterThan(Date.parse('2025-01-01'))
      expect(await store.time()).toBeGreaterThanOrEqual(first)
    })

    it('returns the uptime, and does not call back without an outage', async () => {
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

    it('rejects every call with StoreUnavailable after close, and may be closed again', async () => {
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
        store.wakeups.set('r', fence, 1),
        store.wakeups.take(0, { limit: 1, againMs: LONG_MS }),
        store.listings.write('p/r', { roomId: 'r:a', epoch: 1, version: 1, value: bytes('x') }, LONG_MS),
        store.listings.changes('p/r', '', 1),
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
