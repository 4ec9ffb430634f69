import { describe, expect, it } from 'vitest'
import type { Fence, Store } from '../port.ts'
import { WAKEUP_PARTS, wakeupPart } from '../rules.ts'
import { LONG_MS, type OpenStore, opened, SHORT_MS } from './harness.ts'

const at = (epoch: number, version = 1): Fence => ({ epoch, version })
const ROOMS = ['p/clock:a', 'p/clock:b', 'p/clock:c', 'p/clock:d', 'q/x:{tag}', 'p/clock:ü']

/** Rooms whose time has come, of all parts, by name. */
async function taken({ wakeups }: Store, { limit = 100, againMs = LONG_MS } = {}): Promise<string[]> {
  const rooms: string[] = []
  for (let part = 0; part < WAKEUP_PARTS; part++)
    for (const { room, fence } of await wakeups.take(part, { limit, againMs }))
      rooms.push(`${room} ${fence.epoch}`)
  return rooms.sort()
}

export function describeWakeups(open: OpenStore): void {
  describe('wakeups', () => {
    it('gives every room whose time has come, once, and no other', async () => {
      const { store } = await opened(open)
      const now = await store.time()
      for (const room of ROOMS) await store.wakeups.set(room, at(7), now - 5)
      await store.wakeups.set('p/clock:later', at(7), now + LONG_MS)
      await store.wakeups.set('p/clock:far', at(7), now + 400 * 86_400_000)
      expect(await taken(store)).toEqual(ROOMS.map((room) => `${room} 7`).sort())
      expect(await taken(store)).toEqual([])
    })

    it('gives a room when its time comes by the clock of the store, and again after a while unless its owner says otherwise', async () => {
      const { store, elapse } = await opened(open)
      await store.wakeups.set('p/clock:a', at(7), (await store.time()) + SHORT_MS)
      const gives = async () => (await taken(store, { againMs: SHORT_MS })).length === 1
      await elapse(SHORT_MS, gives)
      await elapse(SHORT_MS, gives)
      await store.wakeups.set('p/clock:a', at(7, 2), (await store.time()) + LONG_MS)
      expect(await taken(store)).toEqual([])
    })

    it('gives at most so many of a part, the earliest first', async () => {
      const { store } = await opened(open)
      const now = await store.time()
      for (let i = 0; i < 40; i++) await store.wakeups.set(`p/clock:${i}`, at(7), now - 100 + i)
      const first = await store.wakeups.take(0, { limit: 2, againMs: LONG_MS })
      const second = await store.wakeups.take(0, { limit: 2, againMs: LONG_MS })
      const numbers = [...first, ...second].map(({ room }) => Number(room.split(':')[1]))
      expect(numbers).toHaveLength(4)
      expect(numbers).toEqual([...numbers].sort((one, other) => one - other))
    })

    it('puts a room off under the fence that it was taken with, unless its owner has said something since', async () => {
      const { store } = await opened(open)
      const { wakeups } = store
      const now = await store.time()
      const room = 'p/clock:a'
      await wakeups.set(room, at(7, 2), now - 1)
      const [wakeup] = await wakeups.take(wakeupPart(room), { limit: 1, againMs: 0 })
      expect(wakeup).toEqual({ room, fence: at(7, 2) })
      await wakeups.set(room, wakeup!.fence, now + LONG_MS)
      expect(await taken(store)).toEqual([])
      await wakeups.set(room, at(7, 3), now - 1)
      await wakeups.set(room, wakeup!.fence, now + LONG_MS)
      expect(await taken(store)).toEqual([`${room} 7`])
    })

    it('forgets a room that is not to be woken', async () => {
      const { store } = await opened(open)
      await store.wakeups.set('p/clock:a', at(7), (await store.time()) - 1)
      await store.wakeups.set('p/clock:a', at(7, 2), undefined)
      await store.wakeups.set('p/clock:b', at(7), undefined)
      expect(await taken(store)).toEqual([])
    })

    it('is not told otherwise by an earlier owner, nor by what an owner said before', async () => {
      const { store } = await opened(open)
      const past = (await store.time()) - 1
      await store.wakeups.set('p/clock:a', at(7, 3), past)
      await store.wakeups.set('p/clock:a', at(6, 9), undefined)
      await store.wakeups.set('p/clock:a', at(7, 2), past + LONG_MS)
      expect(await taken(store, { againMs: 0 })).toEqual(['p/clock:a 7'])
      await store.wakeups.set('p/clock:a', at(8, 0), undefined)
      expect(await taken(store)).toEqual([])
    })
  })
}
