import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { MOMENT_MS } from '../../shared/clock.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import { PacedWork, Scheduler, TickTimer } from './scheduler.ts'

function parts(startedAt?: number) {
  const clock = new FakeClock(startedAt)
  const deferred: (() => void)[] = []
  const errors: unknown[] = []
  const scheduler = new Scheduler(clock, (callback) => deferred.push(callback), {
    error: (fields: unknown) => errors.push(fields),
  })
  return { clock, deferred, errors, scheduler }
}

describe('a scheduler', () => {
  it('runs timers in the order of their deadlines, with one callback of the clock outstanding', () => {
    const { clock, scheduler } = parts()
    const random = new SeededRandom(3)
    const ran: number[] = []
    const dues = Array.from({ length: 200 }, () => Math.floor(random.float() * 1000))
    const timers = dues.map((due) => scheduler.timer(() => ran.push(due)))
    timers.forEach((timer, i) => {
      timer.at(dues[i]!)
    })
    expect(clock.pending).toBeLessThanOrEqual(dues.length)
    for (let i = 0; i < 200; i += 3) timers[i]!.cancel()
    const kept = dues.filter((_, i) => i % 3 !== 0).sort((a, b) => a - b)
    clock.advance(500)
    expect(ran).toEqual(kept.filter((due) => due <= 500))
    expect(clock.pending).toBe(1)
    clock.advance(500)
    expect(ran).toEqual(kept)
    expect(clock.pending).toBe(0)
  })

  it('moves a timer that is set again, and does not run one that is cancelled', () => {
    const { clock, deferred, scheduler } = parts()
    let ran = 0
    const timer = scheduler.timer(() => ran++)
    timer.at(10)
    timer.at(50)
    clock.advance(20)
    expect(ran).toBe(0)
    timer.soon()
    clock.advance(100)
    expect(ran).toBe(0)
    for (const callback of deferred.splice(0)) callback()
    expect([ran, timer.waiting]).toEqual([1, false])
    timer.soon()
    timer.cancel()
    for (const callback of deferred) callback()
    expect(ran).toBe(1)
  })

  it('continues when a timer throws', () => {
    const { clock, errors, scheduler } = parts()
    let ran = 0
    scheduler
      .timer(() => {
        throw new Error('no')
      })
      .at(10)
    scheduler.timer(() => ran++).at(10)
    clock.advance(10)
    expect([ran, errors.length]).toEqual([1, 1])
  })

  it('defers once per turn', () => {
    const { deferred, scheduler } = parts()
    let ran = 0
    for (let i = 0; i < 10; i++) scheduler.timer(() => ran++).soon()
    expect(deferred.length).toBe(1)
    deferred[0]!()
    expect(ran).toBe(10)
  })
})

describe('PacedWork', () => {
  /** Work whose runs end when the test says so. */
  function pacedWork() {
    const { clock, deferred, scheduler } = parts()
    const runs: { readonly at: number; readonly end: () => void }[] = []
    const work = new PacedWork(
      scheduler,
      () => new Promise<void>((end) => runs.push({ at: clock.monotonic() - began, end })),
    )
    const began = clock.monotonic()
    const by = (ms: number): void => work.by(began + ms)
    const endOfTurn = (): void => {
      for (const callback of deferred.splice(0)) callback()
    }
    const endRun = async (): Promise<void> => {
      const { running } = work
      runs.at(-1)!.end()
      await running
    }
    return { by, clock, endOfTurn, endRun, runs, work, startedAt: () => runs.map(({ at }) => at) }
  }

  it('runs once at the earliest deadline', () => {
    const { by, clock, startedAt } = pacedWork()
    by(50)
    by(20)
    by(80)
    clock.advance(200)
    expect(startedAt()).toEqual([20])
  })

  it('runs again after the run in progress if that takes longer than the next deadline, and never twice at the same time', async () => {
    const { by, clock, endOfTurn, endRun, startedAt, work } = pacedWork()
    by(10)
    clock.advance(10)
    by(30)
    clock.advance(50)
    work.start()
    endOfTurn()
    expect(startedAt()).toEqual([10])
    await endRun()
    endOfTurn()
    expect(startedAt()).toEqual([10, 60])
  })

  it('continues after a run that rejects', async () => {
    const { clock, scheduler } = parts()
    let runs = 0
    const work = new PacedWork(scheduler, async () => {
      if (++runs === 1) throw new Error('a bug')
    })
    work.start()
    await expect(work.running).rejects.toThrow('a bug')
    work.by(clock.monotonic() + 10)
    clock.advance(10)
    await work.running
    expect(runs).toBe(2)
  })

  it('runs no more when it has ended, also after the run in progress', async () => {
    const { by, clock, endOfTurn, endRun, startedAt, work } = pacedWork()
    work.start()
    by(10)
    work.end()
    by(20)
    clock.advance(50)
    await endRun()
    work.start()
    endOfTurn()
    clock.advance(50)
    expect(startedAt()).toEqual([0])
  })
})

describe('rooms of two nodes', () => {
  it('act at the same moments of the wall clock, whenever their processes started', () => {
    const beganAt = 1_795_000_000_000
    const momentsOf = (startedAt: number) => {
      const { clock, scheduler } = parts(startedAt)
      const moments = new Set<number>()
      for (const phase of [0, 0.2, 0.4, 0.6, 0.9]) {
        const ticks = new TickTimer({ scheduler, load: { slowdown: 1 } }, phase, () =>
          moments.add(Math.floor((clock.now() % 50) / MOMENT_MS)),
        )
        ticks.set(20)
      }
      for (let i = 0; i < 1000; i++) clock.advance(1)
      return [...moments].sort((a, b) => a - b)
    }
    expect(momentsOf(beganAt)).toEqual([0, 1, 2])
    expect(momentsOf(beganAt + 12_345)).toEqual(momentsOf(beganAt))
  })
})

describe('rooms', () => {
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
    it('ticks at its rate for a long time, without drift', async () => {
      const { bench, ann } = await roomWith(clockwork(0, 30), ['ann'])
      await bench.advance(60_000, 7)
      const { ticks } = ann.state as { ticks: number }
      expect(Math.abs(ticks - 1800)).toBeLessThanOrEqual(1)
    })

    it('does not make up for ticks that a pause of the process has missed', async () => {
      const { bench, ann } = await roomWith(clockwork(0, 30), ['ann'])
      await bench.advance(1000)
      const before = (ann.state as { ticks: number }).ticks
      // The process was stopped: the clock has advanced, and nothing ran.
      bench.clock.pause(10_000)
      await bench.advance(1000)
      expect((ann.state as { ticks: number }).ticks - before).toBeLessThanOrEqual(32)
    })

    it('delivers the changes of a tick in the same slot if it flushes at the same rate', async () => {
      const { bench, ann } = await roomWith(clockwork(20, 20), ['ann'])
      await bench.advance(1000, 1)
      // One flush for each tick, and one for the join.
      expect((ann.state as { ticks: number }).ticks).toBe(20)
      expect(ann.seq).toBe(21)
    })
  })

  describe('a room that flushes 20 times a second', () => {
    it('delivers the first change immediately, and later changes of the slot with its next flush', async () => {
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

    it('has no pending timer while nothing changes', async () => {
      const { bench } = await roomWith(clockwork(20), ['ann'])
      await bench.advance(1000)
      const sent = bench.sent.length
      // Only the refresh of records waits, once for all rooms.
      expect(bench.clock.pending).toBeLessThanOrEqual(2)
      await bench.advance(10_000)
      expect(bench.sent.length).toBe(sent)
    })

    it.each([
      { rooms: 8, moments: 1 },
      { rooms: 40, moments: 3 },
    ])('flushes $rooms rooms at $moments moments', async ({ rooms, moments }) => {
      const bench = new RoomBench([clockwork(20, 20)])
      for (let i = 0; i < rooms; i++) await bench.join('clockwork', `m${i}`, { key: `room-${i}` })
      await bench.advance(1000, 1)
      const sent = bench.sent.length
      let busy = 0
      for (let i = 0; i < 50; i++) {
        const before = bench.sent.length
        await bench.advance(1, 1)
        if (bench.sent.length > before) busy++
      }
      expect(bench.sent.length - sent).toBe(rooms)
      expect(busy).toBe(moments)
    })
  })

  describe('slow messages that arrive together', () => {
    it('are handled one per turn of the event loop, in order, with messages of another room in between', async () => {
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
      for (let n = 1; n <= 8; n++)
        bench.message('slow', 'ann', 'work', { name: `ann ${n}`, ms: 50 }, n, 'one')
      bench.message('slow', 'bob', 'work', { name: 'bob', ms: 0 }, 1, 'two')
      expect(handled).toEqual(['ann 1'])
      await bench.untilIdle()
      expect(handled.filter((name) => name !== 'bob')).toEqual(
        Array.from({ length: 8 }, (_, i) => `ann ${i + 1}`),
      )
      expect(handled.indexOf('bob')).toBeLessThan(4)
      await bench.advance(1000)
      expect([ann.acked, ann.state]).toEqual([8, { done: 8 }])
    })
  })
})

describe('load', () => {
  /** Returns a bench with a room type in which each message takes a number of milliseconds of the event loop. */
  const busy = (options?: ConstructorParameters<typeof RoomBench>[1]) => {
    const handled: string[] = []
    const room = defineRoom({
      type: 'busy',
      messages: { work: { data: v.object({ name: v.string(), ms: v.number() }) } },
      durability: 'none',
      create: () => ({ done: 0 }),
      onMessage(state, { data }) {
        bench.clock.pause(data.ms)
        handled.push(data.name)
        state.done++
      },
    })
    const bench: RoomBench = new RoomBench([room], options)
    return { bench, handled }
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
      const { bench, handled } = busy()
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
      const { bench, handled } = busy()
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

    it('are handled at any age if they waited because the room could not act', async () => {
      const { bench, handled } = busy()
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
      let tickMs = 0
      const room = defineRoom({
        type: 'busy',
        sync: { rate: 20 },
        durability: 'none',
        tick: { rate: 20 },
        create: () => ({ ticks: 0 }),
        onTick(state, ctx) {
          if (ctx.roomId === 'busy:a') bench.clock.pause(tickMs)
          state.ticks++
        },
      })
      const bench: RoomBench = new RoomBench([room], { log })
      const ann = await bench.join('busy', 'ann', { key: 'a' })
      const bob = await bench.join('busy', 'bob', { key: 'b' })
      tickMs = 500
      const before = [ann.seq, bob.seq]
      const until = bench.clock.monotonic() + 10_000
      while (bench.clock.monotonic() < until) await bench.advance(5, 1)
      const [slow, quick] = [ann.seq - before[0]!, bob.seq - before[1]!]
      // A quarter of the time for this room, and the rest for the other.
      expect(slow).toBeLessThanOrEqual(6)
      expect(quick).toBeGreaterThanOrEqual(140)
      expect(warned[0]).toMatchObject({ room_id: 'busy:a', room_type: 'busy', hook: 'onTick', ms: 500 })
      expect(bench.counts['slow onTick']).toBe(slow)
      tickMs = 0
      await bench.advance(5000)
      const seq = ann.seq
      await bench.advance(1000, 1)
      expect(ann.seq - seq).toBe(20)
    })
  })
})
