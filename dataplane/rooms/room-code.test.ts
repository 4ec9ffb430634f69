import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import type { Mode } from '../watchdog/suspects.ts'
import { noObserver, type Turn } from '../watchdog/turns.ts'
import { type Durability, defineRoom } from './definition.ts'
import { RoomCode, TurnCut } from './room-code.ts'

const TURN: Turn = {
  room: { name: 'prj_a/duel:1', epoch: 1 },
  hook: 'onMessage',
  subject: 'mem_1',
  ref: 1,
  type: 'strike',
  principal: 'ada',
}

/** Handlers whose names are given are suspects. `limitMs` 0: they are not started. */
function suspects(limitMs: number, ...codes: string[]) {
  const stuck: [string, Mode][] = []
  return {
    stuck,
    known: {
      limitOf: ({ hook, type }: Turn) => (codes.includes(`${hook} ${type}`.trim()) ? limitMs : undefined),
      stuck: async ({ hook, type }: Turn, mode: Mode) => void stuck.push([`${hook} ${type}`.trim(), mode]),
    },
  }
}

function roomCode(known = suspects(0).known, observer = noObserver) {
  const lines: Record<string, unknown>[] = []
  const log = pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) })
  const counts: string[] = []
  const roomErrors = {
    inc: ({ room_type, code }: { room_type: string; code: string }) =>
      void counts.push(`${room_type} ${code}`),
  }
  let now = 0
  const clock = { now: () => now, monotonic: () => now, schedule: () => () => {} }
  const code = new RoomCode({ clock, log, metrics: { roomErrors }, observer, suspects: known })
  const pass = (ms: number): void => {
    now += ms
  }
  return { code, lines, counts, pass }
}

describe('RoomCode', () => {
  it.each<[string, () => unknown]>([
    [
      'an endless loop',
      () => {
        for (;;);
      },
    ],
    [
      'a loop that catches everything',
      () => {
        for (;;)
          try {
            for (;;);
          } finally {
          }
      },
    ],
    ['a regular expression that backtracks', () => /^(a+)+$/.test(`${'a'.repeat(40)}b`)],
    ['a thread that waits', () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)],
  ])('cuts off a suspect: %s', (_, loop) => {
    const { known, stuck } = suspects(20, 'onMessage strike')
    const { code, lines } = roomCode(known)
    const cutOff = vi.fn()
    expect(() => code.run({ ...TURN, room: { ...TURN.room, cutOff } }, loop)).toThrow(TurnCut)
    expect([cutOff.mock.calls.length, stuck]).toEqual([1, [['onMessage strike', 'guard']]])
    expect(lines).toMatchObject([
      { project_id: 'prj_a', room_id: 'duel:1', hook: 'onMessage', message_type: 'strike', principal: 'ada' },
    ])
    expect(code.current).toBeUndefined()
  })

  it('gives what a suspect returns and throws, if it does so in time', () => {
    const { code } = roomCode(suspects(1000, 'onMessage strike').known)
    expect(code.run(TURN, () => 7)).toBe(7)
    const thrown = new Error('no')
    expect(() =>
      code.run(TURN, () => {
        throw thrown
      }),
    ).toThrow(thrown)
  })

  it('does not start a handler that ended a node behind its boundary', () => {
    const { code } = roomCode(suspects(0, 'onMessage strike').known)
    const run = vi.fn()
    expect(() => code.run(TURN, run)).toThrow(TurnCut)
    expect(run).not.toHaveBeenCalled()
  })

  it.each<[string, () => void]>([
    ['a promise', () => void Promise.reject(new Error('stray'))],
    [
      'a promise that is rejected later',
      () =>
        void (async () => {
          await nextTurn()
          throw new Error('stray')
        })(),
    ],
  ])('attributes an error that is left behind to its turn: %s', async (_, leave) => {
    const { code, lines, counts, pass } = roomCode()
    const caught: boolean[] = []
    // The runner of the tests fails a run with unhandled rejections: for this one they are what is tested.
    const others = process.listeners('unhandledRejection')
    process.removeAllListeners('unhandledRejection')
    process.on('unhandledRejection', (reason) => void caught.push(code.unhandled(reason)))
    try {
      for (let n = 0; n < 2; n++) {
        code.run(TURN, leave)
        await vi.waitUntil(() => caught.length > n)
      }
      expect(caught).toEqual([true, true])
      expect(lines).toMatchObject([
        {
          project_id: 'prj_a',
          room_id: 'duel:1',
          room_type: 'duel',
          hook: 'onMessage',
          message_type: 'strike',
        },
      ])
      expect(lines[0]).toMatchObject({ err: { message: 'stray' } })
      expect(counts).toEqual(['duel room_logic_failed', 'duel room_logic_failed'])
      pass(10_000)
      code.run(TURN, leave)
      await vi.waitUntil(() => caught.length > 2)
      expect(lines).toMatchObject([{ suppressed: 0 }, { suppressed: 1 }])
    } finally {
      process.removeAllListeners('unhandledRejection')
      for (const listener of others) process.on('unhandledRejection', listener)
    }
    expect(code.unhandled(new Error('not of a room'))).toBe(false)
  })
})

describe('RoomCode.start', () => {
  // Query builders of database libraries run their query at each `then`.
  it('runs a lazy promise once', async () => {
    const { code } = roomCode()
    const then = vi.fn((done: (value: number) => void) => done(7))
    await expect(
      code.start({ ...TURN, hook: 'task' }, () => ({ then }) as unknown as PromiseLike<number>),
    ).resolves.toBe(7)
    expect(then).toHaveBeenCalledOnce()
  })

  it('names the last call that has not finished, in any order of their ends', async () => {
    const named: (string | undefined)[] = []
    const observer = { ...noObserver, open: (turn: Turn | undefined) => void named.push(turn?.subject) }
    const { code } = roomCode(undefined, observer)
    const ends: (() => void)[] = []
    for (const subject of ['a', 'b', 'c'])
      void code.start({ ...TURN, hook: 'task', subject }, () => new Promise<void>((end) => ends.push(end)))
    for (const at of [1, 2, 0]) {
      ends[at]!()
      await nextTurn()
    }
    expect(named).toEqual(['a', 'b', 'c', 'a', undefined])
  })
})

describe('a room whose load is not started, since it did not return before', () => {
  it('refuses joins as failed: to try again soon is of no use', async () => {
    const { known } = suspects(0, 'load')
    const loaded = defineRoom({ type: 'loaded', create: () => ({ n: 0 }), load: () => undefined })
    const bench = new RoomBench([loaded], { suspects: known })
    const ann = await bench.join('loaded', 'ann')
    expect(ann.errors.map(({ code }) => code)).toEqual(['room_logic_failed'])
  })
})

describe('a room one of whose turns was cut off', () => {
  it('is restored where a turn before had returned another state, which no update had yet', async () => {
    const { known } = suspects(20, 'onMessage loop')
    const replaced = defineRoom({
      type: 'replaced',
      messages: { set: { data: v.null() }, loop: { data: v.null() } },
      sync: { rate: 10 },
      create: () => ({ n: 0 }),
      onMessage(state, { type }) {
        if (type === 'loop') for (;;) state.n++
        return { state: { n: 7 } }
      },
    })
    const bench = new RoomBench([replaced], { suspects: known })
    const ann = await bench.join('replaced', 'ann')
    await bench.advance(200)
    bench.message('replaced', 'ann', 'set', null, 1)
    bench.message('replaced', 'ann', 'loop', null, 2)
    await bench.settle()
    await bench.resume('replaced', ann)
    expect([ann.inRoom, bench.counts.quarantined]).toEqual([true, undefined])
  })

  it('starts no other turn: a kick of many with a looping onLeave costs one', async () => {
    const { known, stuck } = suspects(20, 'onLeave')
    const leaving = defineRoom({
      type: 'leaving',
      messages: { kick: { data: v.null() } },
      sync: { rate: 0 },
      create: () => ({ n: 0 }),
      onMessage(_state, _input, ctx) {
        for (const member of ctx.members) ctx.kick(member)
      },
      onLeave() {
        for (;;);
      },
    })
    const bench = new RoomBench([leaving], { suspects: known })
    for (const id of ['ann', 'bob', 'cyd', 'dan']) await bench.join('leaving', id)
    bench.message('leaving', 'ann', 'kick', null, 1)
    expect(stuck).toHaveLength(1)
  })

  const looper = (durability: Durability) =>
    defineRoom({
      type: 'looper',
      durability,
      messages: { add: { data: v.null() }, loop: { data: v.null() } },
      sync: { rate: 0 },
      create: () => ({ count: 0, torn: [] as number[] }),
      onJoin(state, _member, _ctx) {
        state.count += 100
      },
      onMessage(state, { type }) {
        state.count++
        if (type === 'loop') for (;;) state.torn.push(1)
      },
    })

  it.each<Durability>(['journal', 'snapshot', 'none'])(
    'continues from its last update with the same members, and refuses that message (%s)',
    async (durability) => {
      const { known, stuck } = suspects(20, 'onMessage loop')
      const bench = new RoomBench([looper(durability)], { suspects: known })
      const ann = await bench.join('looper', 'ann')
      const bob = await bench.join('looper', 'bob')
      await bench.say('looper', 'ann', 'add', null, 1)
      bench.message('looper', 'ann', 'loop', null, 2)
      bench.message('looper', 'ann', 'add', null, 3)
      await bench.settle()
      expect(stuck).toEqual([['onMessage loop', 'guard']])
      await bench.resume('looper', ann)
      await bench.resume('looper', bob)
      bench.message('looper', 'ann', 'loop', null, 2)
      bench.message('looper', 'ann', 'add', null, 3)
      await bench.settle()
      expect(stuck).toHaveLength(1)
      expect(ann.errors.map(({ code, ref }) => [code, ref])).toContainEqual(['room_logic_failed', 2])
      expect([ann.inRoom, bob.inRoom, ann.acked, ann.state]).toMatchObject([
        true,
        true,
        3,
        { count: 202, torn: [] },
      ])
      expect(bob.state).toEqual(ann.state)
    },
  )
})
