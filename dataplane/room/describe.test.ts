import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { counter } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

/** Events as operators read them. */
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
  ] as const)('are read from the history for resumes: %s, %s', async (durability, codec) => {
    const bench = new RoomBench([counter({ durability })])
    await bench.join('counter', 'ann', { codec })
    await bench.join('counter', 'bob', { codec, sub: 'bobby' })
    bench.message('counter', 'ann', 'whisper', { to: 'bob' })
    await bench.say('counter', 'ann', 'inc', { by: 1 })
    bench.leave('counter', 'bob')
    await bench.untilIdle()
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

  it('have their time and their seq', async () => {
    const { bench } = await roomWith(counter(), ['ann'])
    await bench.advance(90_000)
    const at = new Date(bench.clock.now()).toISOString()
    await bench.say('counter', 'ann', 'whisper', { to: 'ann' })
    const room = bench.describe('counter')!
    expect(room.events![0]).toMatchObject({ name: 'psst', at, epoch: room.epoch, seq: room.seq })
  })

  it('are kept by the next owner, without the times of another clock', async () => {
    const { bench: one } = await roomWith(counter(), ['ann'])
    const before = one.describe('counter')!.events!
    const heir = one.successor()
    await heir.join('counter', 'bob')
    const after = heir.describe('counter')!.events!
    expect(after.slice(-before.length)).toEqual(before.map((event) => ({ ...event, at: null })))
    expect(after[0]).toMatchObject({ kind: 'joined', name: 'bob' })
  })

  it('are limited in number and size', async () => {
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
  /** Keys of the rooms, their number, and the number of all rooms. */
  const ask = ({ host }: RoomBench, query: object) => {
    const { items, found, total } = host.describe({ include_state: false, ...query })
    const rooms = [...items]
    return { rooms, answer: [rooms.map(({ key }) => key), found, total] }
  }

  it('finds rooms by their names and by their members, and counts the rooms that it leaves out', async () => {
    const bench = new RoomBench([counter()])
    await bench.join('counter', 'ann', { key: 'north' })
    await bench.join('counter', 'bob', { key: 'south', sub: 'Robert' })
    await bench.join('counter', 'cat', { key: 'south' })
    for (const [query, keys, found = keys.length] of [
      [{}, ['south', 'north']],
      [{ q: 'NORTH' }, ['north']],
      [{ q: 'prj_test/counter:s' }, ['south']],
      [{ q: 'robert' }, ['south']],
      [{ q: 'ses_of_cat' }, ['south']],
      [{ q: 'no one' }, []],
      [{ limit: 1 }, ['south'], 2],
    ] as [object, string[], number?][])
      expect(ask(bench, query).answer, JSON.stringify(query)).toEqual([keys, found, 2])
    const [south] = ask(bench, { room_id: 'counter:south' }).rooms
    expect(south).toMatchObject({
      members: [{ member_id: 'bob' }, { member_id: 'cat' }],
      member_count: 2,
      connected_count: 2,
    })
    expect(bench.host.rooms.members).toBe(3)
  })

  it('puts rooms with the most members first, and rooms with equally many by name', async () => {
    const bench = new RoomBench([counter()])
    for (const [name, key] of Object.entries({ ann: 'b', bob: 'c', cat: 'c', dan: 'a' }))
      await bench.join('counter', name, { key })
    expect(ask(bench, {}).answer[0]).toEqual(['c', 'a', 'b'])
  })

  it('returns the updates per second of each room, also if another operator asks at the same time', async () => {
    const bench = new RoomBench([counter()])
    for (const [name, key] of Object.entries({ ann: 'busy', bob: 'idle' }))
      await bench.join('counter', name, { key })
    const rates = () =>
      Object.fromEntries(ask(bench, {}).rooms.map((room) => [room.key, room.updates_per_second]))
    expect(rates()).toEqual({ busy: null, idle: null })
    for (let n = 0; n < 4; n++) {
      await bench.say('counter', 'ann', 'inc', { by: 1 }, undefined, 'busy')
      bench.clock.advance(500)
    }
    for (let asked = 0; asked < 2; asked++) expect(rates()).toEqual({ busy: 2, idle: 0 })
  })
})
