import { describe, expect, it, vi } from 'vitest'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { roomWith } from '../../test/support/rooms/room-bench.ts'
import { JournalFormat } from './journal.ts'

describe('a journal room', () => {
  it('delivers nothing, no ack either, before the store has it; what comes meanwhile is one more update, however much it is', async () => {
    const { bench, ann } = await roomWith(counting('journal'), ['ann'])
    bench.store.mood = 'slow'
    for (let ref = 1; ref <= 10; ref++) await bench.say('counter', 'ann', 'inc', null, ref)
    // A member that asks for the state gets what is committed.
    bench.resync('counter', ann, 'sequence')
    expect([ann.state, ann.acked, bench.store.held]).toEqual([{ count: 0 }, 0, 1])
    for (const seen of [1, 10]) {
      bench.store.let()
      await bench.settle()
      expect([ann.state, ann.acked, bench.store.held]).toEqual([{ count: seen }, seen, seen === 1 ? 1 : 0])
    }
    expect([ann.heard.slice(0, 3), ann.heard.length]).toEqual([['counted 1', 'counted 2', 'counted 3'], 10])
    expect(ann.faults).toEqual([])
  })

  it('keeps its journal short', async () => {
    const { bench } = await roomWith(counting('journal'), ['ann'], { limits: { journalEntries: 4 } })
    for (let i = 0; i < 11; i++) await bench.say('counter', 'ann', 'inc', null)
    expect((await bench.store.store.rooms.inspect('prj_test/counter:a'))!.version).toBe(12)
    expect((await bench.claimed('counter')).journal.length).toBeLessThanOrEqual(4)
  })
})

describe('a snapshot room', () => {
  /** One that has been saved once, and how often it was written by then. */
  const saved = async () => {
    const { bench, ann } = await roomWith(counting('snapshot'), ['ann'])
    await bench.advance(1000, 50)
    return { bench, ann, writes: bench.store.writes }
  }

  it('delivers at once, and is saved at most a second after a change', async () => {
    const { bench, ann, writes } = await saved()
    await bench.say('counter', 'ann', 'inc', null, 1)
    expect([ann.state, ann.acked, bench.store.writes]).toEqual([{ count: 1 }, 1, writes])
    for (const ms of [1000, 10_000]) {
      await bench.advance(ms, 50)
      expect(bench.store.writes).toBe(writes + 1)
    }
  })

  it('is saved again at once when a save took so long that a change has waited a second for the next', async () => {
    const { bench, writes } = await saved()
    bench.store.mood = 'slow'
    await bench.say('counter', 'ann', 'inc', null, 1)
    await bench.advance(800, 50)
    await bench.say('counter', 'ann', 'inc', null, 2)
    await bench.advance(1000, 50)
    expect([bench.store.writes, bench.store.held]).toEqual([writes + 1, 1])
    bench.store.let()
    await bench.advance(50)
    expect(bench.store.writes).toBe(writes + 2)
  })

  it('is saved in time however often the node hears that another has the room, and asks the store whose it is', async () => {
    const { bench, writes } = await saved()
    const { rooms } = bench.store.store
    const { inspect } = rooms
    vi.spyOn(rooms, 'inspect').mockImplementation(async (room) => {
      await new Promise<void>((resolve) => bench.clock.schedule(100, resolve))
      return inspect.call(rooms, room)
    })
    await bench.say('counter', 'ann', 'inc', null, 1)
    for (let told = 0; told < 30; told++) bench.host.verify('prj_test/counter:a')
    await bench.advance(1000, 50)
    expect(bench.store.writes).toBe(writes + 1)
  })

  it('is saved after its next change when it could not be encoded once', async () => {
    const { bench, writes } = await saved()
    vi.spyOn(JournalFormat.prototype, 'snapshot').mockImplementationOnce(() => {
      throw new RangeError('Array buffer allocation failed')
    })
    for (const ref of [1, 2]) {
      bench.message('counter', 'ann', 'inc', null, ref)
      await bench.advance(2000, 50)
      expect(bench.store.writes).toBe(writes + ref - 1)
    }
  })

  it('is saved without its history: a save is as large as the room, however much has happened', async () => {
    const { bench } = await roomWith(counting('snapshot'), ['ann'])
    const saves = vi.spyOn(bench.store.store.rooms, 'snapshot')
    await bench.advance(1000, 50)
    for (let i = 0; i < 50; i++) await bench.say('counter', 'ann', 'inc', null)
    await bench.advance(1000, 50)
    const bytes = saves.mock.calls.map(([, , snapshot]) => snapshot.length)
    expect(bytes.length).toBeGreaterThan(1)
    expect(bytes.at(-1)).toBeLessThan(bytes[0]! + 16)
  })

  it('goes on elsewhere from its last save; who saw more is resynced, though the new owner has come to the same seq by another way', async () => {
    const { bench, ann, bob } = await roomWith(counting('snapshot'), ['ann', 'bob'])
    await bench.say('counter', 'ann', 'inc', null, 1)
    await bench.advance(1000, 50)
    bench.detach('counter', bob)
    await bench.say('counter', 'ann', 'inc', null, 2)
    const heir = bench.successor([ann, bob])
    ann.attached = false
    heir.attach('counter', bob)
    for (let i = 0; i < 3; i++) await heir.say('counter', 'bob', 'inc', null)
    expect(bob.resyncs).toBe(0)
    await heir.resume('counter', ann)
    expect([ann.resyncs, ann.state, ann.acked]).toEqual([1, { count: 4 }, 1])
    await heir.say('counter', 'ann', 'inc', null, 2)
    expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 5 }, 2, []])
  })
})

describe('a room that is not stored', () => {
  it('writes nothing for its updates, and keeps its record alive all the same', async () => {
    const { bench, ann } = await roomWith(counting('none'), ['ann'])
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.advance(5000, 50)
    expect([ann.state, ann.acked, bench.store.writes]).toEqual([{ count: 1 }, 1, 0])
    await bench.advance(3_600_000, 10_000)
    expect(await bench.store.store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: 'node_a' })
    expect(bench.host.size).toBe(1)
  })

  it('is handed over as it is, and that does not come back once its new owner is dead', async () => {
    const { bench, ann } = await roomWith(counting('none'), ['ann'])
    await bench.say('counter', 'ann', 'inc', null, 1)
    const heir = bench.successor([ann])
    await bench.host.rooms[0]!.handOver('node_b')
    await heir.resume('counter', ann)
    expect(ann.state).toEqual({ count: 1 })
    const { snapshot, journal } = await heir.claimed('counter', 'node_c')
    expect([snapshot?.length, journal]).toEqual([0, []])
  })
})
