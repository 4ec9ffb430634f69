import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { type BenchOptions, roomWith } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'

/** Asks for questions, whose answers the test gives. */
function quiz(durability: Durability = 'journal', sync = 0) {
  const asked: { answer: (value: unknown) => void; fail: (error: unknown) => void }[] = []
  let throws = false
  const definition = defineRoom({
    type: 'quiz',
    durability,
    sync: { rate: sync },
    idleSeconds: 3600,
    create: () => ({ got: [] as unknown[], asked: 0 }),
    messages: {
      ask: {
        data: v.any(),
        handle(state, { data }, ctx) {
          state.asked++
          const name = data === 'unknown' ? (data as 'question') : 'question'
          const begin = () =>
            new Promise<never>((answer, fail) => asked.push({ answer: answer as never, fail }))
          ctx.task(data === 'begun' ? (begin() as never) : begin, name)
          if (data === 'throw') throw new Error('after all not')
        },
      },
      askBadly: {
        data: v.null(),
        handle(_state, _input, ctx) {
          ctx.task(() => {
            throw new Error('no network')
          }, 'question')
        },
      },
      breakHandler: {
        data: v.null(),
        handle() {
          throws = true
        },
      },
    },
    tasks: {
      question: {
        result: v.object({ text: v.string() }),
        handle(state, outcome) {
          state.got.push(outcome as never)
          if (throws) throw new Error('cannot read')
        },
      },
    },
  })
  return { asked, definition }
}

describe('a task of onDispose', () => {
  it('is an error, since its outcome could not come', async () => {
    const thrown: unknown[] = []
    const ending = defineRoom({
      type: 'ending',
      create: () => ({}),
      messages: { end: { data: v.null(), handle: (_state, _input, ctx) => ctx.close() } },
      tasks: { report: { result: v.null(), handle: () => {} } },
      onDispose(_state, ctx) {
        try {
          ctx.task(async () => null, 'report')
        } catch (error) {
          thrown.push((error as Error).message)
        }
      },
    })
    const { bench } = await roomWith(ending, ['ann'])
    await bench.say('ending', 'ann', 'end', null)
    await bench.settle()
    expect(thrown).toEqual([expect.stringContaining('was called in onDispose: the room ends with this turn')])
  })
})

async function started(options?: BenchOptions, durability?: Durability, sync?: number) {
  const { asked, definition } = quiz(durability, sync)
  const { bench, ann } = await roomWith(definition, ['ann'], options)
  let ref = 0
  return {
    bench,
    ann,
    asked,
    say: (type: string, data: unknown = null) => bench.say('quiz', 'ann', type, data as never, ++ref),
    got: () => (ann.state as { got: unknown[] }).got,
  }
}

describe('a task', () => {
  it('ends in a turn of its own, with what it resolves to, or with why it does not', async () => {
    const { bench, ann, asked, say, got } = await started()
    for (let i = 0; i < 3; i++) await say('ask')
    asked[0]!.answer({ text: 'why?' })
    await bench.settle()
    asked[1]!.fail(new Error('the database is away'))
    await bench.settle()
    asked[2]!.answer({ text: 3 })
    await bench.settle()
    await say('askBadly')
    expect(got()).toEqual([
      { ok: true, value: { text: 'why?' } },
      { ok: false, error: 'the database is away' },
      { ok: false, error: expect.stringContaining('text:') },
      { ok: false, error: 'no network' },
    ])
    expect([ann.errors, ann.faults]).toEqual([[], []])
  })

  it('begins once the update of its turn is committed, and not before', async () => {
    const { bench, asked, say } = await started()
    bench.store.mood = 'deaf'
    await say('ask')
    await bench.advance(2000)
    expect(asked).toHaveLength(0)
    bench.store.mood = 'fine'
    await bench.advance(2000)
    expect(asked).toHaveLength(1)
    await say('ask', 'throw')
    expect(asked).toHaveLength(1)
  })

  it('begins in rooms that keep nothing as well, with the update of its turn', async () => {
    const { bench, asked, got } = await started({}, 'none', 20)
    bench.message('quiz', 'ann', 'ask', null)
    await bench.settle()
    await bench.advance(60)
    asked[0]!.answer({ text: 'why?' })
    await bench.advance(60)
    expect(got()).toHaveLength(1)
  })

  it('has ended also where its handler throws: that is counted, and not repeated', async () => {
    const { bench, asked, say, got } = await started({ limits: { tasks: 1 } })
    await say('breakHandler')
    await say('ask')
    asked[0]!.answer({ text: 'why?' })
    await bench.settle()
    expect([got(), bench.counts['error room_logic_failed']]).toEqual([[], 1])
    await say('ask')
    expect(asked).toHaveLength(2)
  })

  it.each([
    [
      'begun',
      /ctx.task got a promise, whose work has begun already; .*ctx.task\(\(\) => work\(\), "question"\)/,
    ],
    ['unknown', /names the task "unknown", which is not among the room's tasks: there are question/],
  ])('is refused with an error that says what would be right: %s', async (data, text) => {
    const { ann, say } = await started({ revealFailures: true })
    await say('ask', data)
    expect(ann.errors).toMatchObject([{ code: 'room_logic_failed', message: expect.stringMatching(text) }])
  })
})

describe('a task whose owner is gone', () => {
  it.each(['dies', 'hands over'])(
    'is told to have moved at the next, once, and not begun again (%s)',
    async (how) => {
      const { bench, ann, asked, say, got } = await started()
      await say('ask')
      await say('ask')
      asked[0]!.answer({ text: 'why?' })
      await bench.settle()
      const next = bench.successor([ann])
      if (how === 'dies') {
        bench.mayAct = false
        await bench.die()
      } else await bench.host.rooms[0]!.handOver('node_b')
      await next.resume('quiz', ann)
      await next.settle()
      // Too late: its room is another node's.
      asked[1]!.answer({ text: 'who?' })
      await bench.settle()
      const told = [
        { ok: true, value: { text: 'why?' } },
        { ok: false, error: 'moved' },
      ]
      expect([got(), asked.length, ann.faults]).toEqual([told, 2, []])
      const third = next.successor([ann], { nodeId: 'node_c' })
      next.mayAct = false
      await third.resume('quiz', ann)
      await third.settle()
      expect(got()).toEqual(told)
    },
  )

  it('is told so also where its turn was committed and the node ended before it could begin', async () => {
    const { bench, ann, asked, got } = await started()
    bench.store.mood = 'silent'
    bench.message('quiz', 'ann', 'ask', null, 1)
    await bench.settle()
    bench.mayAct = false
    await bench.die()
    const next = bench.successor([ann])
    await next.resume('quiz', ann)
    await next.settle()
    expect([got(), asked.length]).toEqual([[{ ok: false, error: 'moved' }], 0])
  })
})
