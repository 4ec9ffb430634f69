import { pino } from 'pino'
import * as v from 'valibot'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import { FailureLog } from './failures.ts'

/** What JavaScript lets room logic throw, besides errors that anybody can read. */
const THROWN: readonly (readonly [string, unknown])[] = [
  ['null', null],
  ['an error whose message is an object', Object.assign(new Error('x'), { message: { a: 1 } })],
  ['an error whose message throws', Object.defineProperty(new Error('x'), 'message', { get: refuse })],
  ['a proxy that throws at everything', new Proxy({}, { get: refuse, has: refuse, getPrototypeOf: refuse })],
]

function refuse(): never {
  throw new Error('not to be read')
}

/** A room that throws `thrown` wherever it is told to by `where`. */
const thrower = (thrown: unknown) => {
  const fail = (): never => {
    throw thrown
  }
  return defineRoom({
    type: 'thrower',
    options: v.object({ where: v.optional(v.string()) }),
    messages: { turn: { data: v.null() }, task: { data: v.null() }, check: { data: v.custom(fail) } },
    tasks: { done: v.null() },
    sync: { rate: 0 },
    durability: 'none',
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
      if (input.type === 'task') ctx.task(Promise.reject(thrown), 'done')
      state.count++
    },
    onLeave: fail,
    onDispose: fail,
  })
}

describe.each(THROWN)('%s', (_name, thrown) => {
  const rejections: unknown[] = []
  const hear = (reason: unknown) => rejections.push(reason)
  beforeEach(() => {
    rejections.length = 0
    process.on('unhandledRejection', hear)
  })
  afterEach(() => {
    process.off('unhandledRejection', hear)
  })

  // The first join of a room, the verdict of `admit` and the outcome of a task are handled in promises that nobody waits for: when
  // even the telling of a failure failed there, the rejection ended the process, with every other room of the node.
  it('harms only the turn that threw it', async () => {
    const bench = new RoomBench([thrower(thrown)])
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
    bench.send('thrower', 'ann', { kind: 'leave', reason: 'left', ref: 9 })
    await bench.advance(1500)
    expect([ann.heard, bench.host.size]).toEqual([['left 9'], 0])
    // Node reports a rejection that nobody handles when the microtasks are done.
    await new Promise((resolve) => setImmediate(resolve))
    expect(rejections).toEqual([])
  })

  it('is logged as far as it can be read', () => {
    const lines: string[] = []
    const log = pino({}, { write: (line: string) => lines.push(line) })
    new FailureLog(new FakeClock(), log, true).explain('onTick', thrown)
    expect(lines.map((line) => JSON.parse(line).failed)).toEqual(['onTick'])
  })
})
