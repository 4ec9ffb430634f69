import { describe, expect, it } from 'vitest'
import type { Claim, Fence, Opening, RoomQuota, RoomRecords } from '../port.ts'
import { bytes, everyByte, itExpires, LONG_MS, type OpenStore, opened, text } from './harness.ts'

const ROOM = 'prj_a/arena:lobby {1}'

async function claimed(rooms: RoomRecords, owner: string, expectedEpoch: number): Promise<Claim> {
  const claim = await rooms.claim(ROOM, owner, expectedEpoch, LONG_MS)
  if (!claim) throw new Error(`${owner} did not get the room over epoch ${expectedEpoch}`)
  return claim
}

/** Opens a free room as its creator. */
async function openedBy(rooms: RoomRecords, room: string, owner: string, creator: string): Promise<Claim> {
  const found = await rooms.open(room, { owner, ttlMs: LONG_MS, stateVersion: 1, creator }, () => true)
  if (!found || !('fence' in found)) throw new Error(`${owner} did not get ${room}`)
  return found
}

const FOR_EVER = Number.POSITIVE_INFINITY

/** Fence of an owner after `by` more commits. */
const advanced = ({ epoch, version }: Fence, by: number): Fence => ({ epoch, version: version + by })

const ASIDE = { reason: 'for the test', ttlMs: LONG_MS }

/** Content of a claim as text, for comparisons. */
const contents = (claim: Claim) => [text(claim.snapshot), claim.journal.map((entry) => text(entry))]

export function describeRooms(open: OpenStore): void {
  describe('rooms', () => {
    it('returns no owner of a room that was never claimed', async () => {
      const { rooms } = (await opened(open)).store
      expect(await rooms.inspect(ROOM)).toBeUndefined()
    })

    it("starts epochs at the store's clock", async () => {
      const { store } = await opened(open)
      const before = await store.time()
      const { fence } = await claimed(store.rooms, 'node_a', 0)
      expect(fence.version).toBe(0)
      expect(fence.epoch).toBeGreaterThanOrEqual(Math.floor(before))
      expect(fence.epoch).toBeLessThanOrEqual(await store.time())
      expect(await store.rooms.inspect(ROOM)).toEqual({ ...fence, owner: 'node_a' })
    })

    it('returns to a claimant the snapshot and the commits after it, in order', async () => {
      const { rooms } = (await opened(open)).store
      const first = await claimed(rooms, 'node_a', 0)
      expect(contents(first)).toEqual([undefined, []])
      const { fence } = first
      expect(await rooms.commit(ROOM, fence, bytes('covered'), LONG_MS)).toBe(true)
      expect(await rooms.snapshot(ROOM, advanced(fence, 1), bytes('snapshot'), LONG_MS)).toBe(true)
      expect(await rooms.commit(ROOM, advanced(fence, 2), bytes('one'), LONG_MS)).toBe(true)
      expect(await rooms.commit(ROOM, advanced(fence, 3), bytes('two'), LONG_MS)).toBe(true)
      const second = await claimed(rooms, 'node_b', fence.epoch)
      expect(contents(second)).toEqual(['snapshot', ['one', 'two']])
      expect(second.fence.version).toBe(4)
      expect(second.fence.epoch).toBeGreaterThan(fence.epoch)
    })

    it('carries every byte value and empty values, and shares no buffer', async () => {
      const { rooms } = (await opened(open)).store
      const { fence } = await claimed(rooms, 'node_a', 0)
      const entry = everyByte()
      const committing = rooms.commit(ROOM, fence, entry, LONG_MS)
      entry.fill(0)
      await committing
      await rooms.commit(ROOM, advanced(fence, 1), new Uint8Array(), LONG_MS)
      const second = await claimed(rooms, 'node_b', fence.epoch)
      expect(second.journal).toEqual([everyByte(), new Uint8Array()])
      await rooms.snapshot(ROOM, second.fence, new Uint8Array(), LONG_MS)
      const third = await claimed(rooms, 'node_c', second.fence.epoch)
      expect(third.snapshot).toEqual(new Uint8Array())
      await rooms.snapshot(ROOM, third.fence, everyByte(), LONG_MS)
      const fourth = await claimed(rooms, 'node_d', third.fence.epoch)
      expect(fourth.snapshot).toEqual(everyByte())
      fourth.snapshot?.fill(0)
      expect((await claimed(rooms, 'node_e', fourth.fence.epoch)).snapshot).toEqual(everyByte())
    })

    it('accepts exactly one of many concurrent claims', async () => {
      const { rooms } = (await opened(open)).store
      const contend = (expectedEpoch: number) =>
        Promise.all(
          Array.from({ length: 20 }, (_, n) => rooms.claim(ROOM, `node_${n}`, expectedEpoch, LONG_MS)),
        )
      const winners = (await contend(0)).filter((claim) => claim !== undefined)
      expect(winners).toHaveLength(1)
      const epoch = winners[0]!.fence.epoch
      expect((await contend(epoch)).filter((claim) => claim !== undefined)).toHaveLength(1)
      expect(await rooms.claim(ROOM, 'node_late', epoch, LONG_MS)).toBeUndefined()
      expect(await rooms.claim(ROOM, 'node_unaware', 0, LONG_MS)).toBeUndefined()
    })

    itExpires(
      open,
      'gives a claimant the time since an owner last claimed, wrote, refreshed or released the room',
      async ({ store, elapse }, shortMs) => {
        const { rooms } = store
        const pass = async () => {
          const from = await store.time()
          await elapse(shortMs, async () => (await store.time()) >= from + shortMs)
        }
        let asked = await store.time()
        const first = await claimed(rooms, 'node_a', 0)
        expect(first.idleMs).toBeUndefined()
        let { fence } = first
        const steps = [
          // The claim itself.
          undefined,
          () => rooms.commit(ROOM, fence, bytes('entry'), LONG_MS),
          () => rooms.snapshot(ROOM, fence, bytes('snapshot'), LONG_MS),
          () => rooms.refresh(ROOM, fence, LONG_MS),
          () => rooms.release(ROOM, fence, { forget: false }),
        ]
        for (const step of steps) {
          if (step) {
            await pass()
            asked = await store.time()
            await step()
          }
          const done = await store.time()
          await pass()
          const before = await store.time()
          const next = await claimed(rooms, 'node_b', fence.epoch)
          expect(next.idleMs).toBeGreaterThanOrEqual(before - done)
          expect(next.idleMs).toBeLessThanOrEqual((await store.time()) - asked)
          ;({ fence } = next)
        }
      },
    )

    describe('open', () => {
      const may = () => true
      const opening = (owner: string, more: Partial<Opening> = {}): Opening => ({
        owner,
        ttlMs: LONG_MS,
        stateVersion: 1,
        ...more,
      })

      it('claims a room without a record for a creator, and otherwise returns nothing', async () => {
        const { rooms } = (await opened(open)).store
        expect(await rooms.open(ROOM, opening('node_a'), may)).toBeUndefined()
        expect(await rooms.open(ROOM, opening('node_a', { creator: 'ada' }), () => false)).toBeUndefined()
        expect(await rooms.inspect(ROOM)).toBeUndefined()
        const claim = await rooms.open(ROOM, opening('node_a', { creator: 'ada' }), may)
        expect(claim).toMatchObject({ journal: [] })
        expect(await rooms.inspect(ROOM)).toEqual({ ...(claim as Claim).fence, owner: 'node_a' })
      })

      it('claims a released room and one that names the claimant, and otherwise returns the owner', async () => {
        const { rooms } = (await opened(open)).store
        const { fence } = await claimed(rooms, 'node_a', 0)
        await rooms.commit(ROOM, fence, bytes('one'), LONG_MS)
        const current = advanced(fence, 1)
        const asked = await rooms.open(ROOM, opening('node_b', { creator: 'ada' }), may)
        expect(asked).toEqual({ ...current, owner: 'node_a' })
        const again = (await rooms.open(ROOM, opening('node_a'), may)) as Claim
        expect(contents(again)).toEqual([undefined, ['one']])
        await rooms.release(ROOM, again.fence, { forget: false, ttlMs: LONG_MS })
        const released = { ...again.fence, owner: null }
        expect(await rooms.open(ROOM, opening('node_b'), () => false)).toEqual(released)
        const taken = (await rooms.open(ROOM, opening('node_b'), may)) as Claim
        expect(contents(taken)).toEqual([undefined, ['one']])
      })

      it('does not claim a room with a newer state version', async () => {
        const { rooms } = (await opened(open)).store
        const { fence } = await claimed(rooms, 'node_a', 0)
        await rooms.snapshot(ROOM, fence, bytes('state'), LONG_MS, 3)
        await rooms.release(ROOM, advanced(fence, 1), { forget: false, ttlMs: LONG_MS })
        const asked = await rooms.open(ROOM, opening('node_b', { stateVersion: 2 }), may)
        expect(asked).toMatchObject({ owner: null, stateVersion: 3 })
        expect(await rooms.open(ROOM, opening('node_b', { stateVersion: 3 }), may)).toHaveProperty('fence')
      })

      it('gives a free room to one of many nodes that open it', async () => {
        const { rooms } = (await opened(open)).store
        const owners = Array.from({ length: 20 }, (_, n) => `node_${n}`)
        const found = await Promise.all(
          owners.map((owner) => rooms.open(ROOM, opening(owner, { creator: 'ada' }), may)),
        )
        expect(found.filter((one) => one && 'fence' in one)).toHaveLength(1)
      })
    })

    it('recalls a lost room for its last owner, in any order of the recalls', async () => {
      const { rooms } = (await opened(open)).store
      expect(await rooms.recall(ROOM, 'node_b', 7, LONG_MS)).toBe(true)
      expect(await rooms.recall(ROOM, 'node_a', 5, LONG_MS)).toBe(false)
      expect(await rooms.inspect(ROOM)).toEqual({ epoch: 7, version: 0, owner: 'node_b', recalled: true })
      expect(await rooms.recall(ROOM, 'node_c', 9, LONG_MS)).toBe(true)
      expect(await rooms.claim(ROOM, 'node_b', 7, LONG_MS)).toBeUndefined()
      const { fence, snapshot, journal } = await claimed(rooms, 'node_c', 9)
      expect([fence.epoch > 9, snapshot, journal]).toEqual([true, undefined, []])
      expect(await rooms.inspect(ROOM)).toEqual({ ...fence, owner: 'node_c' })
    })

    it('does not recall a room that has a record, or that a later owner has recalled', async () => {
      const { rooms } = (await opened(open)).store
      const { fence } = await claimed(rooms, 'node_a', 0)
      await rooms.commit(ROOM, fence, bytes('kept'), LONG_MS)
      expect(await rooms.recall(ROOM, 'node_b', fence.epoch + 1, LONG_MS)).toBe(false)
      expect(await rooms.inspect(ROOM)).toEqual({ ...advanced(fence, 1), owner: 'node_a' })
      await rooms.release(ROOM, advanced(fence, 1), { forget: true, ttlMs: LONG_MS })
      expect(await rooms.recall(ROOM, 'node_b', fence.epoch + 1, LONG_MS)).toBe(false)
      expect((await rooms.inspect(ROOM))?.owner).toBeNull()
    })

    it('rejects every write under an old epoch, without a change', async () => {
      const { rooms } = (await opened(open)).store
      const { fence } = await claimed(rooms, 'node_a', 0)
      await rooms.commit(ROOM, fence, bytes('kept'), LONG_MS)
      const { fence: current } = await claimed(rooms, 'node_b', fence.epoch)
      for (const old of [fence, advanced(fence, 1)]) {
        expect(await rooms.commit(ROOM, old, bytes('lost'), LONG_MS)).toBe(false)
        expect(await rooms.snapshot(ROOM, old, bytes('lost'), LONG_MS)).toBe(false)
        expect(await rooms.refresh(ROOM, old, LONG_MS)).toBe(false)
        expect(await rooms.release(ROOM, old, { forget: true, ttlMs: LONG_MS })).toBe(false)
      }
      expect(await rooms.inspect(ROOM)).toEqual({ ...current, owner: 'node_b' })
      expect(contents(await claimed(rooms, 'node_c', current.epoch))).toEqual([undefined, ['kept']])
    })

    it('rejects a commit over another version than the stored one', async () => {
      const { rooms } = (await opened(open)).store
      const { fence } = await claimed(rooms, 'node_a', 0)
      expect(await rooms.commit(ROOM, advanced(fence, 1), bytes('ahead'), LONG_MS)).toBe(false)
      expect(await rooms.commit(ROOM, fence, bytes('right'), LONG_MS)).toBe(true)
      expect(await rooms.commit(ROOM, fence, bytes('twice'), LONG_MS)).toBe(false)
      expect(await rooms.snapshot(ROOM, fence, bytes('behind'), LONG_MS)).toBe(false)
      expect(await rooms.inspect(ROOM)).toEqual({ ...advanced(fence, 1), owner: 'node_a' })
    })

    it('returns the version of a room’s state until the room has ended', async () => {
      const { rooms } = (await opened(open)).store
      const { fence } = await claimed(rooms, 'node_a', 0)
      await rooms.snapshot(ROOM, fence, bytes('one'), LONG_MS)
      expect(await rooms.inspect(ROOM)).not.toHaveProperty('stateVersion')
      await rooms.snapshot(ROOM, advanced(fence, 1), bytes('three'), LONG_MS, 3)
      const next = await claimed(rooms, 'node_b', fence.epoch)
      expect(await rooms.inspect(ROOM)).toEqual({ ...next.fence, owner: 'node_b', stateVersion: 3 })
      await rooms.release(ROOM, next.fence, { forget: true, ttlMs: LONG_MS })
      expect(await rooms.inspect(ROOM)).not.toHaveProperty('stateVersion')
    })

    it('accepts one of many commits over one version', async () => {
      const { rooms } = (await opened(open)).store
      const { fence } = await claimed(rooms, 'node_a', 0)
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, n) => rooms.commit(ROOM, fence, bytes(`${n}`), LONG_MS)),
      )
      expect(answers.filter((committed) => committed)).toHaveLength(1)
      expect((await claimed(rooms, 'node_b', fence.epoch)).journal).toHaveLength(1)
    })

    it('keeps the content of a released room for the next owner, and fences the last one', async () => {
      const { rooms } = (await opened(open)).store
      const { fence } = await claimed(rooms, 'node_a', 0)
      await rooms.snapshot(ROOM, fence, bytes('snapshot'), LONG_MS)
      await rooms.commit(ROOM, advanced(fence, 1), bytes('entry'), LONG_MS)
      const last = advanced(fence, 2)
      expect(await rooms.release(ROOM, last, { forget: false, ttlMs: LONG_MS })).toBe(true)
      expect(await rooms.inspect(ROOM)).toEqual({ ...last, owner: null })
      expect(await rooms.commit(ROOM, last, bytes('late'), LONG_MS)).toBe(false)
      expect(await rooms.refresh(ROOM, last, LONG_MS)).toBe(false)
      const next = await claimed(rooms, 'node_b', last.epoch)
      expect(contents(next)).toEqual(['snapshot', ['entry']])
      expect(next.fence.epoch).toBeGreaterThan(last.epoch)
    })

    it('forgets the content of an ended room, and never its epoch', async () => {
      const { rooms } = (await opened(open)).store
      const epochs: number[] = [0]
      for (const owner of ['node_a', 'node_b', 'node_c']) {
        const claim = await claimed(rooms, owner, epochs.at(-1)!)
        expect(contents(claim)).toEqual([undefined, []])
        await rooms.snapshot(ROOM, claim.fence, bytes('snapshot'), LONG_MS)
        await rooms.commit(ROOM, advanced(claim.fence, 1), bytes('entry'), LONG_MS)
        await rooms.release(ROOM, advanced(claim.fence, 2), { forget: true, ttlMs: LONG_MS })
        expect(await rooms.inspect(ROOM)).toEqual({ ...advanced(claim.fence, 2), owner: null })
        epochs.push(claim.fence.epoch)
      }
      expect(epochs).toEqual([...new Set(epochs)].sort((a, b) => a - b))
    })

    itExpires(
      open,
      'keeps outcomes of a room that ended for its successor and for readers, until they expire',
      async ({ store, elapse }, shortMs) => {
        const { rooms } = store
        const { fence } = await claimed(rooms, 'node_a', 0)
        await rooms.snapshot(ROOM, fence, bytes('snapshot'), LONG_MS)
        await rooms.commit(ROOM, advanced(fence, 1), bytes('entry'), LONG_MS)
        const stored = await rooms.read(ROOM)
        expect([text(stored.snapshot), stored.journal.map(text), stored.outcomes]).toEqual([
          'snapshot',
          ['entry'],
          undefined,
        ])
        const end = { forget: true, ttlMs: LONG_MS }
        const outcomes = { value: bytes('outcomes'), ttlMs: shortMs }
        expect(
          await rooms.release(ROOM, fence, { ...end, outcomes: { value: bytes('fenced'), ttlMs: LONG_MS } }),
        ).toBe(false)
        expect(await rooms.release(ROOM, advanced(fence, 2), { ...end, outcomes })).toBe(true)
        const read = await rooms.read(ROOM)
        expect([read.snapshot, read.journal, text(read.outcomes)]).toEqual([undefined, [], 'outcomes'])
        const next = await claimed(rooms, 'node_b', fence.epoch)
        expect(text(next.outcomes)).toBe('outcomes')
        // A claim that led to no room.
        await rooms.release(ROOM, next.fence, end)
        expect(text((await rooms.read(ROOM)).outcomes)).toBe('outcomes')
        await elapse(shortMs, async () => (await rooms.read(ROOM)).outcomes === undefined)
        expect((await claimed(rooms, 'node_c', next.fence.epoch)).outcomes).toBeUndefined()
      },
    )

    itExpires(
      open,
      'leaves nothing of an ended room after the time in which messages can be late',
      async ({ store, elapse }, shortMs) => {
        const { rooms } = store
        const { fence } = await claimed(rooms, 'node_a', 0)
        await rooms.commit(ROOM, fence, bytes('entry'), LONG_MS)
        await rooms.release(ROOM, advanced(fence, 1), { forget: true, ttlMs: shortMs })
        await elapse(shortMs, async () => (await rooms.inspect(ROOM)) === undefined)
        expect(await rooms.commit(ROOM, advanced(fence, 1), bytes('late'), LONG_MS)).toBe(false)
        expect((await claimed(rooms, 'node_b', 0)).fence.epoch).toBeGreaterThan(fence.epoch)
      },
    )

    // An owner that was replaced while it was paused would treat a missing record as a loss of data, and write the room again.
    itExpires(
      open,
      'recalls no room that ended for an owner it was taken from, and knows its epoch for long',
      async ({ store, elapse }, shortMs) => {
        const { rooms } = store
        const { fence: paused } = await claimed(rooms, 'node_a', 0)
        const { fence: current } = await claimed(rooms, 'node_b', paused.epoch)
        await rooms.release(ROOM, current, { forget: true, ttlMs: shortMs })
        const next = await claimed(rooms, 'node_c', current.epoch)
        await rooms.release(ROOM, next.fence, { forget: true, ttlMs: shortMs })
        const { records } = store
        await records.write([{ put: 'egg timer', value: bytes('x'), ttlMs: shortMs }])
        await elapse(shortMs, async () => (await records.read(['egg timer']))[0] === undefined)
        expect(await rooms.inspect(ROOM)).toEqual({ epoch: next.fence.epoch, version: 0, owner: null })
        expect(await rooms.recall(ROOM, 'node_a', paused.epoch, LONG_MS)).toBe(false)
      },
    )

    itExpires(
      open,
      'lets an orphaned room end with its lifetime: owner fenced, content gone, epoch kept',
      async ({ store, elapse }, shortMs) => {
        const { rooms } = store
        const { fence } = await claimed(rooms, 'node_a', 0)
        await rooms.snapshot(ROOM, fence, bytes('snapshot'), LONG_MS)
        const last = advanced(fence, 2)
        await rooms.commit(ROOM, advanced(fence, 1), bytes('entry'), shortMs)
        await elapse(shortMs, async () => (await rooms.inspect(ROOM))?.owner === null)
        expect((await rooms.inspect(ROOM))?.epoch).toBe(fence.epoch)
        expect(await rooms.commit(ROOM, last, bytes('from the dead'), LONG_MS)).toBe(false)
        expect(await rooms.claim(ROOM, 'node_b', 0, LONG_MS)).toBeUndefined()
        const next = await claimed(rooms, 'node_b', fence.epoch)
        expect(contents(next)).toEqual([undefined, []])
        expect(next.fence.version).toBe(0)
        expect(next.fence.epoch).toBeGreaterThan(fence.epoch)
      },
    )

    it('moves a record to the quarantine: the room then has no content and can be claimed immediately, under a higher epoch', async () => {
      const { rooms } = (await opened(open)).store
      const { fence } = await claimed(rooms, 'node_a', 0)
      await rooms.snapshot(ROOM, fence, bytes('snapshot'), LONG_MS)
      await rooms.commit(ROOM, advanced(fence, 1), bytes('entry'), LONG_MS)
      const last = advanced(fence, 2)
      expect(await rooms.quarantine(ROOM, last, ASIDE)).toBe(true)
      expect(await rooms.inspect(ROOM)).toEqual({ epoch: fence.epoch, version: 0, owner: null })
      expect(await rooms.commit(ROOM, last, bytes('late'), LONG_MS)).toBe(false)
      expect(await rooms.quarantine(ROOM, last, ASIDE)).toBe(false)
      expect(await rooms.claim(ROOM, 'node_b', 0, LONG_MS)).toBeUndefined()
      const next = await claimed(rooms, 'node_b', fence.epoch)
      expect(contents(next)).toEqual([undefined, []])
      expect(next.fence.epoch).toBeGreaterThan(fence.epoch)
    })

    it('moves a record to the quarantine only under the current fence', async () => {
      const { rooms } = (await opened(open)).store
      const { fence } = await claimed(rooms, 'node_a', 0)
      await rooms.commit(ROOM, fence, bytes('kept'), LONG_MS)
      const { fence: current } = await claimed(rooms, 'node_b', fence.epoch)
      for (const old of [fence, advanced(fence, 1), advanced(current, 1)])
        expect(await rooms.quarantine(ROOM, old, ASIDE)).toBe(false)
      expect(contents(await claimed(rooms, 'node_c', current.epoch))).toEqual([undefined, ['kept']])
    })

    itExpires(open, 'keeps a room alive that its owner refreshes', async ({ store, elapse }, shortMs) => {
      const { rooms, records } = store
      const { fence } = await claimed(rooms, 'node_a', 0)
      const writes = await Promise.all([
        rooms.snapshot(ROOM, fence, bytes('snapshot'), shortMs),
        rooms.refresh(ROOM, advanced(fence, 1), LONG_MS),
      ])
      expect(writes).toEqual([true, true])
      await records.write([{ put: 'egg timer', value: bytes('x'), ttlMs: shortMs }])
      await elapse(shortMs, async () => (await records.read(['egg timer']))[0] === undefined)
      expect(contents(await claimed(rooms, 'node_b', fence.epoch))).toEqual(['snapshot', []])
    })

    itExpires(
      open,
      'keeps a room for ever when its owner says so, whichever node claims it, until one says otherwise',
      async ({ store, elapse }, shortMs) => {
        const { rooms, records } = store
        const outlived = async (egg: string) => {
          await records.write([{ put: egg, value: bytes('x'), ttlMs: shortMs }])
          await elapse(shortMs, async () => (await records.read([egg]))[0] === undefined)
        }
        const { fence } = (await rooms.claim(ROOM, 'node_a', 0, shortMs))!
        expect(await rooms.snapshot(ROOM, fence, bytes('snapshot'), FOR_EVER)).toBe(true)
        expect(await rooms.commit(ROOM, advanced(fence, 1), bytes('entry'), FOR_EVER)).toBe(true)
        await outlived('one')
        const next = (await rooms.claim(ROOM, 'node_b', fence.epoch, shortMs))!
        expect(contents(next)).toEqual(['snapshot', ['entry']])
        await outlived('two')
        expect(await rooms.refresh(ROOM, next.fence, shortMs)).toBe(true)
        await elapse(shortMs, async () => (await rooms.inspect(ROOM))?.owner === null)
        const last = await claimed(rooms, 'node_c', next.fence.epoch)
        expect(contents(last)).toEqual([undefined, []])
      },
    )

    itExpires(
      open,
      'keeps the life of a room that is claimed, and given back as it was, and expires it then',
      async ({ store, elapse }, shortMs) => {
        const { rooms, records } = store
        const { fence } = (await rooms.claim(ROOM, 'node_a', 0, shortMs))!
        await rooms.snapshot(ROOM, fence, bytes('snapshot'), LONG_MS)
        const next = (await rooms.claim(ROOM, 'node_b', fence.epoch, shortMs))!
        expect(await rooms.release(ROOM, next.fence, { forget: false })).toBe(true)
        await records.write([{ put: 'egg timer', value: bytes('x'), ttlMs: shortMs }])
        await elapse(shortMs, async () => (await records.read(['egg timer']))[0] === undefined)
        const last = (await rooms.claim(ROOM, 'node_c', next.fence.epoch, shortMs))!
        expect(contents(last)).toEqual(['snapshot', []])
        await rooms.release(ROOM, last.fence, { forget: false, ttlMs: shortMs })
        await records.write([{ put: 'egg timer', value: bytes('x'), ttlMs: shortMs }])
        await elapse(shortMs, async () => (await records.read(['egg timer']))[0] === undefined)
        expect(contents(await claimed(rooms, 'node_d', last.fence.epoch))).toEqual([undefined, []])
      },
    )

    itExpires(
      open,
      'leaves no more of a room that was kept for ever than of another once it has ended',
      async ({ store, elapse }, shortMs) => {
        const { rooms } = store
        const { fence } = await claimed(rooms, 'node_a', 0)
        await rooms.commit(ROOM, fence, bytes('entry'), FOR_EVER)
        await rooms.release(ROOM, advanced(fence, 1), { forget: true, ttlMs: shortMs })
        await elapse(shortMs, async () => (await rooms.inspect(ROOM)) === undefined)
      },
    )

    it('keeps rooms separate', async () => {
      const { rooms } = (await opened(open)).store
      const names = ['p/a:k', 'p/a:k}', 'p/a:k}:epoch', 'p/a:', 'q/a:k']
      for (const name of names) {
        const claim = await rooms.claim(name, 'node_a', 0, LONG_MS)
        await rooms.commit(name, claim!.fence, bytes(name), LONG_MS)
      }
      for (const name of names) {
        const { epoch } = (await rooms.inspect(name))!
        const claim = await rooms.claim(name, 'node_b', epoch, LONG_MS)
        expect(claim?.journal.map(text)).toEqual([name])
      }
    })

    const NO_QUOTA: RoomQuota = { maxRooms: 0, maxLasting: 0, perMinute: 0 }
    const reserve = (rooms: RoomRecords, names: readonly string[], quota: Partial<RoomQuota>) =>
      Promise.all(names.map((name) => rooms.reserve(name, 'ada', { ...NO_QUOTA, ...quota }, LONG_MS)))

    it('enforces a project’s limit of rooms, also for concurrent reservations', async () => {
      const { rooms } = (await opened(open)).store
      const names = Array.from({ length: 10 }, (_, n) => `p/a:${n}`)
      const answers = await reserve(rooms, names, { maxRooms: 3 })
      expect(answers.map((answer) => answer === 'reserved')).toEqual(names.map((_, n) => n < 3))
      expect(new Set(answers.slice(3))).toEqual(new Set(['project_full']))
      expect(await reserve(rooms, ['p/a:1', 'q/a:1'], { maxRooms: 3 })).toEqual(['reserved', 'reserved'])
    })

    it('counts a room until it ends', async () => {
      const { rooms } = (await opened(open)).store
      const quota = { maxRooms: 1 }
      expect(await reserve(rooms, [ROOM], quota)).toEqual(['reserved'])
      const { fence } = await claimed(rooms, 'node_a', 0)
      await rooms.release(ROOM, fence, { forget: false, ttlMs: LONG_MS })
      expect(await reserve(rooms, ['prj_a/arena:other'], quota)).toEqual(['project_full'])
      const again = await claimed(rooms, 'node_b', fence.epoch)
      await rooms.release(ROOM, again.fence, { forget: true, ttlMs: LONG_MS })
      expect(await reserve(rooms, ['prj_a/arena:other'], quota)).toEqual(['reserved'])
    })

    itExpires(
      open,
      'counts a room as long as its owner refreshes it, and not much longer',
      async ({ store, elapse }, shortMs) => {
        const { rooms } = store
        const quota = { ...NO_QUOTA, maxRooms: 1 }
        const other = (ttlMs: number) => rooms.reserve('prj_a/arena:other', 'ada', quota, ttlMs)
        await rooms.reserve(ROOM, 'ada', quota, shortMs)
        const { fence } = await claimed(rooms, 'node_a', 0)
        await rooms.refresh(ROOM, fence, LONG_MS)
        await store.records.write([{ put: 'egg timer', value: bytes('x'), ttlMs: shortMs }])
        await elapse(shortMs, async () => (await store.records.read(['egg timer']))[0] === undefined)
        expect(await other(LONG_MS)).toBe('project_full')
        await rooms.refresh(ROOM, fence, shortMs)
        await elapse(shortMs, async () => (await other(LONG_MS)) === 'reserved')
      },
    )

    itExpires(
      open,
      'counts a room that is given up for as long as it waits for another owner',
      async ({ store, elapse }, shortMs) => {
        const { rooms } = store
        const quota = { ...NO_QUOTA, maxRooms: 1 }
        await rooms.reserve(ROOM, 'ada', quota, shortMs)
        const { fence } = await claimed(rooms, 'node_a', 0)
        await rooms.release(ROOM, fence, { forget: false, ttlMs: LONG_MS })
        await store.records.write([{ put: 'egg timer', value: bytes('x'), ttlMs: shortMs }])
        await elapse(shortMs, async () => (await store.records.read(['egg timer']))[0] === undefined)
        expect(await rooms.reserve('prj_a/arena:other', 'ada', quota, LONG_MS)).toBe('project_full')
        expect(await rooms.reserve(ROOM, 'ada', quota, LONG_MS)).toBe('reserved')
      },
    )

    itExpires(
      open,
      'counts a room that is given up for ever, if its owner says so, until it ends',
      async ({ store, elapse }, shortMs) => {
        const { rooms, records } = store
        const quota = { ...NO_QUOTA, maxRooms: 1 }
        const other = () => rooms.reserve('prj_a/arena:other', 'ada', quota, LONG_MS)
        await rooms.reserve(ROOM, 'ada', quota, shortMs)
        const { fence } = await claimed(rooms, 'node_a', 0)
        await rooms.release(ROOM, fence, { forget: false, ttlMs: FOR_EVER })
        await records.write([{ put: 'egg timer', value: bytes('x'), ttlMs: shortMs }])
        await elapse(shortMs, async () => (await records.read(['egg timer']))[0] === undefined)
        expect(await other()).toBe('project_full')
        const again = await claimed(rooms, 'node_b', fence.epoch)
        await rooms.release(ROOM, again.fence, { forget: true, ttlMs: LONG_MS })
        expect(await other()).toBe('reserved')
      },
    )

    it('refuses a room above the principal’s limit of lasting rooms, until one of them ends', async () => {
      const { rooms } = (await opened(open)).store
      const quota = { ...NO_QUOTA, maxLasting: 2 }
      const make = async (room: string, principal = 'ada') => {
        const made = await rooms.reserve(room, principal, quota, LONG_MS)
        if (made !== 'reserved') return { made, fence: { epoch: 0, version: 0 } }
        const { fence } = await openedBy(rooms, room, 'node_a', principal)
        await rooms.commit(room, fence, bytes('entry'), LONG_MS)
        return { made, fence: advanced(fence, 1) }
      }
      // The rooms of an account are counted by a command without a waiting caller.
      const one = await make('p/a:1')
      const two = await make('p/a:2')
      const brief = await make('p/a:brief')
      await rooms.refresh('p/a:1', one.fence, LONG_MS, true)
      await rooms.refresh('p/a:brief', brief.fence, LONG_MS)
      await rooms.release('p/a:2', two.fence, { forget: false, ttlMs: LONG_MS, lasting: true })
      await expect.poll(async () => (await make('p/a:3')).made).toBe('principal_full')
      expect((await make('p/a:3', 'bob')).made).toBe('reserved')
      expect((await make('q/a:3')).made).toBe('reserved')
      // Another player opens it. It stays on the account of its creator.
      const again = await openedBy(rooms, 'p/a:2', 'node_b', 'bob')
      await rooms.release('p/a:2', again.fence, { forget: true, ttlMs: LONG_MS })
      await expect.poll(async () => (await make('p/a:4')).made).toBe('reserved')
    })

    itExpires(
      open,
      'counts a lasting room no longer than it lives, and not once it is lasting no more',
      async ({ store, elapse }, shortMs) => {
        const { rooms } = store
        const quota = { ...NO_QUOTA, maxLasting: 1 }
        let others = 0
        const other = () => rooms.reserve(`prj_a/arena:${others++}`, 'ada', quota, LONG_MS)
        await rooms.reserve(ROOM, 'ada', quota, LONG_MS)
        const { fence } = await openedBy(rooms, ROOM, 'node_a', 'ada')
        await rooms.refresh(ROOM, fence, LONG_MS, true)
        await expect.poll(other).toBe('principal_full')
        await rooms.refresh(ROOM, fence, LONG_MS)
        await expect.poll(other).toBe('reserved')
        await rooms.refresh(ROOM, fence, LONG_MS, true)
        await expect.poll(other).toBe('principal_full')
        await rooms.release(ROOM, fence, { forget: false, ttlMs: shortMs, lasting: true })
        await elapse(shortMs, async () => (await other()) === 'reserved')
      },
    )

    it('returns the counted rooms of a project in pages, shortest time first', async () => {
      const { rooms } = (await opened(open)).store
      for (const [n, ttlMs] of [3, 1, 2].entries())
        await rooms.reserve(`p/a:${n}`, 'ada', NO_QUOTA, LONG_MS * ttlMs)
      await rooms.reserve('q/a:other', 'ada', NO_QUOTA, LONG_MS)
      for (const name of ['p/b:é', 'p/b:Z', 'p/b:y']) {
        await rooms.reserve(name, 'ada', NO_QUOTA, LONG_MS)
        const { fence } = (await rooms.claim(name, 'node_a', 0, LONG_MS))!
        await rooms.refresh(name, fence, FOR_EVER)
      }
      await expect
        .poll(() => rooms.counted('p', { limit: 9 }).then((all) => all.at(-3)?.until))
        .toBe(FOR_EVER)
      const pages: string[][] = []
      let page = await rooms.counted('p', { limit: 2 })
      while (page.length > 0) {
        pages.push(page.map(({ roomId }) => roomId))
        page = await rooms.counted('p', { after: page.at(-1)!, limit: 2 })
      }
      expect(pages).toEqual([
        ['a:1', 'a:2'],
        ['a:0', 'b:Z'],
        ['b:y', 'b:é'],
      ])
      await expect(rooms.counted('p', { limit: 0 })).rejects.toThrow('limit is 0')
    })

    it('enforces the limit of new rooms of a principal per minute, in each project', async () => {
      const { rooms } = (await opened(open)).store
      const quota = { perMinute: 2 }
      const names = ['p/a:1', 'p/a:2', 'p/a:3', 'p/a:1', 'q/a:1']
      const expected = ['reserved', 'reserved', 'too_fast', 'reserved', 'reserved']
      expect(await reserve(rooms, names, quota)).toEqual(expected)
      expect(await rooms.reserve('p/a:3', 'bob', { ...NO_QUOTA, ...quota }, LONG_MS)).toBe('reserved')
    })

    it('lets a principal create rooms again after a while', async () => {
      const { store, elapse } = await opened(open)
      const quota = { ...NO_QUOTA, perMinute: 600 }
      const make = (n: number) => store.rooms.reserve(`p/a:${n}`, 'ada', quota, LONG_MS)
      let made = 0
      while ((await make(made)) === 'reserved') made++
      expect(made).toBeGreaterThanOrEqual(600)
      await elapse(60_000 / quota.perMinute, async () => (await make(made)) === 'reserved')
    })
  })
}
