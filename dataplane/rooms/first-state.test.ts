import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
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
      ['a', { size: 3 }, { projectId: 'prj_test' }],
      ['other', {}, { projectId: 'prj_test' }],
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
