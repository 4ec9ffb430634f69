import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

const clockwork = (sync: number, tick?: number) =>
  defineRoom({
    type: 'clockwork',
    messages: { poke: { data: v.null() } },
    sync: { rate: sync },
    durability: 'none',
    create: () => ({ pokes: 0, ticks: 0 }),
    onMessage(state) {
      state.pokes++
    },
    ...(tick === undefined
      ? {}
      : {
          tick: { rate: tick },
          onTick(state: { ticks: number }) {
            state.ticks++
          },
        }),
  })

describe('a room that ticks', () => {
  it('ticks as often as it says, for a long time, without drifting', async () => {
    const { bench, ann } = await roomWith(clockwork(0, 30), ['ann'])
    await bench.advance(60_000, 7)
    const { ticks } = ann.state as { ticks: number }
    expect(Math.abs(ticks - 1800)).toBeLessThanOrEqual(1)
  })

  it('does not make up for the ticks of a pause', async () => {
    const { bench, ann } = await roomWith(clockwork(0, 30), ['ann'])
    await bench.advance(1000)
    const before = (ann.state as { ticks: number }).ticks
    // The process was stopped: the clock has moved on, and nothing ran.
    bench.clock.pause(10_000)
    await bench.advance(1000)
    expect((ann.state as { ticks: number }).ticks - before).toBeLessThanOrEqual(32)
  })

  it('tells members of a tick in the same slot when it flushes at the same rate', async () => {
    const { bench, ann } = await roomWith(clockwork(20, 20), ['ann'])
    await bench.advance(1000, 1)
    // One flush for each tick, and one for the join.
    expect((ann.state as { ticks: number }).ticks).toBe(20)
    expect(ann.seq).toBe(21)
  })
})

describe('a room that flushes 20 times a second', () => {
  it('tells the first change at once, and whatever follows in a slot with its next', async () => {
    const { bench, ann } = await roomWith(clockwork(20), ['ann'])
    await bench.advance(1000)
    await bench.say('clockwork', 'ann', 'poke', null)
    expect([ann.state, ann.seq]).toMatchObject([{ pokes: 1 }, 2])
    for (let i = 0; i < 200; i++) {
      bench.message('clockwork', 'ann', 'poke', null)
      await bench.advance(5)
    }
    await bench.advance(50)
    expect(ann.state).toMatchObject({ pokes: 201 })
    expect(ann.seq).toBeGreaterThanOrEqual(21)
    expect(ann.seq).toBeLessThanOrEqual(23)
  })

  it('costs nothing while nothing happens', async () => {
    const { bench } = await roomWith(clockwork(20), ['ann'])
    await bench.advance(1000)
    const sent = bench.sent.length
    // The refresh of records is all that waits, for all rooms together.
    expect(bench.clock.pending).toBeLessThanOrEqual(2)
    await bench.advance(10_000)
    expect(bench.sent.length).toBe(sent)
  })

  it('shares its moments with some of its neighbours, and not with most', async () => {
    const bench = new RoomBench([clockwork(20, 20)])
    for (let i = 0; i < 20; i++) await bench.join('clockwork', `m${i}`, { key: `room-${i}` })
    await bench.advance(1000, 1)
    const sent = bench.sent.length
    const busy = new Set<number>()
    for (let i = 0; i < 50; i++) {
      const before = bench.sent.length
      await bench.advance(1, 1)
      if (bench.sent.length > before) busy.add(i)
    }
    expect(bench.sent.length - sent).toBe(20)
    expect(busy.size).toBeGreaterThan(3)
    expect(busy.size).toBeLessThanOrEqual(6)
  })
})

describe('messages that come at once and take long', () => {
  it('are handled one in a turn of the event loop, in order, and let those of another room through', async () => {
    const handled: string[] = []
    const slow = defineRoom({
      type: 'slow',
      messages: { work: { data: v.object({ name: v.string(), ms: v.number() }) } },
      create: () => ({ done: 0 }),
      onMessage(state, { data }) {
        bench.clock.pause(data.ms)
        handled.push(data.name)
        state.done++
      },
    })
    const bench = new RoomBench([slow])
    const ann = await bench.join('slow', 'ann', { key: 'one' })
    await bench.join('slow', 'bob', { key: 'two' })
    for (let n = 1; n <= 8; n++) bench.message('slow', 'ann', 'work', { name: `ann ${n}`, ms: 50 }, n, 'one')
    bench.message('slow', 'bob', 'work', { name: 'bob', ms: 0 }, 1, 'two')
    expect(handled).toEqual(['ann 1'])
    await bench.settle()
    expect(handled.filter((name) => name !== 'bob')).toEqual(
      Array.from({ length: 8 }, (_, i) => `ann ${i + 1}`),
    )
    expect(handled.indexOf('bob')).toBeLessThan(4)
    await bench.advance(1000)
    expect([ann.acked, ann.state]).toEqual([8, { done: 8 }])
  })
})
