import { pino } from 'pino'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import {
  type Fence,
  type RoomRecords,
  StoreRefused,
  StoreRejected,
  StoreUnavailable,
} from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { type RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import type { RoomCore } from './core.ts'
import { JournalFormat } from './journal.ts'
import { type RecordNeeds, RoomRecord } from './record.ts'

describe('a journal room', () => {
  it('delivers nothing, not even an ack, before the store has it, and puts all changes until then into one more update', async () => {
    const { bench, ann } = await roomWith(counting('journal'), ['ann'])
    bench.store.mood = 'slow'
    for (let ref = 1; ref <= 10; ref++) await bench.say('counter', 'ann', 'inc', null, ref)
    // A member that asks for the state gets the committed state.
    bench.resync('counter', ann, 'sequence')
    expect([ann.state, ann.acked, bench.store.held]).toEqual([{ count: 0 }, 0, 1])
    for (const seen of [1, 10]) {
      bench.store.let()
      await bench.untilIdle()
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
  /** A room that was written once, and the number of its writes until then. */
  const saved = async () => {
    const { bench, ann } = await roomWith(counting('snapshot'), ['ann'])
    await bench.advance(1000, 50)
    return { bench, ann, writes: bench.store.writes }
  }

  it('delivers immediately, and is written at most a second after a change', async () => {
    const { bench, ann, writes } = await saved()
    await bench.say('counter', 'ann', 'inc', null, 1)
    expect([ann.state, ann.acked, bench.store.writes]).toEqual([{ count: 1 }, 1, writes])
    for (const ms of [1000, 10_000]) {
      await bench.advance(ms, 50)
      expect(bench.store.writes).toBe(writes + 1)
    }
  })

  it('is written again immediately if a write took so long that a change has waited for a second', async () => {
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

  it('is written in time however often its node checks in the store that it still owns the room', async () => {
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

  it('is written after its next change if it could not be encoded once', async () => {
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

  it('is written without its history: a write is as large as the room, however much has happened', async () => {
    const { bench } = await roomWith(counting('snapshot'), ['ann'])
    const saves = vi.spyOn(bench.store.store.rooms, 'snapshot')
    await bench.advance(1000, 50)
    for (let i = 0; i < 50; i++) await bench.say('counter', 'ann', 'inc', null)
    await bench.advance(1000, 50)
    const bytes = saves.mock.calls.map(([, , snapshot]) => snapshot.length)
    expect(bytes.length).toBeGreaterThan(1)
    expect(bytes.at(-1)).toBeLessThan(bytes[0]! + 16)
  })

  it('continues on another node from its last write, and members that saw more are resynced, even if the new owner has reached the same seq', async () => {
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
  it('writes none of its updates, but keeps its record alive', async () => {
    const { bench, ann } = await roomWith(counting('none'), ['ann'])
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.advance(5000, 50)
    expect([ann.state, ann.acked, bench.store.writes]).toEqual([{ count: 1 }, 1, 0])
    await bench.advance(3_600_000, 10_000)
    expect(await bench.store.store.rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: 'node_a' })
    expect(bench.host.rooms.size).toBe(1)
  })

  it('is handed over with its state, which does not come back after the new owner has died', async () => {
    const { bench, ann } = await roomWith(counting('none'), ['ann'])
    await bench.say('counter', 'ann', 'inc', null, 1)
    const heir = bench.successor([ann])
    await bench.host.rooms.running[0]!.handOver('node_b')
    await heir.resume('counter', ann)
    expect(ann.state).toEqual({ count: 1 })
    const { snapshot, journal } = await heir.claimed('counter', 'node_c')
    expect([snapshot?.length, journal]).toEqual([0, []])
  })
})

describe('RoomRecord', () => {
  const ROOM = 'prj_a/duel:1'
  const TTL_MS = 60_000
  const NOTICE = new TextEncoder().encode('{"id":"a"}')

  /** The record of a room that node_a owns, and its store. */
  async function setup() {
    const clock = new FakeClock()
    const timer = setInterval(() => clock.advance(50), 1)
    onTestFinished(() => clearInterval(timer))
    const store = memoryStore({ clock })
    const nodes = { rewritesAllowedAt: 0 }
    const environment = {
      nodeId: 'node_a',
      clock,
      random: new SeededRandom(1),
      records: store.rooms,
      wakeups: store.wakeups,
      limits: { recordTtlMs: TTL_MS },
      metrics: { commitDuration: { observe: () => undefined } },
      cluster: { nodes },
    }
    const { fence } = (await store.rooms.claim(ROOM, 'node_a', 0, TTL_MS))!
    // A room that is not stored, so that nothing else of it is read.
    const room = {
      name: ROOM,
      log: pino({ level: 'silent' }),
      definition: { durability: 'none' },
      epoch: fence.epoch,
      seq: 1,
      state: { dirty: false, version: 1 },
      history: { lose: () => undefined },
    } as unknown as RoomCore
    const additions = {
      dirty: false,
      flush: () => [] as Uint8Array[],
      prepare: async (_fence: Fence, flushed: readonly Uint8Array[] = []) => flushed,
      wrote: () => undefined,
      of: () => ({}),
      push: () => undefined,
      refresh: () => undefined,
      end: () => undefined,
    }
    const record = new RoomRecord(
      room,
      fence,
      additions,
      environment as unknown as RecordNeeds,
      () => undefined,
    )
    /** The store loses everything. No owner may write a room again before `rewritesAllowedAt`. */
    const empty = (rewritesAllowedAt: number) => {
      const { rooms, wakeups } = memoryStore({ clock })
      nodes.rewritesAllowedAt = rewritesAllowedAt
      Object.assign(environment, { records: rooms, wakeups })
      return rooms
    }
    return { clock, store, additions, fence, record, room, nodes, empty }
  }

  it('does not release a room that another node owns, even if the announcement before it had to be repeated', async () => {
    const { store, additions, fence, record } = await setup()
    additions.flush = () => [NOTICE]
    vi.spyOn(additions, 'prepare').mockRejectedValueOnce(new StoreUnavailable('down'))
    await store.rooms.claim(ROOM, 'node_b', fence.epoch, TTL_MS)
    expect(await record.release(true)).toBe(false)
  })

  describe('of a room that the store has lost', () => {
    /** The store takes the first `recall`, but its answer is lost. */
    const loseAnswerOfRecall = (rooms: RoomRecords) => {
      const recall = rooms.recall.bind(rooms)
      vi.spyOn(rooms, 'recall').mockImplementationOnce(async (...args) => {
        await recall(...args)
        throw new StoreUnavailable('the answer is lost')
      })
    }

    it.each([0, 2])(
      'waits for later owners, then writes under a new epoch, if the answer of recall is lost after %d writes',
      async (writes) => {
        const { clock, fence, record, room, empty } = await setup()
        for (let written = 0; written < writes; written++) await record.append(new Uint8Array(1), [])
        const allowedAt = clock.monotonic() + 5000
        const rooms = empty(allowedAt)
        loseAnswerOfRecall(rooms)
        expect(await record.append(new Uint8Array(1), [])).toBe(true)
        expect(clock.monotonic()).toBeGreaterThanOrEqual(allowedAt)
        expect(room.epoch).toBeGreaterThan(fence.epoch)
        expect(await rooms.inspect(ROOM)).toMatchObject({ epoch: room.epoch, owner: 'node_a' })
      },
    )

    it('leaves it to a later owner that recalls it in time, if an earlier owner was the first to recall it', async () => {
      const { fence, record, nodes, empty } = await setup()
      await record.append(new Uint8Array(1), [])
      const rooms = empty(Number.POSITIVE_INFINITY)
      await rooms.recall(ROOM, 'node_0', fence.epoch - 1, TTL_MS)
      const verified = record.verify()
      await vi.waitUntil(async () => (await rooms.inspect(ROOM))?.epoch === fence.epoch)
      await rooms.recall(ROOM, 'node_b', fence.epoch + 1, TTL_MS)
      nodes.rewritesAllowedAt = 0
      expect(await verified).toBe(false)
      expect(await rooms.inspect(ROOM)).toMatchObject({ epoch: fence.epoch + 1, owner: 'node_b' })
    })
  })
})

describe('store trouble', () => {
  const ROOM = 'prj_test/counter:a'

  /** Replaces the store of these nodes by an empty one, and returns that. */
  function wipe(...benches: RoomBench[]) {
    const empty = memoryStore({ clock: benches[0]!.clock })
    for (const bench of benches) bench.store.follow(() => empty.rooms)
    return empty
  }

  describe('a store that does not answer', () => {
    for (const mood of ['silent', 'deaf'] as const)
      it(`freezes a room, which continues later without losing or repeating anything (${mood})`, async () => {
        const { bench, ann } = await roomWith(counting('journal'), ['ann'], {
          limits: { waitingMessages: 3 },
        })
        bench.store.mood = mood
        bench.message('counter', 'ann', 'inc', null, 1)
        await bench.advance(50)
        // Messages are not applied until it is known which writes are stored. The inbox is bounded.
        for (let ref = 2; ref <= 6; ref++) bench.message('counter', 'ann', 'inc', null, ref)
        bench.message('counter', 'ann', 'inc', null)
        const bob = await bench.join('counter', 'bob')
        await bench.advance(5000, 50)
        expect([ann.state, ann.acked, bob.inRoom]).toEqual([{ count: 0 }, 0, false])
        // Refusing a message that was not handled would leave a gap, and later messages would wait for it.
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
      'for %d minutes, in which the record expires, gets the room from memory',
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
    it('gets only the owner of a room that is not stored', async () => {
      const { bench, ann } = await roomWith(counting('none'), ['ann'])
      await bench.say('counter', 'ann', 'inc', null, 1)
      wipe(bench)
      bench.host.recheck()
      await bench.untilIdle()
      await bench.say('counter', 'ann', 'inc', null, 2)
      expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
      expect(await bench.claimed('counter')).toMatchObject({ snapshot: new Uint8Array(0), journal: [] })
    })

    it('gets an update that waits for its commit once', async () => {
      const { bench, ann } = await roomWith(counting('journal'), ['ann'])
      bench.store.mood = 'slow'
      await bench.advance(200_000, 10_000)
      // Its record is being refreshed.
      expect(bench.store.held).toBe(1)
      await bench.say('counter', 'ann', 'inc', null, 1)
      const empty = wipe(bench)
      bench.store.mood = 'fine'
      bench.store.let()
      await bench.untilIdle()
      expect([ann.state, ann.acked]).toEqual([{ count: 1 }, 1])
      const heir = bench.successor([ann], { store: empty })
      heir.attach('counter', ann)
      await heir.say('counter', 'ann', 'inc', null, 2)
      expect([ann.state, ann.acked]).toEqual([{ count: 2 }, 2])
    })
  })

  describe('a node whose lease has run out', () => {
    it('answers a repeated attach once', async () => {
      const { bench, ann } = await roomWith(counting('journal'), ['ann'])
      bench.mayAct = false
      for (let asked = 0; asked < 50; asked++) bench.attach('counter', ann)
      bench.mayAct = true
      bench.host.recheck()
      await bench.untilIdle()
      expect(bench.sentOf('attached')).toHaveLength(1)
    })
  })

  describe('a store that came back empty, with two nodes that act as the owner', () => {
    /** One node was replaced by the other while it was cut off, and does not know that. */
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
      it(`gets the room from the last owner, also if ${first === 'old' ? 'the earlier one' : 'that one'} finds out first`, async () => {
        const { clock, old, heir, ann } = await twoOwners()
        const order = first === 'old' ? [old, heir] : [heir, old]
        wipe(...order)
        for (const bench of order) bench.nodes.rewritesAllowedAt = clock.monotonic() + 500
        for (const bench of order) {
          bench.host.recheck()
          await bench.untilIdle()
          clock.advance(200)
        }
        for (let step = 0; step < 10; step++) {
          clock.advance(100)
          for (const bench of order) await bench.untilIdle()
        }
        expect([old.host.rooms.size, heir.host.rooms.size]).toEqual([0, 1])
        await heir.say('counter', 'ann', 'inc', null, 2)
        expect([ann.state, ann.acked, ann.faults]).toEqual([{ count: 2 }, 2, []])
      })

    /**
     * The last owner is away. The earlier one has written the room to the store, and has reached the seq that ann has seen under the last.
     */
    const writtenByTheEarlier = async () => {
      const { clock, old, ann } = await twoOwners()
      const store = wipe(old)
      clock.advance(1000)
      await old.say('counter', 'ann', 'inc', null)
      expect(old.describe('counter')?.seq).toBe(ann.seq)
      return { old, store, ann }
    }

    it('gets the room from the earlier owner, and members that saw updates of the last one get the whole state', async () => {
      const { old, ann } = await writtenByTheEarlier()
      old.members.set('ann', ann)
      expect(await old.resume('counter', ann)).toMatchObject({ resumed: false })
    })

    for (const ending of ['hands the room over', 'dies'] as const)
      it(`gets it so, too, if that owner ${ending}, and another one continues the room`, async () => {
        const { old, store, ann } = await writtenByTheEarlier()
        await old.say('counter', 'ann', 'inc', null)
        if (ending === 'hands the room over') await old.host.close()
        const next = old.successor([ann], { store, nodeId: 'node_z' })
        expect(await next.resume('counter', ann)).toMatchObject({ resumed: false })
        expect([ann.state, ann.resyncs, ann.faults]).toEqual([{ count: 2 }, 1, []])
      })

    it('gets an update that the earlier owner could not commit before, under the new epoch', async () => {
      const { bench: old, ann } = await roomWith(counting('journal'), ['ann'], { nodeId: 'node_x' })
      const heir = old.successor([], { nodeId: 'node_y' })
      old.store.mood = 'deaf'
      const eve = old.askToJoin('counter', 'eve')
      for (const ref of [1, 2]) old.message('counter', 'ann', 'inc', null, ref)
      await old.untilIdle()
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
      it(`freezes a ${durability} room, which keeps its memory and is written when the store accepts it`, async () => {
        const { bench, ann } = await roomWith(counting(durability), ['ann'])
        await bench.advance(1000, 50)
        await bench.say('counter', 'ann', 'inc', null, 1)
        bench.store.mood = 'refusing'
        if (durability === 'snapshot') await bench.advance(1000, 50)
        bench.message('counter', 'ann', 'inc', null, 2)
        await bench.advance(700, 50)
        expect([bench.host.rooms.size, ann.acked]).toEqual([1, 1])
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
    it('has the update once: the whole room replaces the journal', async () => {
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
    it('ends the room here instead of freezing it for ever', async () => {
      const { bench } = await roomWith(counting('journal'), ['ann'])
      vi.spyOn(bench.store.store.rooms, 'commit').mockRejectedValue(new StoreRejected('WRONGTYPE'))
      await bench.say('counter', 'ann', 'inc', null, 1)
      expect(bench.host.rooms.size).toBe(0)
      expect(bench.sentOf('redirect')).toMatchObject([{ owner: null }])
      expect(bench.sentOf('update').flatMap(({ personal }) => personal)).toEqual([])
    })
  })
})
