import { describe, expect, it } from 'vitest'
import type { ListedRoom, Listings } from '../port.ts'
import { bytes, everyByte, LONG_MS, type OpenStore, opened, SHORT_MS, text } from './harness.ts'

const LIST = 'prj_1/duel'

const row = (key: string, epoch: number, version: number, value?: string): ListedRoom => ({
  roomId: `duel:${key}`,
  epoch,
  version,
  value: value === undefined ? undefined : bytes(value),
})

/** A reader's copy of a list, kept as nodes keep theirs. */
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

  /** Reads until there is no more; returns each change as `key=value`. */
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
    it('returns each changed room once, the oldest change first, and only changes since the cursor', async () => {
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

    it('keeps lists apart, and carries every byte value and the empty value, and shares no buffer', async () => {
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
      // A write whose answer was lost comes again.
      expect(await write(7, 3, 'seven')).toBe(true)
      expect(await write(7, 4)).toBe(true)
      expect([await write(7, 3, 'seven'), await write(6, 10, 'six')]).toEqual([false, false])
      expect(await copy.read()).toEqual(['a=gone'])
      expect(await write(8, 1, 'eight')).toBe(true)
      expect(await copy.read()).toEqual(['a=eight'])
    })

    it('writes nothing after the time by which a row has to be written', async () => {
      const { store } = await opened(open)
      const room = { roomId: 'arena:a', epoch: 1, version: 1, value: bytes('late') }
      const now = await store.time()
      expect(await store.listings.write(LIST, room, LONG_MS, now - 1000)).toBe(false)
      expect((await store.listings.changes(LIST, '', 9)).rooms).toEqual([])
      expect(await store.listings.write(LIST, room, LONG_MS, now + 60_000)).toBe(true)
    })

    it('takes the removal of a room that was never listed', async () => {
      const { listings } = (await opened(open)).store
      expect(await listings.write(LIST, row('a', 7, 1), LONG_MS)).toBe(true)
      expect(await listings.write(LIST, row('a', 6, 1, 'late'), LONG_MS)).toBe(false)
      const copy = new Copy(listings)
      await copy.read()
      expect(copy.rows.size).toBe(0)
    })

    it('reads a long list in pages, and misses nothing that changes in between', async () => {
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

    it('ends a row after its lifetime, which readers see as a change; a write prolongs it', async () => {
      const { store, elapse } = await opened(open)
      const { listings } = store
      await listings.write(LIST, row('long', 5, 1, 'x'), Number.POSITIVE_INFINITY)
      await listings.write(LIST, row('again', 5, 1, 'x'), SHORT_MS)
      await listings.write(LIST, row('again', 5, 2, 'x'), LONG_MS)
      await listings.write(LIST, row('short', 5, 1, 'x'), SHORT_MS)
      const copy = new Copy(listings)
      await copy.read()
      await elapse(SHORT_MS, async () => (await copy.read()).includes('short=gone'))
      expect([[...copy.rows.keys()].sort(), copy.restarts]).toEqual([['again', 'long'], 1])
      const late = new Copy(listings)
      await late.read()
      expect([...late.rows.keys()].sort()).toEqual(['again', 'long'])
      // It is still known which write was the last.
      expect(await listings.write(LIST, row('short', 4, 9, 'x'), LONG_MS)).toBe(false)
    })

    it('begins anew for a cursor of another list or of none', async () => {
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

    it('refuses a lifetime and a limit that are none', async () => {
      const { listings } = (await opened(open)).store
      await expect(listings.write(LIST, row('a', 1, 1, 'x'), 0)).rejects.toThrow('ttlMs is 0')
      await expect(listings.changes(LIST, '', 0)).rejects.toThrow('limit is 0')
    })
  })
}
