import { describe, expect, it } from 'vitest'
import type { Records } from '../port.ts'
import { bytes, everyByte, itExpires, LONG_MS, type OpenStore, opened, text } from './harness.ts'

const readOne = async (records: Records, key: string) => (await records.read([key]))[0]

export function describeRecords(open: OpenStore): void {
  describe('records', () => {
    it('returns the written values in the given order, and undefined without a record', async () => {
      const { records } = (await opened(open)).store
      await records.write([
        { put: '{t}:a', value: bytes('one') },
        { put: '{t}:b', value: bytes('two') },
      ])
      const [b, missing, a] = await records.read(['{t}:b', '{other}:c', '{t}:a'])
      expect([text(b?.value), missing, text(a?.value)]).toEqual(['two', undefined, 'one'])
      expect(await records.read([])).toEqual([])
    })

    it('counts the writes of a key from 1, and again from 1 after a removal', async () => {
      const { records } = (await opened(open)).store
      const version = async () => (await readOne(records, 'k'))?.version
      await records.write([{ put: 'k', value: bytes('a') }])
      expect(await version()).toBe(1)
      await records.write([{ put: 'k', value: bytes('a') }])
      expect(await version()).toBe(2)
      await records.write([{ remove: 'k' }])
      expect(await version()).toBeUndefined()
      await records.write([{ put: 'k', value: bytes('a') }])
      expect(await version()).toBe(1)
    })

    it('keeps every byte value, and the empty value', async () => {
      const { records } = (await opened(open)).store
      await records.write([
        { put: '{t}:all', value: everyByte() },
        { put: '{t}:none', value: new Uint8Array() },
      ])
      const [all, none] = await records.read(['{t}:all', '{t}:none'])
      expect(all?.value).toEqual(everyByte())
      expect(none).toEqual({ value: new Uint8Array(), version: 1 })
    })

    it('shares no buffer with its callers', async () => {
      const { records } = (await opened(open)).store
      const given = bytes('original')
      const writing = records.write([{ put: 'k', value: given }])
      given.fill(0)
      await writing
      const read = await readOne(records, 'k')
      expect(text(read?.value)).toBe('original')
      read?.value.fill(0)
      expect(text((await readOne(records, 'k'))?.value)).toBe('original')
    })

    it('writes only over the expected version, where 0 means absent', async () => {
      const { records } = (await opened(open)).store
      const put = (value: string, ifVersion: number) =>
        records.write([{ put: 'k', value: bytes(value), ifVersion }])
      expect(await put('too late', 1)).toBe(false)
      expect(await put('first', 0)).toBe(true)
      expect(await put('again', 0)).toBe(false)
      expect(await put('second', 1)).toBe(true)
      expect(await put('stale', 1)).toBe(false)
      expect(await records.write([{ remove: 'k', ifVersion: 1 }])).toBe(false)
      expect(text((await readOne(records, 'k'))?.value)).toBe('second')
      expect(await records.write([{ remove: 'k', ifVersion: 2 }])).toBe(true)
      expect(await readOne(records, 'k')).toBeUndefined()
      expect(await records.write([{ remove: 'k', ifVersion: 0 }, { remove: 'k' }])).toBe(true)
    })

    it('carries out all writes or none', async () => {
      const { records } = (await opened(open)).store
      await records.write([{ put: '{t}:a', value: bytes('old') }])
      const write = (ifVersion: number) =>
        records.write([
          { index: '{t}:names', add: 'new' },
          { put: '{t}:b', value: bytes('new') },
          { put: '{t}:a', value: bytes('new'), ifVersion },
          { index: '{t}:names', add: 'newer' },
        ])
      const state = async () => [
        ...(await records.read(['{t}:a', '{t}:b'])).map((record) => text(record?.value)),
        ...(await records.page('{t}:names', { limit: 10 })),
      ]
      expect(await write(7)).toBe(false)
      expect(await state()).toEqual(['old', undefined])
      expect(await write(1)).toBe(true)
      expect(await state()).toEqual(['new', 'new', 'newer', 'new'])
      expect(await records.write([])).toBe(true)
    })

    it('checks every condition against the state before the write', async () => {
      const { records } = (await opened(open)).store
      const twice = await records.write([
        { put: 'k', value: bytes('a'), ifVersion: 0 },
        { put: 'k', value: bytes('b'), ifVersion: 0 },
      ])
      expect(twice).toBe(true)
      expect(await readOne(records, 'k')).toEqual({ value: bytes('b'), version: 2 })
    })

    it('rejects a write whose keys share no hash tag, and an invalid lifetime', async () => {
      const { records } = (await opened(open)).store
      const value = bytes('x')
      await expect(
        records.write([
          { put: '{a}:k', value },
          { index: '{b}:k', add: 'x' },
        ]),
      ).rejects.toThrow('must share a hash tag')
      await expect(records.write([{ put: 'k', value, ttlMs: 0 }])).rejects.toThrow('ttlMs is 0')
      await expect(records.page('i', { limit: 0 })).rejects.toThrow('limit is 0')
      expect(await records.read(['{a}:k', 'k'])).toEqual([undefined, undefined])
    })

    itExpires(
      open,
      'lets a record end with its lifetime, and only that one',
      async ({ store, elapse }, shortMs) => {
        const { records } = store
        const value = bytes('x')
        await Promise.all([
          records.write([
            { put: '{t}:forever', value },
            { put: '{t}:long', value, ttlMs: LONG_MS },
            { put: '{t}:made-lasting', value, ttlMs: shortMs },
          ]),
          records.write([{ put: '{t}:made-lasting', value }]),
        ])
        await records.write([
          { put: '{t}:long', value, ttlMs: LONG_MS },
          { put: '{t}:short', value, ttlMs: shortMs },
        ])
        await elapse(shortMs, async () => (await readOne(records, '{t}:short')) === undefined)
        const rest = await records.read(['{t}:forever', '{t}:long', '{t}:made-lasting'])
        expect(rest.map((record) => record?.version)).toEqual([1, 2, 2])
        expect(await records.write([{ put: '{t}:short', value, ifVersion: 0 }])).toBe(true)
      },
    )

    itExpires(
      open,
      'gives a lease to one holder at a time, who alone renews it, and tells since when',
      async ({ store, elapse }, shortMs) => {
        const { records } = store
        const renew = (holder: string, ttlMs: number) =>
          records.renewLease({
            key: '{t}:lease',
            holder,
            value: bytes(`of ${holder}`),
            ttlMs,
            listed: { index: '{t}:leases', member: 'lease' },
          })
        const now = await store.time()
        const first = await renew('one', LONG_MS)
        expect(first.holder).toBe('one')
        expect(Math.abs(first.since - now)).toBeLessThan(5000)
        expect(await renew('two', LONG_MS)).toEqual(first)
        // All requests before the end of the short lifetime are made in one turn.
        const renewing = renew('one', shortMs)
        const reading = readOne(records, '{t}:lease')
        expect(await renewing).toEqual(first)
        expect(await reading).toEqual({ value: bytes('of one'), version: 2 })
        expect(await records.page('{t}:leases', { limit: 9 })).toEqual(['lease'])
        await elapse(shortMs, async () => (await readOne(records, '{t}:lease')) === undefined)
        const second = await renew('two', LONG_MS)
        expect(second.holder).toBe('two')
        expect(second.since).toBeGreaterThan(first.since)
        expect(await renew('one', LONG_MS)).toEqual(second)
      },
    )

    it('starts a new lease after a removal, also for the same holder', async () => {
      const { store, elapse } = await opened(open)
      const { records } = store
      const lease = { key: '{t}:k', holder: 'one', value: bytes('x'), ttlMs: LONG_MS }
      const renew = () => records.renewLease(lease)
      const { since } = await renew()
      await records.write([{ remove: '{t}:k' }])
      await elapse(1, async () => (await store.time()) > since)
      expect((await renew()).since).toBeGreaterThan(since)
      await expect(
        records.renewLease({ ...lease, listed: { index: 'elsewhere', member: 'k' } }),
      ).rejects.toThrow('must share a hash tag')
    })

    it('reaches 100 after 100 concurrent compare-and-set increments', async () => {
      const { records } = (await opened(open)).store
      const increment = async (): Promise<void> => {
        const record = await readOne(records, 'counter')
        const value = bytes(String(Number(text(record?.value) ?? 0) + 1))
        const done = await records.write([{ put: 'counter', value, ifVersion: record?.version ?? 0 }])
        if (!done) await increment()
      }
      await Promise.all(Array.from({ length: 100 }, increment))
      expect(await readOne(records, 'counter')).toEqual({ value: bytes('100'), version: 100 })
    })

    it('returns an index in pages, largest first, each member once', async () => {
      const { records } = (await opened(open)).store
      for (const add of ['b', 'd', 'a', 'c', 'e', 'c']) await records.write([{ index: 'i', add }])
      expect(await records.page('i', { limit: 2 })).toEqual(['e', 'd'])
      expect(await records.page('i', { limit: 2, before: 'd' })).toEqual(['c', 'b'])
      expect(await records.page('i', { limit: 2, before: 'b' })).toEqual(['a'])
      expect(await records.page('i', { limit: 2, before: 'a' })).toEqual([])
      expect(await records.page('i', { limit: 9, before: 'bb' })).toEqual(['b', 'a'])
      expect(await records.page('i', { limit: 9, before: '' })).toEqual([])
      expect(await records.page('nothing', { limit: 9 })).toEqual([])
      await records.write([
        { index: 'i', drop: 'c' },
        { index: 'i', drop: 'never there' },
      ])
      expect(await records.page('i', { limit: 9 })).toEqual(['e', 'd', 'b', 'a'])
    })

    it('adds to an index only if it has fewer members than the limit, or already has this one', async () => {
      const { records } = (await opened(open)).store
      const add = (member: string) => records.write([{ index: 'i', add: member, ifFewerThan: 2 }])
      expect([await add('a'), await add('b'), await add('c'), await add('a')]).toEqual([
        true,
        true,
        false,
        true,
      ])
      expect(await records.page('i', { limit: 9 })).toEqual(['b', 'a'])
      await records.write([{ index: 'i', drop: 'a' }])
      const rest = await Promise.all(['d', 'e', 'f'].map(add))
      expect(rest.filter((added) => added)).toHaveLength(1)
      expect(await records.write([{ index: 'none', add: 'a', ifFewerThan: 0 }])).toBe(false)
      expect(await records.page('none', { limit: 9 })).toEqual([])
    })

    itExpires(
      open,
      'lets an index end with its lifetime, which each write that names one begins again',
      async ({ store, elapse }, shortMs) => {
        const { records } = store
        const all = (index: string) => records.page(index, { limit: 9 })
        await records.write([{ index: 'lasting', add: 'a' }])
        await Promise.all([
          records.write([{ index: 'prolonged', add: 'a', ttlMs: shortMs }]),
          records.write([{ index: 'prolonged', add: 'b', ttlMs: LONG_MS }]),
        ])
        await Promise.all([
          records.write([{ index: 'short', add: 'a', ttlMs: shortMs }]),
          records.write([{ index: 'short', add: 'b' }]),
        ])
        await elapse(shortMs, async () => (await all('short')).length === 0)
        expect([await all('lasting'), await all('prolonged')]).toEqual([['a'], ['b', 'a']])
        await expect(records.write([{ index: 'i', add: 'a', ttlMs: 0 }])).rejects.toThrow('ttlMs is 0')
      },
    )

    it('orders an index by bytes, in any script', async () => {
      const { records } = (await opened(open)).store
      // U+FF5E is smaller than U+1F600 in UTF-8, and larger in UTF-16.
      const members = ['Z', 'a', 'é', '\u{ff5e}', '\u{1f600}']
      for (const add of members) await records.write([{ index: 'i', add }])
      expect(await records.page('i', { limit: 9 })).toEqual(members.toReversed())
    })
  })
}
