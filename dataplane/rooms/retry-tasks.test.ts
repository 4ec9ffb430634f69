import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { type BenchOptions, roomWith } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'

/** Pays orders at a bank, whose answers the test gives. */
function shop(durability: Durability = 'journal') {
  const runs: { id: string; data: unknown; answer: (value: string) => void; fail: (error: Error) => void }[] =
    []
  const definition = defineRoom({
    type: 'shop',
    durability,
    sync: { rate: 0 },
    create: () => ({ told: [] as unknown[] }),
    messages: {
      pay: {
        data: v.object({ gold: v.any(), id: v.optional(v.any()) }),
        handle(_state, { data: { gold, id } }, ctx) {
          ctx.task('pay', { gold }, { ...(id !== undefined && { id }) })
        },
      },
      work: { handle: (_state, _input, ctx) => ctx.task((async () => 'paid') as never, 'pay' as never) },
      look: { handle: (_state, _input, ctx) => ctx.task('look' as never, {} as never) },
    },
    tasks: {
      pay: {
        retry: true,
        data: v.object({ gold: v.number() }),
        result: v.string(),
        run: (data, { id }) =>
          new Promise<string>((answer, fail) => runs.push({ id, data: structuredClone(data), answer, fail })),
        handle(state, outcome) {
          state.told.push(structuredClone(outcome))
        },
      },
      look: { result: v.null(), handle: () => {} },
    },
  })
  return { runs, definition }
}

async function opened(options?: BenchOptions, durability?: Durability) {
  const { runs, definition } = shop(durability)
  const { bench, ann } = await roomWith(definition, ['ann'], options)
  let ref = 0
  return {
    bench,
    ann,
    runs,
    say: (type: string, data: unknown = null) => bench.say('shop', 'ann', type, data as never, ++ref),
    told: () => (ann.state as { told: unknown[] }).told,
  }
}

describe('A task with retry', () => {
  it('runs after the commit with its data and id, and its handler gets both with the outcome', async () => {
    const { bench, runs, say, told } = await opened()
    bench.store.mood = 'deaf'
    await say('pay', { gold: 5, id: 'order_1' })
    expect(runs).toHaveLength(0)
    bench.store.mood = 'fine'
    await bench.advance(2000)
    await say('pay', { gold: 6 })
    runs[0]!.answer('paid')
    runs[1]!.fail(new Error('no money'))
    await bench.settle()
    expect(runs.map(({ id, data }) => [id, data])).toEqual([
      ['order_1', { gold: 5 }],
      [expect.stringMatching(/^tsk_/), { gold: 6 }],
    ])
    expect(told()).toEqual([
      { ok: true, value: 'paid', id: 'order_1', data: { gold: 5 } },
      { ok: false, error: 'no money', id: runs[1]!.id, data: { gold: 6 } },
    ])
  })

  it.each([
    ['journal', 'dies'],
    ['journal', 'hands over'],
    ['snapshot', 'dies'],
    ['none', 'hands over'],
  ] as const)('runs again under the next owner with the same id (%s, owner %s)', async (durability, how) => {
    const { bench, ann, runs, say, told } = await opened({}, durability)
    await say('pay', { gold: 5, id: 'order_1' })
    const next = bench.successor([ann])
    if (how === 'dies') {
      bench.mayAct = false
      await bench.die()
    } else await bench.host.rooms[0]!.handOver('node_b')
    await next.resume('shop', ann)
    await next.settle()
    expect(runs.map(({ id }) => id)).toEqual(['order_1', 'order_1'])
    runs[0]!.answer('paid too late')
    await bench.settle()
    runs[1]!.answer('paid')
    await next.settle()
    expect(told()).toEqual([{ ok: true, value: 'paid', id: 'order_1', data: { gold: 5 } }])
    // A snapshot room writes the end of the task with its next snapshot.
    await next.advance(1000)
    const third = next.successor([ann], { nodeId: 'node_c' })
    next.mayAct = false
    await third.resume('shop', ann)
    await third.settle()
    expect(runs).toHaveLength(2)
  })

  it('keeps its empty room running, and a wakeup in the store, until it has ended', async () => {
    const { bench, runs, say } = await opened()
    await say('pay', { gold: 5 })
    bench.send('shop', 'ann', { kind: 'leave', reason: 'left' })
    await bench.advance(300_000, 1000)
    expect([bench.host.size, runs.length]).toEqual([1, 1])
    const due = async () => {
      const { wakeups } = bench.store.store
      const parts = Array.from({ length: 4 }, (_, part) => wakeups.take(part, { limit: 9, againMs: 0 }))
      return (await Promise.all(parts)).flat().map(({ room }) => room)
    }
    bench.mayAct = false
    await bench.advance(31_000, 1000)
    expect(await due()).toEqual(['prj_test/shop:a'])
    bench.mayAct = true
    bench.host.recheck()
    runs[0]!.answer('paid')
    await bench.advance(40_000, 1000)
    expect([bench.host.size, await due()]).toEqual([0, []])
  })

  it('does not run again when its run did not return under the last owner', async () => {
    const { bench, ann, runs, say, told } = await opened()
    await say('pay', { gold: 5, id: 'order_1' })
    const { records } = { records: bench.store.store.rooms }
    const note = { hook: 'task', subject: 'order_1', ref: 0, type: 'pay', principal: '' }
    const { epoch } = (await records.inspect('prj_test/shop:a'))!
    await records.noteStuck('prj_test/shop:a', epoch, new TextEncoder().encode(JSON.stringify(note)), 60_000)
    bench.mayAct = false
    await bench.die()
    const next = bench.successor([ann])
    await next.resume('shop', ann)
    await next.settle()
    expect([runs.length, told()]).toEqual([
      1,
      [{ ok: false, error: 'run did not return', id: 'order_1', data: { gold: 5 } }],
    ])
  })

  it.each([
    ['pay', { gold: 'much' }, /the data of the task "pay": gold: /],
    ['pay', { gold: 1, id: '' }, /ctx.task got the id ""; it must be a text of 1 to 96 bytes/],
    ['work', null, /ctx.task got work for the task "pay", which has retry and its own run/],
    ['look', null, /ctx.task got data for the task "look", which has no retry/],
  ])('is refused with an error that says what would be right: %s %j', async (type, data, text) => {
    const { ann, say } = await opened({ revealFailures: true })
    await say(type, data)
    expect(ann.errors).toMatchObject([{ code: 'room_logic_failed', message: expect.stringMatching(text) }])
  })

  it('is refused while a task with its id has not ended', async () => {
    const { bench, ann, runs, say } = await opened({ revealFailures: true })
    await say('pay', { gold: 5, id: 'order_1' })
    await say('pay', { gold: 5, id: 'order_1' })
    expect(ann.errors).toMatchObject([
      { message: expect.stringContaining('the id "order_1", which a task has') },
    ])
    runs[0]!.answer('paid')
    await bench.settle()
    await say('pay', { gold: 5, id: 'order_1' })
    expect(runs).toHaveLength(2)
  })

  it('must declare data and run, which no other task may have', () => {
    const tasksOf = (task: object) => () =>
      defineRoom({ type: 'bad', create: () => ({}), tasks: { pay: task } } as never)
    const handle = () => {}
    expect(tasksOf({ result: v.null(), retry: true, handle })).toThrow(
      /tasks.pay.data is undefined.*tasks.pay.run is/,
    )
    expect(tasksOf({ result: v.null(), run: () => null, handle })).toThrow(/data or run without retry/)
    expect(tasksOf({ result: v.null(), retry: false, handle })).toThrow(
      /tasks.pay.retry is false; it must be true/,
    )
  })
})
