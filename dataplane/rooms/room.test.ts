import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../test/support/rooms/test-member.ts'
import { defineRoom } from './definition.ts'

const by = v.object({ by: v.number() })

/** Counts, and misbehaves on demand. */
const counter = (settings: { durability?: 'journal' | 'snapshot' | 'none'; rate?: number } = {}) =>
  defineRoom({
    type: 'counter',
    messages: {
      inc: { data: by },
      boom: { data: v.null() },
      promise: { data: v.null() },
      bad_state: { data: v.null() },
      whisper: { data: v.object({ to: v.string() }) },
      out: { data: v.object({ who: v.string() }) },
      end: { data: v.null() },
      nothing: { data: v.null() },
      returned: { data: by },
      slow: { data: v.null(), rate: { per_second: 1, burst: 2 } },
    },
    sync: { rate: settings.rate ?? 0 },
    durability: settings.durability ?? 'journal',
    idle_seconds: 10,
    create: (): { count: number; seen: string[] } => ({ count: 0, seen: [] }),
    on_join(state, member, ctx) {
      state.seen.push(member.member_id)
      ctx.emit('hello', member.member_id)
    },
    on_message(state, input, ctx) {
      switch (input.type) {
        case 'inc':
          state.count += input.data.by
          break
        case 'boom':
          state.count = -1
          ctx.emit('boom', null)
          ctx.kick(input.member)
          throw new Error('the reactor is closed')
        case 'promise':
          state.count = -1
          return Promise.resolve() as never
        case 'bad_state':
          state.count = Number.NaN
          break
        case 'whisper':
          ctx.emit('psst', null, input.data.to)
          break
        case 'out':
          ctx.emit('you_are_out', null, input.data.who)
          ctx.kick(input.data.who)
          break
        case 'end':
          ctx.emit('over', null)
          ctx.close()
          break
        case 'returned':
          return { state: { ...state, count: input.data.by }, event: { name: 'set', data: state.seen } }
      }
      return
    },
    on_leave(state, member, ctx) {
      state.seen = state.seen.filter((id) => id !== member.member_id)
      ctx.emit('bye', ctx.members.length)
    },
  })

describe('joining', () => {
  it('gives a snapshot with the flush that brings the member, and tells the others', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann', { sub: 'player-1' })
    expect(ann.state).toEqual({ count: 0, seen: ['ann'] })
    expect(ann.members).toEqual([{ member_id: 'ann', sub: 'player-1' }])
    // The event of its own on_join is its too.
    expect(ann.heard).toEqual(['hello "ann"'])
    const bob = await bench.join('counter', 'bob', { codec: 'roomful.v1.json' })
    expect(bob.members.map(({ member_id }) => member_id)).toEqual(['ann', 'bob'])
    expect(ann.state).toEqual(bob.state)
    expect(ann.heard).toEqual(['hello "ann"', 'hello "bob"', '+bob'])
    expect([ann.seq, ann.faults, bob.faults]).toEqual([2, [], []])
  })

  it('answers the same join again, and refuses another of the same session', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann', { ref: 5 })
    ann.state = null
    await bench.join('counter', 'ann', { ref: 5 })
    expect(ann.state).toEqual({ count: 0, seen: ['ann'] })
    await bench.join('counter', 'ann', { ref: 6 })
    expect(ann.errors).toMatchObject([{ code: 'already_joined', ref: 6 }])
    expect(bench.describe('counter')?.members).toHaveLength(1)
  })

  it('refuses types that are not installed and options that do not fit', async () => {
    const strict = defineRoom({
      type: 'strict',
      options: v.object({ map: v.picklist(['desert']) }),
      create: () => ({}),
    })
    const bench = new RoomBench([strict])
    expect((await bench.join('nothing', 'ann')).errors).toMatchObject([{ code: 'unknown_room_type' }])
    const bob = await bench.join('strict', 'bob', { options: { map: 'moon' } })
    expect(bob.errors).toMatchObject([{ code: 'invalid_options', message: expect.stringContaining('map:') }])
    expect(bench.host.size).toBe(0)
    const eve = await bench.join('strict', 'eve', { options: { map: 'desert' } })
    expect(eve.in_room).toBe(true)
  })

  it('is refused where the room logic fails, and the room is not left behind', async () => {
    const picky = defineRoom({
      type: 'picky',
      create: (options): { map: string } => {
        if (options.map === 'none') throw new Error('no such map')
        return { map: String(options.map) }
      },
      on_join(state) {
        if (state.map === 'closed') throw new Error('this map is closed')
      },
    })
    const bench = new RoomBench([picky])
    const ann = await bench.join('picky', 'ann', { options: { map: 'none' } })
    expect(ann.errors).toMatchObject([{ code: 'room_logic_failed', message: 'no such map' }])
    const bob = await bench.join('picky', 'bob', { options: { map: 'closed' } })
    expect(bob.errors).toMatchObject([{ code: 'room_logic_failed', message: 'this map is closed' }])
    await bench.advance(31_000, 1000)
    expect(bench.host.size).toBe(0)
    const eve = await bench.join('picky', 'eve', { options: { map: 'open' } })
    expect(eve.state).toEqual({ map: 'open' })
  })
})

describe('admit', () => {
  const gates: ((answer: string | undefined) => void)[] = []
  const guarded = defineRoom({
    type: 'guarded',
    max_members: 2,
    create: () => ({ here: 0 }),
    admit: (_member, options) => {
      if (options.now) return options.now === 'yes' ? undefined : 'not today'
      return new Promise<string | undefined>((answer) => gates.push(answer))
    },
    on_join(state) {
      state.here++
    },
  })

  it('may refuse with a reason, at once or later', async () => {
    const bench = new RoomBench([guarded])
    const ann = await bench.join('guarded', 'ann', { options: { now: 'no' } })
    expect(ann.errors).toMatchObject([{ code: 'join_refused', message: 'not today' }])
    const bob = await bench.join('guarded', 'bob')
    expect(bob.errors).toEqual([])
    gates.shift()!('come back tomorrow')
    await bench.settle()
    expect(bob.errors).toMatchObject([{ code: 'join_refused', message: 'come back tomorrow' }])
  })

  it('is given five seconds', async () => {
    const bench = new RoomBench([guarded])
    const ann = await bench.join('guarded', 'ann')
    await bench.advance(5000, 500)
    expect(ann.errors).toMatchObject([
      { code: 'join_refused', message: expect.stringContaining('5 seconds') },
    ])
    gates.shift()!(undefined)
    await bench.settle()
    expect(ann.in_room).toBe(false)
  })

  it('holds a place, so that joins at the same time respect max_members', async () => {
    const bench = new RoomBench([guarded])
    const [ann, bob, eve] = ['ann', 'bob', 'eve'].map((id) => bench.askToJoin('guarded', id))
    await bench.settle()
    expect(eve!.errors).toMatchObject([{ code: 'room_full' }])
    for (const gate of gates.splice(0)) gate(undefined)
    await bench.advance(100)
    expect([ann!.in_room, bob!.in_room, eve!.in_room]).toEqual([true, true, false])
    expect(bench.describe('guarded')?.state).toEqual({ here: 2 })
  })

  it('does not keep the others waiting, and ends with the session', async () => {
    const bench = new RoomBench([guarded])
    const ann = await bench.join('guarded', 'ann')
    const bob = await bench.join('guarded', 'bob', { options: { now: 'yes' } })
    await bench.advance(100)
    expect([ann.in_room, bob.in_room]).toEqual([false, true])
    bench.send('guarded', 'ann', { kind: 'leave', reason: 'session_ended' })
    gates.shift()!(undefined)
    await bench.advance(100)
    expect(ann.in_room).toBe(false)
    expect((await bench.join('guarded', 'eve', { options: { now: 'yes' } })).errors).toEqual([])
  })

  // The socket is lost while admit decides, and then its edge dies, so that nobody tells of the session's end. A seat taken without a
  // socket from the start was never looked at again: the member stayed, and so did the room.
  it('gives no seat for ever to a session that has gone meanwhile', async () => {
    const bench = new RoomBench([guarded], { limits: { seat_ms: 2000 } })
    const ann = await bench.join('guarded', 'ann')
    bench.detach('guarded', ann)
    gates.shift()!(undefined)
    await bench.advance(100)
    expect(bench.describe('guarded')?.members).toMatchObject([{ member_id: 'ann', connected: false }])
    await bench.advance(3000, 100)
    expect(bench.describe('guarded')?.members).toEqual([])
  })
})

describe('a message', () => {
  it('reaches everybody as the same patch, and is acked', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    const bob = await bench.join('counter', 'bob')
    bench.message('counter', 'ann', 'inc', { by: 3 }, 1)
    bench.message('counter', 'bob', 'inc', { by: 4 })
    await bench.settle()
    expect([ann.state, bob.state]).toMatchObject([{ count: 7 }, { count: 7 }])
    // One flush for everything of the same turn of the event loop.
    expect([ann.seq, ann.acked, bob.acked]).toEqual([3, 1, 0])
  })

  it('is applied once per ref, in order, and acked again when it comes again', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    for (const ref of [1, 2, 2, 1, 3, 3]) bench.message('counter', 'ann', 'inc', { by: 1 }, ref)
    await bench.settle()
    expect([ann.state, ann.acked]).toMatchObject([{ count: 3 }, 3])
    const { seq } = ann
    ann.acked = 0
    bench.message('counter', 'ann', 'inc', { by: 1 }, 2)
    await bench.settle()
    expect([ann.state, ann.acked, ann.seq]).toMatchObject([{ count: 3 }, 3, seq])
  })

  it('that changes nothing is acked without a new seq', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'nothing', null, 1)
    await bench.settle()
    expect([ann.seq, ann.acked]).toEqual([1, 1])
  })

  it('that throws leaves everything as it was, tells its sender, and is settled', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    const bob = await bench.join('counter', 'bob')
    const { seq, state } = ann
    bench.message('counter', 'ann', 'boom', null, 1)
    bench.message('counter', 'ann', 'promise', null, 2)
    bench.message('counter', 'ann', 'bad_state', null, 3)
    await bench.settle()
    expect(ann.errors).toMatchObject([
      { code: 'room_logic_failed', message: 'the reactor is closed', ref: 1 },
      {
        code: 'room_logic_failed',
        message: expect.stringMatching(/on_message returned a promise.*ctx\.task/),
        ref: 2,
      },
      {
        code: 'room_logic_failed',
        message: expect.stringMatching(/not JSON: the value at \/count is NaN/),
        ref: 3,
      },
    ])
    expect([ann.seq, ann.state, ann.heard, ann.in_room]).toEqual([
      seq,
      state,
      ['hello "ann"', 'hello "bob"', '+bob'],
      true,
    ])
    expect(bob.errors).toEqual([])
    // Sent again, it is not run again, but the client gets to know that it is settled.
    bench.message('counter', 'ann', 'boom', null, 1)
    await bench.settle()
    expect([ann.errors.length, ann.acked]).toEqual([3, 3])
  })

  it('may be answered with a state and an event, made of parts of the draft', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'returned', { by: 42 })
    await bench.settle()
    expect(ann.state).toEqual({ count: 42, seen: ['ann'] })
    expect(ann.heard.at(-1)).toBe('set ["ann"]')
  })

  it('must fit its type, and its rate', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'fly', {}, 1)
    bench.message('counter', 'ann', 'inc', { by: 'x' }, 2)
    for (let i = 0; i < 4; i++) bench.message('counter', 'ann', 'slow', null)
    expect(ann.errors.map(({ code }) => code)).toEqual([
      'unknown_type',
      'invalid_payload',
      'rate_limited',
      'rate_limited',
    ])
    await bench.advance(1000)
    bench.message('counter', 'ann', 'slow', null)
    expect(ann.errors).toHaveLength(4)
    for (const type of ['toString', 'constructor', '__proto__']) bench.message('counter', 'ann', type, null)
    expect(ann.errors.slice(4).map(({ code }) => code)).toEqual([
      'unknown_type',
      'unknown_type',
      'unknown_type',
    ])
  })

  it('of a stranger is answered with no_seat', async () => {
    const bench = new RoomBench([counter()])
    await bench.join('counter', 'ann')
    bench.message('counter', 'eve', 'inc', { by: 1 }, 9)
    bench.message('counter', 'eve', 'inc', { by: 1 }, 9, 'elsewhere')
    await bench.settle()
    expect(bench.sentOf('no_seat')).toMatchObject([
      { member_id: 'eve', ref: 9, room: { key: 'a' } },
      { member_id: 'eve', ref: 9, room: { key: 'elsewhere' }, epoch: 0 },
    ])
  })

  const countOf = ({ state }: TestMember) => (state as { count: number }).count

  it('is not applied while one before it is missing', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    const inc = { kind: 'message', type: 'inc', data: { by: 1 } } as const
    bench.send('counter', 'ann', { ...inc, ref: 3 })
    bench.send('counter', 'ann', { ...inc, ref: 7, after: 5 })
    bench.send('counter', 'ann', { ...inc, ref: 8, after: 7 })
    await bench.settle()
    expect([countOf(ann), ann.acked]).toEqual([1, 3])
    // Its edge is asked once to give them again.
    expect(bench.sentOf('moved')).toMatchObject([{ owner: 'node_a' }])
    bench.send('counter', 'ann', { ...inc, ref: 5, after: 3 })
    bench.send('counter', 'ann', { ...inc, ref: 7, after: 5 })
    await bench.settle()
    expect([countOf(ann), ann.acked]).toEqual([3, 7])
  })

  it('of an edge that a member has left is nothing any more, nor is the end it tells of', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    for (const message of [
      { kind: 'message', type: 'inc', data: { by: 1 }, ref: 1 },
      { kind: 'message', type: 'inc', data: { by: 1 } },
      { kind: 'refuse', ref: 2, code: 'rate_limited', message: 'too many' },
      { kind: 'detach' },
      { kind: 'leave', reason: 'session_ended' },
    ] as const)
      bench.send('counter', 'ann', message, undefined, 'node_before')
    await bench.settle()
    expect([countOf(ann), ann.acked, ann.errors]).toEqual([0, 0, []])
    expect(bench.describe('counter')?.members).toMatchObject([{ member_id: 'ann', connected: true }])
    bench.message('counter', 'ann', 'inc', { by: 1 }, 1)
    await bench.settle()
    expect([countOf(ann), ann.acked]).toEqual([1, 1])
  })

  it('of an edge that had the session before takes no seat from the one that has it', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    bench.attach('counter', ann, 2)
    const answers = bench.sent.length
    bench.attach('counter', ann, 1, 'node_before')
    bench.send('counter', 'ann', {
      kind: 'join',
      ref: 9,
      edge: 'node_before',
      turn: 1,
      codec: 'roomful.v1.json',
      session_id: ann.session_id,
      sub: null,
      options: {},
    })
    expect(bench.sent.length).toBe(answers)
    bench.message('counter', 'ann', 'inc', { by: 1 }, 1)
    await bench.settle()
    expect([countOf(ann), ann.acked]).toEqual([1, 1])
    expect(bench.describe('counter')?.members).toMatchObject([{ node_id: 'node_a', connected: true }])
  })

  it('that the session has ended counts also where it had no socket yet when it was lost', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    bench.detach('counter', ann)
    bench.send('counter', 'ann', { kind: 'leave', reason: 'session_ended' }, undefined, 'node_after')
    await bench.settle()
    expect(bench.describe('counter')?.members).toEqual([])
  })

  it('that its edge has refused is settled in its turn, and told again to whoever attaches', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'inc', { by: 1 }, 1)
    bench.send('counter', 'ann', {
      kind: 'refuse',
      ref: 2,
      after: 1,
      code: 'rate_limited',
      message: 'too many',
    })
    bench.message('counter', 'ann', 'inc', { by: 1 }, 2)
    bench.message('counter', 'ann', 'inc', { by: 1 }, 3)
    await bench.settle()
    expect([countOf(ann), ann.acked]).toEqual([2, 3])
    expect(ann.errors).toMatchObject([{ code: 'rate_limited', ref: 2 }])
    bench.attach('counter', ann)
    await bench.settle()
    expect(bench.sentOf('attached')).toMatchObject([
      { ack: 3, refused: [{ ref: 2, code: 'rate_limited', message: 'too many' }] },
    ])
  })
})

describe('a whisper', () => {
  it('is heard by its recipient only, and everybody’s seq advances', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    const bob = await bench.join('counter', 'bob')
    const { seq } = bob
    bench.message('counter', 'ann', 'whisper', { to: 'bob' })
    await bench.settle()
    expect(bob.heard.at(-1)).toBe('psst null')
    expect(ann.heard).not.toContain('psst null')
    expect([ann.seq, bob.seq, ann.faults, bob.faults]).toEqual([seq + 1, seq + 1, [], []])
  })
})

describe('leaving', () => {
  it('acks what came before, answers the leaver, and tells the others', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    const bob = await bench.join('counter', 'bob')
    bench.message('counter', 'bob', 'inc', { by: 2 }, 1)
    bench.send('counter', 'bob', { kind: 'leave', reason: 'left', ref: 7 })
    await bench.settle()
    expect([bob.acked, bob.heard.at(-1), bob.in_room]).toEqual([1, 'left 7', false])
    expect(ann.state).toEqual({ count: 2, seen: ['ann'] })
    expect(ann.heard.slice(-2)).toEqual(['bye 1', '-bob left'])
    expect(ann.members.map(({ member_id }) => member_id)).toEqual(['ann'])
    bench.message('counter', 'bob', 'inc', { by: 2 }, 2)
    expect(bob.errors).toMatchObject([{ code: 'no_seat' }])
  })

  it('by a kick brings what was for the member until then, then the farewell', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    const bob = await bench.join('counter', 'bob')
    bench.message('counter', 'ann', 'out', { who: 'bob' })
    await bench.settle()
    expect(bob.heard.slice(-2)).toEqual(['you_are_out null', '-bob kicked'])
    expect([bob.in_room, bob.faults]).toEqual([false, []])
    expect([ann.heard.at(-1), ann.faults]).toEqual(['-bob kicked', []])
  })

  it('right after the join, in the same flush, is no news to the others', async () => {
    const bench = new RoomBench([counter({ rate: 10 })])
    const ann = await bench.join('counter', 'ann')
    await bench.advance(200)
    bench.message('counter', 'ann', 'inc', { by: 1 })
    await bench.settle()
    bench.askToJoin('counter', 'bob')
    bench.send('counter', 'bob', { kind: 'leave', reason: 'left', ref: 3 })
    await bench.advance(200)
    expect(bench.members.get('bob')!.heard).toEqual(['left 3'])
    expect(ann.heard.filter((news) => news.startsWith('+') || news.startsWith('-'))).toEqual([])
    expect([ann.state, ann.faults]).toEqual([{ count: 1, seen: ['ann'] }, []])
  })

  it('of everybody, by ctx.close, ends the room; whoever joins then gets a new one', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    const bob = await bench.join('counter', 'bob')
    bench.message('counter', 'ann', 'inc', { by: 5 })
    bench.message('counter', 'bob', 'end', null, 1)
    bench.message('counter', 'bob', 'inc', { by: 5 }, 2)
    const eve = bench.askToJoin('counter', 'eve')
    await bench.settle()
    expect(ann.heard.slice(-2)).toEqual(['over null', '-ann closed'])
    expect(bob.heard.slice(-2)).toEqual(['over null', '-bob closed'])
    expect(bob.acked).toBe(1)
    expect(eve.state).toEqual({ count: 0, seen: ['eve'] })
    expect(bench.counts).toMatchObject({ rooms: 1, members: 1 })
  })

  it('leaves nothing behind: an empty room is disposed of after its idle time, and its record forgotten', async () => {
    const bench = new RoomBench([counter()])
    await bench.join('counter', 'ann')
    bench.send('counter', 'ann', { kind: 'leave', reason: 'session_ended' })
    await bench.advance(9000, 500)
    expect(bench.host.size).toBe(1)
    await bench.advance(2000, 500)
    expect(bench.host.size).toBe(0)
    expect(bench.counts).toMatchObject({ rooms: 0, members: 0 })
    const { rooms } = bench.store.store
    expect(await rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: null })
    const ann = await bench.join('counter', 'ann2')
    expect(ann.state).toEqual({ count: 0, seen: ['ann2'] })
  })

  it('is not idle while somebody is there, however silent', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    bench.send('counter', 'ann', { kind: 'leave', reason: 'left', ref: 2 })
    await bench.advance(5000, 500)
    await bench.join('counter', 'bob')
    await bench.advance(60_000, 1000)
    expect(bench.host.size).toBe(1)
    expect(ann.in_room).toBe(false)
  })
})

describe('coming back', () => {
  for (const codec of ['roomful.v1.msgpack', 'roomful.v1.json'] as const)
    it(`brings exactly what was missed, in ${codec}`, async () => {
      const bench = new RoomBench([counter()])
      const ann = await bench.join('counter', 'ann', { codec })
      const bob = await bench.join('counter', 'bob')
      bench.message('counter', 'ann', 'inc', { by: 1 }, 1)
      await bench.settle()
      bench.detach('counter', ann)
      for (let i = 0; i < 3; i++) {
        bench.message('counter', 'bob', 'inc', { by: 1 })
        await bench.settle()
      }
      bench.message('counter', 'bob', 'whisper', { to: 'ann' })
      bench.message('counter', 'bob', 'whisper', { to: 'bob' })
      await bench.join('counter', 'eve')
      bench.detach('counter', bob)
      bench.attach('counter', ann)
      await bench.settle()
      const { at } = { at: bench.sentOf('attached').at(-1)! }
      expect([at.resumed, at.ack, at.frames.length]).toEqual([true, 1, 4])
      expect(ann.heard.slice(-3)).toEqual(['hello "eve"', '+eve', 'psst null'])
      expect([ann.state, ann.faults, ann.resyncs]).toEqual([bench.describe('counter')?.state, [], 0])
      // And it goes on without a gap.
      bench.message('counter', 'ann', 'inc', { by: 1 }, 2)
      await bench.settle()
      expect([ann.state, ann.acked, ann.faults]).toMatchObject([{ count: 5 }, 2, []])
    })

  it('after too much brings the whole state', async () => {
    const bench = new RoomBench([counter()], { limits: { ring: { entries: 3, bytes: 10_000 } } })
    const ann = await bench.join('counter', 'ann')
    await bench.join('counter', 'bob')
    bench.detach('counter', ann)
    for (let i = 0; i < 5; i++) {
      bench.message('counter', 'bob', 'inc', { by: 1 })
      await bench.settle()
    }
    bench.attach('counter', ann)
    await bench.settle()
    expect([ann.resyncs, ann.state, ann.members.length]).toEqual([1, bench.describe('counter')?.state, 2])
    expect(bench.counts['resync resume']).toBe(1)
    bench.message('counter', 'bob', 'inc', { by: 1 })
    await bench.settle()
    expect([ann.state, ann.faults]).toMatchObject([{ count: 6 }, []])
  })

  it('of a member that asked for a state brings one, the same frame for all who ask', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    const bob = await bench.join('counter', 'bob')
    ann.state = null
    bench.resync('counter', ann, 'checksum')
    bench.resync('counter', bob, 'sequence')
    const [first, second] = bench.sentOf('state')
    expect(ann.state).toEqual(bob.state)
    expect(first!.state['roomful.v1.msgpack']).toBe(second!.state['roomful.v1.msgpack'])
    expect(bench.counts).toMatchObject({ 'resync checksum': 1, 'resync sequence': 1 })
  })

  it('is possible for two minutes at most, should nobody say that the session has ended', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    bench.detach('counter', ann)
    await bench.advance(100_000, 1000)
    expect(bench.describe('counter')?.members).toMatchObject([{ connected: false }])
    await bench.advance(40_000, 1000)
    expect(bench.host.size).toBe(0)
    bench.attach('counter', ann)
    await bench.settle()
    expect(ann.errors).toMatchObject([{ code: 'no_seat' }])
  })
})

describe('an edge whose messages may be lost', () => {
  it('attaches its members anew; whoever was given up meanwhile does not stay for ever', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann')
    await bench.join('counter', 'bob')
    bench.host.edgeMissed('node_a')
    expect(bench.sentOf('moved')).toMatchObject([{ owner: 'node_a' }])
    bench.attach('counter', ann)
    bench.message('counter', 'ann', 'inc', { by: 1 }, 1)
    await bench.settle()
    expect(ann).toMatchObject({ state: { count: 1 }, acked: 1, faults: [] })
    await bench.advance(140_000, 1000)
    expect(bench.describe('counter')?.members).toMatchObject([{ member_id: 'ann', connected: true }])
  })
})

describe('neighbours', () => {
  it('do not notice a room that throws at everything', async () => {
    const wreck = defineRoom({
      type: 'wreck',
      tick: { rate: 20 },
      messages: { any: { data: v.null() } },
      create: () => ({}),
      on_message() {
        throw new Error('no')
      },
      on_tick() {
        throw new Error('never')
      },
      on_leave() {
        throw new Error('stay')
      },
      on_dispose() {
        throw new Error('not even this')
      },
      idle_seconds: 1,
    })
    const bench = new RoomBench([wreck, counter()])
    await bench.join('wreck', 'eve')
    const ann = await bench.join('counter', 'ann')
    for (let i = 0; i < 10; i++) {
      bench.message('wreck', 'eve', 'any', null)
      bench.message('counter', 'ann', 'inc', { by: 1 })
      await bench.advance(50)
    }
    bench.send('wreck', 'eve', { kind: 'leave', reason: 'left', ref: 1 })
    await bench.advance(3000, 50)
    expect(bench.members.get('eve')!.heard).toEqual(['left 1'])
    expect(ann.state).toMatchObject({ count: 10 })
    expect(bench.host.size).toBe(1)
  })
})

describe('ctx.task', () => {
  it('comes back as a message of the room itself, which clients cannot send', async () => {
    let finish: (value: { score: number }) => void = () => {}
    let fail: (error: Error) => void = () => {}
    const scores = defineRoom({
      type: 'scores',
      messages: { load: { data: v.null() } },
      tasks: { loaded: v.object({ score: v.number() }) },
      sync: { rate: 0 },
      create: (): { got: unknown[] } => ({ got: [] }),
      on_message(state, input, ctx) {
        if (input.type === 'load')
          ctx.task(
            new Promise<{ score: number }>((resolve, reject) => {
              finish = resolve
              fail = reject
            }),
            'loaded',
          )
        else state.got.push({ ...input.data, member: input.member })
      },
    })
    const bench = new RoomBench([scores])
    const ann = await bench.join('scores', 'ann')
    bench.message('scores', 'ann', 'load', null)
    finish({ score: 3 })
    await bench.settle()
    bench.message('scores', 'ann', 'load', null)
    fail(new Error('the database is away'))
    await bench.settle()
    bench.message('scores', 'ann', 'load', null)
    finish({ score: 'many' } as never)
    await bench.settle()
    expect(ann.state).toMatchObject({
      got: [
        { ok: true, value: { score: 3 }, member: null },
        { ok: false, error: 'the database is away', member: null },
        { ok: false, error: expect.stringContaining('score:'), member: null },
      ],
    })
    bench.message('scores', 'ann', 'loaded', { ok: true, value: { score: 9 } })
    expect(ann.errors).toMatchObject([{ code: 'unknown_type' }])
  })
})
