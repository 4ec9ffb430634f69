import { describe, expect, it, vi } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { StoreRefused, StoreRejected } from '../../shared/store/port.ts'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { type RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'

const ROOM = 'prj_test/counter:a'

/** The store loses everything these nodes have told it; what stands in its place. */
function wipe(...benches: RoomBench[]) {
  const empty = memoryStore({ clock: benches[0]!.clock })
  for (const bench of benches) bench.store.follow(() => empty.rooms)
  return empty
}

describe('a store that does not answer', () => {
  for (const mood of ['silent', 'deaf'] as const)
    it(`freezes a room, which goes on by itself without losing or repeating anything (${mood})`, async () => {
      const { bench, ann } = await roomWith(counting('journal'), ['ann'], { limits: { waitingMessages: 3 } })
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
      expect((await bench.store.store.rooms.inspect(ROOM))?.version).toBe(3)
      expect(bench.sentOf('resend')).toHaveLength(1)
      bench.attach('counter', ann)
      for (const ref of [5, 6]) await bench.say('counter', 'ann', 'inc', null, ref)
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 6 }, 6, []])
    })

  it.each([11, 150])(
    'for %d minutes, in which the record runs out, is told the room from memory',
    async (minutes) => {
      const { bench, ann } = await roomWith(counting('journal'), ['ann'])
      await bench.say('counter', 'ann', 'inc', null, 1)
      bench.store.mood = 'deaf'
      bench.message('counter', 'ann', 'inc', null, 2)
      await bench.advance(minutes * 60_000, 10_000)
      bench.store.mood = 'fine'
      await bench.advance(2000, 100)
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
      expect(bench.counts.fenced).toBeUndefined()
      expect(await bench.store.store.rooms.inspect(ROOM)).toMatchObject({ owner: 'node_a' })
    },
  )
})

describe('a store that comes back empty', () => {
  it('is told nothing of a room that is not stored but whose it is', async () => {
    const { bench, ann } = await roomWith(counting('none'), ['ann'])
    await bench.say('counter', 'ann', 'inc', null, 1)
    wipe(bench)
    bench.host.recheck()
    await bench.settle()
    await bench.say('counter', 'ann', 'inc', null, 2)
    expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
    expect(await bench.claimed('counter')).toMatchObject({ snapshot: new Uint8Array(0), journal: [] })
  })

  it('while an update waits to be committed, has that update once', async () => {
    const { bench, ann } = await roomWith(counting('journal'), ['ann'])
    bench.store.mood = 'slow'
    await bench.advance(200_000, 10_000)
    // Its record is being refreshed.
    expect(bench.store.held).toBe(1)
    await bench.say('counter', 'ann', 'inc', null, 1)
    const empty = wipe(bench)
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.settle()
    expect([ann.state, ann.acked]).toEqual([{ count: 1 }, 1])
    const heir = bench.successor([ann], { store: empty })
    heir.attach('counter', ann)
    await heir.say('counter', 'ann', 'inc', null, 2)
    expect([ann.state, ann.acked]).toEqual([{ count: 2 }, 2])
  })
})

describe('a node whose lease has run out', () => {
  it('answers an attach that was asked again and again once', async () => {
    const { bench, ann } = await roomWith(counting('journal'), ['ann'])
    bench.mayAct = false
    for (let asked = 0; asked < 50; asked++) bench.attach('counter', ann)
    bench.mayAct = true
    bench.host.recheck()
    await bench.settle()
    expect(bench.sentOf('attached')).toHaveLength(1)
  })

  it('loses what others have claimed meanwhile, without a word', async () => {
    const { bench } = await roomWith(counting('none'), ['ann'])
    bench.mayAct = false
    await bench.claimed('counter')
    bench.message('counter', 'ann', 'inc', null, 1)
    const sent = bench.sent.length
    bench.mayAct = true
    bench.host.recheck()
    await bench.settle()
    expect([bench.host.size, bench.counts.fenced]).toEqual([0, 1])
    expect(bench.sent.slice(sent).filter(({ kind }) => kind === 'update')).toEqual([])
  })
})

describe('a store that came back empty, of two that take themselves for the owner', () => {
  /** One was replaced by the other while it was cut off, and does not know. */
  const twoOwners = async () => {
    const { bench: old, ann } = await roomWith(counting('journal'), ['ann'], { nodeId: 'node_x' })
    old.clock.advance(1000)
    const heir = old.successor([ann], { nodeId: 'node_y' })
    await heir.resume('counter', ann)
    await heir.say('counter', 'ann', 'inc', null, 1)
    expect(ann.acked).toBe(1)
    old.clock.advance(1000)
    return { clock: old.clock, old, heir, ann }
  }

  for (const first of ['old', 'heir'] as const)
    it(`is told the room by the last, also when ${first === 'old' ? 'the earlier one' : 'that one'} finds out first`, async () => {
      const { clock, old, heir, ann } = await twoOwners()
      const order = first === 'old' ? [old, heir] : [heir, old]
      wipe(...order)
      for (const bench of order) bench.nodes.rewritesAllowedAt = clock.monotonic() + 500
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
      await heir.say('counter', 'ann', 'inc', null, 2)
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
    })

  /** The last owner is away; the earlier one has told the store the room, and come to the seq that ann has seen under the last. */
  const toldByTheEarlier = async () => {
    const { clock, old, ann } = await twoOwners()
    const store = wipe(old)
    clock.advance(1000)
    await old.say('counter', 'ann', 'inc', null)
    expect(old.describe('counter')?.seq).toBe(ann.seq)
    return { old, store, ann }
  }

  it('is told the room by the earlier, and who saw what the last did is given the whole state', async () => {
    const { old, ann } = await toldByTheEarlier()
    old.members.set('ann', ann)
    expect(await old.resume('counter', ann)).toMatchObject({ resumed: false })
  })

  for (const ending of ['hands the room over', 'dies'] as const)
    it(`so it is also when that one ${ending}, and another goes on with the room`, async () => {
      const { old, store, ann } = await toldByTheEarlier()
      await old.say('counter', 'ann', 'inc', null)
      if (ending === 'hands the room over') await old.host.close()
      const next = old.successor([ann], { store, nodeId: 'node_z' })
      expect(await next.resume('counter', ann)).toMatchObject({ resumed: false })
      expect([ann.state, ann.resyncs, ann.faults]).toEqual([{ count: 2 }, 1, []])
    })

  it('is told an update that the earlier could not commit until then under the epoch that it stands under', async () => {
    const { bench: old, ann } = await roomWith(counting('journal'), ['ann'], { nodeId: 'node_x' })
    const heir = old.successor([], { nodeId: 'node_y' })
    old.store.mood = 'deaf'
    const eve = old.askToJoin('counter', 'eve')
    for (const ref of [1, 2]) old.message('counter', 'ann', 'inc', null, ref)
    await old.settle()
    old.clock.advance(1000)
    const bob = await heir.join('counter', 'bob')
    expect([bob.seq, bob.state]).toEqual([ann.seq + 1, { count: 0 }])
    old.clock.advance(1000)
    const store = wipe(old)
    old.store.mood = 'fine'
    await old.advance(1000)
    const { epoch } = (await store.rooms.inspect(ROOM))!
    expect(epoch).toBeGreaterThan(bob.epoch)
    for (const member of [ann, eve])
      expect([member.state, member.seq, member.epoch]).toEqual([{ count: 2 }, bob.seq, epoch])
    expect(ann.acked).toBe(2)
    const next = old.successor([ann], { store, nodeId: 'node_z' })
    expect(await next.resume('counter', ann)).toMatchObject({ resumed: true })
    expect(ann.faults).toEqual([])
  })
})

describe('a store that refuses every write of a room for 0.7 s', () => {
  for (const durability of ['journal', 'snapshot'] as const)
    it(`freezes a ${durability} room: it keeps its memory, and is written when the store takes it`, async () => {
      const { bench, ann } = await roomWith(counting(durability), ['ann'])
      await bench.advance(1000, 50)
      await bench.say('counter', 'ann', 'inc', null, 1)
      bench.store.mood = 'refusing'
      if (durability === 'snapshot') await bench.advance(1000, 50)
      bench.message('counter', 'ann', 'inc', null, 2)
      await bench.advance(700, 50)
      expect([bench.host.size, ann.acked]).toEqual([1, 1])
      bench.store.mood = 'fine'
      await bench.advance(2000, 50)
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
      expect(bench.counts.fenced).toBeUndefined()
      const heir = bench.successor([ann])
      await heir.resume('counter', ann)
      await heir.say('counter', 'ann', 'inc', null, 3)
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 3 }, 3, []])
    })
})

describe('a store that has run half of a commit', () => {
  it('has the update once: the whole room takes the place of the journal', async () => {
    const { bench, ann } = await roomWith(counting('journal'), ['ann'])
    await bench.say('counter', 'ann', 'inc', null, 1)
    const { rooms } = bench.store.store
    const commit = vi.spyOn(rooms, 'commit').mockRejectedValueOnce(new StoreRefused('NOPERM hincrby'))
    await bench.say('counter', 'ann', 'inc', null, 2)
    await bench.advance(1000, 50)
    expect([commit.mock.calls.length, ann.state, ann.acked]).toEqual([1, { count: 2 }, 2])
    expect((await bench.claimed('counter')).journal).toEqual([])
  })
})

describe('a store that can never take the record of a room', () => {
  it('ends it here instead of freezing it for good', async () => {
    const { bench } = await roomWith(counting('journal'), ['ann'])
    vi.spyOn(bench.store.store.rooms, 'commit').mockRejectedValue(new StoreRejected('WRONGTYPE'))
    await bench.say('counter', 'ann', 'inc', null, 1)
    expect(bench.host.size).toBe(0)
    expect(bench.sentOf('redirect')).toMatchObject([{ owner: null }])
    expect(bench.sentOf('update').flatMap(({ personal }) => personal)).toEqual([])
  })
})
