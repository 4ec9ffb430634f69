import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { Inbox } from '../inbox.ts'
import { defineRoom, type RoomDefinition } from './definition.ts'

type State = { notes: string[] }

/** A board whose states are in a database: each call of it waits until the test answers, with a state, with nothing or with an error. */
function database() {
  const calls: {
    readonly asked: unknown[]
    readonly answer: (state: unknown) => void
    readonly fail: () => void
  }[] = []
  const board: RoomDefinition = defineRoom({
    type: 'board',
    create: (): State => ({ notes: ['new'] }),
    load: (...asked) =>
      new Promise<State | undefined>((resolve, reject) => {
        calls.push({
          asked,
          answer: (state) => resolve(state as State),
          fail: () => reject(new Error('the secret of the database')),
        })
      }),
  })
  return { board, calls }
}

const REFUSED = { code: 'room_unavailable' }

describe('load', () => {
  it('brings the first state of a room for all who wait for it; without one the room is made', async () => {
    const { board, calls } = database()
    const bench = new RoomBench([board])
    const ann = await bench.join('board', 'ann', { options: { size: 3 } })
    const bob = await bench.join('board', 'bob')
    const cat = await bench.join('board', 'cat', { key: 'other' })
    expect(calls.map(({ asked }) => asked)).toEqual([
      ['a', { size: 3 }, { projectId: 'prj_test', roomType: 'board' }],
      ['other', {}, { projectId: 'prj_test', roomType: 'board' }],
    ])
    calls[1]!.answer(undefined)
    await bench.settle()
    expect([ann.inRoom, cat.state]).toEqual([false, { notes: ['new'] }])
    calls[0]!.answer({ notes: ['kept'] })
    await bench.settle()
    expect([ann.state, bob.state]).toEqual([{ notes: ['kept'] }, { notes: ['kept'] }])
    expect([bench.counts['load loaded'], bench.counts['load none']]).toEqual([1, 1])
  })

  it('that does not end refuses those who wait, who may try again; other rooms do not notice', async () => {
    const { board, calls } = database()
    const bench = new RoomBench([board], { quota: { maxRooms: 2 } })
    const ann = await bench.join('board', 'ann')
    const bob = await bench.join('board', 'bob')
    await bench.join('board', 'cat', { key: 'other' })
    calls[1]!.answer(undefined)
    await bench.advance(10_000, 500)
    for (const { errors } of [ann, bob])
      expect(errors).toMatchObject([{ ...REFUSED, message: expect.stringContaining('could not be loaded') }])
    expect([bench.host.size, bench.counts['load timed_out']]).toEqual([1, 1])

    await bench.join('board', 'bob')
    calls[0]!.answer({ notes: ['too late'] })
    calls[2]!.answer({ notes: ['kept'] })
    await bench.settle()
    expect(bob.state).toEqual({ notes: ['kept'] })
  })

  it.each<[string, (call: ReturnType<typeof database>['calls'][number]) => void]>([
    ['throws', ({ fail }) => fail()],
    ['brings what is not JSON', ({ answer }) => answer({ notes: [Number.NaN] })],
    ['brings a function', ({ answer }) => answer(() => 1)],
    ['brings null', ({ answer }) => answer(null)],
  ])('that %s refuses the join, tells nothing of why, and takes no place in the project', async (_, end) => {
    const { board, calls } = database()
    const bench = new RoomBench([board], { quota: { maxRooms: 1 } })
    const ann = await bench.join('board', 'ann')
    end(calls[0]!)
    await bench.settle()
    expect(ann.errors).toMatchObject([REFUSED])
    expect(JSON.stringify(ann.errors)).not.toContain('secret')
    expect(bench.counts['load failed']).toBe(1)
    await bench.join('board', 'ann', { key: 'other' })
    calls[1]!.answer(undefined)
    await bench.settle()
    expect(ann.inRoom).toBe(true)
  })

  it('leaves the room to others when its node is told to go meanwhile', async () => {
    const { board, calls } = database()
    const bench = new RoomBench([board])
    await bench.join('board', 'ann')
    bench.host.refuseMore()
    calls[0]!.answer({ notes: ['kept'] })
    await bench.settle()
    expect(bench.redirected.map(({ message }) => message)).toMatchObject([{ kind: 'join', member_id: 'ann' }])
    expect(await bench.store.store.rooms.inspect('prj_test/board:a')).toMatchObject({ owner: null })
  })
})

describe('a join that makes no room', () => {
  const NOT_FOUND = [{ code: 'room_not_found' }]
  const plain = (onIdle: 'dispose' | 'sleep' = 'dispose') =>
    defineRoom({
      type: 'board',
      onIdle,
      idleSeconds: 1,
      sync: { rate: 0 },
      create: (): State => ({ notes: ['new'] }),
    })
  const finding = { create: false } as const
  const leave = (bench: RoomBench) => bench.send('board', 'ann', { kind: 'leave', reason: 'left' })

  it('is refused if there is none: nothing is claimed, made or counted', async () => {
    const bench = new RoomBench([plain()], { quota: { maxRooms: 1, perMinute: 1 } })
    const ann = await bench.join('board', 'ann', finding)
    expect(ann.errors).toMatchObject(NOT_FOUND)
    const { rooms } = bench.store.store
    expect([await rooms.inspect('prj_test/board:a'), bench.host.claimed]).toEqual([undefined, 0])
    const bob = await bench.join('board', 'bob', { key: 'other' })
    expect(bob.inRoom).toBe(true)
  })

  it('is refused if the room has ended, and leaves it to no owner', async () => {
    const bench = new RoomBench([plain()])
    await bench.join('board', 'ann')
    leave(bench)
    await bench.advance(2000, 100)
    const bob = await bench.join('board', 'bob', finding)
    expect(bob.errors).toMatchObject(NOT_FOUND)
    expect(await bench.store.store.rooms.inspect('prj_test/board:a')).toMatchObject({ owner: null })
    expect((await bench.join('board', 'cat')).inRoom).toBe(true)
  })

  it('opens a room that sleeps', async () => {
    const bench = new RoomBench([plain('sleep')])
    await bench.join('board', 'ann')
    leave(bench)
    await bench.advance(2000, 100)
    expect(bench.host.size).toBe(0)
    const bob = await bench.join('board', 'bob', finding)
    expect(bob.state).toEqual({ notes: ['new'] })
  })

  it('gets a seat in a room that another join makes, whichever of them came first', async () => {
    const bench = new RoomBench([plain()])
    const inbox = new Inbox(10)
    const seat = { edge: 'node_a', turn: 0, codec: 'roomful.v1.msgpack', sub: null, principal: 'p' } as const
    const room = bench.address('board')
    for (const [member_id, create] of [
      ['ann', finding],
      ['bob', {}],
      ['cat', finding],
    ] as const)
      inbox.add({
        message: {
          kind: 'join',
          room,
          member_id,
          request_id: 1,
          session_id: member_id,
          options: {},
          ...seat,
          ...create,
        },
        from: 'node_a',
      })
    bench.router.redirect(room, inbox, undefined)
    await bench.settle()
    const joined = bench.sentOf('update').flatMap((update) => update.joined.map(({ member_id }) => member_id))
    expect(joined).toEqual(['ann', 'bob', 'cat'])
  })

  it('gets a seat in a room that load brings, and is refused if load brings none, which counts for nothing', async () => {
    const { board, calls } = database()
    const bench = new RoomBench([board], { quota: { maxRooms: 1 } })
    const ann = await bench.join('board', 'ann', finding)
    calls[0]!.answer(undefined)
    await bench.settle()
    expect([ann.errors, bench.host.claimed]).toMatchObject([NOT_FOUND, 0])
    const bob = await bench.join('board', 'bob', { ...finding, key: 'other' })
    calls[1]!.answer({ notes: ['kept'] })
    await bench.settle()
    expect(bob.state).toEqual({ notes: ['kept'] })
  })

  it('leaves the room to a join that comes during load and may make it', async () => {
    const { board, calls } = database()
    const bench = new RoomBench([board])
    const ann = await bench.join('board', 'ann', finding)
    const bob = await bench.join('board', 'bob')
    calls[0]!.answer(undefined)
    await bench.settle()
    expect([ann.errors, calls.length]).toMatchObject([NOT_FOUND, 2])
    calls[1]!.answer(undefined)
    await bench.settle()
    expect([bob.state, bob.errors]).toEqual([{ notes: ['new'] }, []])
  })
})
