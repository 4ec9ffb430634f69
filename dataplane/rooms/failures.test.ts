import { readFileSync } from 'node:fs'
import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { careless } from '../../test/support/rooms/careless-room.ts'
import { counter } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import { FailureLog, RoomLogicRefused } from './failures.ts'

const REFUSES = 'no one is there to strike'
const SECRET = 'the boss has 3 hp left'

/** A room that refuses or throws, after it has changed its state and asked for effects. */
const moody = defineRoom({
  type: 'moody',
  messages: {
    refuse: { data: v.string() },
    fail: { data: v.null() },
    check: {
      data: v.custom(() => {
        throw new Error(SECRET)
      }),
    },
  },
  sync: { rate: 0 },
  durability: 'none',
  tick: { rate: 1 },
  create: () => ({ count: 0 }),
  onMessage(state, { type, data }, ctx) {
    state.count++
    ctx.emit('told', null)
    ctx.kick(ctx.members[0]!)
    if (type === 'refuse') return ctx.refuse(data)
    throw new Error(SECRET)
  },
  onTick(state, { refuse }) {
    state.count++
    refuse('not now')
  },
})

async function bench(revealFailures: boolean) {
  const lines: { level: number; err?: { message: string; stack: string } }[] = []
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) })
  const { bench: rooms, ann } = await roomWith(moody, ['ann'], { log, revealFailures })
  return { rooms, ann, lines }
}

describe('what room logic refuses', () => {
  it('is an Error to logic that catches it, and costs no stack', () => {
    const refused = new RoomLogicRefused(REFUSES)
    expect(refused).toBeInstanceOf(Error)
    expect([String(refused), (refused as Error).stack]).toEqual([`RoomLogicRefused: ${REFUSES}`, undefined])
  })

  it('reaches its sender with the text, leaves the state as it was, and is not logged', async () => {
    const { rooms, ann, lines } = await bench(false)
    const { seq } = ann
    rooms.message('moody', 'ann', 'refuse', REFUSES, 1)
    await rooms.say('moody', 'ann', 'refuse', 'x'.repeat(1000), 2)
    expect(ann.errors).toMatchObject([
      { code: 'room_logic_refused', message: REFUSES, ref: 1 },
      { code: 'room_logic_refused', message: expect.stringMatching(/^x{299}…$/), ref: 2 },
    ])
    await rooms.advance(3000)
    expect([ann.state, ann.seq, ann.heard, lines]).toEqual([{ count: 0 }, seq, [], []])
  })

  it('says why: without a text it is a failure', async () => {
    const { rooms, ann } = await bench(true)
    await rooms.say('moody', 'ann', 'refuse', '')
    expect(ann.errors).toMatchObject([
      { code: 'room_logic_failed', message: 'ctx.refuse got ""; it must be a text for the player' },
    ])
  })
})

describe('what room logic throws', () => {
  it.each([
    [false, "the room's logic failed"],
    [true, SECRET],
  ])('is logged with its stack; with reveal_failures %s the player reads "%s"', async (reveal, message) => {
    const { rooms, ann, lines } = await bench(reveal)
    rooms.message('moody', 'ann', 'fail', null, 1)
    rooms.message('moody', 'ann', 'fail', null, 2)
    await rooms.say('moody', 'ann', 'check', null, 3)
    expect(ann.errors).toMatchObject([1, 2, 3].map((ref) => ({ code: 'room_logic_failed', message, ref })))
    expect(lines).toMatchObject([
      { failed: 'onMessage', err: { message: SECRET, stack: expect.stringContaining('failures.test') } },
      { failed: 'the validator of check', err: { message: SECRET } },
    ])
  })
})

/** What JavaScript lets room logic throw, besides errors that can be read. */
const THROWN: readonly (readonly [string, unknown])[] = [
  ['null', null],
  ['an error whose message is an object', Object.assign(new Error('x'), { message: { a: 1 } })],
  ['an error whose message throws', Object.defineProperty(new Error('x'), 'message', { get: refuse })],
  ['a proxy that throws at everything', new Proxy({}, { get: refuse, has: refuse, getPrototypeOf: refuse })],
]

function refuse(): never {
  throw new Error('not to be read')
}

/** A room that throws `thrown` where it is told to by `where`. */
const thrower = (thrown: unknown) => {
  const fail = (): never => {
    throw thrown
  }
  return defineRoom({
    type: 'thrower',
    options: v.object({ where: v.optional(v.string()) }),
    messages: { turn: { data: v.null() }, task: { data: v.null() }, check: { data: v.custom(fail) } },
    sync: { rate: 0 },
    durability: 'none',
    tick: { rate: 20 },
    idleSeconds: 1,
    create: () => ({ count: 0 }),
    admit: async (_member, { where }) => {
      if (where === 'admit') fail()
    },
    onJoin: (_state, _member, _ctx, { where }) => {
      if (where === 'onJoin') fail()
    },
    onMessage(state, input, ctx) {
      if (input.type === 'turn') fail()
      if (input.type === 'task') ctx.task(() => Promise.reject(thrown), 'done')
      state.count++
    },
    tasks: { done: { result: v.null(), handle: (state) => void state.count++ } },
    onLeave: fail,
    onTick: fail,
    onDispose: fail,
  })
}

describe.each(THROWN)('%s', (_name, thrown) => {
  // The first join of a room, the verdict of `admit` and the outcome of a task are handled in promises that no one waits for: when
  // even the telling of a failure failed there, the rejection ended the process, with every other room of the node. Here
  // it would end the test run.
  it('harms only the turn that threw it, and no other room', async () => {
    const bench = new RoomBench([thrower(thrown), counter()])
    const eve = await bench.join('counter', 'eve')
    const bob = await bench.join('thrower', 'bob', { options: { where: 'onJoin' } })
    const cid = await bench.join('thrower', 'cid', { options: { where: 'admit' } })
    const ann = await bench.join('thrower', 'ann')
    for (const [index, type] of ['turn', 'check', 'task'].entries())
      bench.message('thrower', 'ann', type, null, index + 1)
    await bench.settle()
    expect([bob, cid, ann].map(({ errors }) => errors.map(({ code }) => code))).toEqual([
      ['room_logic_failed'],
      ['room_logic_failed'],
      ['room_logic_failed', 'room_logic_failed'],
    ])
    expect([ann.acked, ann.state]).toEqual([3, { count: 2 }])
    bench.send('thrower', 'ann', { kind: 'leave', reason: 'left', request_id: 9 })
    bench.message('counter', 'eve', 'inc', { by: 1 })
    await bench.advance(1500)
    expect([ann.heard, bench.host.size]).toEqual([['-ann left'], 1])
    expect([eve.state, eve.faults]).toEqual([{ count: 1, seen: ['eve'] }, []])
  })

  it('is logged as far as it can be read', () => {
    const lines: string[] = []
    const log = pino({}, { write: (line: string) => lines.push(line) })
    new FailureLog(new FakeClock(), log, true).explain('onTick', thrown)
    expect(lines.map((line) => JSON.parse(line).failed)).toEqual(['onTick'])
  })
})

describe('a state that is not JSON', () => {
  const FILE = 'test/support/rooms/careless-room.ts'
  const lineWith = (text: string) =>
    1 +
    readFileSync(FILE, 'utf8')
      .split('\n')
      .findIndex((line) => line.includes(text))
  const logged = () => {
    const errors: { message: string; stack: string }[] = []
    const log = pino({}, { write: (line: string) => void errors.push(JSON.parse(line).err) })
    return { log, errors }
  }

  it('is logged with the file and the line where room code wrote the value', async () => {
    const { log, errors } = logged()
    const { bench } = await roomWith(careless, ['ann'], { log })
    await bench.say('careless', 'ann', 'write', null)
    const [{ message, stack } = { message: '', stack: '' }] = errors
    expect(message).toMatch(
      /^messages.write.handle made a state that is not JSON: the value at \/by\/.*\/seen is a Map;/,
    )
    expect(stack.split('\n')[1]).toContain(`${FILE}:${lineWith('new Map')}:`)
  })

  it('is logged with the place of the definition if create or a handler returned it', async () => {
    const { log, errors } = logged()
    const bench = new RoomBench([careless], { log })
    await bench.join('careless', 'ann', { options: { broken: true } })
    await bench.join('careless', 'bob')
    await bench.say('careless', 'bob', 'give', null)
    expect(errors.map(({ message }) => message)).toEqual([
      'create made a state that is not JSON: the value at /at is a Date; only plain objects and arrays are JSON',
      'messages.give.handle made a state that is not JSON: the value at /by/all is a Set; only plain objects and arrays are JSON',
    ])
    for (const { stack } of errors)
      expect(stack.split('\n')[1]).toContain(`${FILE}:${lineWith('= defineRoom(')}:`)
  })
})
