import { describe, expect, it } from 'vitest'
import {
  DUE_PARTS,
  type DueTimes,
  duePart,
  type Fence,
  type ListedRoom,
  type Listings,
  type Store,
} from '../port.ts'
import { bytes, everyByte, itExpires, LONG_MS, type OpenStore, opened, text } from './harness.ts'

const LIST = 'prj_1/duel'

const row = (key: string, epoch: number, version: number, value?: string): ListedRoom => ({
  roomId: `duel:${key}`,
  epoch,
  version,
  value: value === undefined ? undefined : bytes(value),
})

/** A reader's copy of a list, as nodes keep it. */
class Copy {
  readonly #listings: Listings
  readonly #limit: number
  readonly rows = new Map<string, string | undefined>()
  cursor = ''
  restarts = 0

  constructor(listings: Listings, limit = 100) {
    this.#listings = listings
    this.#limit = limit
  }

  /** Reads all pages, and returns each change as `key=value`. */
  async read(): Promise<string[]> {
    const changes: string[] = []
    for (;;) {
      const { cursor, rooms, restarted, more } = await this.#listings.changes(LIST, this.cursor, this.#limit)
      if (restarted) {
        this.restarts++
        this.rows.clear()
      }
      expect(rooms.length).toBeLessThanOrEqual(this.#limit)
      for (const { roomId, value } of rooms) {
        const key = roomId.slice('duel:'.length)
        changes.push(`${key}=${text(value) ?? 'gone'}`)
        if (value) this.rows.set(key, text(value))
        else this.rows.delete(key)
      }
      this.cursor = cursor
      if (!more) return changes
    }
  }
}

export function describeListings(open: OpenStore): void {
  describe('listings', () => {
    it('returns each changed room once, oldest change first, and only changes since the cursor', async () => {
      const { listings } = (await opened(open)).store
      const copy = new Copy(listings)
      expect(await copy.read()).toEqual([])
      for (const [key, value] of [
        ['a', '1'],
        ['b', '1'],
        ['c', '1'],
      ] as const)
        expect(await listings.write(LIST, row(key, 5, 1, value), LONG_MS)).toBe(true)
      await listings.write(LIST, row('a', 5, 2, '2'), LONG_MS)
      expect(await copy.read()).toEqual(['b=1', 'c=1', 'a=2'])
      const before = copy.restarts
      expect(await copy.read()).toEqual([])
      await listings.write(LIST, row('b', 5, 2), LONG_MS)
      await listings.write(LIST, row('c', 5, 2, '2'), LONG_MS)
      expect(await copy.read()).toEqual(['b=gone', 'c=2'])
      expect(copy.restarts).toBe(before)
      expect(Object.fromEntries(copy.rows)).toEqual({ a: '2', c: '2' })
    })

    it('keeps lists separate, carries every byte value and the empty value, and shares no buffer', async () => {
      const { listings } = (await opened(open)).store
      const value = everyByte()
      const writing = listings.write(LIST, { ...row('a', 1, 1), value }, LONG_MS)
      value.fill(0)
      await writing
      await listings.write(LIST, row('ü {x}', 1_764_000_000_000, 2, ''), LONG_MS)
      await listings.write('prj_2/duel', row('other', 1, 1, 'x'), LONG_MS)
      const { rooms } = await listings.changes(LIST, '', 10)
      expect(rooms).toEqual([
        { roomId: 'duel:a', epoch: 1, version: 1, value: everyByte() },
        { roomId: 'duel:ü {x}', epoch: 1_764_000_000_000, version: 2, value: new Uint8Array() },
      ])
      rooms[0]!.value!.fill(0)
      expect((await listings.changes(LIST, '', 1)).rooms[0]!.value).toEqual(everyByte())
    })

    it('refuses a write of an earlier owner, and an earlier write of the same owner, also after the row was removed', async () => {
      const { listings } = (await opened(open)).store
      const write = (epoch: number, version: number, value?: string) =>
        listings.write(LIST, row('a', epoch, version, value), LONG_MS)
      const copy = new Copy(listings)
      expect(await write(7, 3, 'seven')).toBe(true)
      expect([
        await write(6, 9, 'six'),
        await write(6, 9),
        await write(7, 2),
        await write(7, 2, 'two'),
      ]).toEqual([false, false, false, false])
      expect(await copy.read()).toEqual(['a=seven'])
      // A write is repeated after its answer was lost.
      expect(await write(7, 3, 'seven')).toBe(true)
      expect(await write(7, 4)).toBe(true)
      expect([await write(7, 3, 'seven'), await write(6, 10, 'six')]).toEqual([false, false])
      expect(await copy.read()).toEqual(['a=gone'])
      expect(await write(8, 1, 'eight')).toBe(true)
      expect(await copy.read()).toEqual(['a=eight'])
    })

    it('writes nothing after the time limit of a row', async () => {
      const { store } = await opened(open)
      const room = { roomId: 'arena:a', epoch: 1, version: 1, value: bytes('late') }
      const now = await store.time()
      expect(await store.listings.write(LIST, room, LONG_MS, now - 1000)).toBe(false)
      expect((await store.listings.changes(LIST, '', 9)).rooms).toEqual([])
      expect(await store.listings.write(LIST, room, LONG_MS, now + 60_000)).toBe(true)
    })

    it('accepts the removal of a room that was never listed', async () => {
      const { listings } = (await opened(open)).store
      expect(await listings.write(LIST, row('a', 7, 1), LONG_MS)).toBe(true)
      expect(await listings.write(LIST, row('a', 6, 1, 'late'), LONG_MS)).toBe(false)
      const copy = new Copy(listings)
      await copy.read()
      expect(copy.rows.size).toBe(0)
    })

    it('reads a long list in pages, and misses no change between them', async () => {
      const { listings } = (await opened(open)).store
      for (let n = 0; n < 7; n++) await listings.write(LIST, row(`${n}`, 5, 1, 'old'), LONG_MS)
      const first = await listings.changes(LIST, '', 3)
      expect([first.rooms.length, first.restarted, first.more]).toEqual([3, true, true])
      await listings.write(LIST, row('0', 5, 2, 'new'), LONG_MS)
      await listings.write(LIST, row('5', 5, 2), LONG_MS)
      const copy = new Copy(listings, 3)
      copy.cursor = first.cursor
      expect(await copy.read()).toEqual(['3=old', '4=old', '6=old', '0=new', '5=gone'])
      expect(copy.restarts).toBe(0)
      const whole = new Copy(listings, 7)
      expect(await whole.read()).toHaveLength(7)
      expect(await listings.changes(LIST, '', 7)).toMatchObject({ more: false })
    })

    itExpires(
      open,
      'ends a row after its lifetime, which readers see as a change; a write prolongs it',
      async ({ store, elapse }, shortMs) => {
        const { listings } = store
        await listings.write(LIST, row('long', 5, 1, 'x'), Number.POSITIVE_INFINITY)
        await listings.write(LIST, row('again', 5, 1, 'x'), shortMs)
        await listings.write(LIST, row('again', 5, 2, 'x'), LONG_MS)
        await listings.write(LIST, row('short', 5, 1, 'x'), shortMs)
        const copy = new Copy(listings)
        await copy.read()
        await elapse(shortMs, async () => (await copy.read()).includes('short=gone'))
        expect([[...copy.rows.keys()].sort(), copy.restarts]).toEqual([['again', 'long'], 1])
        const late = new Copy(listings)
        await late.read()
        expect([...late.rows.keys()].sort()).toEqual(['again', 'long'])
        // The store still knows which write was the last.
        expect(await listings.write(LIST, row('short', 4, 9, 'x'), LONG_MS)).toBe(false)
      },
    )

    it('starts a new copy for an empty cursor or that of another list', async () => {
      const { listings } = (await opened(open)).store
      await listings.write('prj_2/duel', row('x', 1, 1, 'x'), LONG_MS)
      const other = await listings.changes('prj_2/duel', '', 10)
      const before = await listings.changes(LIST, other.cursor, 10)
      expect(before).toMatchObject({ rooms: [], restarted: true, more: false })
      await listings.write(LIST, row('a', 1, 1, 'x'), LONG_MS)
      for (const cursor of ['', before.cursor])
        expect(await listings.changes(LIST, cursor, 10)).toMatchObject({
          rooms: [{ roomId: 'duel:a' }],
          restarted: true,
        })
    })

    it('rejects an invalid lifetime or limit', async () => {
      const { listings } = (await opened(open)).store
      await expect(listings.write(LIST, row('a', 1, 1, 'x'), 0)).rejects.toThrow('ttlMs is 0')
      await expect(listings.changes(LIST, '', 0)).rejects.toThrow('limit is 0')
    })
  })
}

const ROOM = 'prj_a/arena:lobby {1}'
const AT: Fence = { epoch: 7, version: 3 }

async function owned({ rooms }: Store): Promise<Fence> {
  return (await rooms.claim(ROOM, 'node_a', 0, LONG_MS))!.fence
}

const next = ({ epoch, version }: Fence): Fence => ({ epoch, version: version + 1 })

/** Removes all notices of the room and returns them, oldest first. */
async function drained({ notices }: Store): Promise<(string | undefined)[]> {
  const texts: (string | undefined)[] = []
  for (;;) {
    const [notice] = await notices.oldest(ROOM, 1)
    if (!notice) return texts
    texts.push(text(notice))
    await notices.remove(ROOM, notice)
  }
}

export function describeNotices(open: OpenStore): void {
  describe('notices', () => {
    it('are written with an entry, with a snapshot and with the end of the room, in this order', async () => {
      const { store } = await opened(open)
      const fence = await owned(store)
      const { rooms, notices } = store
      expect(await notices.oldest(ROOM, 1)).toEqual([])
      expect(await rooms.commit(ROOM, fence, bytes('e'), LONG_MS, [bytes('9'), bytes('8')])).toBe(true)
      expect(await rooms.commit(ROOM, next(fence), bytes('f'), LONG_MS)).toBe(true)
      const third = next(next(fence))
      expect(await rooms.snapshot(ROOM, third, bytes('s'), LONG_MS, 1, [bytes('7')])).toBe(true)
      const last = { forget: true, ttlMs: LONG_MS, notices: [bytes('6')] }
      expect(await rooms.release(ROOM, next(third), last)).toBe(true)
      expect(await notices.count(ROOM)).toBe(4)
      expect((await notices.oldest(ROOM, 3)).map(text)).toEqual(['9', '8', '7'])
      expect(await drained(store)).toEqual(['9', '8', '7', '6'])
      expect(await notices.count(ROOM)).toBe(0)
    })

    it('are not written by a fenced writer', async () => {
      const { store } = await opened(open)
      const fence = await owned(store)
      const { rooms } = store
      const late = next(fence)
      expect(await rooms.commit(ROOM, late, bytes('e'), LONG_MS, [bytes('1')])).toBe(false)
      expect(await rooms.snapshot(ROOM, late, bytes('s'), LONG_MS, 1, [bytes('2')])).toBe(false)
      expect(await rooms.release(ROOM, late, { forget: true, notices: [bytes('3')] })).toBe(false)
      expect(await store.notices.count(ROOM)).toBe(0)
    })

    itExpires(
      open,
      'outlive the end of the room and its next owner, and keep every byte',
      async ({ store, elapse }, shortMs) => {
        const fence = await owned(store)
        await store.rooms.commit(ROOM, fence, bytes('e'), shortMs, [everyByte()])
        await store.rooms.release(ROOM, next(fence), { forget: true, ttlMs: shortMs })
        await elapse(shortMs, async () => (await store.rooms.inspect(ROOM)) === undefined)
        expect((await store.rooms.claim(ROOM, 'node_b', 0, LONG_MS))!.journal).toEqual([])
        expect(await store.notices.oldest(ROOM, 9)).toEqual([everyByte()])
      },
    )

    it('keep their place when the owner writes them again', async () => {
      const { store } = await opened(open)
      const fence = await owned(store)
      await store.rooms.commit(ROOM, fence, bytes('e'), LONG_MS, [bytes('2'), bytes('1')])
      const again = [bytes('2'), bytes('1'), bytes('0')]
      await store.rooms.snapshot(ROOM, next(fence), bytes('s'), LONG_MS, 1, again)
      expect(await drained(store)).toEqual(['2', '1', '0'])
    })

    it('list the rooms of a part, and can all be dropped for a room', async () => {
      const { store } = await opened(open)
      const { notices, rooms } = store
      const fence = await owned(store)
      await notices.set(ROOM, fence, 2)
      await rooms.commit(ROOM, fence, bytes('e'), LONG_MS, [bytes('1'), bytes('2')])
      const part = duePart(ROOM)
      const names = Array.from({ length: 40 }, (_, i) => `p/duel:${i}`).filter(
        (room) => duePart(room) === part,
      )
      for (const room of names) await notices.set(room, AT, 1)
      const pages = [await notices.rooms(part, 2), await notices.rooms(part, 100, 2)]
      expect(pages[0]).toHaveLength(2)
      expect(new Set(pages.flat())).toEqual(new Set([ROOM, ...names]))
      await notices.drop(ROOM)
      expect([await notices.count(ROOM), await notices.rooms(part, 100, names.length)]).toEqual([0, []])
      const taken = await notices.take(part, { limit: 100, againMs: LONG_MS })
      expect(new Set(taken.map(({ room }) => room))).toEqual(new Set(names))
    })
  })
}

const at = (epoch: number, version = 1): Fence => ({ epoch, version })
const SLEEPING = ['p/clock:a', 'p/clock:b', 'p/clock:c', 'p/clock:d', 'q/x:{tag}', 'p/clock:ü']

/** Due rooms of all parts, by name. */
async function due(times: DueTimes, { limit = 100, againMs = LONG_MS } = {}): Promise<string[]> {
  const rooms: string[] = []
  for (let part = 0; part < DUE_PARTS; part++)
    for (const { room, fence } of await times.take(part, { limit, againMs }))
      rooms.push(`${room} ${fence.epoch}`)
  return rooms.sort()
}

export function describeDueTimes(open: OpenStore, index: 'wakeups' | 'notices'): void {
  describe(`the times of ${index}`, () => {
    it('returns every due room once, and no other', async () => {
      const { store } = await opened(open)
      const now = await store.time()
      for (const room of SLEEPING) await store[index].set(room, at(7), now - 5)
      await store[index].set('p/clock:later', at(7), now + LONG_MS)
      await store[index].set('p/clock:far', at(7), now + 400 * 86_400_000)
      expect(await due(store[index])).toEqual(SLEEPING.map((room) => `${room} 7`).sort())
      expect(await due(store[index])).toEqual([])
    })

    itExpires(
      open,
      'gives a room when its time comes by the clock of the store, and again after a while unless its owner says otherwise',
      async ({ store, elapse }, shortMs) => {
        await store[index].set('p/clock:a', at(7), (await store.time()) + shortMs)
        const gives = async () => (await due(store[index], { againMs: shortMs })).length === 1
        await elapse(shortMs, gives)
        await elapse(shortMs, gives)
        await store[index].set('p/clock:a', at(7, 2), (await store.time()) + LONG_MS)
        expect(await due(store[index])).toEqual([])
      },
    )

    it('returns at most `limit` rooms of a part, earliest first', async () => {
      const { store } = await opened(open)
      const now = await store.time()
      for (let i = 0; i < 40; i++) await store[index].set(`p/clock:${i}`, at(7), now - 100 + i)
      const first = await store[index].take(0, { limit: 2, againMs: LONG_MS })
      const second = await store[index].take(0, { limit: 2, againMs: LONG_MS })
      const numbers = [...first, ...second].map(({ room }) => Number(room.split(':')[1]))
      expect(numbers).toHaveLength(4)
      expect(numbers).toEqual([...numbers].sort((one, other) => one - other))
    })

    it('postpones a room under the fence that was returned, unless its owner has set another time since', async () => {
      const { store } = await opened(open)
      const wakeups = store[index]
      const now = await store.time()
      const room = 'p/clock:a'
      await wakeups.set(room, at(7, 2), now - 1)
      const [wakeup] = await wakeups.take(duePart(room), { limit: 1, againMs: 0 })
      expect(wakeup).toEqual({ room, fence: at(7, 2) })
      await wakeups.set(room, wakeup!.fence, now + LONG_MS)
      expect(await due(store[index])).toEqual([])
      await wakeups.set(room, at(7, 3), now - 1)
      await wakeups.set(room, wakeup!.fence, now + LONG_MS)
      expect(await due(store[index])).toEqual([`${room} 7`])
    })

    it('drops a room whose time was removed', async () => {
      const { store } = await opened(open)
      await store[index].set('p/clock:a', at(7), (await store.time()) - 1)
      await store[index].set('p/clock:a', at(7, 2), undefined)
      await store[index].set('p/clock:b', at(7), undefined)
      expect(await due(store[index])).toEqual([])
    })

    it('ignores an earlier owner, and earlier calls of an owner', async () => {
      const { store } = await opened(open)
      const past = (await store.time()) - 1
      await store[index].set('p/clock:a', at(7, 3), past)
      await store[index].set('p/clock:a', at(6, 9), undefined)
      await store[index].set('p/clock:a', at(7, 2), past + LONG_MS)
      expect(await due(store[index], { againMs: 0 })).toEqual(['p/clock:a 7'])
      await store[index].set('p/clock:a', at(8, 0), undefined)
      expect(await due(store[index])).toEqual([])
    })
  })
}
