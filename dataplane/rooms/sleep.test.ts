import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

const DAY_MS = 24 * 3_600_000

const board = (durability: 'journal' | 'snapshot' = 'journal', options: { version?: number } = {}) =>
  defineRoom({
    type: 'board',
    idleSeconds: 10,
    onIdle: 'sleep',
    sleepDays: 7,
    durability,
    ...options,
    sync: { rate: 0 },
    timers: { remind: { data: v.null(), handle() {} } },
    messages: { add: { data: v.string() }, end: { data: v.null() }, remindIn: { data: v.number() } },
    create: (): { notes: string[] } => ({ notes: [] }),
    onMessage(state, input, ctx) {
      if (input.type === 'end') ctx.close()
      else if (input.type === 'remindIn') ctx.after(input.data, 'remind', null)
      else state.notes.push(input.data)
    },
  })

/** More than any other room outlives its last write: the ten minutes of `ROOM_ORPHAN_TTL`. */
const LONG_MS = DAY_MS

/** The room after ann has left a note and gone. */
async function left(options?: ConstructorParameters<typeof RoomBench>[1], room = board()) {
  const bench = new RoomBench([room], options)
  await bench.join('board', 'ann')
  await bench.say('board', 'ann', 'add', 'milk', 1)
  bench.send('board', 'ann', { kind: 'leave', reason: 'left', request_id: 2 })
  await bench.settle()
  return bench
}

describe('a room that sleeps when it is idle', () => {
  it.each(['journal', 'snapshot'] as const)(
    'is given up whole, and goes on from there when it is joined a day later (%s)',
    async (durability) => {
      const bench = await left({}, board(durability))
      await bench.advance(11_000, 500)
      expect([bench.host.size, bench.counts.asleep]).toEqual([0, 1])
      bench.clock.advance(LONG_MS)
      const heir = bench.successor()
      const bob = await heir.join('board', 'bob')
      expect(bob.state).toEqual({ notes: ['milk'] })
    },
  )

  it('counts as one of its project until it has ended', async () => {
    const bench = await left({ quota: { maxRooms: 1 } })
    await bench.advance(11_000, 500)
    bench.clock.advance(LONG_MS)
    const bob = await bench.join('board', 'bob', { key: 'other' })
    expect(bob.errors.map(({ code }) => code)).toEqual(['project_full'])
    const ann = await bench.join('board', 'ann')
    expect(ann.state).toEqual({ notes: ['milk'] })
    await bench.say('board', 'ann', 'end', null, 1)
    const cat = await bench.join('board', 'cat', { key: 'other' })
    expect(cat.state).toEqual({ notes: [] })
  })

  it('rests as well when its owner died with it', async () => {
    const bench = await left()
    bench.store.mood = 'deaf'
    bench.clock.advance(LONG_MS)
    const heir = bench.successor()
    expect((await heir.join('board', 'bob')).state).toEqual({ notes: ['milk'] })
  })

  it('opens again for who joins while it is being saved', async () => {
    const bench = await left()
    bench.store.mood = 'slow'
    await bench.advance(10_500, 500)
    const bob = await bench.join('board', 'bob')
    expect([bob.state, bench.store.held]).toEqual([null, 1])
    bench.store.mood = 'fine'
    while (bench.store.held > 0) {
      bench.store.let()
      await bench.settle()
    }
    expect(bob.state).toEqual({ notes: ['milk'] })
  })

  it('is deleted sleepDays after it fell asleep, and counts no more', async () => {
    const bench = await left({ quota: { maxRooms: 1 } })
    await bench.advance(11_000, 500)
    const other = (name: string) => bench.join('board', name, { key: 'other' })
    bench.clock.advance(7 * DAY_MS - 60_000)
    expect((await other('bob')).errors.map(({ code }) => code)).toEqual(['project_full'])
    bench.clock.advance(120_000)
    expect((await other('cat')).state).toEqual({ notes: [] })
    await bench.say('board', 'cat', 'end', null, 1, 'other')
    expect((await bench.join('board', 'dan')).state).toEqual({ notes: [] })
  })

  it('is deleted sleepDays after its owner died with a member in it', async () => {
    const bench = await left({ quota: { maxRooms: 1 } })
    await bench.join('board', 'bob')
    bench.store.mood = 'deaf'
    bench.clock.advance(7 * DAY_MS + 60_000)
    expect((await bench.successor().join('board', 'cat')).state).toEqual({ notes: [] })
  })

  it('is deleted sleepDays after its next timer is due, where that is later', async () => {
    const bench = new RoomBench([board()])
    await bench.join('board', 'ann')
    await bench.say('board', 'ann', 'add', 'milk', 1)
    await bench.say('board', 'ann', 'remindIn', 30 * DAY_MS, 2)
    bench.send('board', 'ann', { kind: 'leave', reason: 'left', request_id: 3 })
    await bench.advance(11_000, 500)
    expect(bench.counts.asleep).toBe(1)
    bench.clock.advance(37 * DAY_MS - 60_000)
    const { rooms } = bench.store.store
    expect(await rooms.counted('prj_test', { limit: 1 })).toHaveLength(1)
    const claim = (await bench.claimed('board'))!
    expect(claim.snapshot).toBeDefined()
    await rooms.release('prj_test/board:a', claim.fence, { forget: false })
    bench.clock.advance(120_000)
    expect(await rooms.counted('prj_test', { limit: 1 })).toEqual([])
    expect((await bench.claimed('board'))!.snapshot).toBeUndefined()
  })

  // Seen: a room that could not be opened kept its record for ROOM_ORPHAN_TTL only.
  it('lives on when a node cannot open it', async () => {
    const bench = await left()
    await bench.advance(11_000, 500)
    const newer = new RoomBench(
      [
        defineRoom({
          type: 'board',
          version: 2,
          migrate: {
            1: () => {
              throw new Error('a mistake')
            },
          },
          create: () => ({ notes: [] }),
        }),
      ],
      { clock: bench.clock, store: bench.store.store, nodeId: 'node_b' },
    )
    const bob = await newer.join('board', 'bob')
    expect(bob.errors.map(({ code }) => code)).toEqual(['room_unavailable'])
    bench.clock.advance(LONG_MS)
    expect((await bench.join('board', 'cat')).state).toEqual({ notes: ['milk'] })
  })

  it('counts for the player who has made it, who may make so many', async () => {
    const bench = new RoomBench([board()], { quota: { maxLasting: 2 } })
    const make = (key: string, member = key) => bench.join('board', member, { key, sub: 'ann' })
    await make('one')
    await make('two')
    await bench.settle()
    expect((await make('three')).errors.map(({ code }) => code)).toEqual(['too_many_rooms'])
    expect((await bench.join('board', 'bob', { key: 'three', sub: 'bob' })).state).toEqual({ notes: [] })
    for (const key of ['one', 'two'])
      bench.send('board', key, { kind: 'leave', reason: 'left', request_id: 2 }, key)
    await bench.advance(11_000, 500)
    bench.clock.advance(LONG_MS)
    expect((await make('four')).errors.map(({ code }) => code)).toEqual(['too_many_rooms'])
    // A room that is there can be joined, by whom and however often.
    expect((await bench.join('board', 'cat', { key: 'two', sub: 'cat' })).state).toEqual({ notes: [] })
    await bench.say('board', 'cat', 'end', null, 1, 'two')
    expect((await make('four', 'again')).state).toEqual({ notes: [] })
  })
})

describe('A room that an operator ends', () => {
  let asked = 0
  const ended = async (bench: RoomBench) => {
    const request = { id: `operator/${++asked}`, hash: '', do: { op: 'close' } } as const
    bench.send('board', `request_${asked}`, { kind: 'request', request })
    await bench.settle()
    return bench.sentOf('answer').map(({ answer }) => ('code' in answer ? answer.code : answer.reply))
  }

  it('ends while members are in it, who leave with reason closed', async () => {
    const bench = new RoomBench([board()])
    const ann = await bench.join('board', 'ann')
    expect(await ended(bench)).toEqual([{ ended: true }])
    expect([ann.heard.at(-1), bench.host.size]).toEqual(['-ann closed', 0])
    expect((await bench.join('board', 'bob')).state).toEqual({ notes: [] })
  })

  it('ends while it sleeps, and counts no more', async () => {
    const bench = await left()
    await bench.advance(11_000, 500)
    expect(await ended(bench)).toEqual([{ ended: true }])
    expect(await bench.store.store.rooms.counted('prj_test', { limit: 1 })).toEqual([])
    expect(await ended(bench)).toEqual([{ ended: true }, 'room_not_found'])
  })

  it('ends without a hook where there is no code for its type', async () => {
    const bench = await left()
    await bench.advance(11_000, 500)
    const other = new RoomBench([], { clock: bench.clock, store: bench.store.store, nodeId: 'node_b' })
    expect(await ended(other)).toEqual([{ ended: true }])
    expect(await ended(other)).toEqual([{ ended: true }, 'room_not_found'])
    expect((await bench.join('board', 'bob')).state).toEqual({ notes: [] })
  })
})
