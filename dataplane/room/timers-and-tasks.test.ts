import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { hungTurns } from '../../test/support/rooms/hung-turns.ts'
import { type BenchOptions, RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'
import { turnOf } from './room-code.ts'

const DAY_MS = 86_400_000
const note = v.object({ note: v.string() })

/** Sets timers as its members request, and records which of them fired when. */
const clockwork = (durability: Durability = 'journal', { sync = 0 } = {}) =>
  defineRoom({
    type: 'clockwork',
    durability,
    sync: { rate: sync },
    idleSeconds: 10,
    create: () => ({ diary: [] as string[] }),
    messages: {
      after: {
        data: v.object({
          ms: v.any(),
          note: v.any(),
          id: v.optional(v.any()),
          timer: v.optional(v.any(), 'rings'),
        }),
        handle(state, { data: { ms, note, id, timer } }, ctx) {
          state.diary.push(
            `set ${ctx.after(ms, timer, { note }, id === undefined ? {} : { id }).slice(0, 4)}`,
          )
        },
      },
      many: {
        data: v.number(),
        handle(_state, { data }, ctx) {
          for (let i = 0; i < data; i++) ctx.after(1000, 'rings', { note: `${i}` })
        },
      },
      cancel: {
        data: v.any(),
        handle: (state, { data }, ctx) => void state.diary.push(`cancelled ${ctx.cancel(data)}`),
      },
      setAndThrow: {
        data: v.null(),
        handle(_state, _input, ctx) {
          ctx.cancel('a')
          ctx.after(5, 'rings', { note: 'never' })
          throw new Error('after all not')
        },
      },
      swap: {
        data: v.null(),
        handle(state, _input, ctx) {
          state.diary.push(`${ctx.cancel('a')} ${ctx.cancel('a')}`)
          ctx.after(50, 'rings', { note: 'other' }, { id: 'a' })
          state.diary.push(`${ctx.cancel('a')}`)
          ctx.after(60, 'rings', { note: 'third' }, { id: 'a' })
        },
      },
      end: { data: v.null(), handle: (_state, _input, ctx) => ctx.close() },
    },
    timers: {
      rings: {
        data: note,
        handle(state, { data }, ctx) {
          state.diary.push(`${data.note} at ${ctx.now}`)
          ctx.emit('rang', data.note)
          if (data.note === 'again') ctx.after(1000, 'rings', { note: 'again' }, { id: 'a' })
        },
      },
      breaks: {
        data: note,
        handle(state, _input, ctx) {
          state.diary.push('half')
          ctx.after(0, 'rings', { note: 'of a broken turn' })
          throw new Error('out of order')
        },
      },
    },
  })

const started = async (options?: BenchOptions, room = clockwork()) => {
  const made = await roomWith(room, ['ann'], options)
  const diary = () => (made.ann.state as { diary: string[] }).diary
  return { ...made, diary, now: made.bench.clock.now() }
}

describe('a timer', () => {
  it('fires once, at its time, as an ordinary turn', async () => {
    const { bench, ann, say, diary, now } = await started()
    await say('after', { ms: 20_000, note: 'ding', id: 'turn' })
    await bench.advance(19_995)
    expect(diary()).toEqual(['set turn'])
    await bench.advance(5)
    expect(diary()).toEqual(['set turn', `ding at ${now + 20_000}`])
    expect(ann.heard.at(-1)).toBe('rang "ding"')
    await bench.advance(60_000, 1000)
    expect([diary().length, ann.faults]).toEqual([2, []])
  })

  it('with a due time of now or in the past fires in the next millisecond', async () => {
    const { bench, say, diary, now } = await started()
    await say('after', { ms: 0, note: 'now' })
    await say('after', { ms: -5000, note: 'past' })
    await bench.advance(1, 1)
    expect(diary()).toEqual(['set tmr_', 'set tmr_', `now at ${now + 1}`, `past at ${now + 1}`])
  })

  it('fires when it is due in 60 days (more than setTimeout can hold)', async () => {
    const { bench, say, diary } = await started({ limits: { recordTtlMs: 900 * DAY_MS } })
    await say('after', { ms: 60 * DAY_MS, note: 'spring' })
    await bench.advance(60 * DAY_MS - 1000, DAY_MS / 2)
    expect(diary().length).toBe(1)
    await bench.advance(1000)
    expect(diary().length).toBe(2)
  })

  it('is replaced by another one with its id, and does not fire after a cancel', async () => {
    const { bench, say, diary, now } = await started()
    await say('after', { ms: 20, note: 'first', id: 'a' })
    await say('after', { ms: 30, note: 'second', id: 'a' })
    await say('after', { ms: 30, note: 'never', id: 'b' })
    await say('cancel', 'b')
    await say('cancel', 'b')
    await bench.advance(100)
    expect(diary().slice(3)).toEqual(['cancelled true', 'cancelled false', `second at ${now + 30}`])
  })

  it('can be set, replaced and cancelled within one turn', async () => {
    const { bench, say, diary, now } = await started()
    await say('after', { ms: 20, note: 'first', id: 'a' })
    await say('swap', null)
    await bench.advance(100)
    expect(diary().slice(1)).toEqual(['true false', 'true', `third at ${now + 60}`])
  })

  it('is neither set nor cancelled by a turn that fails', async () => {
    const { bench, say, diary, now } = await started()
    await say('after', { ms: 20, note: 'stays', id: 'a' })
    await say('setAndThrow', null)
    await bench.advance(100)
    expect(diary().slice(1)).toEqual([`stays at ${now + 20}`])
  })

  it('whose handler throws has fired: its changes are undone, the error is counted, and it does not fire again', async () => {
    const { bench, ann, say, diary } = await started()
    await say('after', { ms: 20, note: 'x', timer: 'breaks', id: 'a' })
    await bench.advance(1000)
    expect([diary(), ann.heard.filter((line) => line.startsWith('rang'))]).toEqual([['set a'], []])
    expect([bench.counts.fired, bench.counts['error room_logic_failed']]).toEqual([1, 1])
    await say('cancel', 'a')
    expect(diary().at(-1)).toBe('cancelled false')
  })

  it('that always sets itself again lets messages in between its turns', async () => {
    const { bench, say, diary } = await started()
    await say('after', { ms: 10, note: 'again' })
    await bench.advance(3010, 10)
    expect(diary().length).toBe(5)
  })

  it.each([
    ['a delay that is no number', { ms: 'soon', note: 'x' }, 'got "soon" as its delay'],
    ['a delay without an end', { ms: null, note: 'x' }, 'got null as its delay'],
    ['a delay beyond all clocks', { ms: 1e300, note: 'x' }, 'got 1e+300 as its delay'],
    [
      'an unknown name',
      { ms: 1, note: 'x', timer: 'sings' },
      '"sings", which is not among the room\'s timers: there are rings, breaks',
    ],
    ['data of another shape', { ms: 1, note: 3 }, 'the data of the timer "rings": note'],
    ['data that is too large', { ms: 1, note: 'x'.repeat(5000) }, 'has 5011 bytes of JSON; limit: 4096'],
    ['an id that is no text', { ms: 1, note: 'x', id: 7 }, 'got the id 7'],
    ['an id that is too long', { ms: 1, note: 'x', id: 'x'.repeat(97) }, 'a text of 1 to 96 bytes'],
  ])('with %s throws an error that names the valid form', async (_, data, text) => {
    const { ann, say } = await started({ revealFailures: true })
    await say('after', data)
    expect(ann.errors.at(-1)).toMatchObject({
      code: 'room_logic_failed',
      message: expect.stringContaining(text),
    })
  })

  it('counts toward the limit of its room, however it is set', async () => {
    const { bench, ann, say, diary } = await started({ revealFailures: true })
    await say('many', 10_000)
    expect(ann.errors.at(-1)?.message).toContain('limit reached: 1000 timers per room')
    await say('many', 999)
    await say('after', { ms: 1000, note: 'last', id: 'last' })
    await say('after', { ms: 1000, note: 'replaced', id: 'last' })
    await say('after', { ms: 1000, note: 'over' })
    expect(ann.errors.length).toBe(2)
    expect(bench.counts['limit timers']).toBe(2)
    await bench.advance(1000, 100)
    expect(bench.counts.fired).toBe(1000)
    expect(diary().at(-1)).toContain('replaced')
  })
})

describe('the timers of a room', () => {
  /** A room whose timers take 4 ms each, and whose member `ann` has set `count` of them for 1 s later. */
  async function withBells(
    count: number,
    ring: (n: number, ctx: { after(ms: number, timer: 'rings', data: number): string }) => void,
  ) {
    const said: number[] = []
    const room = defineRoom({
      type: 'bells',
      create: () => ({}),
      messages: {
        set: {
          data: v.number(),
          handle(_state, { data }, ctx) {
            for (let n = 1; n <= data; n++) ctx.after(1000, 'rings', n)
          },
        },
        say: { data: v.number(), handle: (_state, { data }) => void said.push(bench.clock.now() - data) },
      },
      timers: {
        rings: {
          data: v.number(),
          handle(_state, { data }, ctx) {
            bench.clock.pause(4)
            ring(data, ctx)
          },
        },
      },
    })
    const bench: RoomBench = new RoomBench([room])
    await bench.join('bells', 'ann', { key: 'one' })
    await bench.join('bells', 'bob', { key: 'two' })
    await bench.say('bells', 'ann', 'set', count, undefined, 'one')
    const say = (member: string, key: string) =>
      bench.message('bells', member, 'say', bench.clock.now(), undefined, key)
    return { bench, say, said }
  }

  it('fire in order if they are due together, and share the turns of the event loop with messages', async () => {
    const rung: number[] = []
    const { bench, say, said } = await withBells(20, (n) => void rung.push(n))
    bench.clock.schedule(1005, () => {
      say('ann', 'one')
      say('bob', 'two')
    })
    await bench.advance(1100, 5)
    expect(rung).toEqual(Array.from({ length: 20 }, (_, i) => i + 1))
    expect(said).toHaveLength(2)
    expect(Math.max(...said)).toBeLessThan(30)
  })

  it('delay a message by no more than their share of the event loop, also if each of them is set again', async () => {
    let rung = 0
    const { bench, say, said } = await withBells(30, (n, ctx) => {
      if (++rung > 2000) return
      ctx.after(1, 'rings', n)
      if (rung % 50 === 0) bench.clock.schedule(0, () => say('ann', 'one'))
    })
    await bench.advance(2000, 1000)
    expect([rung, said.length]).toEqual([2030, 40])
    expect(Math.max(...said)).toBeLessThan(30)
  })

  it('fire at the next owner if the last update before a crash has set them, whatever else its flush contained', async () => {
    const { bench, ann, say } = await started({}, clockwork('journal', { sync: 20 }))
    await say('after', { ms: 5000, note: 'x', id: 'a' })
    await bench.advance(100)
    bench.mayAct = false
    const next = bench.successor([ann])
    await next.resume('clockwork', ann)
    await next.advance(6000)
    expect(next.counts.fired).toBe(1)
  })

  it('fire late if no node could act at their time, such as during an outage of the store', async () => {
    const { bench, say, diary, now } = await started()
    await say('after', { ms: 1000, note: 'late' })
    bench.store.mood = 'deaf'
    bench.message('clockwork', 'ann', 'cancel', 'nothing', 2)
    await bench.advance(5000)
    bench.store.mood = 'fine'
    await bench.advance(2000)
    const [fired] = diary().filter((line) => line.startsWith('late'))
    expect(Number(fired?.split(' ').at(-1))).toBeGreaterThanOrEqual(now + 5000)
    expect(bench.counts.fired).toBe(1)
  })

  it('keep an empty room alive until they have fired', async () => {
    const { bench, say } = await started()
    await say('after', { ms: 30_000, note: 'last words' })
    bench.leave('clockwork', 'ann')
    await bench.advance(29_000, 100)
    expect(bench.host.rooms.size).toBe(1)
    await bench.advance(10_500, 100)
    expect(bench.host.rooms.size).toBe(1)
    await bench.advance(1000, 100)
    expect(bench.host.rooms.size).toBe(0)
  })

  it('end with a room that closes itself', async () => {
    const { bench, say } = await started()
    await say('after', { ms: 1000, note: 'never' })
    await say('end', null)
    await bench.advance(2000, 100)
    expect([bench.host.rooms.size, bench.counts.fired ?? 0]).toEqual([0, 0])
  })
})

describe('tasks', () => {
  /** Asks questions. The test gives the answers. */
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

  async function started(options?: BenchOptions, durability?: Durability, sync?: number) {
    const { asked, definition } = quiz(durability, sync)
    const made = await roomWith(definition, ['ann'], options)
    return { ...made, asked, got: () => (made.ann.state as { got: unknown[] }).got }
  }

  describe('a task', () => {
    it('throws in onDispose, because its outcome could not arrive', async () => {
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
      await bench.untilIdle()
      expect(thrown).toEqual([
        expect.stringContaining('was called in onDispose: the room ends with this turn'),
      ])
    })

    it('ends in a new turn, with its result or its error', async () => {
      const { bench, ann, asked, say, got } = await started()
      for (let i = 0; i < 3; i++) await say('ask')
      asked[0]!.answer({ text: 'why?' })
      await bench.untilIdle()
      asked[1]!.fail(new Error('the database is away'))
      await bench.untilIdle()
      asked[2]!.answer({ text: 3 })
      await bench.untilIdle()
      await say('askBadly')
      expect(got()).toEqual([
        { ok: true, value: { text: 'why?' } },
        { ok: false, error: 'the database is away' },
        { ok: false, error: expect.stringContaining('text:') },
        { ok: false, error: 'no network' },
      ])
      expect([ann.errors, ann.faults]).toEqual([[], []])
    })

    it('starts after the update of its turn is committed, and not before', async () => {
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

    it('starts in rooms that are not stored, too, with the update of its turn', async () => {
      const { bench, asked, got } = await started({}, 'none', 20)
      bench.message('quiz', 'ann', 'ask', null)
      await bench.untilIdle()
      await bench.advance(60)
      asked[0]!.answer({ text: 'why?' })
      await bench.advance(60)
      expect(got()).toHaveLength(1)
    })

    it('has ended even if its handler throws: the error is counted, and the handler is not called again', async () => {
      const { bench, asked, say, got } = await started({ limits: { tasks: 1 } })
      await say('breakHandler')
      await say('ask')
      asked[0]!.answer({ text: 'why?' })
      await bench.untilIdle()
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
    ])('is refused with an error that names the valid form: %s', async (data, text) => {
      const { ann, say } = await started({ revealFailures: true })
      await say('ask', data)
      expect(ann.errors).toMatchObject([{ code: 'room_logic_failed', message: expect.stringMatching(text) }])
    })
  })

  describe('a task whose owner is gone', () => {
    it.each(['dies', 'hands over'])(
      'has the outcome moved at the next owner, once, and does not start again (%s)',
      async (how) => {
        const { bench, ann, asked, say, got } = await started()
        await say('ask')
        await say('ask')
        asked[0]!.answer({ text: 'why?' })
        await bench.untilIdle()
        const next = bench.successor([ann])
        if (how === 'dies') bench.mayAct = false
        else await bench.host.rooms.running[0]!.handOver('node_b')
        await next.resume('quiz', ann)
        await next.untilIdle()
        // Too late: another node owns the room.
        asked[1]!.answer({ text: 'who?' })
        await bench.untilIdle()
        const outcomes = [
          { ok: true, value: { text: 'why?' } },
          { ok: false, error: 'moved' },
        ]
        expect([got(), asked.length, ann.faults]).toEqual([outcomes, 2, []])
        const third = next.successor([ann], { nodeId: 'node_c' })
        next.mayAct = false
        await third.resume('quiz', ann)
        await third.untilIdle()
        expect(got()).toEqual(outcomes)
      },
    )
  })
})

describe('A task with retry', () => {
  /** Pays orders at a bank. The test gives the answers. */
  function shop(durability: Durability = 'journal') {
    const runs: {
      id: string
      data: unknown
      answer: (value: string) => void
      fail: (error: Error) => void
    }[] = []
    const definition = defineRoom({
      type: 'shop',
      durability,
      sync: { rate: 0 },
      create: () => ({ outcomes: [] as unknown[] }),
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
            new Promise<string>((answer, fail) =>
              runs.push({ id, data: structuredClone(data), answer, fail }),
            ),
          handle(state, outcome) {
            state.outcomes.push(structuredClone(outcome))
          },
        },
        look: { result: v.null(), handle: () => {} },
      },
    })
    return { runs, definition }
  }

  async function opened(options?: BenchOptions, durability?: Durability) {
    const { runs, definition } = shop(durability)
    const made = await roomWith(definition, ['ann'], options)
    return { ...made, runs, outcomes: () => (made.ann.state as { outcomes: unknown[] }).outcomes }
  }

  it('runs after the commit with its data and id, and its handler gets both with the outcome', async () => {
    const { bench, runs, say, outcomes } = await opened()
    bench.store.mood = 'deaf'
    await say('pay', { gold: 5, id: 'order_1' })
    expect(runs).toHaveLength(0)
    bench.store.mood = 'fine'
    await bench.advance(2000)
    await say('pay', { gold: 6 })
    runs[0]!.answer('paid')
    runs[1]!.fail(new Error('no money'))
    await bench.untilIdle()
    expect(runs.map(({ id, data }) => [id, data])).toEqual([
      ['order_1', { gold: 5 }],
      [expect.stringMatching(/^tsk_/), { gold: 6 }],
    ])
    expect(outcomes()).toEqual([
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
    const { bench, ann, runs, say, outcomes } = await opened({}, durability)
    await say('pay', { gold: 5, id: 'order_1' })
    const next = bench.successor([ann])
    if (how === 'dies') bench.mayAct = false
    else await bench.host.rooms.running[0]!.handOver('node_b')
    await next.resume('shop', ann)
    await next.untilIdle()
    expect(runs.map(({ id }) => id)).toEqual(['order_1', 'order_1'])
    runs[0]!.answer('paid too late')
    await bench.untilIdle()
    runs[1]!.answer('paid')
    await next.untilIdle()
    expect(outcomes()).toEqual([{ ok: true, value: 'paid', id: 'order_1', data: { gold: 5 } }])
    // A snapshot room writes the end of the task with its next snapshot.
    await next.advance(1000)
    const third = next.successor([ann], { nodeId: 'node_c' })
    next.mayAct = false
    await third.resume('shop', ann)
    await third.untilIdle()
    expect(runs).toHaveLength(2)
  })

  it('keeps its empty room running, and a wakeup in the store, until it ends', async () => {
    const { bench, runs, say } = await opened()
    await say('pay', { gold: 5 })
    bench.leave('shop', 'ann')
    await bench.advance(300_000, 1000)
    expect([bench.host.rooms.size, runs.length]).toEqual([1, 1])
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
    expect([bench.host.rooms.size, await due()]).toEqual([0, []])
  })

  it('does not run again if its run did not return under the last owner', async () => {
    const { nodes, hang } = hungTurns()
    const { bench, ann, runs, say, outcomes } = await opened(nodes)
    await say('pay', { gold: 5, id: 'order_1' })
    const { epoch } = (await bench.store.store.rooms.inspect('prj_test/shop:a'))!
    await hang({
      ...turnOf({ name: 'prj_test/shop:a', epoch }, 'task'),
      subject: 'order_1',
      type: 'pay',
    })
    bench.mayAct = false
    const next = bench.successor([ann])
    await next.resume('shop', ann)
    await next.untilIdle()
    expect([runs.length, outcomes()]).toEqual([
      1,
      [
        {
          ok: false,
          error: 'task was not started: it did not return before',
          id: 'order_1',
          data: { gold: 5 },
        },
      ],
    ])
  })

  it.each([
    ['pay', { gold: 'much' }, /the data of the task "pay": gold: /],
    ['pay', { gold: 1, id: '' }, /ctx.task got the id ""; it must be a text of 1 to 96 bytes/],
    ['work', null, /ctx.task got work for the task "pay", which has retry and its own run/],
    ['look', null, /ctx.task got data for the task "look", which has no retry/],
  ])('is refused with an error that names the valid form: %s %j', async (type, data, text) => {
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
    await bench.untilIdle()
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
