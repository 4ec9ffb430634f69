import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { leaseKey } from '../cluster/lease.ts'
import { type Durability, defineRoom } from './definition.ts'

const counter = (durability: Durability) =>
  defineRoom({
    type: 'counter',
    messages: { inc: { data: v.null() } },
    sync: { rate: 0 },
    durability,
    create: () => ({ count: 0 }),
    on_message(state, _input, ctx) {
      state.count++
      ctx.emit('counted', state.count)
    },
  })

describe('a journal room', () => {
  it('delivers nothing, no ack either, before the store has it', async () => {
    const bench = new RoomBench([counter('journal')])
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
    const bench = new RoomBench([counter('journal')])
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
    const bench = new RoomBench([counter('journal')], { limits: { journal_entries: 4 } })
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
    const bench = new RoomBench([counter('journal')])
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
      ['moved'],
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

describe('a store that does not answer', () => {
  for (const mood of ['silent', 'deaf'] as const)
    it(`freezes a room, which goes on by itself without losing or repeating anything (${mood})`, async () => {
      const bench = new RoomBench([counter('journal')], { limits: { waiting_messages: 3 } })
      const ann = await bench.join('counter', 'ann')
      bench.store.mood = mood
      bench.message('counter', 'ann', 'inc', null, 1)
      await bench.advance(50)
      // Applied by nobody until it is known what stands; bounded.
      for (let ref = 2; ref <= 6; ref++) bench.message('counter', 'ann', 'inc', null, ref)
      bench.message('counter', 'ann', 'inc', null)
      const bob = await bench.join('counter', 'bob')
      await bench.advance(5000, 50)
      expect([ann.state, ann.acked, bob.in_room]).toEqual([{ count: 0 }, 0, false])
      // A refusal of what was not settled would leave a hole, which the messages behind it wait for.
      expect(ann.errors).toMatchObject([{ code: 'room_unavailable', ref: undefined }])
      expect(bench.sentOf('moved')).toEqual([])
      bench.store.mood = 'fine'
      await bench.advance(2000, 50)
      expect([ann.state, ann.acked, bob.state, ann.faults]).toEqual([{ count: 4 }, 4, { count: 4 }, []])
      expect(ann.heard).toEqual(['counted 1', 'counted 2', 'counted 3', 'counted 4', '+bob'])
      expect((await bench.store.store.rooms.inspect('prj_test/counter:a'))?.version).toBe(3)
      expect(bench.sentOf('moved')).toMatchObject([{ owner: 'node_a' }])
      bench.attach('counter', ann)
      for (const ref of [5, 6]) bench.message('counter', 'ann', 'inc', null, ref)
      await bench.settle()
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 6 }, 6, []])
    })

  it('and comes back empty, is told the room from memory, under a higher epoch', async () => {
    const clock = new FakeClock()
    const bench = new RoomBench([counter('journal')], { clock })
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.settle()
    const { epoch } = ann
    clock.advance(10)
    const empty = memoryStore({ clock })
    bench.store.follow(() => empty.rooms)
    bench.message('counter', 'ann', 'inc', null, 2)
    await bench.settle()
    bench.message('counter', 'ann', 'inc', null, 3)
    await bench.settle()
    expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 3 }, 3, []])
    expect(ann.epoch).toBeGreaterThan(epoch)
    const heir = new RoomBench([counter('journal')], { clock, store: empty })
    heir.members.set('ann', ann)
    heir.attach('counter', ann)
    await heir.settle()
    expect([ann.state, ann.faults, ann.resyncs]).toEqual([{ count: 3 }, [], 0])
  })

  for (const minutes of [11, 150])
    it(`for ${minutes} minutes, in which the record runs out, is told the room from memory`, async () => {
      const bench = new RoomBench([counter('journal')])
      const ann = await bench.join('counter', 'ann')
      bench.message('counter', 'ann', 'inc', null, 1)
      await bench.settle()
      bench.store.mood = 'deaf'
      bench.message('counter', 'ann', 'inc', null, 2)
      await bench.advance(minutes * 60_000, 10_000)
      bench.store.mood = 'fine'
      await bench.advance(2000, 100)
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
      expect(bench.counts.fenced).toBeUndefined()
      expect(await bench.store.store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: 'node_a' })
    })

  it('and comes back empty, is told nothing of a room that is kept nowhere but whose it is', async () => {
    const clock = new FakeClock()
    const bench = new RoomBench([counter('none')], { clock })
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.settle()
    const empty = memoryStore({ clock })
    bench.store.follow(() => empty.rooms)
    bench.host.recheck()
    await bench.settle()
    bench.message('counter', 'ann', 'inc', null, 2)
    await bench.settle()
    expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
    const { epoch } = (await empty.rooms.inspect('prj_test/counter:a'))!
    const claim = await empty.rooms.claim('prj_test/counter:a', 'node_b', epoch, 60_000)
    expect([claim!.snapshot, claim!.journal]).toEqual([new Uint8Array(0), []])
  })

  it('and comes back empty while an update waits to be committed, has that update once', async () => {
    const clock = new FakeClock()
    const bench = new RoomBench([counter('journal')], { clock })
    const ann = await bench.join('counter', 'ann')
    bench.store.mood = 'slow'
    await bench.advance(200_000, 10_000)
    // Its record is being refreshed.
    expect(bench.store.held).toBe(1)
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.settle()
    const empty = memoryStore({ clock })
    bench.store.follow(() => empty.rooms)
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.settle()
    expect([ann.state, ann.acked]).toEqual([{ count: 1 }, 1])
    const heir = new RoomBench([counter('journal')], { clock, store: empty })
    heir.members.set('ann', ann)
    heir.attach('counter', ann)
    heir.message('counter', 'ann', 'inc', null, 2)
    await heir.settle()
    expect([ann.state, ann.acked]).toEqual([{ count: 2 }, 2])
  })
})

describe('a node whose lease has run out', () => {
  for (const durability of ['journal', 'snapshot', 'none'] as const)
    it(`freezes its ${durability} rooms: nothing is applied, nothing leaves`, async () => {
      const bench = new RoomBench([counter(durability)])
      const ann = await bench.join('counter', 'ann')
      bench.message('counter', 'ann', 'inc', null, 1)
      bench.may_act = false
      const sent = bench.sent.length
      await bench.advance(3000, 50)
      bench.message('counter', 'ann', 'inc', null, 2)
      await bench.advance(3000, 50)
      expect(bench.sent.length).toBe(sent)
      bench.may_act = true
      bench.host.recheck()
      await bench.settle()
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
    })

  it('answers an attach that was asked again and again once', async () => {
    const bench = new RoomBench([counter('journal')])
    const ann = await bench.join('counter', 'ann')
    bench.may_act = false
    for (let asked = 0; asked < 50; asked++) bench.attach('counter', ann)
    bench.may_act = true
    bench.host.recheck()
    await bench.settle()
    expect(bench.sentOf('attached')).toHaveLength(1)
  })

  it('loses what others have claimed meanwhile, without a word', async () => {
    const bench = new RoomBench([counter('none')])
    await bench.join('counter', 'ann')
    const { rooms } = bench.store.store
    bench.may_act = false
    const { epoch } = (await rooms.inspect('prj_test/counter:a'))!
    await rooms.claim('prj_test/counter:a', 'node_b', epoch, 60_000)
    bench.message('counter', 'ann', 'inc', null, 1)
    const sent = bench.sent.length
    bench.may_act = true
    bench.host.recheck()
    await bench.settle()
    expect([bench.host.size, bench.counts.fenced]).toEqual([0, 1])
    expect(bench.sent.slice(sent).filter(({ kind }) => kind === 'update')).toEqual([])
  })
})

describe('a store that came back empty', () => {
  /** Two that take themselves for the owner: one was replaced by the other while it was cut off, and does not know. */
  const twoOwners = async () => {
    const clock = new FakeClock()
    const store = memoryStore({ clock })
    const old = new RoomBench([counter('journal')], { clock, store, node_id: 'node_x' })
    const heir = new RoomBench([counter('journal')], { clock, store, node_id: 'node_y' })
    const ann = await old.join('counter', 'ann')
    heir.members.set('ann', ann)
    old.members.clear()
    heir.attach('counter', ann)
    await heir.settle()
    heir.message('counter', 'ann', 'inc', null, 1)
    await heir.settle()
    expect(ann.acked).toBe(1)
    clock.advance(1000)
    const empty = memoryStore({ clock })
    for (const bench of [old, heir]) {
      bench.store.follow(() => empty.rooms)
      bench.rewrites_allowed_at = clock.monotonic() + 500
    }
    return { clock, old, heir, ann }
  }

  for (const first of ['old', 'heir'] as const)
    it(`is told the room by its last owner, also when ${first === 'old' ? 'an earlier one' : 'that one'} finds out first`, async () => {
      const { clock, old, heir, ann } = await twoOwners()
      const order = first === 'old' ? [old, heir] : [heir, old]
      for (const bench of order) {
        bench.host.recheck()
        await bench.settle()
        clock.advance(200)
      }
      for (let step = 0; step < 10; step++) {
        clock.advance(100)
        for (const bench of order) await bench.settle()
      }
      expect([old.host.size, heir.host.size]).toEqual([0, 1])
      heir.message('counter', 'ann', 'inc', null, 2)
      await heir.settle()
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
    })
})

describe('a store that refuses the record of a room', () => {
  it('ends it here instead of freezing it for good', async () => {
    const bench = new RoomBench([counter('journal')])
    await bench.join('counter', 'ann')
    vi.spyOn(bench.store.store.rooms, 'commit').mockRejectedValue(new Error('WRONGTYPE'))
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.settle()
    expect(bench.host.size).toBe(0)
    expect(bench.sentOf('moved')).toMatchObject([{ owner: null }])
    expect(bench.sentOf('update').flatMap(({ personal }) => personal)).toEqual([])
  })
})

describe('a snapshot room', () => {
  it('delivers at once, and is saved at most a second after a change', async () => {
    const bench = new RoomBench([counter('snapshot')])
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

  it('is saved without its history: a save is as large as the room, however much has happened', async () => {
    const bench = new RoomBench([counter('snapshot')])
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
    const bench = new RoomBench([counter('snapshot')], { clock, store })
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.advance(1000, 50)
    bench.message('counter', 'ann', 'inc', null, 2)
    await bench.settle()
    expect(ann.state).toEqual({ count: 2 })
    const heir = new RoomBench([counter('snapshot')], { clock, store, node_id: 'node_b' })
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
    const bench = new RoomBench([counter('snapshot')], { clock, store })
    const ann = await bench.join('counter', 'ann')
    const bob = await bench.join('counter', 'bob')
    await bench.advance(1000, 50)
    bench.detach('counter', bob)
    bench.message('counter', 'ann', 'inc', null)
    await bench.settle()
    const heir = new RoomBench([counter('snapshot')], { clock, store, node_id: 'node_b' })
    for (const member of [ann, bob]) heir.members.set(member.member_id, member)
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

describe('a room that is kept nowhere', () => {
  it('writes nothing for its updates', async () => {
    const bench = new RoomBench([counter('none')])
    const ann = await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.advance(5000, 50)
    expect([ann.state, ann.acked, bench.store.writes]).toEqual([{ count: 1 }, 1, 0])
  })

  it('keeps its record alive all the same', async () => {
    const bench = new RoomBench([counter('none')])
    await bench.join('counter', 'ann')
    await bench.advance(3_600_000, 10_000)
    expect(await bench.store.store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: 'node_a' })
    expect(bench.host.size).toBe(1)
  })
})

describe('handing over', () => {
  for (const durability of ['journal', 'snapshot'] as const)
    it(`saves a ${durability} room, and whoever comes next goes on from there without a resync`, async () => {
      const clock = new FakeClock()
      const store = memoryStore({ clock })
      const bench = new RoomBench([counter(durability)], { clock, store })
      const ann = await bench.join('counter', 'ann')
      const bob = await bench.join('counter', 'bob', { codec: 'roomful.v1.json' })
      bench.message('counter', 'ann', 'inc', null, 1)
      await bench.settle()
      bench.detach('counter', bob)
      bench.message('counter', 'ann', 'inc', null, 2)
      await bench.host.close()
      expect(bench.host.size).toBe(0)
      expect(ann.acked).toBe(2)
      expect(await store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: null })

      const heir = new RoomBench([counter(durability)], { clock, store, node_id: 'node_b' })
      for (const member of [ann, bob]) heir.members.set(member.member_id, member)
      // What was sent while nobody owned the room is sent again.
      heir.attach('counter', ann)
      heir.attach('counter', bob)
      heir.message('counter', 'ann', 'inc', null, 2)
      heir.message('counter', 'ann', 'inc', null, 3)
      await heir.settle()
      expect([ann.state, bob.state, ann.acked]).toEqual([{ count: 3 }, { count: 3 }, 3])
      expect([ann.faults, bob.faults, ann.resyncs, bob.resyncs]).toEqual([[], [], 0, 0])
      expect(bob.heard).toEqual(['counted 1', 'counted 2', 'counted 3'])
    })

  it('does not wait for ever for a store that does not answer', async () => {
    const bench = new RoomBench([counter('journal')])
    await bench.join('counter', 'ann')
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
    const bench = new RoomBench([counter('journal')])
    const ann = await bench.join('counter', 'ann')
    bench.store.mood = 'slow'
    bench.message('counter', 'ann', 'inc', null, 1)
    bench.send('counter', 'ann', { kind: 'leave', reason: 'left', ref: 2 })
    await bench.advance(31_000, 1000)
    let closed = false
    const closing = bench.host.close().then(() => {
      closed = true
    })
    await bench.settle()
    expect(closed).toBe(false)
    while (bench.store.held > 0) {
      bench.store.let()
      await bench.settle()
    }
    await closing
    expect([ann.in_room, (await bench.store.store.rooms.inspect('prj_test/counter:a'))?.owner]).toEqual([
      false,
      null,
    ])
  })

  it('waits for rooms that are being handed over, and takes what waited in them to the next owner', async () => {
    const bench = new RoomBench([counter('journal')])
    await bench.join('counter', 'ann')
    bench.may_act = false
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.join('counter', 'bob')
    bench.store.mood = 'slow'
    const taken: string[] = []
    void bench.host.rooms[0]!.handOver({ node_id: 'node_b', take: () => taken.push('node_b') })
    let closed = false
    const closing = bench.host.close().then(() => {
      closed = true
    })
    await bench.settle()
    expect([closed, taken]).toEqual([false, []])
    while (bench.store.held > 0) {
      bench.store.let()
      await bench.settle()
    }
    await closing
    expect(taken).toEqual(['node_b'])
    expect(bench.redirected.map(({ message }) => message)).toMatchObject([
      { kind: 'message', ref: 1 },
      { kind: 'join', member_id: 'bob' },
    ])
  })
})
