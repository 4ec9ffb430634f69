import { describe, expect, it, vi } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'

describe('a store that does not answer', () => {
  for (const mood of ['silent', 'deaf'] as const)
    it(`freezes a room, which goes on by itself without losing or repeating anything (${mood})`, async () => {
      const bench = new RoomBench([counting('journal')], { limits: { waitingMessages: 3 } })
      const ann = await bench.join('counter', 'ann')
      bench.store.mood = mood
      bench.message('counter', 'ann', 'inc', null, 1)
      await bench.advance(50)
      // Not applied until it is known what stands; bounded.
      for (let ref = 2; ref <= 6; ref++) bench.message('counter', 'ann', 'inc', null, ref)
      bench.message('counter', 'ann', 'inc', null)
      const bob = await bench.join('counter', 'bob')
      await bench.advance(5000, 50)
      expect([ann.state, ann.acked, bob.inRoom]).toEqual([{ count: 0 }, 0, false])
      // A refusal of what was not settled would leave a hole, which the messages behind it wait for.
      expect(ann.errors).toMatchObject([{ code: 'room_unavailable', ref: undefined }])
      expect(bench.sentOf('resend')).toEqual([])
      bench.store.mood = 'fine'
      await bench.advance(2000, 50)
      expect([ann.state, ann.acked, bob.state, ann.faults]).toEqual([{ count: 4 }, 4, { count: 4 }, []])
      expect(ann.heard).toEqual(['counted 1', 'counted 2', 'counted 3', 'counted 4', '+bob'])
      expect((await bench.store.store.rooms.inspect('prj_test/counter:a'))?.version).toBe(3)
      expect(bench.sentOf('resend')).toHaveLength(1)
      bench.attach('counter', ann)
      for (const ref of [5, 6]) bench.message('counter', 'ann', 'inc', null, ref)
      await bench.settle()
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 6 }, 6, []])
    })

  it('and comes back empty, is told the room from memory, under a higher epoch', async () => {
    const clock = new FakeClock()
    const bench = new RoomBench([counting('journal')], { clock })
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
    const heir = new RoomBench([counting('journal')], { clock, store: empty })
    heir.members.set('ann', ann)
    heir.attach('counter', ann)
    await heir.settle()
    expect([ann.state, ann.faults, ann.resyncs]).toEqual([{ count: 3 }, [], 0])
  })

  for (const minutes of [11, 150])
    it(`for ${minutes} minutes, in which the record runs out, is told the room from memory`, async () => {
      const bench = new RoomBench([counting('journal')])
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

  it('and comes back empty, is told nothing of a room that is not stored but whose it is', async () => {
    const clock = new FakeClock()
    const bench = new RoomBench([counting('none')], { clock })
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
    const bench = new RoomBench([counting('journal')], { clock })
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
    const heir = new RoomBench([counting('journal')], { clock, store: empty })
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
      const bench = new RoomBench([counting(durability)])
      const ann = await bench.join('counter', 'ann')
      bench.message('counter', 'ann', 'inc', null, 1)
      bench.mayAct = false
      const sent = bench.sent.length
      await bench.advance(3000, 50)
      bench.message('counter', 'ann', 'inc', null, 2)
      await bench.advance(3000, 50)
      expect(bench.sent.length).toBe(sent)
      bench.mayAct = true
      bench.host.recheck()
      await bench.settle()
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
    })

  it('answers an attach that was asked again and again once', async () => {
    const bench = new RoomBench([counting('journal')])
    const ann = await bench.join('counter', 'ann')
    bench.mayAct = false
    for (let asked = 0; asked < 50; asked++) bench.attach('counter', ann)
    bench.mayAct = true
    bench.host.recheck()
    await bench.settle()
    expect(bench.sentOf('attached')).toHaveLength(1)
  })

  it('loses what others have claimed meanwhile, without a word', async () => {
    const bench = new RoomBench([counting('none')])
    await bench.join('counter', 'ann')
    const { rooms } = bench.store.store
    bench.mayAct = false
    const { epoch } = (await rooms.inspect('prj_test/counter:a'))!
    await rooms.claim('prj_test/counter:a', 'node_b', epoch, 60_000)
    bench.message('counter', 'ann', 'inc', null, 1)
    const sent = bench.sent.length
    bench.mayAct = true
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
    const old = new RoomBench([counting('journal')], { clock, store, nodeId: 'node_x' })
    const heir = new RoomBench([counting('journal')], { clock, store, nodeId: 'node_y' })
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
      bench.rewritesAllowedAt = clock.monotonic() + 500
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

describe('a store that came back empty, while the last owner was away', () => {
  /** An earlier owner has told it the room, and come to the seq that ann has seen under the last. */
  const toldByAnEarlierOwner = async () => {
    const clock = new FakeClock()
    const store = memoryStore({ clock })
    const bench = (nodeId: string) => new RoomBench([counting('journal')], { clock, store, nodeId })
    const [old, heir] = [bench('node_x'), bench('node_y')]
    const ann = await old.join('counter', 'ann')
    old.members.clear()
    clock.advance(1000)
    heir.members.set('ann', ann)
    heir.attach('counter', ann)
    await heir.settle()
    heir.message('counter', 'ann', 'inc', null, 1)
    await heir.settle()
    const empty = memoryStore({ clock })
    old.store.follow(() => empty.rooms)
    clock.advance(1000)
    // It does not know that it was replaced.
    old.send('counter', 'ann', { kind: 'message', type: 'inc', data: null })
    await old.settle()
    expect(old.describe('counter')?.seq).toBe(ann.seq)
    return { clock, store: empty, old, ann }
  }

  it('is told the room by an earlier one, and who saw what the last did is given the whole state', async () => {
    const { old, ann } = await toldByAnEarlierOwner()
    old.members.set('ann', ann)
    old.attach('counter', ann)
    await old.settle()
    expect(old.sentOf('attached').at(-1)).toMatchObject({ resumed: false })
  })

  it('and an update that an earlier one could not commit until then is told under the epoch that it stands under', async () => {
    const clock = new FakeClock()
    const store = memoryStore({ clock })
    const bench = (nodeId: string) => new RoomBench([counting('journal')], { clock, store, nodeId })
    const [old, heir] = [bench('node_x'), bench('node_y')]
    const ann = await old.join('counter', 'ann')
    old.store.mood = 'deaf'
    const eve = old.askToJoin('counter', 'eve')
    for (const ref of [1, 2]) old.message('counter', 'ann', 'inc', null, ref)
    await old.settle()
    clock.advance(1000)
    const bob = await heir.join('counter', 'bob')
    expect([bob.seq, bob.state]).toEqual([ann.seq + 1, { count: 0 }])
    clock.advance(1000)
    const empty = memoryStore({ clock })
    old.store.follow(() => empty.rooms)
    old.store.mood = 'fine'
    await old.advance(1000)
    const { epoch } = (await empty.rooms.inspect('prj_test/counter:a'))!
    expect(epoch).toBeGreaterThan(bob.epoch)
    for (const member of [ann, eve])
      expect([member.state, member.seq, member.epoch]).toEqual([{ count: 2 }, bob.seq, epoch])
    expect(ann.acked).toBe(2)
    const next = new RoomBench([counting('journal')], { clock, store: empty, nodeId: 'node_z' })
    next.members.set('ann', ann)
    next.attach('counter', ann)
    await next.settle()
    expect(next.sentOf('attached').at(-1)).toMatchObject({ resumed: true })
    expect(ann.faults).toEqual([])
  })

  for (const ending of ['hands the room over', 'dies'] as const)
    it(`so it is also when that one ${ending}, and another goes on with the room`, async () => {
      const { clock, store, old, ann } = await toldByAnEarlierOwner()
      old.send('counter', 'ann', { kind: 'message', type: 'inc', data: null })
      await old.settle()
      if (ending === 'hands the room over') await old.host.close()
      const next = new RoomBench([counting('journal')], { clock, store, nodeId: 'node_z' })
      next.members.set('ann', ann)
      next.attach('counter', ann)
      await next.settle()
      expect(next.sentOf('attached').at(-1)).toMatchObject({ resumed: false })
      expect([ann.state, ann.resyncs, ann.faults]).toEqual([{ count: 2 }, 1, []])
    })
})

describe('a store that refuses the record of a room', () => {
  it('ends it here instead of freezing it for good', async () => {
    const bench = new RoomBench([counting('journal')])
    await bench.join('counter', 'ann')
    vi.spyOn(bench.store.store.rooms, 'commit').mockRejectedValue(new Error('WRONGTYPE'))
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.settle()
    expect(bench.host.size).toBe(0)
    expect(bench.sentOf('redirect')).toMatchObject([{ owner: null }])
    expect(bench.sentOf('update').flatMap(({ personal }) => personal)).toEqual([])
  })
})
