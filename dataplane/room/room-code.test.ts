import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import { hungTurns } from '../../test/support/rooms/hung-turns.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../test/support/rooms/test-member.ts'
import type { Mode } from '../features/suspects/suspect-record.ts'
import { sharedTurn, TurnReader, TurnWriter } from '../features/suspects/turns.ts'
import { type Durability, defineRoom } from './definition.ts'
import { noObserver, type Turn } from './hooks.ts'
import { noSuspects, RoomCode, type RoomTurn, TurnCut, turnOf } from './room-code.ts'

const TURN: Turn = {
  room: { name: 'prj_a/duel:1', epoch: 1 },
  hook: 'onMessage',
  subject: 'mem_1',
  ref: 1,
  type: 'strike',
  principal: 'ada',
}

/** Suspects with these names. `limitMs` 0: their handlers are not started. */
function suspects(limitMs: number, ...codes: string[]) {
  const stuck: [string, Mode][] = []
  return {
    stuck,
    known: {
      ...noSuspects,
      limitOf: ({ hook, type }: Turn) => (codes.includes(`${hook} ${type}`.trim()) ? limitMs : undefined),
      placeOf: ({ type }: Turn) => `rooms/duel.ts:7 ${type}`,
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
  const slowTurns = {
    inc: ({ room_type, hook }: { room_type: string; hook: string }) =>
      void counts.push(`${room_type} slow ${hook}`),
  }
  let now = 0
  const clock = { now: () => now, monotonic: () => now, schedule: () => () => {} }
  const code = new RoomCode({
    clock,
    log,
    metrics: { roomErrors, slowTurns },
    observer,
    suspects: known,
  })
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
  ])('cuts off a suspect: %s', (_, loop) => {
    const { known, stuck } = suspects(20, 'onMessage strike')
    const { code, lines } = roomCode(known)
    const turn: RoomTurn = { ...TURN, room: { ...TURN.room, wants: { cut: undefined } } }
    expect(() => code.run(turn, loop)).toThrow(TurnCut)
    expect(turn.room.wants?.cut).toBeInstanceOf(Promise)
    expect(stuck).toEqual([['onMessage strike', 'guard']])
    expect(lines).toMatchObject([
      {
        project_id: 'prj_a',
        room_id: 'duel:1',
        hook: 'onMessage',
        message_type: 'strike',
        principal: 'ada',
        at: 'rooms/duel.ts:7 strike',
      },
    ])
    expect(code.current).toBeUndefined()
  })

  it('gives what a suspect returns and throws, if it does so in time', () => {
    const { code } = roomCode(suspects(1000, 'onMessage strike').known)
    expect(code.run(TURN, () => 7)).toBe(7)
    expect(() =>
      code.run(TURN, () => {
        throw new TypeError('no')
      }),
    ).toThrow(expect.objectContaining({ name: 'TypeError', message: 'no' }))
  })

  // The log once read them after the turn, where nothing could cut them off.
  it.each(['message', 'stack', 'cause'])('cuts off a suspect whose error has an endless %s', (property) => {
    const { known, stuck } = suspects(20, 'onMessage strike')
    const { code } = roomCode(known)
    const get = (): never => {
      for (;;);
    }
    expect(() =>
      code.run(TURN, () => {
        throw Object.defineProperty(new Error('x'), property, { get })
      }),
    ).toThrow(TurnCut)
    expect(stuck).toEqual([['onMessage strike', 'guard']])
  })

  it('does not start a handler that ended a node behind its boundary', () => {
    const { code } = roomCode(suspects(0, 'onMessage strike').known)
    const run = vi.fn()
    expect(() => code.run(TURN, run)).toThrow(TurnCut)
    expect(run).not.toHaveBeenCalled()
  })

  it('counts each slow turn, and logs one a second', () => {
    const { code, lines, counts, pass } = roomCode()
    code.wasSlow(100)
    expect(counts).toEqual([])
    for (const ms of [999, 1, 0]) {
      code.run(TURN, () => {})
      code.wasSlow(120.4)
      pass(ms)
    }
    expect(counts).toEqual(Array(3).fill('duel slow onMessage'))
    const line = { project_id: 'prj_a', room_id: 'duel:1', hook: 'onMessage', ms: 120 }
    expect(lines).toMatchObject([line, line])
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
    // The test runner fails a run with unhandled rejections. This test expects them.
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

  it('reports the latest unfinished call, in whatever order calls end', async () => {
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

describe('a room whose load is not started, because it did not return before', () => {
  it('refuses joins as failed, because a retry would not help', async () => {
    const { known } = suspects(0, 'load')
    const loaded = defineRoom({ type: 'loaded', create: () => ({ n: 0 }), load: () => undefined })
    const bench = new RoomBench([loaded], { suspects: known })
    const ann = await bench.join('loaded', 'ann')
    expect(ann.errors.map(({ code }) => code)).toEqual(['room_logic_failed'])
  })
})

describe('a room one of whose turns was cut off', () => {
  it('is restored without the state that an earlier turn has returned, and that no update contained', async () => {
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
    await bench.untilIdle()
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

  it('has no next owner before the turn is recorded', async () => {
    let record = () => {}
    const stuck = () =>
      new Promise<void>((resolve) => {
        record = resolve
      })
    const { known } = suspects(20, 'onMessage loop')
    const bench = new RoomBench([looper('journal')], { suspects: { ...known, stuck } })
    await bench.join('looper', 'ann')
    await bench.say('looper', 'ann', 'loop', null, 1)
    const owner = async () => (await bench.store.store.rooms.inspect('prj_test/looper:a'))?.owner
    expect(await owner()).toBe('node_a')
    record()
    await bench.untilIdle()
    expect(await owner()).toBeNull()
  })

  it.each<Durability>(['journal', 'snapshot', 'none'])(
    'continues from its last update with the same members, and refuses that message (%s)',
    async (durability) => {
      const { nodes } = hungTurns()
      const handler = turnOf({ name: 'prj_test/looper:other', epoch: 1 }, 'onMessage')
      await nodes.suspects.stuck({ ...handler, type: 'loop' }, 'guard')
      const stuck = vi.spyOn(nodes.suspects, 'stuck')
      const bench = new RoomBench([looper(durability)], nodes)
      const ann = await bench.join('looper', 'ann')
      const bob = await bench.join('looper', 'bob')
      await bench.say('looper', 'ann', 'add', null, 1)
      bench.message('looper', 'ann', 'loop', null, 2)
      bench.message('looper', 'ann', 'add', null, 3)
      await bench.untilIdle()
      expect(stuck).toHaveBeenCalledOnce()
      await bench.resume('looper', ann)
      await bench.resume('looper', bob)
      bench.message('looper', 'ann', 'loop', null, 2)
      bench.message('looper', 'ann', 'add', null, 3)
      await bench.untilIdle()
      expect(stuck).toHaveBeenCalledOnce()
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

describe('a room', () => {
  it('opens when its node knows the turns that have ended other nodes', async () => {
    let known = () => {}
    const current = () =>
      new Promise<void>((resolve) => {
        known = resolve
      })
    const quiet = defineRoom({ type: 'quiet', create: () => ({ n: 0 }) })
    const bench = new RoomBench([quiet], { suspects: { ...noSuspects, current } })
    const ann = await bench.join('quiet', 'ann')
    expect(ann.inRoom).toBe(false)
    known()
    await bench.untilIdle()
    expect(ann.inRoom).toBe(true)
  })
})

describe('stuck turns', () => {
  const FAILED = "the room's logic failed"

  /** Several nodes, one after the other. If the test says so, their rooms do not return: a watchdog records the turn, and the node ends. */
  function cluster() {
    const turns = hungTurns()
    const buffer = sharedTurn()
    const reader = new TurnReader(buffer)
    const hooks: string[] = []
    let owner: RoomBench
    let count = 0

    const hang = (): never => {
      hooks.push(reader.turn.hook)
      owner.mayAct = false
      void turns.hang(reader.turn)
      throw new Error('this process has ended')
    }
    const looper = defineRoom({
      type: 'looper',
      options: v.pipe(
        v.object({ at: v.optional(v.string()) }),
        v.check(({ at }) => at !== 'options' || hang()),
      ),
      messages: {
        add: { data: v.null() },
        loop: { data: v.null() },
        check: { data: v.custom(() => hang()) },
        kick: { data: v.null() },
        loop_at_tick: { data: v.null() },
        loop_later: { data: v.null() },
        end: { data: v.null() },
      },
      sync: { rate: 0 },
      tick: { rate: 1 },
      idleSeconds: 60,
      create: ({ at }) => {
        if (at === 'create') hang()
        return { count: 0, ticks: 0, left: 0, loop_at_tick: false }
      },
      timers: { loops: { data: v.null(), handle: (state) => (state.count++ === 1 ? hang() : undefined) } },
      admit: async (_member, { at }) => {
        if (at === 'admit') hang()
      },
      onJoin(_state, _member, _ctx, { at }) {
        if (at === 'onJoin') hang()
      },
      onMessage(state, { type, member }, ctx) {
        if (type === 'loop') hang()
        if (type === 'kick') ctx.kick(member)
        if (type === 'end') ctx.close()
        if (type === 'loop_later') ctx.after(50, 'loops', null, { id: 'a' })
        state.count++
        state.loop_at_tick = type === 'loop_at_tick'
      },
      onLeave(state, member) {
        if (member.id.startsWith('loops')) hang()
        state.left++
      },
      onTick(state) {
        state.ticks++
        if (state.loop_at_tick && state.ticks === 1) hang()
      },
      onDispose: () => hang(),
    })
    /** A node that takes over all rooms. These members never got what the node before it sent after its end. */
    const node = (...members: readonly TestMember[]): RoomBench => {
      owner = new RoomBench([looper], {
        ...turns.nodes,
        nodeId: `node_${++count}`,
        turns: new TurnWriter(buffer),
      })
      for (const member of members) {
        member.errors.length = 0
        owner.members.set(member.memberId, member)
      }
      return owner
    }
    return { hooks, node }
  }

  describe('a message whose handler did not return', () => {
    // The second owner dies before its first write.
    it.each(['loop', 'check'])(
      '(%s) is refused by every later one, which goes on from the state before, and applies what was not committed',
      async (type) => {
        const { node, hooks } = cluster()
        const first = node()
        const ann = await first.join('looper', 'ann')
        await first.say('looper', 'ann', 'add', null, 1)
        first.message('looper', 'ann', 'add', null, 2)
        first.message('looper', 'ann', type, null, 3)
        expect(hooks).toEqual(['onMessage'])
        const second = node(ann)
        await second.resume('looper', ann)

        const third = node(ann)
        third.attach('looper', ann)
        for (const [ref, name] of ['add', type, 'add'].entries())
          third.message('looper', 'ann', name, null, 2 + ref)
        await third.untilIdle()
        expect(ann.errors).toEqual([{ code: 'room_logic_failed', message: FAILED, ref: 3 }])
        expect([ann.state, ann.acked, ann.inRoom, hooks.length]).toMatchObject([{ count: 3 }, 4, true, 1])
      },
    )

    it('does not name the message whose kick led to an onLeave that did not return, but the leaving member', async () => {
      const { node, hooks } = cluster()
      const first = node()
      const loops = await first.join('looper', 'loops')
      first.message('looper', 'loops', 'kick', null, 1)
      expect(hooks).toEqual(['onLeave'])
      const second = node(loops)
      await second.resume('looper', loops)
      expect([loops.inRoom, hooks.length]).toEqual([false, 1])
    })
  })

  describe('a join with a hook that did not return', () => {
    // Seen: the validator ran before the room was claimed, so the turn was not recorded, and one node after the other hung.
    it.each([
      ['options', 'a room without an owner'],
      ['options', 'a room with members'],
      ['create', 'a room without an owner'],
      ['admit', 'a room with members'],
      ['onJoin', 'a room with members'],
    ])('(%s, %s) is refused by the next owner, only for that session', async (at, room) => {
      const { node, hooks } = cluster()
      const first = node()
      const bob = room === 'a room with members' ? await first.join('looper', 'bob') : undefined
      await first.join('looper', 'ann', { requestId: 40, options: { at } })
      expect(hooks).toHaveLength(1)

      const second = node(...(bob ? [bob] : []))
      const ann = await second.join('looper', 'ann', { requestId: 40, options: { at } })
      expect(ann.errors).toEqual([{ code: 'room_logic_failed', message: FAILED, ref: 40 }])
      if (bob) await second.resume('looper', bob)
      const other = bob ?? (await second.join('looper', 'bob'))
      expect([other.inRoom, other.state, hooks.length]).toMatchObject([true, { count: 0 }, 1])
      // A deliberate second attempt is another join.
      await second.join('looper', 'ann', { requestId: 41 })
      expect(ann.inRoom).toBe(true)
    })
  })

  describe('a handler that does not return three times within a minute in one room', () => {
    // The room was once closed, and its state put aside: a player could end a match for all others.
    it('is not started for a minute, and the room continues with its state and members', async () => {
      const { node, hooks } = cluster()
      let current = node()
      const ann = await current.join('looper', 'ann')
      await current.say('looper', 'ann', 'add', null, 1)
      for (let n = 1; n <= 3; n++) {
        current.message('looper', 'ann', 'loop', null, 1 + n)
        await current.advance(10_000, 1000)
        current = node(ann)
        await current.resume('looper', ann)
        // Its edge sends it again.
        await current.say('looper', 'ann', 'loop', null, 1 + n)
      }
      ann.errors.length = 0
      await current.say('looper', 'ann', 'loop', null, 5)
      await current.say('looper', 'ann', 'add', null, 6)
      expect(ann.errors).toEqual([{ code: 'room_logic_failed', message: FAILED, ref: 5 }])
      expect([ann.inRoom, ann.state, hooks.length]).toMatchObject([true, { count: 2 }, 3])

      await current.advance(50_000, 1000)
      current.message('looper', 'ann', 'loop', null, 7)
      expect(hooks).toHaveLength(4)
    })

    it('is started if the three times took longer than a minute', async () => {
      const { node, hooks } = cluster()
      let current = node()
      const ann = await current.join('looper', 'ann')
      for (let n = 1; n <= 4; n++) {
        current.message('looper', 'ann', 'loop', null, n)
        await current.advance(31_000, 1000)
        current = node(ann)
        await current.resume('looper', ann)
        await current.say('looper', 'ann', 'loop', null, n)
      }
      expect([ann.inRoom, hooks.length]).toEqual([true, 4])
    })

    // Three sessions of one player once removed all members of a room.
    it('is skipped if it is onLeave, and members who have not left stay', async () => {
      const { node, hooks } = cluster()
      let current = node()
      const bob = await current.join('looper', 'bob')
      for (let n = 1; n <= 3; n++) {
        await current.join('looper', `loops${n}`)
        current.leave('looper', `loops${n}`)
        expect(hooks).toHaveLength(n)
        await current.advance(5000, 1000)
        current = node(bob)
        await current.resume('looper', bob)
      }
      expect([bob.inRoom, current.describe('looper')?.members.length]).toEqual([true, 1])
    })

    it('is skipped if it is the tick', async () => {
      const { node, hooks } = cluster()
      let current = node()
      const ann = await current.join('looper', 'ann')
      for (let n = 1; n <= 3; n++) {
        await current.say('looper', 'ann', 'loop_at_tick', null)
        await current.advance(3000, 500)
        expect(hooks).toHaveLength(n)
        current = node(ann)
        await current.resume('looper', ann)
      }
      await current.advance(20_000, 500)
      expect([hooks.length, ann.state]).toMatchObject([3, { ticks: 0 }])
    })
  })

  describe('a turn that no client has caused, and that did not return', () => {
    it('onLeave: the member has left, without the hook', async () => {
      const { node, hooks } = cluster()
      const first = node()
      const bob = await first.join('looper', 'bob')
      await first.join('looper', 'loops')
      first.leave('looper', 'loops')
      expect(hooks).toEqual(['onLeave'])
      const second = node(bob)
      await second.resume('looper', bob)
      expect(bob.heard.at(-1)).toBe('-loops')
      expect([second.describe('looper')?.members.length, bob.state]).toMatchObject([1, { left: 0 }])
    })

    it('onTick: one tick is skipped', async () => {
      const { node, hooks } = cluster()
      const first = node()
      const ann = await first.join('looper', 'ann')
      await first.say('looper', 'ann', 'loop_at_tick', null)
      first.clock.advance(1000)
      expect(hooks).toEqual(['onTick'])
      const second = node(ann)
      second.attach('looper', ann)
      second.message('looper', 'ann', 'add', null)
      await second.advance(1100, 100)
      expect(ann.state).toMatchObject({ ticks: 0 })
      await second.advance(1000, 100)
      expect([ann.state, hooks.length]).toMatchObject([{ ticks: 1 }, 1])
    })

    it('onTimer: the timer has fired and is not started again, but another one with its id is', async () => {
      const { node, hooks } = cluster()
      const first = node()
      const ann = await first.join('looper', 'ann')
      await first.say('looper', 'ann', 'loop_later', null, 1)
      await first.advance(50)
      expect(hooks).toEqual(['onTimer'])
      const second = node(ann)
      await second.resume('looper', ann)
      await second.advance(100)
      expect([ann.state, hooks.length]).toMatchObject([{ count: 1 }, 1])
      await second.say('looper', 'ann', 'add', null, 2)
      await second.say('looper', 'ann', 'loop_later', null, 3)
      await second.advance(50)
      expect([ann.state, hooks.length]).toMatchObject([{ count: 4 }, 1])
    })

    it('onDispose: the room has ended, and a join creates a new one', async () => {
      const { node, hooks } = cluster()
      const first = node()
      const ann = await first.join('looper', 'ann')
      first.message('looper', 'ann', 'end', null)
      // Until onDispose, and no further.
      for (let n = 0; hooks.length === 0 && n < 20; n++) await first.untilIdle()
      expect(hooks).toEqual(['onDispose'])
      const second = node(ann)
      await second.join('looper', 'ann')
      expect([ann.inRoom, ann.state, hooks.length]).toMatchObject([true, { count: 0 }, 1])
      // The clock of the second node is behind that of the first, so the new room seems to be older than the turn.
      await second.say('looper', 'ann', 'add', null, 1)
      const third = node(ann)
      await third.resume('looper', ann)
      await third.say('looper', 'ann', 'add', null, 2)
      expect([ann.inRoom, ann.state, hooks.length]).toMatchObject([true, { count: 2 }, 1])
    })
  })
})
