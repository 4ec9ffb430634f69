import { pino } from 'pino'
import { Registry } from 'prom-client'
import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { RoomBench, type TestMember } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from '../rooms/definition.ts'
import { CLUSTER_METRICS } from './metrics.ts'
import { RoomWaker } from './waker.ts'

const LEASE_MS = 2000
const HOUR_MS = 3_600_000

/** Wakes itself when it is told to, and tells `woken` when that was. */
const sleeper = (durability: Durability = 'journal', woken: number[] = []) =>
  defineRoom({
    type: 'sleeper',
    durability,
    sync: { rate: 0 },
    idleSeconds: 1,
    create: () => ({ woken: 0 }),
    messages: {
      wakeAfter: {
        data: v.array(v.number()),
        handle(_state, { data }, ctx) {
          for (const [i, ms] of data.entries()) ctx.after(ms, 'wakes', null, { id: `${i}` })
        },
      },
      forget: { data: v.null(), handle: (_state, _input, ctx) => void ctx.cancel('0') },
    },
    timers: {
      wakes: {
        data: v.null(),
        handle(state, _input, ctx) {
          state.woken++
          woken.push(ctx.now)
        },
      },
    },
  })

/** A node that looks for rooms that are due, and the time of its waker. */
function waking(bench: RoomBench, leaseMs = LEASE_MS) {
  const results: string[] = []
  const waker = new RoomWaker({
    store: bench.store.store,
    claims: bench.claims,
    rooms: bench.host,
    clock: bench.clock,
    random: new SeededRandom(3),
    log: pino({ level: 'silent' }),
    metrics: {
      ...registerMetrics(new Registry(), CLUSTER_METRICS),
      roomWakeups: { inc: ({ result }) => results.push(result) },
    },
    leaseMs,
    mayAct: () => bench.mayAct,
  })
  waker.start()
  return { waker, results }
}

/** A room that has set timers and no members any more; `ann` has left. */
async function started(durations: readonly number[], durability?: Durability) {
  const woken: number[] = []
  const bench = new RoomBench([sleeper(durability, woken)])
  await bench.live()
  const ann = await bench.join('sleeper', 'ann')
  const began = bench.clock.now()
  await bench.say('sleeper', 'ann', 'wakeAfter', [...durations], 1)
  return { bench, ann, began, woken }
}

const leave = (bench: RoomBench, { memberId }: TestMember) =>
  bench.send('sleeper', memberId, { kind: 'leave', ref: 99, reason: 'left' })

describe('a room with a timer that no node runs', () => {
  it('is opened by another node within a lease of its time, and fires once', async () => {
    const { bench, ann, began, woken } = await started([30_000, 45_000])
    leave(bench, ann)
    await bench.settle()
    // Ends without a word, and no member is anywhere.
    bench.mayAct = false
    await bench.die()
    const next = bench.successor()
    await next.live()
    const { results } = waking(next)
    await next.advance(29_000, 50)
    expect([next.host.size, results]).toEqual([0, []])
    await next.advance(17_500, 50)
    const [first, second, ...more] = woken
    expect(more).toEqual([])
    expect(first! - began).toBeLessThan(30_000 + LEASE_MS)
    expect(second! - began).toBeLessThan(45_000 + LEASE_MS)
    expect(results.filter((result) => result === 'opened')).toHaveLength(1)
  })

  it('is opened within five seconds, however long a lease is', async () => {
    const { bench, ann, began, woken } = await started([90_000])
    waking(bench, 600_000)
    leave(bench, ann)
    await bench.advance(95_000, 50)
    expect(woken).toHaveLength(1)
    expect(woken[0]! - began).toBeLessThan(95_000)
  })

  it.each(['journal', 'snapshot'] as const)(
    'rests in the store while it is idle (%s), however long',
    async (durability) => {
      const { bench, ann, began, woken } = await started([50 * 24 * HOUR_MS], durability)
      waking(bench)
      leave(bench, ann)
      await bench.advance(3000, 50)
      expect([bench.host.size, bench.counts.asleep]).toEqual([0, 1])
      await bench.advance(50 * 24 * HOUR_MS, 600_000)
      await bench.advance(LEASE_MS, 50)
      const [first, ...more] = woken
      expect([first! - began >= 50 * 24 * HOUR_MS, more]).toEqual([true, []])
    },
  )

  it('ends when nothing is left to do, and is not looked for again', async () => {
    const { bench, ann } = await started([90_000])
    const { results } = waking(bench)
    leave(bench, ann)
    await bench.advance(120_000, 50)
    expect([bench.host.size, bench.counts.asleep, bench.counts.fired]).toEqual([0, 1, 1])
    expect(results).toEqual(['opened'])
    expect((await bench.join('sleeper', 'bob')).state).toEqual({ woken: 0 })
  })

  it('is taken again where the node that took it ended over it', async () => {
    const { bench, ann } = await started([30_000])
    leave(bench, ann)
    await bench.settle()
    bench.mayAct = false
    await bench.die()
    const next = bench.successor()
    await next.live()
    await next.clock.advance(30_000)
    for (let part = 0; part < 4; part++)
      await bench.store.store.wakeups.take(part, { limit: 9, againMs: LEASE_MS / 2 })
    waking(next)
    await next.advance(2 * LEASE_MS, 50)
    expect(next.counts.fired).toBe(1)
  })

  it('is left alone by the wakers of nodes that cannot have it', async () => {
    const { bench, ann } = await started([30_000])
    const other = bench.successor()
    const opened = vi.spyOn(other.host, 'open')
    const { results } = waking(other)
    // The owner lives, and is late.
    bench.mayAct = false
    leave(bench, ann)
    await bench.advance(40_000, 50)
    expect(new Set(results)).toEqual(new Set(['elsewhere']))
    // A room that is being opened takes what members say there, and keeps it for as long as that lasts.
    expect(opened).not.toHaveBeenCalled()
    bench.mayAct = true
    bench.host.recheck()
    await bench.advance(LEASE_MS, 50)
    expect(bench.counts.fired).toBe(1)
  })
})

describe('when a room is to be woken', () => {
  /** What the store is told of a room, and what it commits, in order. */
  function told(bench: RoomBench): string[] {
    const calls: string[] = []
    const { rooms, wakeups } = bench.store.store
    const began = bench.clock.now()
    const { set } = wakeups
    wakeups.set = async (...args) => {
      calls.push(args[2] === undefined ? 'at none' : `at ${args[2] - began}`)
      await set(...args)
    }
    const { commit } = rooms
    rooms.commit = async (...args) => {
      calls.push('commit')
      return commit(...args)
    }
    return calls
  }

  it('is said before the update that needs it, and taken back after the one that does not', async () => {
    const bench = new RoomBench([sleeper()])
    await bench.join('sleeper', 'ann')
    const calls = told(bench)
    await bench.say('sleeper', 'ann', 'wakeAfter', [5000], 1)
    await bench.say('sleeper', 'ann', 'wakeAfter', [9000], 2)
    await bench.say('sleeper', 'ann', 'wakeAfter', [4000], 3)
    await bench.say('sleeper', 'ann', 'forget', null, 4)
    expect(calls).toEqual([
      'at 5000',
      'commit',
      'commit',
      'at 9000',
      'at 4000',
      'commit',
      'commit',
      'at none',
    ])
  })

  it('is not asked of a room that sets no timers', async () => {
    const bench = new RoomBench([sleeper()])
    await bench.join('sleeper', 'ann')
    const calls = told(bench)
    await bench.say('sleeper', 'ann', 'wakeAfter', [], 1)
    await bench.say('sleeper', 'ann', 'forget', null, 2)
    expect(calls).toEqual(['commit', 'commit'])
  })

  it('holds back the update that needs it while the store is away', async () => {
    const bench = new RoomBench([sleeper()])
    const ann = await bench.join('sleeper', 'ann')
    bench.store.mood = 'deaf'
    bench.message('sleeper', 'ann', 'wakeAfter', [500], 1)
    await bench.advance(2000, 50)
    expect(ann.acked).toBe(0)
    bench.store.mood = 'fine'
    await bench.advance(2000, 50)
    expect([ann.acked, bench.counts.fired, ann.faults]).toEqual([1, 1, []])
  })
})
