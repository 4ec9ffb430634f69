import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { counter } from '../../test/support/rooms/counter-room.ts'
import type { TestMember } from '../../test/support/rooms/room-bench.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

describe('a message', () => {
  it('that changes nothing is acked without a new seq', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    await bench.say('counter', 'ann', 'nothing', null, 1)
    expect([ann.seq, ann.acked]).toEqual([1, 1])
  })

  it('that throws leaves everything as it was, tells its sender, and is settled', async () => {
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
    // Sent again, it is not run again.
    await bench.say('counter', 'ann', 'boom', null, 1)
    expect([ann.errors.length, ann.acked]).toEqual([3, 3])
  })

  it('may be answered with a state and an event, made of parts of the draft', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    await bench.say('counter', 'ann', 'returned', { by: 42 })
    expect(ann.state).toEqual({ count: 42, seen: ['ann'] })
    expect(ann.heard.at(-1)).toBe('set ["ann"]')
  })

  /** An arrow function that assigns returns what it assigns: one with the key `state` took the place of the whole state. */
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
    bench.send('doors', 'bob', { kind: 'leave', reason: 'left', request_id: 9 })
    await bench.advance(100)
    expect(bench.describe('doors')?.state).toEqual(door())
    bench.send('doors', 'ann', { kind: 'leave', reason: 'left', request_id: 9 })
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

  it.each<[string, unknown]>([
    ['false', false],
    ['a text', 'not today'],
  ])('is not what an onJoin returns: %s fails the join', async (_, answer) => {
    const room = defineRoom({ type: 'gate', create: () => ({ here: 0 }), onJoin: () => answer as never })
    const { ann } = await roomWith(room, ['ann'], { revealFailures: true })
    expect(ann.errors).toMatchObject([
      { code: 'room_logic_failed', message: expect.stringContaining('ctx.refuse(text)') },
    ])
    expect(ann.inRoom).toBe(false)
  })

  it('has no fresh rate after its player has left and joined again, or from another session of the same player', async () => {
    const bench = new RoomBench([counter()])
    const refused = ({ errors }: { errors: readonly { code: string }[] }) => errors.map(({ code }) => code)
    await bench.join('counter', 'ann', { sub: 'ann' })
    for (let i = 0; i < 2; i++) bench.message('counter', 'ann', 'slow', null)
    bench.send('counter', 'ann', { kind: 'leave', reason: 'left', request_id: 50 })
    await bench.settle()
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

  it('of a stranger is answered with no_seat', async () => {
    const { bench } = await roomWith(counter(), ['ann'])
    bench.message('counter', 'eve', 'inc', { by: 1 }, 9)
    await bench.say('counter', 'eve', 'inc', { by: 1 }, 9, 'elsewhere')
    expect(bench.sentOf('no_seat')).toMatchObject([
      { member_id: 'eve', room: { key: 'a' } },
      { member_id: 'eve', room: { key: 'elsewhere' }, epoch: 0 },
    ])
  })

  const countOf = ({ state }: TestMember) => (state as { count: number }).count

  it('is not applied while one before it is missing', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    const inc = { kind: 'message', type: 'inc', data: { by: 1 } } as const
    for (const ref of [1, 3, 4]) bench.send('counter', 'ann', { ...inc, ref })
    await bench.settle()
    expect([countOf(ann), ann.acked]).toEqual([1, 1])
    // Its edge is asked once to give them again.
    expect(bench.sentOf('resend')).toHaveLength(1)
    for (const ref of [2, 3]) bench.send('counter', 'ann', { ...inc, ref })
    await bench.settle()
    expect([countOf(ann), ann.acked]).toEqual([3, 3])
  })

  // Where the session was resumed, both may speak at once.
  it('of an edge that had the session before is nothing any more, nor does it take the membership', async () => {
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
    await bench.settle()
    expect([bench.sent.length, countOf(ann), ann.acked]).toEqual([answers, 0, 0])
    await bench.say('counter', 'ann', 'inc', { by: 1 }, 1)
    expect([countOf(ann), ann.acked, ann.errors]).toEqual([1, 1, []])
    expect(bench.describe('counter')?.members).toMatchObject([{ node_id: 'node_a', connected: true }])
  })

  it('that the session has ended counts also where it had no socket yet when it was lost', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    bench.detach('counter', ann)
    bench.send('counter', 'ann', { kind: 'leave', reason: 'session_ended' }, undefined, 'node_after')
    await bench.settle()
    expect(bench.describe('counter')?.members).toEqual([])
  })

  it('that its edge has refused is settled in its turn, and told again to a session that attaches', async () => {
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
  it('attaches its members again; a member that was given up meanwhile is removed', async () => {
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
