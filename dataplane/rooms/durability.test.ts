import { describe, expect, it, vi } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { leaseKey } from '../cluster/lease.ts'
import { JournalFormat } from './journal.ts'

describe('a journal room', () => {
  it('delivers nothing, no ack either, before the store has it', async () => {
    const bench = new RoomBench([counting('journal')])
    const ann = await bench.join('counter', 'ann')
    bench.store.mood = 'slow'
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.advance(500)
    expect([ann.state, ann.acked, bench.store.held]).toEqual([{ count: 0 }, 0, 1])
    // Who asks for the state gets what is committed.
    bench.resync('counter', ann, 'sequence')
    expect(ann.state).toEqual({ count: 0 })
    bench.store.let()
    await bench.settle()
    expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 1 }, 1, []])
  })

  it('commits one update at a time: what comes meanwhile is the next, however much it is', async () => {
    const bench = new RoomBench([counting('journal')])
    const ann = await bench.join('counter', 'ann')
    bench.store.mood = 'slow'
    for (let ref = 1; ref <= 10; ref++) {
      bench.message('counter', 'ann', 'inc', null, ref)
      await bench.settle()
    }
    expect(bench.store.held).toBe(1)
    bench.store.let()
    await bench.settle()
    expect([ann.state, ann.acked, bench.store.held]).toEqual([{ count: 1 }, 1, 1])
    bench.store.let()
    await bench.settle()
    expect([ann.state, ann.acked, ann.heard.slice(1).length, bench.store.held]).toEqual([
      { count: 10 },
      10,
      9,
      0,
    ])
    expect(ann.heard.slice(0, 3)).toEqual(['counted 1', 'counted 2', 'counted 3'])
  })

  it('keeps its journal short', async () => {
    const bench = new RoomBench([counting('journal')], { limits: { journalEntries: 4 } })
    await bench.join('counter', 'ann')
    for (let i = 0; i < 11; i++) {
      bench.message('counter', 'ann', 'inc', null)
      await bench.settle()
    }
    const { rooms } = bench.store.store
    const found = await rooms.inspect('prj_test/counter:a')
    const claim = await rooms.claim('prj_test/counter:a', 'node_b', found!.epoch, 1000)
    expect(found!.version).toBe(12)
    expect(claim!.journal.length).toBeLessThanOrEqual(4)
  })

  it('that another node has claimed stops at once, and says nothing', async () => {
    const bench = new RoomBench([counting('journal')])
    const ann = await bench.join('counter', 'ann')
    const { rooms, records } = bench.store.store
    await records.write([{ put: leaseKey('node_b'), value: new Uint8Array(0) }])
    const { epoch } = (await rooms.inspect('prj_test/counter:a'))!
    await rooms.claim('prj_test/counter:a', 'node_b', epoch, 60_000)
    const sent = bench.sent.length
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.settle()
    const told = bench.sent.slice(sent).map(({ kind }) => kind)
    expect([told, bench.host.size, bench.counts.fenced, ann.state]).toEqual([
      // Which only the edge hears.
      ['redirect'],
      0,
      1,
      { count: 0 },
    ])
    // What comes later is for the other node.
    bench.message('counter', 'ann', 'inc', null, 2)
    await bench.join('counter', 'bob')
    expect(bench.redirected.map(({ message }) => message)).toMatchObject([
      { kind: 'message', ref: 2 },
      { kind: 'join', member_id: 'bob' },
    ])
  })
})

describe('a snapshot room', () => {
  it('delivers at once, and is saved at most a second after a change', async () => {
    const bench = new RoomBench([counting('snapshot')])
    const ann = await bench.join('counter', 'ann')
    await bench.advance(1000, 50)
    const saved = bench.store.writes
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.settle()
    expect([ann.state, ann.acked, bench.store.writes]).toEqual([{ count: 1 }, 1, saved])
    await bench.advance(1000, 50)
    expect(bench.store.writes).toBe(saved + 1)
    await bench.advance(10_000, 50)
    expect(bench.store.writes).toBe(saved + 1)
  })

  it('is saved after its next change when it could not be encoded once', async () => {
    const bench = new RoomBench([counting('snapshot')])
    await bench.join('counter', 'ann')
    await bench.advance(1000, 50)
    const saved = bench.store.writes
    vi.spyOn(JournalFormat.prototype, 'snapshot').mockImplementationOnce(() => {
      throw new RangeError('Array buffer allocation failed')
    })
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.advance(2000, 50)
    expect(bench.store.writes).toBe(saved)
    bench.message('counter', 'ann', 'inc', null, 2)
    await bench.advance(2000, 50)
    expect(bench.store.writes).toBe(saved + 1)
  })

  it('is saved without its history: a save is as large as the room, however much has happened', async () => {
    const bench = new RoomBench([counting('snapshot')])
    const saves = vi.spyOn(bench.store.store.rooms, 'snapshot')
    const savedBytes = () => saves.mock.lastCall![2].length
    await bench.join('counter', 'ann')
    await bench.advance(1000, 50)
    const first = savedBytes()
    for (let i = 0; i < 50; i++) {
      bench.message('counter', 'ann', 'inc', null)
      await bench.settle()
    }
    await bench.advance(1000, 50)
    expect(saves.mock.calls.length).toBeGreaterThan(1)
    expect(savedBytes()).toBeLessThan(first + 16)
  })

  it('goes on elsewhere from its last save; who saw more is resynced', async () => {
    const clock = new FakeClock()
    const store = memoryStore({ clock })
    const bench = new RoomBench([counting('snapshot')], { clock, store })
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.advance(1000, 50)
    bench.message('counter', 'ann', 'inc', null, 2)
    await bench.settle()
    expect(ann.state).toEqual({ count: 2 })
    const heir = new RoomBench([counting('snapshot')], { clock, store, nodeId: 'node_b' })
    heir.members.set('ann', ann)
    heir.attach('counter', ann)
    await heir.settle()
    expect([ann.state, ann.resyncs, ann.acked]).toEqual([{ count: 1 }, 1, 1])
    heir.message('counter', 'ann', 'inc', null, 2)
    await heir.settle()
    expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
  })
})

describe('a member who saw what was lost', () => {
  it('is resynced although the new owner has come to the same seq by another way', async () => {
    const clock = new FakeClock()
    const store = memoryStore({ clock })
    const bench = new RoomBench([counting('snapshot')], { clock, store })
    const ann = await bench.join('counter', 'ann')
    const bob = await bench.join('counter', 'bob')
    await bench.advance(1000, 50)
    bench.detach('counter', bob)
    bench.message('counter', 'ann', 'inc', null)
    await bench.settle()
    const heir = new RoomBench([counting('snapshot')], { clock, store, nodeId: 'node_b' })
    for (const member of [ann, bob]) heir.members.set(member.memberId, member)
    ann.attached = false
    heir.attach('counter', bob)
    for (let i = 0; i < 3; i++) {
      heir.message('counter', 'bob', 'inc', null)
      await heir.settle()
    }
    expect(bob.resyncs).toBe(0)
    heir.attach('counter', ann)
    await heir.settle()
    expect([ann.resyncs, ann.state, ann.faults]).toEqual([1, { count: 3 }, []])
  })
})

describe('a room that is not stored', () => {
  it('writes nothing for its updates', async () => {
    const bench = new RoomBench([counting('none')])
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.advance(5000, 50)
    expect([ann.state, ann.acked, bench.store.writes]).toEqual([{ count: 1 }, 1, 0])
  })

  it('keeps its record alive all the same', async () => {
    const bench = new RoomBench([counting('none')])
    await bench.join('counter', 'ann')
    await bench.advance(3_600_000, 10_000)
    expect(await bench.store.store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: 'node_a' })
    expect(bench.host.size).toBe(1)
  })
})
