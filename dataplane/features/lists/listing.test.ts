import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import { codeKey } from '../../../shared/ids.ts'
import { StoreRefused, StoreUnavailable } from '../../../shared/store/port.ts'
import { type BenchOptions, RoomBench, roomWith } from '../../../test/support/rooms/room-bench.ts'
import { QUEUE_PRINCIPALS } from '../../place.ts'
import { defineRoom } from '../../room/definition.ts'
import { noSuspects } from '../../room/room-code.ts'
import type { RoomRequest } from '../../traffic.ts'
import { decodeRow } from './rows.ts'

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS
const CANARY = 'CANARY-7f3a'
const CLOSE: RoomRequest = { id: 'operator/1', hash: '', do: { op: 'close' } }

interface Duel {
  phase: string
  level: number
  text: string
  noise: number
  hands: Record<string, string>
}

interface Options {
  readonly onIdle?: 'dispose' | 'sleep'
  readonly sleeping?: boolean
  readonly durability?: 'journal' | 'snapshot' | 'none'
  readonly codes?: boolean
  readonly of?: (state: Partial<Duel>) => unknown
}

/** A duel whose players set the phase, the level and a text that the list does not show. */
const duel = ({
  onIdle = 'dispose',
  sleeping = false,
  durability = 'journal',
  codes = false,
  of,
}: Options = {}) =>
  defineRoom({
    type: 'duel',
    maxPlayers: 4,
    idleSeconds: 10,
    sleepDays: 7,
    onIdle,
    durability,
    codes,
    sync: { rate: 0 },
    layers: { 'hands.*': (memberId) => `member:${memberId}` },
    listing: {
      data: v.object({ level: v.number(), text: v.optional(v.string(), '') }),
      of: (state): never =>
        (of
          ? of(state as Partial<Duel>)
          : state.phase === 'open'
            ? { level: state.level, text: state.text }
            : null) as never,
      ...(sleeping && { sleeping }),
    },
    create: (): Duel => ({ phase: 'open', level: 1, text: '', noise: 0, hands: {} }),
    messages: {
      set: {
        data: v.partial(
          v.object({ phase: v.string(), level: v.number(), text: v.string(), noise: v.number() }),
        ),
      },
      reserve: { data: v.string() },
      end: { data: v.null() },
    },
    onJoin(state, member) {
      state.hands[member.id] = CANARY
    },
    onMessage(state, input, ctx) {
      if (input.type === 'end') ctx.close()
      else if (input.type === 'reserve') ctx.reserve(input.data, 5)
      else Object.assign(state, input.data)
    },
  })

/** Returns all rooms that the store lists, each as (epoch, version) and row. */
async function listed(bench: RoomBench) {
  const { rooms } = await bench.store.store.listings.changes('prj_test/duel', '', 100)
  return rooms.map(({ epoch, version, value }) => ({ epoch, version, row: value && decodeRow(value) }))
}

const dataOf = async (bench: RoomBench) => (await listed(bench))[0]?.row?.data
const writesOf = (bench: RoomBench) => vi.spyOn(bench.store.store.listings, 'write')
const joinedOf = (bench: RoomBench) => bench.sentOf('update').flatMap(({ joined }) => joined)

describe('the row of a room', () => {
  it('is written after the first update of a new room is stored, and not before', async () => {
    const bench = new RoomBench([duel()])
    const createdAt = new Date(bench.clock.now()).toISOString()
    bench.store.mood = 'slow'
    await bench.join('duel', 'ann')
    expect([bench.store.held, await listed(bench)]).toEqual([1, []])
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.untilIdle()
    const { epoch } = bench.host.rooms.running[0]!.core
    const row = {
      room_id: 'duel:a',
      room_type: 'duel',
      key: 'a',
      players: 1,
      max_players: 4,
      reserved: 0,
      created_at: createdAt,
      data: { level: 1, text: '' },
      node_id: 'node_a',
    }
    expect(await listed(bench)).toEqual([{ epoch, version: 1, row }])
  })

  it('is written at most once a second, and shows the last change', async () => {
    const of = vi.fn(({ level }: Partial<Duel>) => ({ level }))
    const { bench } = await roomWith(duel({ of }), ['ann'])
    const writes = writesOf(bench)
    of.mockClear()
    for (let level = 2; level <= 30; level++) {
      await bench.say('duel', 'ann', 'set', { level }, level - 1)
      await bench.advance(100, 50)
    }
    expect([of.mock.calls.length, writes.mock.calls.length]).toEqual([2, 2])
    await bench.advance(1000, 50)
    expect([of.mock.calls.length, await dataOf(bench)]).toEqual([3, { level: 30, text: '' }])
  })

  it('is not written again while it does not change', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    const writes = writesOf(bench)
    for (let noise = 1; noise < 5; noise++) {
      await bench.say('duel', 'ann', 'set', { noise }, noise)
      await bench.advance(1500, 100)
    }
    expect(writes).not.toHaveBeenCalled()
    await bench.join('duel', 'bob')
    await bench.advance(1000, 100)
    expect(writes).toHaveBeenCalledTimes(1)
    expect((await listed(bench))[0]?.row?.players).toBe(2)
  })

  it('counts the reservations', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    await bench.say('duel', 'ann', 'reserve', 'bob', 1)
    await bench.advance(1000, 100)
    expect(await listed(bench)).toMatchObject([{ row: { players: 1, reserved: 1 } }])
    await bench.advance(6000, 100)
    expect(await listed(bench)).toMatchObject([{ row: { players: 1, reserved: 0 } }])
  })

  it('has the number of spectators, and is written for a change of it alone after 10 s', async () => {
    const watched = defineRoom({
      type: 'duel',
      spectators: { max: 100 },
      sync: { rate: 0 },
      listing: { data: v.object({}), of: () => ({}) },
      create: () => ({}),
    })
    const { bench } = await roomWith(watched, ['ann'])
    await bench.advance(10_000, 100)
    const writes = writesOf(bench)
    for (let i = 0; i < 15; i++) {
      await bench.join('duel', `w${i}`, { watch: true })
      await bench.advance(1000, 100)
    }
    // The first watcher, and 10 s later the eleventh or so. None of them takes a player's place.
    expect(writes).toHaveBeenCalledTimes(2)
    await bench.join('duel', 'bob')
    await bench.advance(1000, 100)
    expect(await listed(bench)).toMatchObject([{ row: { players: 2, spectators: 15 } }])
  })

  it('is removed while `of` returns null', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    await bench.say('duel', 'ann', 'set', { phase: 'play' }, 1)
    await bench.advance(1000, 100)
    expect(await listed(bench)).toMatchObject([{ version: 2, row: undefined }])
    await bench.say('duel', 'ann', 'set', { phase: 'open' }, 2)
    await bench.advance(1000, 100)
    expect(await listed(bench)).toMatchObject([{ version: 3, row: { players: 1 } }])
  })

  it.each<[string, (state: Partial<Duel>) => unknown]>([
    ['throws', () => JSON.parse('a mistake')],
    ['returns data that does not fit', () => ({ level: 'high' })],
    ['returns no data', () => undefined],
    ['returns a promise', async () => ({ level: 1 })],
    ['returns more than 1 KiB of JSON', () => ({ level: 1, text: 'ü'.repeat(510) })],
    ['changes the state', (state) => Object.assign(state, { level: 99 })],
  ])('stays as it was if `of` %s: no turn fails, and the error is logged and counted', async (_, fail) => {
    const lines: string[] = []
    const log = pino({ level: 'warn' }, { write: (line: string) => lines.push(line) })
    const of = (state: Partial<Duel>) => (state.level === 2 ? fail(state) : { level: state.level })
    const { bench, ann } = await roomWith(duel({ of }), ['ann'], { log })
    await bench.say('duel', 'ann', 'set', { level: 2 }, 1)
    await bench.advance(1000, 100)
    expect([ann.state, ann.errors]).toMatchObject([{ level: 2 }, []])
    expect(await listed(bench)).toMatchObject([{ version: 1, row: { data: { level: 1 } } }])
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { failed: 'listing of duel', room: 'prj_test/duel:a' },
    ])
    expect([bench.counts['row written'], bench.counts['row failed']]).toEqual([1, 1])
    await bench.say('duel', 'ann', 'set', { level: 3 }, 2)
    await bench.advance(1000, 100)
    expect(await dataOf(bench)).toEqual({ level: 3, text: '' })
  })

  it('stays if `of` does not return: the call is cut off, and the room continues', async () => {
    const stuck = vi.fn(async () => {})
    let limitMs: number | undefined
    const limitOf = ({ hook }: { hook: string }) => (hook === 'listing' ? limitMs : undefined)
    const of = ({ level }: Partial<Duel>) => {
      while (level === 2);
      return { level }
    }
    const { bench, ann } = await roomWith(duel({ of }), ['ann'], {
      suspects: { ...noSuspects, limitOf, stuck },
    })
    limitMs = 20
    await bench.say('duel', 'ann', 'set', { level: 2 }, 1)
    await bench.advance(1000, 100)
    expect(stuck).toHaveBeenCalledWith(expect.objectContaining({ hook: 'listing' }), 'guard')
    expect(await dataOf(bench)).toMatchObject({ level: 1 })
    limitMs = undefined
    await bench.say('duel', 'ann', 'set', { level: 3 }, 2)
    await bench.advance(5000, 100)
    expect([ann.state, await dataOf(bench)]).toMatchObject([{ level: 3 }, { level: 3 }])
  })

  it('pauses the room for three times as long as a slow `of` took', async () => {
    let slow = (): void => {}
    const of = ({ level }: Partial<Duel>) => {
      slow()
      return { level }
    }
    const { bench, ann } = await roomWith(duel({ of }), ['ann'])
    await bench.advance(2000, 100)
    slow = () => bench.clock.pause(200)
    await bench.say('duel', 'ann', 'set', { level: 2 }, 1)
    slow = () => {}
    bench.message('duel', 'ann', 'set', { level: 3 }, 2)
    await bench.advance(500, 20)
    expect(ann.acked).toBe(1)
    await bench.advance(500, 20)
    expect(ann.acked).toBe(2)
  })

  it('contains nothing of hidden layers, which `of` does not get', async () => {
    const seen: Partial<Duel>[] = []
    const of = (state: Partial<Duel>) => {
      seen.push(JSON.parse(JSON.stringify(state)))
      return { level: 1, text: JSON.stringify(state) }
    }
    const bench = new RoomBench([duel({ of })])
    const writes = writesOf(bench)
    const ann = await bench.join('duel', 'ann')
    await bench.say('duel', 'ann', 'set', { level: 2 }, 1)
    await bench.advance(2000, 100)
    expect(JSON.stringify([...ann.layers])).toContain(CANARY)
    expect(seen.map(({ hands }) => hands)).toEqual([{}, {}])
    for (const [, { value }] of writes.mock.calls)
      expect(Buffer.from(value!).toString()).not.toContain(CANARY)
  })

  it('shows no update that is not stored, even if it is due during the commit', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    await bench.say('duel', 'ann', 'set', { level: 2 }, 1)
    bench.store.mood = 'slow'
    await bench.say('duel', 'ann', 'set', { level: 3 }, 2)
    await bench.advance(3000, 100)
    expect(await dataOf(bench)).toMatchObject({ level: 1 })
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.advance(1000, 100)
    expect(await dataOf(bench)).toMatchObject({ level: 3 })
  })

  it('and the code follow a definition that replaces another', async () => {
    const plain = { ...duel(), listing: undefined }
    const { bench } = await roomWith(plain, ['ann'])
    await bench.advance(1000, 100)
    expect(await listed(bench)).toEqual([])
    bench.host.replaceRoom(duel({ codes: true }))
    await bench.advance(2000, 100)
    expect(await listed(bench)).toMatchObject([{ row: { data: { level: 1 }, code: expect.any(String) } }])
    bench.host.replaceRoom(plain)
    await bench.advance(2000, 100)
    expect(await listed(bench)).toMatchObject([{ row: undefined }])
  })

  it('is removed when the room ends, before the operator who ended it gets the answer', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    const { epoch } = bench.host.rooms.running[0]!.core
    void bench.request('duel', CLOSE)
    await bench.untilIdle()
    expect(bench.sentOf('answer')).toHaveLength(1)
    expect(await listed(bench)).toEqual([{ epoch, version: 2, row: undefined }])
  })

  it('is removed as soon as the store answers, if the store is away when the room ends', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    const writes = writesOf(bench).mockRejectedValue(new StoreUnavailable('away'))
    await bench.say('duel', 'ann', 'end', null, 1)
    await bench.advance(5000, 100)
    expect((await listed(bench))[0]?.row).toBeDefined()
    expect(bench.host.rooms.claimed).toBe(1)
    writes.mockRestore()
    await bench.advance(2000, 100)
    expect([(await listed(bench))[0]?.row, bench.host.rooms.claimed]).toEqual([undefined, 0])
  })

  it('delays the end of its room by at most a minute if the store refuses the removal', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    writesOf(bench).mockRejectedValue(new StoreRefused('no permission', 'NOPERM'))
    await bench.say('duel', 'ann', 'end', null, 1)
    await bench.advance(55_000, 500)
    expect(bench.host.rooms.claimed).toBe(1)
    await bench.advance(10_000, 500)
    expect(bench.host.rooms.claimed).toBe(0)
  })

  it('is given up when the node closes, if the store does not answer', async () => {
    const { bench } = await roomWith(duel({ durability: 'none' }), ['ann'])
    writesOf(bench).mockRejectedValue(new StoreUnavailable('away'))
    const closed = bench.host.close(3000)
    await bench.advance(5000, 100)
    await closed
    expect(bench.host.rooms.claimed).toBe(0)
  })

  it.each([
    [true, { node_id: null, players: 0 }],
    [false, undefined],
  ])('of a sleeping room stays as long as its record only with `sleeping` (%s)', async (sleeping, row) => {
    const { bench } = await roomWith(duel({ onIdle: 'sleep', sleeping }), ['ann'])
    bench.leave('duel', 'ann')
    await bench.advance(11_000, 500)
    expect(bench.counts.asleep).toBe(1)
    const [found] = await listed(bench)
    expect(found?.row).toEqual(row && expect.objectContaining(row))
    bench.clock.advance(7 * DAY_MS - MINUTE_MS)
    expect((await listed(bench)).some((each) => each.row)).toBe(sleeping)
    bench.clock.advance(2 * MINUTE_MS)
    expect((await listed(bench)).some((each) => each.row)).toBe(false)
  })

  it('of a sleeping room is refused and removed if it reaches the store more than a minute late', async () => {
    const { bench } = await roomWith(duel({ onIdle: 'sleep', sleeping: true }), ['ann'])
    const { listings } = bench.store.store
    const write = listings.write.bind(listings)
    let isLate = true
    vi.spyOn(listings, 'write').mockImplementation(async (list, room, ttlMs, by) => {
      if (by !== undefined && isLate) bench.clock.pause(2 * MINUTE_MS)
      isLate &&= by === undefined
      return write(list, room, ttlMs, by)
    })
    bench.leave('duel', 'ann')
    await bench.advance(11_000, 500)
    expect([bench.counts.asleep, isLate]).toEqual([1, false])
    expect((await listed(bench)).map(({ row }) => row)).toEqual([undefined])
  })

  it('of a match is written when its first player has joined, also by the next owner', async () => {
    const bench = new RoomBench([duel()])
    const create = { principal: QUEUE_PRINCIPALS.reserve, options: {} }
    const match: RoomRequest = {
      id: 'queue:a',
      hash: 'seats',
      create,
      do: { op: 'reserve', subs: ['ann', 'bob'], seconds: 30, players: [] },
    }
    expect(await Promise.all([bench.request('duel', match), bench.untilIdle()])).toMatchObject([
      { reply: { reserved: true } },
      undefined,
    ])
    await bench.advance(5000, 500)
    bench.mayAct = false
    const next = bench.successor()
    expect(await Promise.all([next.request('duel', match), next.untilIdle()])).toMatchObject([
      { reply: { reserved: true } },
      undefined,
    ])
    await next.advance(5000, 500)
    expect((await listed(next)).flatMap(({ row }) => row ?? [])).toEqual([])
    await next.join('duel', 'ann', { sub: 'ann' })
    await next.advance(5000, 500)
    expect((await listed(next)).map(({ row }) => row?.players)).toEqual([1])
    next.leave('duel', 'ann')
    await next.advance(5000, 500)
    expect((await listed(next)).map(({ row }) => row?.players)).toEqual([0])
  })

  it.each(['deaf', 'silent'] as const)(
    'of a sleeping room is refused only if the store may have released the room more than a minute before (%s)',
    async (mood) => {
      const { bench } = await roomWith(duel({ onIdle: 'sleep', sleeping: true }), ['ann'])
      const { rooms } = bench.store.store
      const release = rooms.release.bind(rooms)
      vi.spyOn(rooms, 'release').mockImplementationOnce((...args) => {
        bench.store.mood = mood
        return release(...args)
      })
      bench.leave('duel', 'ann')
      await bench.advance(90_000, 500)
      expect(bench.store.mood).toBe(mood)
      bench.store.mood = 'fine'
      await bench.advance(5000, 500)
      expect(bench.counts.asleep).toBe(1)
      const [found] = await listed(bench)
      expect(found?.row?.node_id).toBe(mood === 'deaf' ? null : undefined)
    },
  )

  it('of a sleeping room is removed with its record, if that is damaged or an operator ends the room without its code', async () => {
    const { bench } = await roomWith(duel({ onIdle: 'sleep', sleeping: true }), ['ann'])
    await bench.join('duel', 'bob', { key: 'other' })
    bench.leave('duel', 'ann')
    bench.leave('duel', 'bob', 'other')
    await bench.advance(11_000, 500)
    expect((await listed(bench)).map(({ row }) => row?.node_id)).toEqual([null, null])
    const { fence } = await bench.claimed('duel')
    const { rooms } = bench.store.store
    await rooms.snapshot('prj_test/duel:a', fence, Uint8Array.of(1, 2, 3), 60_000)
    const { epoch, version } = (await rooms.inspect('prj_test/duel:a'))!
    await rooms.release('prj_test/duel:a', { epoch, version }, { forget: false })
    await bench.join('duel', 'cat')
    expect(bench.counts.quarantined).toBe(1)
    const bare = new RoomBench([], { clock: bench.clock, store: bench.store.store })
    const answer = bare.request('duel', CLOSE, 'other')
    await bare.untilIdle()
    expect(await answer).toMatchObject({ reply: { ended: true } })
    expect((await listed(bench)).map(({ row }) => row)).toEqual([undefined, undefined])
  })

  it('is the next owner’s as soon as the room is opened, with its creation time, and the earlier owner cannot write its row again', async () => {
    const { bench, ann } = await roomWith(duel(), ['ann'])
    const [first] = await listed(bench)
    bench.clock.advance(MINUTE_MS)
    const write = bench.store.store.listings.write.bind(bench.store.store.listings)
    const heir = bench.successor([ann])
    heir.attach('duel', ann, 1)
    await heir.untilIdle()
    const [second] = await listed(heir)
    expect(second).toEqual({
      epoch: heir.host.rooms.running[0]!.core.epoch,
      version: 1,
      row: { ...first!.row, node_id: 'node_b' },
    })
    const { epoch } = first!
    expect(
      await write('prj_test/duel', { roomId: 'duel:a', epoch, version: 99, value: undefined }, 1000),
    ).toBe(false)
  })

  it.each([false, true])(
    'is removed by an owner that has lost the room, but not that of the next owner: %s',
    async (isNext) => {
      const { bench } = await roomWith(duel(), ['ann'])
      const { rooms, listings } = bench.store.store
      const { epoch } = bench.host.rooms.running[0]!.core
      expect(await rooms.claim('prj_test/duel:a', 'node_c', epoch, HOUR_MS)).toBeDefined()
      const value = Uint8Array.of(1)
      const next = { roomId: 'duel:a', epoch: epoch + 1, version: 1, value }
      if (isNext) await listings.write('prj_test/duel', next, HOUR_MS)
      await bench.say('duel', 'ann', 'set', { level: 2 }, 1)
      await bench.untilIdle()
      expect(bench.host.rooms.running).toEqual([])
      const { rooms: found } = await listings.changes('prj_test/duel', '', 100)
      expect(found.map((room) => room.value)).toEqual([isNext ? value : undefined])
    },
  )

  it('stays during a handoff, and is the successor’s afterwards', async () => {
    const { bench, ann } = await roomWith(duel(), ['ann'])
    await bench.host.rooms.running[0]!.handOver('node_b')
    expect(await listed(bench)).toMatchObject([{ version: 1, row: { node_id: 'node_a' } }])
    const heir = bench.successor([ann])
    await heir.router.open(heir.address('duel'))
    await heir.untilIdle()
    expect(await listed(heir)).toMatchObject([{ version: 1, row: { node_id: 'node_b' } }])
  })

  it('is written again before it expires', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    const writes = writesOf(bench)
    await bench.advance(3 * HOUR_MS, MINUTE_MS)
    expect(writes.mock.calls.length).toBeGreaterThanOrEqual(4)
    expect(writes.mock.calls.length).toBeLessThanOrEqual(8)
    expect(await dataOf(bench)).toEqual({ level: 1, text: '' })
  })

  it('is the newest once the store takes writes again', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    await bench.advance(1000, 100)
    const writes = writesOf(bench).mockRejectedValue(new StoreUnavailable('away'))
    for (const level of [2, 3]) {
      await bench.say('duel', 'ann', 'set', { level }, level - 1)
      await bench.advance(1500, 100)
    }
    expect(writes.mock.calls.length).toBeLessThanOrEqual(4)
    writes.mockRestore()
    await bench.advance(2000, 100)
    expect(await dataOf(bench)).toMatchObject({ level: 3 })
    expect(bench.counts['row not_written']).toBeGreaterThan(0)
  })

  it('is written under the new epoch after the store has lost the room', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    const before = bench.host.rooms.running[0]!.core.epoch
    await lose(bench)
    const { epoch } = bench.host.rooms.running[0]!.core
    expect(epoch).toBeGreaterThan(before)
    await bench.advance(1000, 100)
    expect(await listed(bench)).toMatchObject([{ epoch, row: { players: 1 } }])
  })

  it('is written again within 5 s after an outage of the store, which may have lost it', async () => {
    const { bench } = await roomWith(duel(), ['ann'])
    const before = (await listed(bench))[0]!
    bench.host.recheck()
    await bench.advance(6000, 100)
    expect((await listed(bench))[0]).toEqual({ ...before, version: before.version + 1 })
  })

  it('is removed at the end of the room, even while the database rejects its last save', async () => {
    const save = { everySeconds: 10, to: () => Promise.reject(new Error('the database is away')) }
    const { bench } = await roomWith({ ...duel(), save }, ['ann'])
    await bench.say('duel', 'ann', 'end', null, 1)
    await bench.advance(1000, 100)
    expect([bench.host.rooms.claimed, (await listed(bench))[0]?.row]).toEqual([1, undefined])
  })

  it('costs a room type without listing and codes no write', async () => {
    const plain = defineRoom({ type: 'plain', onIdle: 'sleep', idleSeconds: 1, create: () => ({ n: 0 }) })
    const bench = new RoomBench([plain])
    const writes = [writesOf(bench), vi.spyOn(bench.store.store.records, 'write')]
    await bench.join('plain', 'ann')
    bench.leave('plain', 'ann')
    await bench.advance(5000, 100)
    await bench.join('plain', 'bob')
    await bench.advance(HOUR_MS, MINUTE_MS)
    for (const write of writes) expect(write).not.toHaveBeenCalled()
  })
})

/** The store loses the room's record, and the room finds that out. */
async function lose(bench: RoomBench): Promise<void> {
  const { rooms } = new RoomBench([]).store.store
  bench.store.follow(() => rooms)
  await bench.say('duel', 'ann', 'set', { noise: 1 }, 1)
  await bench.advance(200, 20)
}

describe('the code of a room', () => {
  const withCodes = (more?: Options, options?: BenchOptions) =>
    roomWith(duel({ codes: true, ...more }), ['ann'], options)
  const recordOf = async (bench: RoomBench, code: string | undefined) => {
    const [found] = await bench.store.store.records.read([codeKey('prj_test', code ?? '')])
    return found && new TextDecoder().decode(found.value)
  }
  const codeOf = (bench: RoomBench) => joinedOf(bench).at(-1)?.code

  it('is in the answer to every join, in the store and in the row', async () => {
    const { bench } = await withCodes()
    await bench.join('duel', 'bob')
    const codes = joinedOf(bench).map(({ code }) => code)
    expect(codes).toEqual([expect.stringMatching(/^[0-9A-HJKMNP-TV-Z]{6}$/), codes[0]])
    await bench.join('duel', 'cat', { key: 'other' })
    expect(codeOf(bench)).not.toBe(codes[0])
    expect(await recordOf(bench, codes[0])).toBe('duel:a')
    expect((await listed(bench)).map(({ row }) => row?.code)).toContain(codes[0])
  })

  it('is absent in a room type without codes', async () => {
    const { bench } = await withCodes({ codes: false })
    expect(joinedOf(bench)).toMatchObject([{ member_id: 'ann' }])
    expect(joinedOf(bench)[0]).not.toHaveProperty('code')
    expect((await listed(bench))[0]?.row).not.toHaveProperty('code')
  })

  it.each(['journal', 'snapshot'] as const)('is the same under the next owner (%s)', async (durability) => {
    const { bench, ann } = await withCodes({ durability })
    await bench.advance(1000, 100)
    const code = codeOf(bench)
    const heir = bench.successor([ann])
    await heir.join('duel', 'bob')
    expect([codeOf(heir), code]).toEqual([code, expect.any(String)])
    expect(await recordOf(heir, code)).toBe('duel:a')
  })

  it('ends with the room', async () => {
    const { bench } = await withCodes()
    const code = codeOf(bench)
    await bench.say('duel', 'ann', 'end', null, 1)
    expect(await recordOf(bench, code)).toBeUndefined()
    await bench.join('duel', 'bob')
    expect(codeOf(bench)).not.toBe(code)
  })

  it('lives as long as the record of a sleeping room', async () => {
    const { bench } = await withCodes({ onIdle: 'sleep' })
    const code = codeOf(bench)
    bench.leave('duel', 'ann')
    await bench.advance(11_000, 500)
    bench.clock.advance(7 * DAY_MS - MINUTE_MS)
    expect(await recordOf(bench, code)).toBe('duel:a')
    bench.clock.advance(2 * MINUTE_MS)
    expect(await recordOf(bench, code)).toBeUndefined()
  })

  it('stays claimed while the room runs', async () => {
    const { bench } = await withCodes()
    await bench.advance(3 * HOUR_MS, MINUTE_MS)
    expect(await recordOf(bench, codeOf(bench))).toBe('duel:a')
  })

  it.each([
    ['is claimed again', undefined],
    ['is another', 'duel:thief'],
  ])('%s after the store has lost it; another room has claimed it: %s', async (_, taken) => {
    const { bench, ann } = await withCodes()
    const code = codeOf(bench)!
    const key = codeKey('prj_test', code)
    const { records } = bench.store.store
    await records.write([{ remove: key }])
    if (taken) await records.write([{ put: key, value: new TextEncoder().encode(taken) }])
    await lose(bench)
    await bench.advance(2000, 100)
    expect(await recordOf(bench, code)).toBe(taken ?? 'duel:a')
    await bench.join('duel', 'bob')
    await bench.advance(1000, 100)
    const now = codeOf(bench)!
    expect([now === code, await recordOf(bench, now)]).toEqual([!taken, 'duel:a'])
    expect((await listed(bench))[0]?.row?.code).toBe(now)
    // The next owner has it, too.
    const heir = bench.successor([ann])
    heir.store.follow(() => bench.store.store.rooms)
    await heir.join('duel', 'cat')
    expect(codeOf(heir)).toBe(now)
  })

  it('is not claimed if the store does not answer: the join is refused, and no room is counted', async () => {
    const bench = new RoomBench([duel({ codes: true })], { quota: { maxRooms: 1 } })
    const write = vi.spyOn(bench.store.store.records, 'write').mockRejectedValue(new StoreUnavailable('away'))
    const ann = await bench.join('duel', 'ann')
    expect(ann.errors).toMatchObject([{ code: 'room_unavailable' }])
    write.mockRestore()
    const bob = await bench.join('duel', 'bob', { key: 'other' })
    expect(bob.inRoom).toBe(true)
  })

  it('differs between two rooms that draw the same code', async () => {
    const { bench } = await withCodes()
    const { records } = bench.store.store
    const write = vi.spyOn(records, 'write').mockResolvedValueOnce(false)
    await bench.join('duel', 'bob', { key: 'other' })
    const keys = write.mock.calls.map(([[first]]) => first && 'put' in first && first.put)
    expect(keys).toEqual([expect.any(String), codeKey('prj_test', codeOf(bench)!)])
    expect(keys[0]).not.toBe(keys[1])
  })

  it('of an earlier room with the same key does not admit a player to the present room', async () => {
    const { bench } = await withCodes()
    const code = codeOf(bench)!
    const bob = await bench.join('duel', 'bob', { create: false, code: '000000' })
    expect(bob.errors).toMatchObject([{ code: 'room_not_found' }])
    const cat = await bench.join('duel', 'cat', { create: false, code })
    expect(cat.inRoom).toBe(true)
  })
})
