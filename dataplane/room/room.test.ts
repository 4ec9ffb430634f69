import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { counter, counting } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../test/support/rooms/test-member.ts'
import { defineRoom } from './definition.ts'

/** Data of a message that looks like the result of a handler. */
const RESULT = { state: { open: true }, event: { name: 'won', data: 'ann' } }

describe('a message', () => {
  it('that changes nothing is acked without a new seq', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    await bench.say('counter', 'ann', 'nothing', null, 1)
    expect([ann.seq, ann.acked]).toEqual([1, 1])
  })

  it('whose handler throws changes nothing, is answered with an error, and counts as handled', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'], { revealFailures: true })
    const { seq, state } = ann
    bench.message('counter', 'ann', 'boom', null, 1)
    bench.message('counter', 'ann', 'promise', null, 2)
    await bench.say('counter', 'ann', 'bad_state', null, 3)
    expect(ann.errors).toMatchObject([
      { code: 'room_logic_failed', message: 'the reactor is closed', ref: 1 },
      {
        code: 'room_logic_failed',
        message: expect.stringMatching(/onMessage returned a promise.*ctx\.task/),
        ref: 2,
      },
      {
        code: 'room_logic_failed',
        message: expect.stringMatching(/not JSON: the value at \/count is NaN/),
        ref: 3,
      },
    ])
    expect([ann.seq, ann.state, ann.heard, ann.inRoom]).toEqual([
      seq,
      state,
      ['hello "ann"', 'hello "bob"', '+bob'],
      true,
    ])
    expect(bob.errors).toEqual([])
    // A repetition does not run the handler again.
    await bench.say('counter', 'ann', 'boom', null, 1)
    expect([ann.errors.length, ann.acked]).toEqual([3, 3])
  })

  it('may return a state and an event that contain parts of the draft', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    await bench.say('counter', 'ann', 'returned', { by: 42 })
    expect(ann.state).toEqual({ count: 42, seen: ['ann'] })
    expect(ann.heard.at(-1)).toBe('set ["ann"]')
  })

  /** An arrow function that assigns returns the assigned value. A value with the key `state` once replaced the whole state. */
  it.each<[string, unknown, string]>([
    ['what it assigns', { state: 'open', by: 'ann' }, 'an object with the keys state, by'],
    ['an empty object', {}, 'an object with the keys none'],
    ['an array', ['state'], 'an array'],
  ])('whose handler returns %s is undone, in every hook', async (_, value, shown) => {
    const door = (): { door: Json; left: number } => ({ door: null, left: 0 })
    const returned = (state: { door: Json }) => {
      state.door = value as Json
      return value as never
    }
    const lines: string[] = []
    const log = pino({}, { write: (line) => void lines.push(line) })
    const room = defineRoom({
      type: 'doors',
      sync: { rate: 0 },
      tick: { rate: 10 },
      create: door,
      messages: {
        open: { data: v.null(), handle: returned },
        knock: { data: v.null() },
        begin: {
          data: v.null(),
          handle(_state, _input, ctx) {
            ctx.after(0, 'bell', null)
            ctx.task(async () => null, 'work')
          },
        },
      },
      timers: { bell: { data: v.null(), handle: returned } },
      tasks: { work: { result: v.null(), handle: returned } },
      onMessage: returned,
      onDisconnect: returned,
      onReconnect: returned,
      onLeave: returned,
      onTick: returned,
      onDispose: returned,
      onJoin: (state, member) => (member.id === 'eve' ? returned(state) : undefined),
    })
    const { bench, ann } = await roomWith(room, ['ann', 'eve', 'bob'], { log })
    const messages = ['open', 'knock', 'begin']
    for (const [i, type] of messages.entries()) await bench.say('doors', 'ann', type, null, i + 1)
    bench.detach('doors', ann)
    await bench.advance(100)
    await bench.resume('doors', ann)
    bench.leave('doors', 'bob')
    await bench.advance(100)
    expect(bench.describe('doors')?.state).toEqual(door())
    bench.leave('doors', 'ann')
    await bench.advance(31_000, 1000)
    const failed = lines.join('')
    for (const hook of [
      'messages.open.handle',
      'onMessage',
      'timers.bell',
      'tasks.work',
      'onDisconnect',
      'onReconnect',
      'onLeave',
      'onTick',
      'onDispose',
      'onJoin',
    ])
      expect(failed).toContain(`${hook} returned ${shown}; return { state, event }, either alone`)
  })

  it.each<[what: string, data: Json, assign: (state: Record<string, Json>, data: Json) => unknown]>([
    ['its data', RESULT, (state, data) => Object.assign(state, { door: data }) && data],
    ['a part of its data', { door: RESULT }, (_, data) => (data as { door: Json }).door],
    ['a part of the state', RESULT, (state, data) => Object.assign(state, { door: data }).door],
  ])(
    'whose handler returns %s is undone, even if a player chose the keys of a result',
    async (_, data, assign) => {
      const room = defineRoom({
        type: 'doors',
        sync: { rate: 0 },
        create: (): Record<string, Json> => ({ door: null }),
        messages: {
          open: { data: v.any(), handle: (state, input) => assign(state, input.data) as never },
        },
      })
      const { bench, ann } = await roomWith(room, ['ann'], { revealFailures: true })
      await bench.say('doors', 'ann', 'open', data, 1)
      expect(ann.errors).toMatchObject([
        { message: expect.stringContaining('return { state, event }, either alone') },
      ])
      expect([ann.state, ann.heard]).toEqual([{ door: null }, []])
    },
  )

  it.each<[string, unknown]>([
    ['false', false],
    ['a text', 'not today'],
  ])('cannot be the result of onJoin: %s fails the join', async (_, answer) => {
    const room = defineRoom({ type: 'gate', create: () => ({ here: 0 }), onJoin: () => answer as never })
    const { ann } = await roomWith(room, ['ann'], { revealFailures: true })
    expect(ann.errors).toMatchObject([
      { code: 'room_logic_failed', message: expect.stringContaining('ctx.refuse(text)') },
    ])
    expect(ann.inRoom).toBe(false)
  })

  it('gets no fresh rate after its player has left and joined again, nor from another session of the player', async () => {
    const bench = new RoomBench([counter()])
    const refused = ({ errors }: { errors: readonly { code: string }[] }) => errors.map(({ code }) => code)
    await bench.join('counter', 'ann', { sub: 'ann' })
    for (let i = 0; i < 2; i++) bench.message('counter', 'ann', 'slow', null)
    bench.leave('counter', 'ann')
    await bench.untilIdle()
    const again = await bench.join('counter', 'ann-again', { sub: 'ann' })
    const other = await bench.join('counter', 'ann-elsewhere', { sub: 'ann' })
    const bob = await bench.join('counter', 'bob', { sub: 'bob' })
    for (const member of ['ann-again', 'ann-elsewhere', 'bob']) bench.message('counter', member, 'slow', null)
    expect([refused(again), refused(other), refused(bob)]).toEqual([['rate_limited'], ['rate_limited'], []])
    await bench.advance(1000)
    bench.message('counter', 'ann-again', 'slow', null)
    bench.message('counter', 'ann-elsewhere', 'slow', null)
    expect(refused(again).length + refused(other).length).toBe(3)
  })

  it('of a session without a seat is answered with no_seat', async () => {
    const { bench } = await roomWith(counter(), ['ann'])
    bench.message('counter', 'eve', 'inc', { by: 1 }, 9)
    await bench.say('counter', 'eve', 'inc', { by: 1 }, 9, 'elsewhere')
    expect(bench.sentOf('no_seat')).toMatchObject([
      { member_id: 'eve', room: { key: 'a' } },
      { member_id: 'eve', room: { key: 'elsewhere' }, epoch: 0 },
    ])
  })

  const countOf = ({ state }: TestMember) => (state as { count: number }).count

  it('is not applied while an earlier one is missing', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    const inc = { kind: 'message', type: 'inc', data: { by: 1 } } as const
    for (const ref of [1, 3, 4]) bench.send('counter', 'ann', { ...inc, ref })
    await bench.untilIdle()
    expect([countOf(ann), ann.acked]).toEqual([1, 1])
    // Its edge is asked once to send them again.
    expect(bench.sentOf('resend')).toHaveLength(1)
    for (const ref of [2, 3]) bench.send('counter', 'ann', { ...inc, ref })
    await bench.untilIdle()
    expect([countOf(ann), ann.acked]).toEqual([3, 3])
  })

  // Seen in chaos: the edge was taken for dead before its join was handled, so it was not asked to attach the member when it was back. The
  // member got no acks.
  it('of a member that counts as detached asks its edge once to attach it', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    bench.host.edgeGone('node_a')
    for (const ref of [1, 2]) await bench.say('counter', 'ann', 'inc', { by: 1 }, ref)
    expect([ann.acked, bench.sentOf('resend').length]).toEqual([0, 1])
    await bench.resume('counter', ann)
    expect([countOf(ann), ann.acked]).toEqual([2, 2])
  })

  // After a resume, messages of both edges may arrive.
  it('of the previous edge of a session is ignored, and does not move the membership', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    bench.attach('counter', ann, 2)
    const answers = bench.sent.length
    bench.attach('counter', ann, 1, 'node_before')
    const { sessionId, codec } = ann
    const asked = { edge: 'node_before', turn: 1, session_id: sessionId, codec, principal: 'token' }
    for (const message of [
      { kind: 'join', request_id: 9, sub: null, options: {}, ...asked },
      { kind: 'message', type: 'inc', data: { by: 1 }, ref: 1 },
      { kind: 'message', type: 'inc', data: { by: 1 } },
      { kind: 'refuse', from: 2, through: 2, code: 'rate_limited', message: 'too many' },
      { kind: 'detach' },
      { kind: 'leave', reason: 'session_ended' },
    ] as const)
      bench.send('counter', 'ann', message, undefined, 'node_before')
    await bench.untilIdle()
    expect([bench.sent.length, countOf(ann), ann.acked]).toEqual([answers, 0, 0])
    await bench.say('counter', 'ann', 'inc', { by: 1 }, 1)
    expect([countOf(ann), ann.acked, ann.errors]).toEqual([1, 1, []])
    expect(bench.describe('counter')?.members).toMatchObject([{ node_id: 'node_a', connected: true }])
  })

  it('about the end of a session without a socket removes its member, also from another edge', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    bench.detach('counter', ann)
    bench.send('counter', 'ann', { kind: 'leave', reason: 'session_ended' }, undefined, 'node_after')
    await bench.untilIdle()
    expect(bench.describe('counter')?.members).toEqual([])
  })

  it('that its edge has refused is handled in order, and its error is repeated to a session that attaches', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    bench.message('counter', 'ann', 'inc', { by: 1 }, 1)
    bench.send('counter', 'ann', {
      kind: 'refuse',
      from: 2,
      through: 2,
      code: 'rate_limited',
      message: 'too many',
    })
    bench.message('counter', 'ann', 'inc', { by: 1 }, 2)
    await bench.say('counter', 'ann', 'inc', { by: 1 }, 3)
    expect([countOf(ann), ann.acked]).toEqual([2, 3])
    const refused = { code: 'rate_limited', message: 'too many', ref: 2 }
    expect(ann.errors).toEqual([refused])
    await bench.resume('counter', ann)
    expect(bench.sentOf('attached')).toMatchObject([
      { ack: 3, outcomes: [{ ref: 2, code: 'rate_limited', message: 'too many' }] },
    ])
  })
})

describe('an edge whose messages may be lost', () => {
  it('attaches its members again, and a member that it does not attach is removed', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann', 'bob'])
    bench.host.edgeMissed('node_a')
    expect(bench.sentOf('resend')).toHaveLength(1)
    bench.attach('counter', ann)
    await bench.say('counter', 'ann', 'inc', { by: 1 }, 1)
    expect(ann).toMatchObject({ state: { count: 1 }, acked: 1, faults: [] })
    await bench.advance(140_000, 1000)
    expect(bench.describe('counter')?.members).toMatchObject([{ member_id: 'ann', connected: true }])
  })
})

describe('sleep', () => {
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

  /** Longer than any other room outlives its last write (`ROOM_ORPHAN_TTL`, ten minutes). */
  const LONG_MS = DAY_MS

  /** The room after ann has left a note and has left. */
  async function left(options?: ConstructorParameters<typeof RoomBench>[1], room = board()) {
    const bench = new RoomBench([room], options)
    await bench.join('board', 'ann')
    await bench.say('board', 'ann', 'add', 'milk', 1)
    bench.leave('board', 'ann')
    await bench.untilIdle()
    return bench
  }

  describe('a room that sleeps when it is idle', () => {
    it.each(['journal', 'snapshot'] as const)(
      'is given up whole, and goes on from there when it is joined a day later (%s)',
      async (durability) => {
        const bench = await left({}, board(durability))
        await bench.advance(11_000, 500)
        expect([bench.host.rooms.size, bench.counts.asleep]).toEqual([0, 1])
        bench.clock.advance(LONG_MS)
        const heir = bench.successor()
        const bob = await heir.join('board', 'bob')
        expect(bob.state).toEqual({ notes: ['milk'] })
      },
    )

    it('counts toward the rooms of its project until it ends', async () => {
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

    it('sleeps, too, after its owner has died with it', async () => {
      const bench = await left()
      bench.store.mood = 'deaf'
      bench.clock.advance(LONG_MS)
      const heir = bench.successor()
      expect((await heir.join('board', 'bob')).state).toEqual({ notes: ['milk'] })
    })

    it('opens again for a join during its save', async () => {
      const bench = await left()
      bench.store.mood = 'slow'
      await bench.advance(10_500, 500)
      const bob = await bench.join('board', 'bob')
      expect([bob.state, bench.store.held]).toEqual([null, 1])
      bench.store.mood = 'fine'
      while (bench.store.held > 0) {
        bench.store.let()
        await bench.untilIdle()
      }
      expect(bob.state).toEqual({ notes: ['milk'] })
    })

    it('is deleted sleepDays after it fell asleep, and no longer counted', async () => {
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

    it('is deleted sleepDays after its next timer is due, if that is later', async () => {
      const bench = new RoomBench([board()])
      await bench.join('board', 'ann')
      await bench.say('board', 'ann', 'add', 'milk', 1)
      await bench.say('board', 'ann', 'remindIn', 30 * DAY_MS, 2)
      bench.leave('board', 'ann')
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
    it('stays stored if a node cannot open it', async () => {
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

    it('counts toward the limit of the player who has created it', async () => {
      const bench = new RoomBench([board()], { quota: { maxLasting: 2 } })
      const make = (key: string, member = key) => bench.join('board', member, { key, sub: 'ann' })
      await make('one')
      await make('two')
      await bench.untilIdle()
      expect((await make('three')).errors.map(({ code }) => code)).toEqual(['too_many_rooms'])
      expect((await bench.join('board', 'bob', { key: 'three', sub: 'bob' })).state).toEqual({ notes: [] })
      for (const key of ['one', 'two']) bench.leave('board', key, key)
      await bench.advance(11_000, 500)
      bench.clock.advance(LONG_MS)
      expect((await make('four')).errors.map(({ code }) => code)).toEqual(['too_many_rooms'])
      // An existing room can be joined by any player, any number of times.
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
      await bench.untilIdle()
      return bench.sentOf('answer').map(({ answer }) => ('code' in answer ? answer.code : answer.reply))
    }

    it('ends while it sleeps, and is no longer counted', async () => {
      const bench = await left()
      await bench.advance(11_000, 500)
      expect(await ended(bench)).toEqual([{ ended: true }])
      expect(await bench.store.store.rooms.counted('prj_test', { limit: 1 })).toEqual([])
      expect(await ended(bench)).toEqual([{ ended: true }, 'room_not_found'])
    })

    it('ends without a hook if its type is not installed', async () => {
      const bench = await left()
      await bench.advance(11_000, 500)
      const other = new RoomBench([], { clock: bench.clock, store: bench.store.store, nodeId: 'node_b' })
      expect(await ended(other)).toEqual([{ ended: true }])
      expect(await ended(other)).toEqual([{ ended: true }, 'room_not_found'])
      expect((await bench.join('board', 'bob')).state).toEqual({ notes: [] })
    })
  })
})

describe('a room that ends', () => {
  it.each([
    ['for the store', 'silent'],
    ['for the last flush', 'slow'],
  ] as const)('leaves a join that waits %s to the next owner, unless the client is gone', async (_, mood) => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    bench.store.mood = mood
    bench.message('counter', 'ann', 'end', null, 1)
    await bench.advance(50)
    const bob = bench.askToJoin('counter', 'bob')
    const eve = bench.askToJoin('counter', 'eve')
    bench.send('counter', 'eve', { kind: 'detach' })
    await bench.advance(5000, 50)
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.advance(5000, 50)
    expect(ann.heard).toEqual(['hello "ann"', 'over null', '-ann closed'])
    expect([ann.inRoom, bob.inRoom, eve.inRoom]).toEqual([false, true, false])
  })
})

describe('a node that closes', () => {
  /** Closes a host whose store is slow. Returns a function that lets the store answer. */
  async function closeSlowly(bench: RoomBench) {
    let closed = false
    const closing = bench.host.close().then(() => {
      closed = true
    })
    await bench.untilIdle()
    expect(closed).toBe(false)
    return async () => {
      while (bench.store.held > 0) {
        bench.store.let()
        await bench.untilIdle()
      }
      await closing
    }
  }

  it.each(['journal', 'snapshot'] as const)(
    'saves a %s room, and the next owner continues it without a resync',
    async (durability) => {
      const { bench, ann } = await roomWith(counting(durability), ['ann'])
      const bob = await bench.join('counter', 'bob', { codec: 'roomful.v1.json' })
      await bench.say('counter', 'ann', 'inc', null, 1)
      bench.detach('counter', bob, true)
      bench.message('counter', 'ann', 'inc', null, 2)
      await bench.host.close()
      expect([bench.host.rooms.size, ann.acked]).toEqual([0, 2])
      expect(await bench.store.store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: null })

      const heir = bench.successor([ann, bob])
      for (const member of [ann, bob]) heir.attach('counter', member)
      // Messages that were sent while the room had no owner are sent again.
      heir.message('counter', 'ann', 'inc', null, 2)
      await heir.say('counter', 'ann', 'inc', null, 3)
      expect([ann.state, bob.state, ann.acked]).toEqual([{ count: 3 }, { count: 3 }, 3])
      expect([ann.faults, bob.faults, ann.resyncs, bob.resyncs]).toEqual([[], [], 0, 0])
      expect(bob.heard).toEqual(['counted 1', 'counted 2', 'counted 3'])
    },
  )

  it('stops waiting for a store that does not answer', async () => {
    const { bench } = await roomWith(counting('journal'), ['ann'])
    bench.store.mood = 'deaf'
    bench.message('counter', 'ann', 'inc', null, 1)
    const closed = bench.host.close(2000)
    await bench.advance(4000, 50)
    await closed
    expect(bench.host.rooms.size).toBe(0)
  })

  // The last flush of an ending room was still being committed when its node closed. The node did not wait, and closed the store first: the
  // record stayed, and the next join found a room that had ended.
  it('waits until a room that is ending is deleted from the store', async () => {
    const { bench, ann } = await roomWith(counting('journal'), ['ann'])
    bench.store.mood = 'slow'
    bench.message('counter', 'ann', 'inc', null, 1)
    bench.leave('counter', 'ann')
    await bench.advance(31_000, 1000)
    const answer = await closeSlowly(bench)
    await answer()
    expect(ann.inRoom).toBe(false)
    expect(await bench.store.store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: null })
  })

  it('waits for handoffs, and forwards the messages that waited in those rooms to the next owner', async () => {
    const { bench } = await roomWith(counting('journal'), ['ann'])
    bench.mayAct = false
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.join('counter', 'bob')
    bench.store.mood = 'slow'
    const taken: string[] = []
    void bench.host.rooms.running[0]!.handOver('node_b').then((isFree) => isFree && taken.push('node_b'))
    const answer = await closeSlowly(bench)
    expect(taken).toEqual([])
    await answer()
    expect(taken).toEqual(['node_b'])
    expect(bench.redirected.map(({ message }) => message)).toMatchObject([
      { kind: 'message', ref: 1 },
      { kind: 'join', member_id: 'bob' },
    ])
  })
})

describe('handler context', () => {
  const room = defineRoom({
    type: 'room',
    sync: { rate: 0 },
    create: () => ({ key: '', ready: 0 }),
    admit: (_member, _options, ctx) => (ctx.key === 'closed' ? `${ctx.key} is closed` : undefined),
    messages: {
      ready: {
        handle(state, { data }, ctx) {
          state.ready += data === null ? 1 : 100
          state.key = ctx.key
        },
      },
      tell: {
        data: v.picklist(['member', 'members', 'ids', 'result', 'nobody']),
        handle(_state, { data, member }, { emit, members }) {
          if (data === 'member') emit('told', data, member)
          else if (data === 'members') emit('told', data, members)
          else if (data === 'ids') emit('told', data, [member.id, members[1]!])
          else if (data === 'nobody') emit('told', data, { id: 3 } as never)
          else return { event: { name: 'told', data, to: member } }
          return
        },
      },
    },
  })

  describe('ctx', () => {
    it('emits to one or several members or member ids', async () => {
      const { bench, ann } = await roomWith(room, ['ann', 'bob'])
      const both = [ann, bench.members.get('bob')!]
      const told = async (data: string) => {
        const before = both.map(({ heard }) => heard.length)
        await bench.say('room', 'ann', 'tell', data)
        return both.map(({ heard }, i) => heard.length - before[i]!)
      }
      expect(await told('member')).toEqual([1, 0])
      expect(await told('members')).toEqual([1, 1])
      expect(await told('ids')).toEqual([1, 1])
      expect(await told('result')).toEqual([1, 0])
      expect(await told('nobody')).toEqual([0, 0])
      expect(ann.errors).toMatchObject([{ code: 'room_logic_failed' }])
    })

    it('has the key of the room', async () => {
      const { bench, ann } = await roomWith(room, ['ann'])
      await bench.say('room', 'ann', 'ready', null)
      expect(ann.state).toEqual({ key: 'a', ready: 1 })
      const bob = await bench.join('room', 'bob', { key: 'closed' })
      expect(bob.errors).toMatchObject([{ code: 'join_refused', message: 'closed is closed' }])
    })
  })

  describe('events of a turn', () => {
    const crier = defineRoom({
      type: 'crier',
      sync: { rate: 0 },
      create: () => ({ turns: 0 }),
      messages: { cry: { data: v.object({ times: v.number(), text: v.string(), to: v.number() }) } },
      onMessage(state, { data: { times, text, to } }, ctx) {
        state.turns += 1
        const ids = Array.from({ length: to }, () => ctx.members[0]!)
        for (let i = 0; i < times; i++) ctx.emit('cry', { text }, to > 0 ? ids : undefined)
      },
    })
    const limits = { events: { turn: 3, bytes: 200, turnBytes: 500 } }

    it.each<[what: string, times: number, text: string, to: number, reason: string]>([
      ['has too many', 4, '', 0, 'limit reached: 3 events per turn (maxTurnEvents)'],
      ['has one that is too large', 1, 'x'.repeat(200), 0, '200 bytes per event'],
      ['has one with too many recipients', 1, '', 50, '200 bytes per event'],
      ['has too many bytes', 3, 'ä'.repeat(90), 0, '500 bytes of events per turn'],
    ])(
      'are limited: one that %s fails, and nothing of it is applied',
      async (_what, times, text, to, reason) => {
        const { bench, ann } = await roomWith(crier, ['ann'], { limits, revealFailures: true })
        await bench.say('crier', 'ann', 'cry', { times: 2, text: 'x'.repeat(150), to: 0 })
        await bench.say('crier', 'ann', 'cry', { times, text, to })
        expect(ann.heard).toHaveLength(2)
        expect(ann.state).toEqual({ turns: 1 })
        expect(ann.errors).toMatchObject([
          { code: 'room_logic_failed', message: expect.stringContaining(reason) },
        ])
        expect(bench.counts['limit events']).toBe(1)
      },
    )

    it('may have all that the limits allow', async () => {
      const { bench, ann } = await roomWith(crier, ['ann'], { limits })
      await bench.say('crier', 'ann', 'cry', { times: 3, text: 'x'.repeat(150), to: 0 })
      expect(ann.heard).toHaveLength(3)
    })
  })

  describe('a message without a schema', () => {
    it('takes null or {}, and its handler gets null', async () => {
      const { bench, ann } = await roomWith(room, ['ann'])
      await bench.say('room', 'ann', 'ready', { by: 3 })
      expect(ann.errors).toEqual([
        expect.objectContaining({
          code: 'invalid_payload',
          message: 'ready: no data is expected: send null or {}, or declare `data` in the room type',
        }),
      ])
      expect(ann.state).toMatchObject({ ready: 0 })
      await bench.say('room', 'ann', 'ready', {})
      expect(ann.state).toMatchObject({ ready: 1 })
    })
  })
})

describe('the seat of a member at the node of its room', () => {
  it('takes messages until the member is detached, at another edge or gone, or the room may not act', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann', 'bob'])
    const seatOf = (memberId: string, edge = bench.nodeId) =>
      bench.host.seat(bench.address('counter').name, memberId, edge)!
    const message = { type: 'inc', data: { by: 1 } }
    const seat = seatOf('ann')
    const takes = () => seat.receive(message)
    expect(takes()).toBe(true)
    await bench.advance(100)
    expect(ann.state).toMatchObject({ count: 1 })
    expect(seatOf('ann', 'node_z').receive(message)).toBe(false)
    bench.mayAct = false
    expect(takes()).toBe(false)
    bench.mayAct = true
    bench.host.recheck()
    await bench.advance(100)
    expect(takes()).toBe(true)
    bench.detach('counter', ann)
    expect(takes()).toBe(false)
    await bench.resume('counter', ann)
    expect(takes()).toBe(true)
    bench.leave('counter', 'ann')
    expect(takes()).toBe(false)
    await bench.advance(100)
    expect(bench.host.seat(bench.address('counter').name, 'ann', bench.nodeId)).toBe(undefined)
    expect(bench.describe('counter')?.state).toMatchObject({ count: 3 })
  })
})
