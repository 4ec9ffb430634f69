import { Writable } from 'node:stream'
import fc from 'fast-check'
import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { checkChange } from '../../shared/sync/check.ts'
import { diff } from '../../shared/sync/diff.ts'
import { statePair } from '../../test/support/json-arbitrary.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import type { RoomLimits } from './environment.ts'
import { JournalFormat } from './journal.ts'
import { growthOf, sizeOf } from './state.ts'

const shelf = (rate: number) =>
  defineRoom({
    type: 'shelf',
    messages: {
      put: { data: v.object({ at: v.string(), bytes: v.number() }) },
      take: { data: v.string() },
      start: { data: v.number() },
    },
    options: v.object({ bytes: v.optional(v.number(), 0) }),
    tasks: { done: v.null() },
    sync: { rate },
    create: ({ bytes }): { items: Record<string, string>; done: number } => ({
      items: bytes > 0 ? { first: 'x'.repeat(bytes) } : {},
      done: 0,
    }),
    onMessage(state, { type, data }, ctx) {
      if (type === 'put') state.items[data.at] = 'x'.repeat(data.bytes)
      else if (type === 'take') delete state.items[data]
      else if (type === 'done') state.done++
      else
        for (let i = 0; i < data; i++)
          ctx.task(new Promise<null>((done) => endings.push(() => done(null))), 'done')
    },
  })

let endings: (() => void)[] = []

describe('the size of a state', () => {
  it('is carried on from one state to the next as if it were measured again', () => {
    fc.assert(
      fc.property(statePair(), ([before, after]) => {
        const delta = diff(before, after)
        expect(sizeOf(before) + (delta ? growthOf(before, delta) : 0)).toBe(sizeOf(after))
      }),
      { numRuns: 500 },
    )
  })

  it('is never more than is known of what a turn may have brought', () => {
    fc.assert(
      fc.property(statePair(), ([before, after]) => {
        expect(sizeOf(after) - sizeOf(before)).toBeLessThanOrEqual(checkChange(before, after))
      }),
      { numRuns: 500 },
    )
    // Parts that are there once may come twice, by themselves or within others.
    const large = { text: 'x'.repeat(1000), deep: { text: 'y'.repeat(1000) } }
    for (const after of [
      [large, large],
      [{ ...large, a: 1 }, large],
      [large, { ...large, a: 1 }],
      [large, large.deep, large, large.deep, large.text, large.text],
    ])
      expect(sizeOf(after) - sizeOf([large])).toBeLessThanOrEqual(checkChange([large], after))
  })

  it('is about what a snapshot takes', () => {
    const state = Array.from({ length: 1000 }, (_, n) => ({
      id: n,
      name: `item ${n}`,
      at: [n / 7, true, null],
    }))
    const nothing = { epoch: 1, seq: 1, checksum: 1, seats: [], base: { epoch: 1, seq: 1 }, updates: [] }
    const { length } = new JournalFormat().snapshot({ ...nothing, state })
    expect(Math.abs(sizeOf(state) / length - 1)).toBeLessThan(0.25)
  })
})

describe('a state at its limit', () => {
  const limits: Partial<RoomLimits> = { stateBytes: 10_000 }

  for (const rate of [0, 10])
    it(`grows no further: the turn fails, the state is as before, and what makes it smaller goes on (${rate} flushes a second)`, async () => {
      const bench = new RoomBench([shelf(rate)], { limits })
      const ann = await bench.join('shelf', 'ann')
      await bench.advance(1000)
      let ref = 0
      const say = async (type: string, data: object | string) => {
        bench.message('shelf', 'ann', type, data as never, ++ref)
        if (rate === 0) await bench.settle()
      }
      for (let n = 0; n < 6; n++) await say('put', { at: `${n}`, bytes: 900 })
      await bench.advance(1000)
      for (let n = 6; n < 20; n++) await say('put', { at: `${n}`, bytes: 900 })
      await bench.advance(1000)
      const held = Object.keys((ann.state as { items: object }).items)
      expect(held).toHaveLength(11)
      expect(ann.errors.map(({ code }) => code)).toEqual(Array(9).fill('room_logic_failed'))
      expect(bench.counts['limit state']).toBe(9)
      await say('take', '3')
      await say('put', { at: 'last', bytes: 900 })
      await bench.advance(1000)
      expect(Object.keys((ann.state as { items: object }).items)).toEqual([
        ...held.filter((name) => name !== '3'),
        'last',
      ])
      expect([ann.errors.length, ann.faults]).toEqual([9, []])
    })

  // Below half of the limit turns were counted with their flush only: one of them, or many before the flush, came to beyond it.
  for (const rate of [0, 10])
    it(`is not reached from far below it either, by one turn or by many (${rate} flushes a second)`, async () => {
      const bench = new RoomBench([shelf(rate)], { limits })
      const ann = await bench.join('shelf', 'ann')
      await bench.advance(1000)
      let ref = 0
      const put = (at: string, bytes: number) =>
        bench.message('shelf', 'ann', 'put', { at, bytes } as never, ++ref)
      put('huge', 11_000)
      for (let n = 0; n < 20; n++) put(`${n}`, 900)
      await bench.advance(1000)
      expect(Object.keys((ann.state as { items: object }).items)).toHaveLength(11)
      expect(ann.errors.map(({ code }) => code)).toEqual(Array(10).fill('room_logic_failed'))
      // What was written in the place of something else is not counted twice.
      for (let n = 0; n < 40; n++) put('0', 900 - n)
      await bench.advance(1000)
      expect([ann.errors.length, ann.faults]).toEqual([10, []])
    })

  it('is told of in the log once it is near, and again only after it was small', async () => {
    const warned: string[] = []
    const log = pino(
      { level: 'warn' },
      new Writable({
        write(line, _encoding, done) {
          warned.push(JSON.parse(`${line}`).msg)
          done()
        },
      }),
    )
    const bench = new RoomBench([shelf(0)], { limits, log })
    await bench.join('shelf', 'ann')
    const say = async (type: string, data: object | string) => {
      bench.message('shelf', 'ann', type, data as never)
      await bench.settle()
    }
    await say('put', { at: 'a', bytes: 7900 })
    expect(warned).toEqual([])
    for (const at of ['b', 'c']) await say('put', { at, bytes: 500 })
    expect(warned).toEqual(['the state of the room comes near its limit'])
    await say('take', 'a')
    await say('put', { at: 'a', bytes: 8000 })
    expect(warned).toHaveLength(2)
  })

  it('holds for the first state as well', async () => {
    const bench = new RoomBench([shelf(0)], { limits })
    const ann = await bench.join('shelf', 'ann', { options: { bytes: 11_000 } })
    expect(ann.errors).toMatchObject([{ code: 'room_logic_failed' }])
  })
})

describe('tasks of a room', () => {
  it('are so many at once: the turn that starts one more fails, until an outcome has come', async () => {
    endings = []
    const bench = new RoomBench([shelf(0)], { limits: { tasks: 3 } })
    const ann = await bench.join('shelf', 'ann')
    for (const count of [2, 2, 1, 1]) bench.message('shelf', 'ann', 'start', count)
    await bench.settle()
    expect(ann.errors).toMatchObject([{ code: 'room_logic_failed' }, { code: 'room_logic_failed' }])
    expect([endings.length, bench.counts['limit tasks']]).toEqual([6, 2])
    // Those that were refused have started, but no outcome of theirs comes.
    for (const end of endings) end()
    await bench.settle()
    expect(ann.state).toEqual({ items: {}, done: 3 })
    bench.message('shelf', 'ann', 'start', 3)
    await bench.settle()
    expect(ann.errors).toHaveLength(2)
  })
})
