import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import type { RoomLimits } from './environment.ts'
import { JournalFormat } from './journal.ts'
import { LiveTree } from './live-tree.ts'
import { Tables } from './table.ts'

const shelf = (rate: number) =>
  defineRoom({
    type: 'shelf',
    messages: {
      put: { data: v.object({ at: v.string(), bytes: v.number() }) },
      take: { data: v.string() },
      start: { data: v.number() },
    },
    options: v.object({ bytes: v.optional(v.number(), 0) }),
    sync: { rate },
    create: ({ bytes }): { items: Record<string, string>; done: number } => ({
      items: bytes > 0 ? { first: 'x'.repeat(bytes) } : {},
      done: 0,
    }),
    tasks: { done: { result: v.null(), handle: (state) => void state.done++ } },
    onMessage(state, { type, data }, ctx) {
      if (type === 'put') state.items[data.at] = 'x'.repeat(data.bytes)
      else if (type === 'take') delete state.items[data]
      else
        for (let i = 0; i < data; i++)
          ctx.task(() => new Promise<null>((done) => endings.push(() => done(null))), 'done')
    },
  })

let endings: (() => void)[] = []

describe('the size of a state', () => {
  it('is about what a snapshot takes', () => {
    const state = Array.from({ length: 1000 }, (_, n) => ({
      id: n,
      name: `item ${n}`,
      at: [n / 7, true, null],
    }))
    const nothing = {
      epoch: 1,
      seq: 1,
      checksum: 1,
      memberships: [],
      base: { epoch: 1, seq: 1 },
      tables: new Tables(1).flushed,
      layers: undefined,
      updates: [],
      stateVersion: 1,
    }
    const { length } = new JournalFormat().snapshot({ ...nothing, state })
    expect(Math.abs(new LiveTree(state).bytes / length - 1)).toBeLessThan(0.25)
  })
})

describe('a state at its limit', () => {
  const limits: Partial<RoomLimits> = { stateBytes: 10_000 }

  // Below half of the limit turns were counted with their flush only: one of them, or many before the flush, came to beyond it.
  it.each([
    ['at each turn', 0],
    ['ten times a second', 10],
  ])(
    'grows no further, by one turn or by many: the turn fails, the state is as before, and what makes it smaller goes on, flushed %s',
    async (_, rate) => {
      const { bench, ann } = await roomWith(shelf(rate), ['ann'], { limits })
      await bench.advance(1000)
      const held = () => Object.keys((ann.state as { items: object }).items)
      let ref = 0
      const say = async (type: string, data: object | string) => {
        bench.message('shelf', 'ann', type, data as never, ++ref)
        if (rate === 0) await bench.settle()
      }
      await say('put', { at: 'huge', bytes: 11_000 })
      for (let n = 0; n < 20; n++) await say('put', { at: `${n}`, bytes: 900 })
      await bench.advance(1000)
      const full = held()
      expect(full).toHaveLength(11)
      expect(ann.errors.map(({ code }) => code)).toEqual(Array(10).fill('room_logic_failed'))
      expect(bench.counts['limit state']).toBe(10)
      // What was written in the place of something else is not counted twice.
      for (let n = 0; n < 40; n++) await say('put', { at: '0', bytes: 900 - n })
      await say('take', '3')
      await say('put', { at: 'last', bytes: 900 })
      await bench.advance(1000)
      expect(held()).toEqual([...full.filter((name) => name !== '3'), 'last'])
      expect([ann.errors.length, ann.faults]).toEqual([10, []])
    },
  )

  it('is told of in the log once it is near, and again only after it was small', async () => {
    const warned: string[] = []
    const log = pino({ level: 'warn' }, { write: (line: string) => void warned.push(JSON.parse(line).msg) })
    const { bench } = await roomWith(shelf(0), ['ann'], { limits, log })
    const say = async (type: string, data: object | string) => {
      await bench.say('shelf', 'ann', type, data as never)
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
    const { bench, ann } = await roomWith(shelf(0), ['ann'], { limits: { tasks: 3 } })
    for (const count of [2, 2, 1, 1]) bench.message('shelf', 'ann', 'start', count)
    await bench.settle()
    expect(ann.errors).toMatchObject([{ code: 'room_logic_failed' }, { code: 'room_logic_failed' }])
    expect([endings.length, bench.counts['limit tasks']]).toEqual([3, 2])
    for (const end of endings) end()
    await bench.settle()
    expect(ann.state).toEqual({ items: {}, done: 3 })
    await bench.say('shelf', 'ann', 'start', 3)
    expect(ann.errors).toHaveLength(2)
  })
})
