import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { type BenchOptions, type RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'

const DAY_MS = 86_400_000
const note = v.object({ note: v.string() })

/** Sets timers as its members say, and writes down when which fired. */
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
  const { bench, ann } = await roomWith(room, ['ann'], options)
  let ref = 0
  return {
    bench,
    ann,
    say: (type: string, data: unknown) => bench.say('clockwork', 'ann', type, data as never, ++ref),
    diary: () => (ann.state as { diary: string[] }).diary,
    now: bench.clock.now(),
  }
}

describe('a timer', () => {
  it('fires once, at its time, as a turn like any other', async () => {
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

  it('fires in the order of due times, and those of one time in the order they were set', async () => {
    const { bench, say, diary } = await started()
    for (const [ms, note] of [
      [30, 'd'],
      [10, 'a'],
      [20, 'b'],
      [20, 'c'],
    ] as const)
      await say('after', { ms, note })
    await bench.advance(40)
    expect(
      diary()
        .slice(4)
        .map((line) => line[0]),
    ).toEqual(['a', 'b', 'c', 'd'])
  })

  it('that is due at once, or was in the past, fires in the next turn', async () => {
    const { say, diary, now } = await started()
    await say('after', { ms: 0, note: 'now' })
    await say('after', { ms: -5000, note: 'past' })
    expect(diary()).toEqual(['set tmr_', `now at ${now}`, 'set tmr_', `past at ${now}`])
  })

  it('waits for months', async () => {
    const { bench, say, diary } = await started({ limits: { recordTtlMs: 900 * DAY_MS } })
    await say('after', { ms: 60 * DAY_MS, note: 'spring' })
    await bench.advance(60 * DAY_MS - 1000, DAY_MS / 2)
    expect(diary().length).toBe(1)
    await bench.advance(1000)
    expect(diary().length).toBe(2)
  })

  it('is replaced by another of its id, and gone once it is cancelled', async () => {
    const { bench, say, diary, now } = await started()
    await say('after', { ms: 20, note: 'first', id: 'a' })
    await say('after', { ms: 30, note: 'second', id: 'a' })
    await say('after', { ms: 30, note: 'never', id: 'b' })
    await say('cancel', 'b')
    await say('cancel', 'b')
    await bench.advance(100)
    expect(diary().slice(3)).toEqual(['cancelled true', 'cancelled false', `second at ${now + 30}`])
  })

  it('is set, replaced and cancelled within one turn as between turns', async () => {
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

  it('whose handler throws has fired: nothing of it has happened, it is counted and not repeated', async () => {
    const { bench, ann, say, diary } = await started()
    await say('after', { ms: 20, note: 'x', timer: 'breaks', id: 'a' })
    await bench.advance(1000)
    expect([diary(), ann.heard.filter((line) => line.startsWith('rang'))]).toEqual([['set a'], []])
    expect([bench.counts.fired, bench.counts['error room_logic_failed']]).toEqual([1, 1])
    await say('cancel', 'a')
    expect(diary().at(-1)).toBe('cancelled false')
  })

  it('leaves room between its turns when it always sets itself again', async () => {
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
    ['data that is too large', { ms: 1, note: 'x'.repeat(5000) }, 'has 5011 bytes of JSON; it may have 4096'],
    ['an id that is no text', { ms: 1, note: 'x', id: 7 }, 'got the id 7'],
    ['an id that is too long', { ms: 1, note: 'x', id: 'x'.repeat(97) }, 'a text of 1 to 96 bytes'],
  ])('with %s is an error that says what would be right', async (_, data, text) => {
    const { ann, say } = await started({ revealFailures: true })
    await say('after', data)
    expect(ann.errors.at(-1)).toMatchObject({
      code: 'room_logic_failed',
      message: expect.stringContaining(text),
    })
  })

  it('is one of at most so many of its room, however they are set', async () => {
    const { bench, ann, say, diary } = await started({ revealFailures: true })
    await say('many', 10_000)
    expect(ann.errors.at(-1)?.message).toContain('the room has 1000 timers, as many as it may have')
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
  it.each(['journal', 'snapshot'] as const)('go on at its next owner (%s), each once', async (durability) => {
    const { bench, ann, say, diary, now } = await started({}, clockwork(durability))
    await say('after', { ms: 20, note: 'before', id: 'a' })
    await say('after', { ms: 5000, note: 'after', id: 'b' })
    await say('after', { ms: 6000, note: 'cancelled', id: 'c' })
    await bench.advance(2000)
    await say('cancel', 'c')
    await bench.advance(durability === 'snapshot' ? 1000 : 0)
    // It has ended without a word.
    bench.mayAct = false
    await bench.die()
    const next = bench.successor([ann])
    await next.resume('clockwork', ann)
    await next.advance(10_000)
    expect(diary().slice(3)).toEqual([`before at ${now + 20}`, 'cancelled true', `after at ${now + 5000}`])
    expect(ann.faults).toEqual([])
  })

  it('go with it when it is handed over, also where it is not stored', async () => {
    const { bench, ann, say, diary, now } = await started({}, clockwork('none'))
    await say('after', { ms: 5000, note: 'there', id: 'b' })
    const next = bench.successor([ann])
    await bench.host.rooms[0]!.handOver('node_b')
    await next.resume('clockwork', ann)
    await next.advance(10_000)
    expect(diary().at(-1)).toBe(`there at ${now + 5000}`)
  })

  it('fire late where none could act at their time, such as while the store was away', async () => {
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

  it('keep it from ending while it is empty, and no longer', async () => {
    const { bench, say } = await started()
    await say('after', { ms: 30_000, note: 'last words' })
    bench.send('clockwork', 'ann', { kind: 'leave', request_id: 50, reason: 'left' })
    await bench.advance(29_000, 100)
    expect(bench.host.size).toBe(1)
    await bench.advance(10_500, 100)
    expect(bench.host.size).toBe(1)
    await bench.advance(1000, 100)
    expect(bench.host.size).toBe(0)
  })

  it('end with it when it closes itself', async () => {
    const { bench, say } = await started()
    await say('after', { ms: 1000, note: 'never' })
    await say('end', null)
    await bench.advance(2000, 100)
    expect([bench.host.size, bench.counts.fired ?? 0]).toEqual([0, 0])
  })
})

it('a timer set by the last update before an owner ended is there, whatever its flush had in it', async () => {
  const { bench, ann, say } = await started({}, clockwork('journal', { sync: 20 }))
  await say('after', { ms: 5000, note: 'x', id: 'a' })
  await bench.advance(100)
  await bench.die()
  bench.mayAct = false
  const next: RoomBench = bench.successor([ann])
  await next.resume('clockwork', ann)
  await next.advance(6000)
  expect(next.counts.fired).toBe(1)
})
