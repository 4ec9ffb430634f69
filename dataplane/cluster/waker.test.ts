import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { nodeInfo } from '../../test/support/descriptions.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../test/support/rooms/test-member.ts'
import { type Durability, defineRoom } from '../room/definition.ts'
import { RoomWaker } from './waker.ts'

const LEASE_MS = 2000
const HOUR_MS = 3_600_000

/** A room type whose message `wakeAfter` sets timers. Adds the time of each timer to `woken`. */
const sleeper = (durability: Durability = 'journal', woken: number[] = [], type = 'sleeper') =>
  defineRoom({
    type,
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

interface WakingOptions {
  readonly leaseMs?: number
  /** Maximum number of rooms of the node. */
  readonly maxRooms?: number
  /** See `Places`. */
  readonly share?: number
  /** Room types of the other nodes, by node id. */
  readonly others?: Readonly<Record<string, Readonly<Record<string, number>>>>
}

/** A node whose waker runs, with the results of its wake-ups. */
function waking(
  bench: RoomBench,
  { leaseMs = LEASE_MS, maxRooms = 0, share = 0, others = {} }: WakingOptions = {},
) {
  const results: string[] = []
  const asked: string[] = []
  const { nodeId, host } = bench
  const roomPlaces = { max: maxRooms, share }
  const infos = Object.entries(others).map(([other, types]) => nodeInfo(other, { room_types: types }))
  const waker = new RoomWaker(
    {
      nodeId,
      store: bench.store.store,
      clock: bench.clock,
      random: new SeededRandom(3),
      log: pino({ level: 'silent' }),
      metrics: { roomWakeups: { inc: ({ result }) => results.push(result) } },
      leaseMs,
      roomPlaces,
    },
    {
      self: { cordoned: false },
      lease: { valid: () => bench.mayAct },
      claims: bench.claims,
      router: {
        open: (room) => bench.router.open(room),
        openElsewhere: (room) => {
          asked.push(room.name)
          return infos.length > 0
        },
      },
      nodes: {
        nodes: () => [nodeInfo(nodeId, { room_types: host.types.versions }), ...infos],
        judge: (other) => bench.judge(other),
      },
    },
    host,
  )
  waker.start()
  return { waker, results, asked }
}

/** A room that has set timers, with the member `ann`. */
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
  bench.send('sleeper', memberId, { kind: 'leave', request_id: 99, reason: 'left' })

describe('A room with a timer that no node runs', () => {
  it('is opened by another node within a lease of its time, and fires once', async () => {
    const { bench, ann, began, woken } = await started([30_000, 45_000])
    leave(bench, ann)
    await bench.untilIdle()
    // The owner dies, and no node has a member of the room.
    bench.mayAct = false
    await bench.die()
    const next = bench.successor()
    await next.live()
    const { results } = waking(next)
    await next.advance(29_000, 50)
    expect([next.host.rooms.size, results]).toEqual([0, []])
    await next.advance(17_500, 50)
    const [first, second, ...more] = woken
    expect(more).toEqual([])
    expect(first! - began).toBeLessThan(30_000 + LEASE_MS)
    expect(second! - began).toBeLessThan(45_000 + LEASE_MS)
    expect(results.filter((result) => result === 'opened')).toHaveLength(1)
  })

  it('counts as running while messages wait for its claim', async () => {
    const { bench, ann } = await started([90_000])
    const { results } = waking(bench)
    leave(bench, ann)
    await bench.advance(80_000, 50)
    vi.spyOn(bench.router, 'open').mockResolvedValueOnce(undefined)
    await bench.advance(15_000, 50)
    expect(results).toEqual(['running', 'opened'])
  })

  it('is opened within 5 s, also if a lease is longer', async () => {
    const { bench, ann, began, woken } = await started([90_000])
    waking(bench, { leaseMs: 600_000 })
    leave(bench, ann)
    await bench.advance(95_000, 50)
    expect(woken).toHaveLength(1)
    expect(woken[0]! - began).toBeLessThan(95_000)
  })

  it.each(['journal', 'snapshot'] as const)(
    'sleeps in the store until its timer is due in 50 days (%s)',
    async (durability) => {
      const { bench, ann, began, woken } = await started([50 * 24 * HOUR_MS], durability)
      leave(bench, ann)
      await bench.advance(3000, 50)
      expect([bench.host.rooms.size, bench.counts.asleep]).toEqual([0, 1])
      await bench.advance(50 * 24 * HOUR_MS - 60_000, HOUR_MS)
      waking(bench)
      await bench.advance(60_000 + LEASE_MS, 50)
      const [first, ...more] = woken
      expect([first! - began >= 50 * 24 * HOUR_MS, more]).toEqual([true, []])
    },
  )

  it('ends after its last timer, and is not opened again', async () => {
    const { bench, ann } = await started([90_000])
    const { results } = waking(bench)
    leave(bench, ann)
    await bench.advance(120_000, 50)
    expect([bench.host.rooms.size, bench.counts.asleep, bench.counts.fired]).toEqual([0, 1, 1])
    expect(results).toEqual(['opened'])
    expect((await bench.join('sleeper', 'bob')).state).toEqual({ woken: 0 })
  })

  it('is opened by another node if the node that took it from the index has died', async () => {
    const { bench, ann } = await started([30_000])
    leave(bench, ann)
    await bench.untilIdle()
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

  it('is not opened by another node while its owner lives', async () => {
    const { bench, ann } = await started([30_000])
    const other = bench.successor()
    const opened = vi.spyOn(other.router, 'open')
    const { results } = waking(other)
    // The owner lives, and is late.
    bench.mayAct = false
    leave(bench, ann)
    await bench.advance(40_000, 50)
    expect(new Set(results)).toEqual(new Set(['elsewhere']))
    // Otherwise messages of members would wait in the inbox of the attempt.
    expect(opened).not.toHaveBeenCalled()
    bench.mayAct = true
    bench.host.recheck()
    await bench.advance(LEASE_MS, 50)
    expect(bench.counts.fired).toBe(1)
  })
})

/** An empty node with code for `rooms`, on a store in which the rooms `names` are due. */
async function due(names: readonly string[], rooms = [sleeper()]) {
  const alarm = sleeper('journal', [], 'alarm')
  const bench = new RoomBench([sleeper(), alarm])
  await bench.live()
  for (const [i, name] of names.entries()) {
    const [type = '', key] = name.split(':')
    await bench.join(type, `m${i}`, { key: key! })
    await bench.say(type, `m${i}`, 'wakeAfter', [30_000 + i], 1, key)
  }
  bench.mayAct = false
  await bench.die()
  const next = new RoomBench(rooms, { clock: bench.clock, store: bench.store.store, nodeId: 'node_b' })
  await next.live()
  next.clock.advance(31_000)
  return { next }
}

const sleepers = (count: number) => Array.from({ length: count }, (_, i) => `sleeper:${i}`)

describe('RoomWaker', () => {
  it.each([0, 1, 25, 30])(
    'opens at most maxRooms rooms of a project (%i more), and leaves the others to a node with space',
    async (more) => {
      const { next } = await due(sleepers(60))
      await next.join('sleeper', 'ann', { key: 'x' })
      const { results } = waking(next, { maxRooms: 1 + more, share: 50 })
      const opened = (all: readonly string[]) => all.filter((result) => result === 'opened').length
      await next.advance(LEASE_MS, 50)
      expect([next.host.rooms.size, opened(results)]).toEqual([1 + more, more])
      const third = next.successor([], { nodeId: 'node_c' })
      await third.live()
      const other = waking(third)
      await third.advance(2 * LEASE_MS, 50)
      expect([next.host.rooms.size, opened(other.results)]).toEqual([1 + more, 60 - more])
    },
  )

  it('tries rooms of a type that no node has again after 5 minutes, and opens the rooms behind them', async () => {
    const { next } = await due([...sleepers(150), 'alarm:a'], [sleeper('journal', [], 'alarm')])
    const { results } = waking(next)
    await next.advance(LEASE_MS, 50)
    expect(results.filter((result) => result === 'no_code')).toHaveLength(150)
    expect(next.counts.fired).toBe(1)
    await next.advance(290_000, 500)
    expect(results).toHaveLength(151)
    await next.advance(20_000, 500)
    expect(results.filter((result) => result === 'no_code')).toHaveLength(300)
  })

  it('asks a node with the code to open a room whose type this node does not have', async () => {
    const { next } = await due(['sleeper:k'], [])
    const { results, asked } = waking(next, { others: { node_c: { sleeper: 1 } } })
    await next.advance(LEASE_MS, 50)
    expect([results[0], asked[0]]).toEqual(['elsewhere', 'prj_test/sleeper:k'])
  })

  it('removes a room from the index when its record has expired, also if no node has its type', async () => {
    const { next } = await due(['sleeper:k'], [])
    const { results } = waking(next)
    await next.advance(LEASE_MS, 50)
    next.clock.advance(40 * 24 * HOUR_MS)
    await next.live()
    await next.advance(LEASE_MS, 50)
    await next.advance(600_000, 1000)
    expect(results).toEqual(['no_code', 'absent'])
  })
})

describe('The wake-up time of a room in the store', () => {
  /** Wake-up times and commits of a room, in the order of the calls. */
  function callsOf(bench: RoomBench): string[] {
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

  it('is set before the commit of an earlier time, and after the commit of a later one', async () => {
    const bench = new RoomBench([sleeper()])
    await bench.join('sleeper', 'ann')
    const calls = callsOf(bench)
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

  it('is not written if the room sets no timers', async () => {
    const bench = new RoomBench([sleeper()])
    await bench.join('sleeper', 'ann')
    const calls = callsOf(bench)
    await bench.say('sleeper', 'ann', 'wakeAfter', [], 1)
    await bench.say('sleeper', 'ann', 'forget', null, 2)
    expect(calls).toEqual(['commit', 'commit'])
  })

  it('delays the update that needs it while the store is away', async () => {
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
