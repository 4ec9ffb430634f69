import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

/** A room in which each message and each tick takes a number of milliseconds of the event loop. */
const busy = (options: { sync?: number; tick?: number } = {}) => {
  const handled: string[] = []
  const took = { tick: 0 }
  let bench: RoomBench | undefined
  const room = defineRoom({
    type: 'busy',
    messages: { work: { data: v.object({ name: v.string(), ms: v.number() }) } },
    sync: { rate: options.sync ?? 20 },
    durability: 'none',
    create: () => ({ done: 0, ticks: 0 }),
    onMessage(state, { data }) {
      bench?.clock.pause(data.ms)
      handled.push(data.name)
      state.done++
    },
    ...(options.tick !== undefined && {
      tick: { rate: options.tick },
      onTick(state: { ticks: number }, ctx: { roomId: string }) {
        if (ctx.roomId === 'busy:a') bench?.clock.pause(took.tick)
        state.ticks++
      },
    }),
  })
  return { room, handled, took, on: (made: RoomBench) => (bench = made) }
}

const doneBy = (member: { state: unknown }) => (member.state as { done: number }).done

/** A room type that ticks and flushes at a rate, and counts its ticks. */
const ticking = (type: string, rate: number) =>
  defineRoom({
    type,
    tick: { rate },
    sync: { rate },
    durability: 'none',
    create: () => ({ ticks: 0 }),
    onTick(state) {
      state.ticks++
    },
  })

describe('the rooms of a node that slows down', () => {
  it('flush and tick less often by one factor, whatever their rates, and at their rates again once it keeps up', async () => {
    const bench = new RoomBench([ticking('clockwork', 20), ticking('fast', 50)])
    const slow = await bench.join('clockwork', 'ann')
    const fast = await bench.join('fast', 'bob')
    const updates = async () => {
      const before = [slow.seq, fast.seq]
      await bench.advance(10_000, 1)
      return [slow.seq - before[0]!, fast.seq - before[1]!].map((count) => Math.round(count / 10))
    }
    expect(await updates()).toEqual([20, 50])
    bench.slowdown = 2.5
    expect(await updates()).toEqual([8, 20])
    bench.slowdown = 1
    expect(await updates()).toEqual([20, 50])
    expect([slow.faults, fast.faults]).toEqual([[], []])
  })
})

describe('more inputs than the event loop has time for', () => {
  it('wait while the rooms flush, and every room acts in turn', async () => {
    const { room, handled, on } = busy()
    const bench = new RoomBench([room])
    on(bench)
    const ann = await bench.join('busy', 'ann', { key: 'one' })
    const bob = await bench.join('busy', 'bob', { key: 'two' })
    await bench.advance(1000)
    const seq = ann.seq
    for (let n = 0; n < 200; n++)
      for (const [member, key] of [
        ['ann', 'one'],
        ['bob', 'two'],
      ] as const)
        bench.message('busy', member, 'work', { name: member, ms: 2 }, undefined, key)
    await bench.advance(100, 1)
    // 800 ms of work, during which its rooms flushed.
    expect(handled.length).toBe(400)
    expect(ann.seq - seq).toBeGreaterThan(4)
    await bench.advance(200)
    expect([doneBy(ann), doneBy(bob)]).toEqual([200, 200])
    const half = handled.slice(0, 200)
    expect(Math.abs(half.filter((name) => name === 'ann').length - 100)).toBeLessThan(20)
  })

  it('are dropped, or refused once, by an overloaded node when they are old, also when they are sent again', async () => {
    const { room, handled, on } = busy()
    const bench = new RoomBench([room])
    on(bench)
    const ann = await bench.join('busy', 'ann')
    await bench.advance(1000)
    bench.overloaded = true
    for (let n = 1; n <= 100; n++) {
      bench.message('busy', 'ann', 'work', { name: 'unreliable', ms: 5 })
      bench.message('busy', 'ann', 'work', { name: 'reliable', ms: 5 }, n)
    }
    await bench.advance(1000)
    const refused = ann.errors.filter(({ code }) => code === 'rate_limited')
    expect(refused.length).toBeGreaterThan(50)
    expect(new Set(refused.map(({ ref }) => ref)).size).toBe(refused.length)
    expect(bench.counts).toMatchObject({ refused: refused.length, dropped: expect.any(Number) })
    expect(handled.length + bench.counts.refused! + bench.counts.dropped!).toBe(200)
    expect([ann.acked, doneBy(ann)]).toEqual([100, handled.length])
    // Its edge sends the last one again: the same answer, and no second effect.
    bench.message('busy', 'ann', 'work', { name: 'again', ms: 5 }, 100)
    await bench.advance(1000)
    expect(ann.errors.at(-1)).toMatchObject({ code: 'rate_limited', ref: 100 })
    expect(handled).not.toContain('again')
  })

  it('are dropped without an answer if too many wait already, because an answer would cost more than they do', async () => {
    const { room, handled, on } = busy()
    const bench = new RoomBench([room], { limits: { waitingMessages: 10 } })
    on(bench)
    const ann = await bench.join('busy', 'ann')
    await bench.advance(1000)
    bench.slowdown = 1.36
    for (let n = 1; n <= 100; n++) bench.message('busy', 'ann', 'work', { name: 'work', ms: 10 })
    await bench.advance(1000)
    expect([handled.length, bench.counts.dropped, ann.errors]).toEqual([11, 89, []])
  })

  it('are handled at any age if they waited because the room could not act', async () => {
    const { room, handled, on } = busy()
    const bench = new RoomBench([room])
    on(bench)
    const ann = await bench.join('busy', 'ann')
    await bench.advance(1000)
    bench.overloaded = true
    bench.mayAct = false
    for (let n = 1; n <= 100; n++) bench.message('busy', 'ann', 'work', { name: 'held', ms: 5 }, n)
    await bench.advance(5000)
    bench.mayAct = true
    bench.host.recheck()
    await bench.advance(2000)
    expect([handled.length, ann.acked, ann.errors]).toEqual([100, 100, []])
  })
})

describe('room logic that takes long', () => {
  it('is logged and counted, and delays its own room more than others', async () => {
    const warned: { msg: string }[] = []
    const log = pino({ level: 'warn' }, { write: (line: string) => void warned.push(JSON.parse(line)) })
    const { room, took, on } = busy({ tick: 20 })
    const { bench, ann } = await roomWith(room, ['ann'], { log })
    on(bench)
    const bob = await bench.join('busy', 'bob', { key: 'b' })
    took.tick = 500
    const before = [ann.seq, bob.seq]
    const until = bench.clock.monotonic() + 10_000
    while (bench.clock.monotonic() < until) await bench.advance(5, 1)
    const [slow, quick] = [ann.seq - before[0]!, bob.seq - before[1]!]
    // A quarter of the time for this room, and the rest for the other.
    expect(slow).toBeLessThanOrEqual(6)
    expect(quick).toBeGreaterThanOrEqual(140)
    expect(warned[0]).toMatchObject({ room_id: 'busy:a', room_type: 'busy', hook: 'onTick', ms: 500 })
    expect(bench.counts['slow onTick']).toBe(slow)
    took.tick = 0
    await bench.advance(5000)
    const seq = ann.seq
    await bench.advance(1000, 1)
    expect(ann.seq - seq).toBe(20)
  })
})
