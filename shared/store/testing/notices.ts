import { describe, expect, it } from 'vitest'
import type { Fence, Store, TakenNotices } from '../port.ts'
import { NOTICE_PARTS, noticePart } from '../rules.ts'
import { bytes, everyByte, LONG_MS, type OpenStore, opened, SHORT_MS, text } from './harness.ts'

const ROOM = 'prj_a/arena:lobby {1}'
const ROOMS = [ROOM, 'p/duel:a', 'p/duel:b', 'p/duel:c', 'q/x:{tag}', 'p/duel:ü']
const AT: Fence = { epoch: 7, version: 3 }

async function owned({ rooms }: Store): Promise<Fence> {
  return (await rooms.claim(ROOM, 'node_a', 0, LONG_MS))!.fence
}

const next = ({ epoch, version }: Fence): Fence => ({ epoch, version: version + 1 })

/** All notices of the room, the oldest first, which are removed. */
async function drained({ notices }: Store): Promise<(string | undefined)[]> {
  const texts: (string | undefined)[] = []
  for (;;) {
    const notice = await notices.oldest(ROOM)
    if (!notice) return texts
    texts.push(text(notice))
    await notices.remove(ROOM, notice)
  }
}

/** Takes all rooms that are due, of all parts, by name. */
async function taken({ notices }: Store, limit = 100): Promise<TakenNotices[]> {
  const rooms: TakenNotices[] = []
  for (let part = 0; part < NOTICE_PARTS; part++)
    rooms.push(...(await notices.take(part, { limit, leaseMs: LONG_MS })))
  return rooms.sort((one, other) => (one.room < other.room ? -1 : 1))
}

const take = async (store: Store, leaseMs = LONG_MS): Promise<TakenNotices | undefined> =>
  (await store.notices.take(noticePart(ROOM), { limit: 1, leaseMs }))[0]

export function describeNotices(open: OpenStore): void {
  describe('notices', () => {
    it('are written with an entry, with a snapshot and with the end of the room, in this order', async () => {
      const { store } = await opened(open)
      const fence = await owned(store)
      const { rooms, notices } = store
      expect(await notices.oldest(ROOM)).toBeUndefined()
      expect(await rooms.commit(ROOM, fence, bytes('e'), LONG_MS, [bytes('9'), bytes('8')])).toBe(true)
      expect(await rooms.commit(ROOM, next(fence), bytes('f'), LONG_MS)).toBe(true)
      const third = next(next(fence))
      expect(await rooms.snapshot(ROOM, third, bytes('s'), LONG_MS, 1, [bytes('7')])).toBe(true)
      const last = { forget: true, ttlMs: LONG_MS, notices: [bytes('6')] }
      expect(await rooms.release(ROOM, next(third), last)).toBe(true)
      expect(await notices.count(ROOM)).toBe(4)
      expect(await drained(store)).toEqual(['9', '8', '7', '6'])
      expect(await notices.count(ROOM)).toBe(0)
    })

    it('are not written by a writer that is fenced', async () => {
      const { store } = await opened(open)
      const fence = await owned(store)
      const { rooms } = store
      const late = next(fence)
      expect(await rooms.commit(ROOM, late, bytes('e'), LONG_MS, [bytes('1')])).toBe(false)
      expect(await rooms.snapshot(ROOM, late, bytes('s'), LONG_MS, 1, [bytes('2')])).toBe(false)
      expect(await rooms.release(ROOM, late, { forget: true, notices: [bytes('3')] })).toBe(false)
      expect(await store.notices.count(ROOM)).toBe(0)
    })

    it('outlive the end of the room and its next owner, and keep every byte', async () => {
      const { store, elapse } = await opened(open)
      const fence = await owned(store)
      await store.rooms.commit(ROOM, fence, bytes('e'), SHORT_MS, [everyByte()])
      await store.rooms.release(ROOM, next(fence), { forget: true, ttlMs: SHORT_MS })
      await elapse(SHORT_MS, async () => (await store.rooms.inspect(ROOM)) === undefined)
      expect((await store.rooms.claim(ROOM, 'node_b', 0, LONG_MS))!.journal).toEqual([])
      expect(await store.notices.oldest(ROOM)).toEqual(everyByte())
    })

    it('keep their place when the owner writes them again', async () => {
      const { store } = await opened(open)
      const fence = await owned(store)
      await store.rooms.commit(ROOM, fence, bytes('e'), LONG_MS, [bytes('2'), bytes('1')])
      const again = [bytes('2'), bytes('1'), bytes('0')]
      await store.rooms.snapshot(ROOM, next(fence), bytes('s'), LONG_MS, 1, again)
      expect(await drained(store)).toEqual(['2', '1', '0'])
    })

    it('lease each announced room to one node, and no other room', async () => {
      const { store } = await opened(open)
      const { notices } = store
      for (const room of ROOMS) await notices.announce(room, AT)
      const rooms = await taken(store)
      expect(rooms).toMatchObject(
        [...ROOMS].sort().map((room) => ({ room, fence: AT, announced: 1, failures: 0 })),
      )
      expect(await taken(store)).toEqual([])
      const parts = Array.from({ length: NOTICE_PARTS }, (_, part) => notices.rooms(part, 10))
      expect((await Promise.all(parts)).flat().sort()).toEqual([...ROOMS].sort())
    })

    it('lease a room again when the lease has expired, and not before, also after an announcement', async () => {
      const { store, elapse } = await opened(open)
      await store.notices.announce(ROOM, AT)
      const first = (await take(store, SHORT_MS))!
      await store.notices.announce(ROOM, next(AT))
      let second: TakenNotices | undefined
      await elapse(SHORT_MS, async () => {
        second = await take(store)
        return second !== undefined
      })
      expect(second).toMatchObject({ fence: next(AT), announced: 2 })
      expect(await store.notices.putOff(first, 1, 1)).toBeUndefined()
      expect(await store.notices.done({ ...first, announced: 2 })).toBe(false)
      expect(await store.notices.done(second!)).toBe(true)
      expect(await store.notices.done(second!)).toBe(false)
    })

    it('make the next delivery due when the holder of the lease says, and count its failures', async () => {
      const { store, elapse } = await opened(open)
      await store.notices.announce(ROOM, AT)
      const put = await store.notices.putOff((await take(store))!, SHORT_MS, 4)
      expect(put).toMatchObject({ room: ROOM, failures: 4 })
      let again: TakenNotices | undefined
      await elapse(SHORT_MS, async () => {
        again = await take(store)
        return again !== undefined
      })
      expect(again).toMatchObject({ fence: AT, announced: 1, failures: 4 })
      await store.notices.putOff(again!, 0, 0)
      expect(await take(store)).toMatchObject({ failures: 0 })
    })

    it('keep a room in the index if there was an announcement that its holder does not know', async () => {
      const { store } = await opened(open)
      await store.notices.announce(ROOM, AT)
      const held = (await take(store))!
      await store.notices.announce(ROOM, next(AT))
      expect(await store.notices.done(held)).toBe(false)
      await store.notices.putOff(held, 0, 0)
      const again = (await take(store))!
      expect(again.fence).toEqual(next(AT))
      expect(await store.notices.done(again)).toBe(true)
      expect(await taken(store)).toEqual([])
    })

    it('remember the fence of the latest owner, whatever an earlier one announces', async () => {
      const { store } = await opened(open)
      await store.notices.announce(ROOM, { epoch: 8, version: 1 })
      await store.notices.announce(ROOM, { epoch: 7, version: 9 })
      expect(await take(store)).toMatchObject({ fence: { epoch: 8, version: 1 }, announced: 2 })
    })

    it('list the rooms of a part, and drop all of a room', async () => {
      const { store } = await opened(open)
      const { notices, rooms } = store
      const fence = await owned(store)
      await notices.announce(ROOM, fence)
      await rooms.commit(ROOM, fence, bytes('e'), LONG_MS, [bytes('1'), bytes('2')])
      const part = noticePart(ROOM)
      const names = Array.from({ length: 40 }, (_, i) => `p/duel:${i}`).filter(
        (room) => noticePart(room) === part,
      )
      for (const room of names) await notices.announce(room, AT)
      const pages = [await notices.rooms(part, 2), await notices.rooms(part, 100, 2)]
      expect(pages[0]).toHaveLength(2)
      expect(new Set(pages.flat())).toEqual(new Set([ROOM, ...names]))
      await notices.drop(ROOM)
      expect([await notices.count(ROOM), await notices.rooms(part, 100, names.length)]).toEqual([0, []])
      const leased = await notices.take(part, { limit: 100, leaseMs: LONG_MS })
      expect(new Set(leased.map(({ room }) => room))).toEqual(new Set(names))
    })

    it('lease at most so many rooms of a part, those that are due first', async () => {
      const { store, elapse } = await opened(open)
      const { notices } = store
      const rooms = Array.from({ length: 40 }, (_, i) => `p/duel:${i}`).filter(
        (room) => noticePart(room) === 0,
      )
      const [last, ...others] = rooms as [string, ...string[]]
      for (const room of rooms) await notices.announce(room, AT)
      for (const one of await notices.take(0, { limit: 99, leaseMs: LONG_MS }))
        await notices.putOff(one, one.room === last ? SHORT_MS : 0, 1)
      await elapse(SHORT_MS, async () => {
        const due = await notices.take(0, { limit: 99, leaseMs: LONG_MS })
        for (const one of due) await notices.putOff(one, 0, 1)
        return due.some(({ room }) => room === last)
      })
      const first = await notices.take(0, { limit: 2, leaseMs: LONG_MS })
      expect(first).toHaveLength(2)
      expect(others.length).toBeGreaterThan(2)
      expect(await notices.take(0, { limit: 99, leaseMs: LONG_MS })).toHaveLength(rooms.length - 2)
    })
  })
}
