import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import { REMOVED_ROW_MS } from '../port.ts'
import { describeStore } from '../testing/conformance.ts'
import { memoryStore } from './memory.ts'
import { ExpiringMap } from './records.ts'

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

it('removes expired entries that are never read again', () => {
  const clock = new FakeClock()
  const map = new ExpiringMap<number>(clock)
  for (let n = 0; n < 1000; n++) map.set(`short ${n}`, n, 10)
  clock.advance(10)
  for (let n = 0; n < 1000; n++) map.set(`long ${n}`, n, 10_000)
  expect(map.size).toBe(1000)
})

describe('a list in memory', () => {
  const row = { roomId: 'duel:a', epoch: 7, version: 1, value: new Uint8Array([1]) }

  it('keeps the epoch of a removed row for two minutes, and starts a new copy for a reader that was away for longer', async () => {
    const clock = new FakeClock()
    const { listings } = memoryStore({ clock })
    await listings.write('p/duel', { ...row, roomId: 'duel:b' }, 3 * REMOVED_ROW_MS)
    await listings.write('p/duel', row, 3 * REMOVED_ROW_MS)
    const { cursor } = await listings.changes('p/duel', '', 10)
    await listings.write('p/duel', { ...row, version: 2, value: undefined }, 1)
    clock.advance(REMOVED_ROW_MS - 1)
    expect(await listings.changes('p/duel', cursor, 10)).toMatchObject({
      restarted: false,
      rooms: [{ roomId: 'duel:a', value: undefined }],
    })
    clock.advance(1)
    expect(await listings.changes('p/duel', cursor, 10)).toMatchObject({
      restarted: true,
      rooms: [{ roomId: 'duel:b' }],
    })
    expect(await listings.write('p/duel', row, 1000)).toBe(true)
  })

  it('removes expired rows also without reads', async () => {
    const clock = new FakeClock()
    const { listings } = memoryStore({ clock })
    for (let n = 0; n < 5; n++) await listings.write('p/duel', { ...row, roomId: `duel:${n}` }, 1000)
    clock.advance(1000)
    await listings.write('p/duel', row, 10 * REMOVED_ROW_MS)
    clock.advance(REMOVED_ROW_MS)
    await listings.write('p/duel', row, 10 * REMOVED_ROW_MS)
    const { rooms, cursor } = await listings.changes('p/duel', '', 10)
    expect(rooms).toHaveLength(1)
    expect(cursor).toContain(':12:')
  })

  it('starts a new copy for readers after the store has lost its data', async () => {
    const clock = new FakeClock()
    const before = memoryStore({ clock }).listings
    await before.write('p/duel', row, 1000)
    const { cursor } = await before.changes('p/duel', '', 10)
    clock.advance(1)
    const after = memoryStore({ clock }).listings
    await after.write('p/duel', { ...row, roomId: 'duel:c' }, 1000)
    expect(await after.changes('p/duel', cursor, 10)).toMatchObject({ restarted: true })
  })
})
