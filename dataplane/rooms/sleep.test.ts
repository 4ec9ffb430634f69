import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

const board = (durability: 'journal' | 'snapshot' = 'journal') =>
  defineRoom({
    type: 'board',
    idleSeconds: 10,
    onIdle: 'sleep',
    durability,
    sync: { rate: 0 },
    messages: { add: { data: v.string() }, end: { data: v.null() } },
    create: (): { notes: string[] } => ({ notes: [] }),
    onMessage(state, input, ctx) {
      if (input.type === 'end') ctx.close()
      else state.notes.push(input.data)
    },
  })

/** More than a room that is not kept outlives its last write: the ten minutes of `ROOM_ORPHAN_TTL`. */
const LONG_MS = 24 * 3_600_000

/** The room after ann has left a note and gone. */
async function left(options?: ConstructorParameters<typeof RoomBench>[1], room = board()) {
  const bench = new RoomBench([room], options)
  await bench.join('board', 'ann')
  await bench.say('board', 'ann', 'add', 'milk', 1)
  bench.send('board', 'ann', { kind: 'leave', reason: 'left', ref: 2 })
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
    await bench.say('board', 'ann', 'end', null, 3)
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
})
