import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { counter } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import type { RoomColumn } from '../descriptions.ts'
import { defineRoom } from './definition.ts'

/** What an operator reads of an event. */
const lines = (bench: RoomBench, type = 'counter') =>
  bench
    .describe(type)!
    .events!.map(({ kind, name, data, to }) =>
      [kind, name, JSON.stringify(data), ...(to ? [`to ${to.join()}`] : [])].join(' '),
    )

describe('the last events of a room', () => {
  it.each([
    ['journal', 'roomful.v1.msgpack'],
    ['journal', 'roomful.v1.json'],
    ['none', 'roomful.v1.msgpack'],
    ['none', 'roomful.v1.json'],
  ] as const)('are read back from what resumes are served from: %s, %s', async (durability, codec) => {
    const bench = new RoomBench([counter({ durability })])
    await bench.join('counter', 'ann', { codec })
    await bench.join('counter', 'bob', { codec, sub: 'bobby' })
    bench.message('counter', 'ann', 'whisper', { to: 'bob' })
    await bench.say('counter', 'ann', 'inc', { by: 1 })
    bench.send('counter', 'bob', { kind: 'leave', reason: 'left' })
    await bench.settle()
    expect(lines(bench)).toEqual([
      'left bob {"sub":"bobby","reason":"left"}',
      'event bye 1',
      'event psst null to bob',
      'joined bob {"sub":"bobby"}',
      'event hello "bob"',
      'joined ann {"sub":null}',
      'event hello "ann"',
    ])
  })

  it('say when and under which seq they were', async () => {
    const { bench } = await roomWith(counter(), ['ann'])
    await bench.advance(90_000)
    const at = new Date(bench.clock.now()).toISOString()
    await bench.say('counter', 'ann', 'whisper', { to: 'ann' })
    const room = bench.describe('counter')!
    expect(room.events![0]).toMatchObject({ name: 'psst', at, epoch: room.epoch, seq: room.seq })
  })

  it('come with the room to its next owner, without the times of another clock', async () => {
    const clock = new RoomBench([]).clock
    const one = new RoomBench([counter()], { clock })
    await one.live()
    await one.join('counter', 'ann')
    const before = one.describe('counter')!.events!
    await one.die()
    const { bench: heir } = await roomWith(counter(), ['bob'], {
      clock,
      store: one.store.store,
      nodeId: 'node_b',
    })
    const after = heir.describe('counter')!.events!
    expect(after.slice(-before.length)).toEqual(before.map((event) => ({ ...event, at: null })))
    expect(after[0]).toMatchObject({ kind: 'joined', name: 'bob' })
  })

  it('are few and short, whatever the room tells', async () => {
    const room = defineRoom({
      type: 'loud',
      messages: { shout: { data: v.null() } },
      sync: { rate: 0 },
      create: () => ({ n: 0 }),
      onMessage(state, _, ctx) {
        for (let i = 0; i < 80; i++) ctx.emit('shout', i)
        ctx.emit('long', 'x'.repeat(5000))
        state.n++
      },
    })
    const { bench } = await roomWith(room, ['ann'])
    await bench.say('loud', 'ann', 'shout', null)
    const { events } = bench.describe('loud')!
    expect(events).toHaveLength(50)
    expect(events![0]).toMatchObject({ name: 'long', cut: `"${'x'.repeat(999)}` })
    expect(events![0]).not.toHaveProperty('data')
    expect(events![1]).toMatchObject({ name: 'shout', data: 79 })
  })
})

describe('a query for rooms', () => {
  it('finds rooms by their name and by who is in them, and counts what it leaves out', async () => {
    const bench = new RoomBench([counter()])
    await bench.join('counter', 'ann', { key: 'north' })
    await bench.join('counter', 'bob', { key: 'south', sub: 'Robert' })
    await bench.join('counter', 'cat', { key: 'south' })
    const ask = (query: object) => {
      const answer = bench.host.describe({ include_state: false, include_events: false, ...query })
      return [[...answer.items].map((room) => room.key), answer.found, answer.total]
    }
    expect(ask({})).toEqual([['north', 'south'], 2, 2])
    expect(ask({ q: 'NORTH' })).toEqual([['north'], 1, 2])
    expect(ask({ q: 'prj_test/counter:s' })).toEqual([['south'], 1, 2])
    expect(ask({ q: 'robert' })).toEqual([['south'], 1, 2])
    expect(ask({ q: 'ses_of_cat' })).toEqual([['south'], 1, 2])
    expect(ask({ q: 'no one' })).toEqual([[], 0, 2])
    expect(ask({ limit: 1 })).toEqual([['north'], 2, 2])
    expect(ask({ project_id: 'prj_other' })).toEqual([[], 0, 2])

    const [south] = [
      ...bench.host.describe({
        include_state: false,
        include_events: false,
        room_id: 'counter:south',
        members: 1,
      }).items,
    ]
    expect(south).toMatchObject({ members: [{ member_id: 'bob' }], member_count: 2, connected_count: 2 })
    expect(bench.host.members).toBe(3)
  })

  it('puts them in order by any column, those of equal rank by name', async () => {
    const bench = new RoomBench([counter()])
    await bench.join('counter', 'ann', { key: 'b' })
    await bench.join('counter', 'bob', { key: 'c' })
    await bench.join('counter', 'cat', { key: 'c' })
    await bench.join('counter', 'dan', { key: 'a' })
    const keys = (by: RoomColumn, descending: boolean, limit?: number) =>
      [
        ...bench.host.describe({
          include_state: false,
          include_events: false,
          order: { by, descending },
          ...(limit !== undefined && { limit }),
        }).items,
      ].map(({ key }) => key)
    expect(keys('room', false)).toEqual(['a', 'b', 'c'])
    expect(keys('room', true)).toEqual(['c', 'b', 'a'])
    expect(keys('members', true)).toEqual(['c', 'a', 'b'])
    expect(keys('members', false, 2)).toEqual(['a', 'b'])
    expect(keys('project', false)).toEqual(['a', 'b', 'c'])
  })

  it('tells how many updates each room has a second, also when another asks at the same time', async () => {
    const bench = new RoomBench([counter()])
    await bench.join('counter', 'ann', { key: 'busy' })
    await bench.join('counter', 'bob', { key: 'idle' })
    const rates = () => {
      const order = { by: 'updates', descending: true } as const
      const { items } = bench.host.describe({ include_state: false, include_events: false, order })
      return [...items].map(({ key, updates_per_second: updatesPerSecond }) => [key, updatesPerSecond])
    }
    expect(rates()).toEqual([
      ['busy', null],
      ['idle', null],
    ])
    for (let n = 0; n < 4; n++) {
      await bench.say('counter', 'ann', 'inc', { by: 1 }, undefined, 'busy')
      bench.clock.advance(500)
    }
    const later = [
      ['busy', 2],
      ['idle', 0],
    ]
    expect(rates()).toEqual(later)
    expect(rates()).toEqual(later)
  })
})
