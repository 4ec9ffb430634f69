import { describe, expect, it } from 'vitest'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { type RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'

/** Closes a host whose store is slow; what it does only once the store has answered. */
async function closeSlowly(bench: RoomBench) {
  let closed = false
  const closing = bench.host.close().then(() => {
    closed = true
  })
  await bench.settle()
  expect(closed).toBe(false)
  return async () => {
    while (bench.store.held > 0) {
      bench.store.let()
      await bench.settle()
    }
    await closing
  }
}

describe('handing over', () => {
  it.each(['journal', 'snapshot'] as const)(
    'saves a %s room, and the next owner goes on from there without a resync',
    async (durability) => {
      const { bench, ann } = await roomWith(counting(durability), ['ann'])
      const bob = await bench.join('counter', 'bob', { codec: 'roomful.v1.json' })
      await bench.say('counter', 'ann', 'inc', null, 1)
      bench.detach('counter', bob, true)
      bench.message('counter', 'ann', 'inc', null, 2)
      await bench.host.close()
      expect([bench.host.size, ann.acked]).toEqual([0, 2])
      expect(await bench.store.store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: null })

      const heir = bench.successor([ann, bob])
      for (const member of [ann, bob]) heir.attach('counter', member)
      // What was sent while no one owned the room is sent again.
      heir.message('counter', 'ann', 'inc', null, 2)
      await heir.say('counter', 'ann', 'inc', null, 3)
      expect([ann.state, bob.state, ann.acked]).toEqual([{ count: 3 }, { count: 3 }, 3])
      expect([ann.faults, bob.faults, ann.resyncs, bob.resyncs]).toEqual([[], [], 0, 0])
      expect(bob.heard).toEqual(['counted 1', 'counted 2', 'counted 3'])
    },
  )

  it('stops waiting for a store that does not answer', async () => {
    const { bench } = await roomWith(counting('journal'), ['ann'])
    bench.store.mood = 'deaf'
    bench.message('counter', 'ann', 'inc', null, 1)
    const closed = bench.host.close(2000)
    await bench.advance(4000, 50)
    await closed
    expect(bench.host.size).toBe(0)
  })

  // The last flush of a room that ends is still being committed when its node is told to go. A node that did not wait for it let go of
  // the store first: the record stayed, and the next join found a room that had ended.
  it('waits for a room that is ending to be out of the store', async () => {
    const { bench, ann } = await roomWith(counting('journal'), ['ann'])
    bench.store.mood = 'slow'
    bench.message('counter', 'ann', 'inc', null, 1)
    bench.send('counter', 'ann', { kind: 'leave', reason: 'left', request_id: 2 })
    await bench.advance(31_000, 1000)
    const answer = await closeSlowly(bench)
    await answer()
    expect(ann.inRoom).toBe(false)
    expect(await bench.store.store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: null })
  })

  it('waits for rooms that are being handed over, and takes what waited in them to the next owner', async () => {
    const { bench } = await roomWith(counting('journal'), ['ann'])
    bench.mayAct = false
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.join('counter', 'bob')
    bench.store.mood = 'slow'
    const taken: string[] = []
    void bench.host.rooms[0]!.handOver('node_b').then((isFree) => isFree && taken.push('node_b'))
    const answer = await closeSlowly(bench)
    expect(taken).toEqual([])
    await answer()
    expect(taken).toEqual(['node_b'])
    expect(bench.redirected.map(({ message }) => message)).toMatchObject([
      { kind: 'message', ref: 1 },
      { kind: 'join', member_id: 'bob' },
    ])
  })
})
