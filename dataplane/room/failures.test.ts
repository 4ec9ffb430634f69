import { readFileSync } from 'node:fs'
import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { careless, counter } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../test/support/rooms/test-member.ts'
import type { Acknowledgement } from '../traffic.ts'
import { defineRoom } from './definition.ts'
import { FailureLog, plainThrown, RoomLogicError, RoomLogicRefused } from './failures.ts'
import { JournalFormat } from './journal.ts'
import { restore } from './restore.ts'

const REFUSES = 'there is nobody to strike'
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

describe('a refusal of room logic', () => {
  it('is an Error for logic that catches it, without the cost of a stack', () => {
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

  it('needs a text: without one it is a failure', async () => {
    const { rooms, ann } = await bench(true)
    await rooms.say('moody', 'ann', 'refuse', '')
    expect(ann.errors).toMatchObject([
      { code: 'room_logic_failed', message: 'ctx.refuse got ""; it must be a text for the player' },
    ])
  })
})

describe('an error of room logic', () => {
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

/** Values that room logic can throw, in addition to readable errors. */
const THROWN: readonly (readonly [string, unknown])[] = [
  ['null', null],
  ['an error whose message is an object', Object.assign(new Error('x'), { message: { a: 1 } })],
  ['an error whose message throws', Object.defineProperty(new Error('x'), 'message', { get: refuse })],
  ['a proxy that throws at everything', new Proxy({}, { get: refuse, has: refuse, getPrototypeOf: refuse })],
]

function refuse(): never {
  throw new Error('not to be read')
}

/** A room that throws `thrown` at the place that `where` names. */
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
  // The first join of a room, the verdict of `admit` and the outcome of a task are handled in promises that no caller awaits. A failed
  // report of a failure there once ended the process, with every room of the node. Here it would end the test run.
  it('harms only the turn that threw it, and no other room', async () => {
    const bench = new RoomBench([thrower(thrown), counter()])
    const eve = await bench.join('counter', 'eve')
    const bob = await bench.join('thrower', 'bob', { options: { where: 'onJoin' } })
    const cid = await bench.join('thrower', 'cid', { options: { where: 'admit' } })
    const ann = await bench.join('thrower', 'ann')
    for (const [index, type] of ['turn', 'check', 'task'].entries())
      bench.message('thrower', 'ann', type, null, index + 1)
    await bench.untilIdle()
    expect([bob, cid, ann].map(({ errors }) => errors.map(({ code }) => code))).toEqual([
      ['room_logic_failed'],
      ['room_logic_failed'],
      ['room_logic_failed', 'room_logic_failed'],
    ])
    expect([ann.acked, ann.state]).toEqual([3, { count: 2 }])
    bench.leave('thrower', 'ann')
    bench.message('counter', 'eve', 'inc', { by: 1 })
    await bench.advance(1500)
    expect([ann.heard, bench.host.rooms.size]).toEqual([['-ann left'], 1])
    expect([eve.state, eve.faults]).toEqual([{ count: 1, seen: ['eve'] }, []])
  })

  it('is logged as far as it can be read', () => {
    const lines: string[] = []
    const log = pino({}, { write: (line: string) => lines.push(line) })
    new FailureLog(new FakeClock(), log, true).explain('onTick', plainThrown(thrown))
    expect(lines.map((line) => JSON.parse(line).failed)).toEqual(['onTick'])
  })
})

describe('plainThrown', () => {
  it('copies name, message, stack, code and three causes as short texts, and nothing else', () => {
    const [first, second, third, last] = ['a', 'b', 'c', 'd'].map((text) => new Error(text))
    Object.assign(third!, { cause: last }) && Object.assign(second!, { cause: third })
    const error = Object.assign(new TypeError('x'.repeat(1000)), { code: 'E_X', data: 1, cause: first })
    Object.assign(first!, { cause: second })
    const plain = plainThrown(error)
    expect(plain).toMatchObject({
      name: 'TypeError',
      message: expect.stringMatching(/^x{299}…$/),
      stack: expect.stringContaining('failures.test'),
      code: 'E_X',
      cause: { message: 'a', cause: { message: 'b', cause: { message: 'c' } } },
    })
    expect(JSON.stringify(plain)).not.toMatch(/"data"|"d"/)
    const properties = Object.values(Object.getOwnPropertyDescriptors(plain))
    expect(properties.every((property) => 'value' in property)).toBe(true)
  })

  it('keeps refusals and errors of roomful', () => {
    for (const own of [new RoomLogicRefused('no'), new RoomLogicError('no')])
      expect(plainThrown(own)).toBe(own)
  })
})

describe('a state that is not JSON', () => {
  const FILE = 'test/support/rooms/counter-room.ts'
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
      expect(stack.split('\n')[1]).toContain(`${FILE}:${lineWith('careless = defineRoom(')}:`)
  })
})

describe('refusals', () => {
  const range = (from: number, to: number): number[] =>
    Array.from({ length: to - from + 1 }, (_, i) => from + i)

  /** A message that the room refuses. */
  const bad = (bench: RoomBench, ref: number, settled = 0): void =>
    bench.send('counter', 'ann', { kind: 'message', type: 'nonsense', data: null, ref, settled })

  const good = (bench: RoomBench, ref: number, settled = 0): void =>
    bench.send('counter', 'ann', { kind: 'message', type: 'inc', data: { by: 1 }, ref, settled })

  const attach = (bench: RoomBench, member: TestMember, settled?: number) =>
    bench.resume('counter', member, 0, 'node_a', settled)

  const countOf = ({ state }: TestMember) => (state as { count: number }).count
  const refs = (list: readonly { ref?: number | undefined }[] = []) => list.map(({ ref }) => ref)

  describe('a message that was refused', () => {
    it.each([
      ['a bounded place in memory, in an update and in the record, however many there are', 99_000, false],
      ['no place in the journal once its client knows', 5000, true],
    ] as const)('takes %s', async (_, last, known) => {
      const { bench } = await roomWith(counter(), ['ann'])
      bench.store.mood = 'slow'
      good(bench, 1)
      await bench.untilIdle()
      for (const ref of range(2, last)) bad(bench, ref, known ? ref - 1 : 0)
      bench.sent.length = 0
      bench.store.mood = 'fine'
      bench.store.let()
      await bench.untilIdle()
      const claim = await bench.claimed('counter')
      const membership = restore(claim, new JournalFormat())!.memberships[0]!
      const kept = known ? 1 : 1024
      expect([membership.lastRef, membership.forgotten]).toEqual([last, known ? 0 : last - kept])
      expect(refs(membership.outcomes)).toEqual(range(last - kept + 1, last))
      expect(claim.journal.at(-1)!.length).toBeLessThan(150_000)
    })

    it('takes no more bytes than allowed: the oldest are dropped first', async () => {
      const text = 'é'.repeat(100)
      const { bench, ann } = await roomWith(counter(), ['ann'], {
        limits: { unconfirmed: { messages: 1000, bytes: 1000 } },
      })
      bench.send('counter', 'ann', {
        kind: 'refuse',
        from: 1,
        through: 20,
        code: 'rate_limited',
        message: text,
      })
      await bench.untilIdle()
      const { outcomes } = await attach(bench, ann)
      expect(refs(outcomes)).toEqual(range(17, 20))
    })

    // Members that joined early once kept as much as they were allowed while there were few.
    for (const when of ['when all are there', 'while they come'])
      it(`takes less if there are many members, so that those of a whole room are bounded, sent ${when}`, async () => {
        const bench = new RoomBench([counter()], {
          limits: { unconfirmed: { messages: 1000, bytes: 10_000 } },
        })
        const members: TestMember[] = []
        const refuse = ({ memberId }: TestMember) => {
          for (const ref of range(1, 200)) bench.message('counter', memberId, 'nonsense', null, ref)
        }
        for (let i = 0; i < 200; i++) {
          members.push(await bench.join('counter', i === 0 ? 'ann' : `m${i}`))
          if (when === 'while they come') refuse(members[i]!)
        }
        if (when !== 'while they come') members.forEach(refuse)
        await bench.untilIdle()
        const told: object[] = []
        for (const member of members) told.push((await attach(bench, member)).outcomes!)
        await bench.host.close()
        const claim = await bench.claimed('counter')
        const written = restore(claim, new JournalFormat())!.memberships.map(({ outcomes }) => outcomes)
        for (const kept of [told, written]) {
          const bytes = JSON.stringify(kept).length
          expect(bytes).toBeGreaterThan(200_000)
          // As JSON, which takes a quarter more.
          expect(bytes).toBeLessThan(1.4 * 32 * 10_000)
        }
      })
  })

  describe('a forgotten refusal', () => {
    /** Refs 1 to 5 are refused, of which 3 to 5 are kept, and 6 is applied. */
    async function forgotten() {
      const { bench, ann } = await roomWith(counter(), ['ann'], {
        limits: { unconfirmed: { messages: 3, bytes: 100_000 } },
      })
      for (const ref of range(1, 5)) bad(bench, ref)
      good(bench, 6)
      await bench.untilIdle()
      return { bench, ann }
    }
    const state = { ack: 6, outcomes: range(3, 5), forgotten: 2 }
    const stateOf = ({ ack, outcomes, forgotten }: Acknowledgement) => ({
      ack,
      outcomes: refs(outcomes),
      forgotten,
    })

    it('is reported in the update that acks it, and in the answer to an attach, by this owner and the next', async () => {
      const { bench, ann } = await forgotten()
      expect([refs(ann.errors), ann.acked, ann.forgotten]).toEqual([range(3, 5), 6, 2])
      expect(stateOf(await attach(bench, ann))).toEqual(state)
      expect(stateOf(await attach(bench.successor([ann]), ann))).toEqual(state)
    })

    it('is not reported to a client that knows its outcome', async () => {
      const { bench, ann } = await forgotten()
      expect(stateOf(await attach(bench, ann, 2))).toEqual({ ...state, forgotten: undefined })
      good(bench, 7, 6)
      await bench.untilIdle()
      expect([ann.acked, ann.forgotten]).toEqual([7, 0])
    })

    it('is reported in the answer to an attach only after its commit', async () => {
      const { bench, ann } = await forgotten()
      bench.store.mood = 'slow'
      for (const ref of range(7, 12)) bad(bench, ref)
      await bench.untilIdle()
      expect(stateOf(await attach(bench, ann))).toEqual({ ack: 6, outcomes: [], forgotten: 6 })
      bench.store.mood = 'fine'
      bench.store.let()
      await bench.untilIdle()
      expect([ann.acked, ann.forgotten]).toEqual([12, 9])
    })
  })

  describe('messages that an earlier owner has acked and not stored', () => {
    it('count as handled, with an unknown outcome: the edge does not have them any more, and later messages are applied', async () => {
      const { bench, ann } = await roomWith(counter({ durability: 'snapshot' }), ['ann'])
      good(bench, 1)
      await bench.advance(5000, 1000)
      const heir = bench.successor([ann])
      // The earlier owner has acked messages up to 3. The client knows the outcomes up to 2.
      heir.attach('counter', ann, 0, 'node_a', 2, undefined, 3)
      await heir.untilIdle()
      good(heir, 4, 2)
      await heir.untilIdle()
      expect([ann.acked, ann.forgotten, countOf(ann)]).toEqual([4, 3, 2])
      expect(heir.sentOf('resend')).toEqual([])
    })
  })

  describe('a range of messages that the edge has refused', () => {
    it('is handled message by message, except those that were handled before', async () => {
      const { bench, ann } = await roomWith(counter(), ['ann'])
      const refuse = (from: number, through: number) =>
        bench.send('counter', 'ann', {
          kind: 'refuse',
          from,
          through,
          code: 'room_unavailable',
          message: 'full',
        })
      good(bench, 1)
      refuse(2, 3)
      refuse(2, 5)
      refuse(2, 4)
      good(bench, 6)
      await bench.untilIdle()
      expect([refs(ann.errors), ann.acked, countOf(ann)]).toEqual([[2, 3, 4, 5], 6, 2])
      refuse(8, 9)
      await bench.untilIdle()
      expect([ann.acked, bench.sentOf('resend').length]).toEqual([6, 1])
    })
  })

  it('an attach for a seat that has ended is answered with its end, and confirms nothing in the next one', async () => {
    const { bench } = await roomWith(counter(), ['ann'])
    good(bench, 1)
    await bench.untilIdle()
    bench.sent.length = 0
    const asked = { ask: 2, edge: 'node_a', turn: 1, codec: 'roomful.v1.json', session_id: 'ann' } as const
    const at = { epoch: 1, seq: 1, settled: 10, through: 10, seat: 'mem_before' }
    bench.send('counter', 'ann', { kind: 'attach', ...asked, ...at })
    await bench.untilIdle()
    expect(bench.sent.map(({ kind }) => kind)).toEqual(['no_seat'])
  })
})
