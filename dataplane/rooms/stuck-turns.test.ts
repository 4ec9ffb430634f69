import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import type { TestMember } from '../../test/support/rooms/room-bench.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { encodeNote, sharedTurn, TurnReader, TurnWriter } from '../watchdog/turns.ts'
import { defineRoom } from './definition.ts'

const FAILED = "the room's logic failed"
const TTL_MS = 600_000

/** Several nodes, one after the other, whose rooms do not return where they are told to: a watchdog leaves its note, and the node is gone. */
function cluster() {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const buffer = sharedTurn()
  const reader = new TurnReader(buffer)
  const hooks: string[] = []
  let owner: RoomBench
  let nodes = 0

  const hang = (): never => {
    const { room, ...cause } = reader.turn
    hooks.push(cause.hook)
    owner.mayAct = false
    void store.rooms.noteStuck(room.name, room.epoch, encodeNote(cause), TTL_MS)
    throw new Error('nothing of this process is heard of any more')
  }
  const looper = defineRoom({
    type: 'looper',
    options: v.pipe(
      v.object({ at: v.optional(v.string()) }),
      v.check(({ at }) => at !== 'options' || hang()),
    ),
    messages: {
      add: { data: v.null() },
      loop: { data: v.null() },
      check: { data: v.custom(() => hang()) },
      kick: { data: v.null() },
      loop_at_tick: { data: v.null() },
      end: { data: v.null() },
    },
    sync: { rate: 0 },
    tick: { rate: 1 },
    idleSeconds: 60,
    create: ({ at }) => {
      if (at === 'create') hang()
      return { count: 0, ticks: 0, left: 0, loop_at_tick: false }
    },
    admit: async (_member, { at }) => {
      if (at === 'admit') hang()
    },
    onJoin(_state, _member, _ctx, { at }) {
      if (at === 'onJoin') hang()
    },
    onMessage(state, { type, member }, ctx) {
      if (type === 'loop') hang()
      if (type === 'kick') ctx.kick(member)
      if (type === 'end') ctx.close()
      state.count++
      state.loop_at_tick = type === 'loop_at_tick'
    },
    onLeave(state, member) {
      if (member.id === 'loops') hang()
      state.left++
    },
    onTick(state) {
      state.ticks++
      if (state.loop_at_tick && state.ticks === 1) hang()
    },
    onDispose: () => hang(),
  })
  /** A node that takes over whatever there is. What the one before it has told these members after its end they never heard. */
  const node = (...members: readonly TestMember[]): RoomBench => {
    const turns = new TurnWriter(buffer)
    owner = new RoomBench([looper], { clock, store, nodeId: `node_${++nodes}`, turns })
    for (const member of members) {
      member.errors.length = 0
      owner.members.set(member.memberId, member)
    }
    return owner
  }
  return { hooks, node }
}

describe('a message that an owner did not come to the end of', () => {
  it.each(['loop', 'check'])(
    '(%s) is refused by the next one, which goes on from the state before',
    async (type) => {
      const { node, hooks } = cluster()
      const first = node()
      const ann = await first.join('looper', 'ann')
      await first.say('looper', 'ann', 'add', null, 1)
      first.message('looper', 'ann', type, null, 2)
      expect(hooks).toEqual(['onMessage'])

      const second = node(ann)
      second.attach('looper', ann)
      second.message('looper', 'ann', type, null, 2)
      await second.say('looper', 'ann', 'add', null, 3)
      expect(ann.errors).toEqual([{ code: 'room_logic_failed', message: FAILED, ref: 2 }])
      expect([ann.state, ann.acked, ann.inRoom, hooks.length]).toMatchObject([{ count: 2 }, 3, true, 1])
      expect(second.counts['stuck onMessage']).toBe(1)
    },
  )

  // Each owner may die before it has written anything.
  it('is refused by every later owner, and those before it that were not committed are applied', async () => {
    const { node, hooks } = cluster()
    const first = node()
    const ann = await first.join('looper', 'ann')
    first.message('looper', 'ann', 'add', null, 1)
    first.message('looper', 'ann', 'loop', null, 2)
    const second = node(ann)
    await second.resume('looper', ann)

    const third = node(ann)
    third.attach('looper', ann)
    third.message('looper', 'ann', 'add', null, 1)
    await third.say('looper', 'ann', 'loop', null, 2)
    expect(ann.errors).toMatchObject([{ code: 'room_logic_failed', ref: 2 }])
    expect([ann.state, hooks.length, third.counts['stuck onMessage']]).toMatchObject([
      { count: 1 },
      1,
      undefined,
    ])
  })

  it('is named, too, where it is the leaving of those it kicked that does not end', async () => {
    const { node, hooks } = cluster()
    const first = node()
    const loops = await first.join('looper', 'loops')
    first.message('looper', 'loops', 'kick', null, 1)
    expect(hooks).toEqual(['onMessage'])
    const second = node(loops)
    second.attach('looper', loops)
    await second.say('looper', 'loops', 'kick', null, 1)
    expect([loops.errors[0]?.code, loops.inRoom, hooks.length]).toEqual(['room_logic_failed', true, 1])
  })
})

describe('a join that an owner did not come to the end of', () => {
  // Seen: the validator ran before the room was claimed, so no note was taken, and one node after the other hung.
  it.each(['a room that no one owned', 'a room with members'])(
    '(the validator of the options, %s) is refused by the next one',
    async (room) => {
      const { node, hooks } = cluster()
      const first = node()
      if (room === 'a room with members') await first.join('looper', 'bob')
      await first.join('looper', 'ann', { ref: 40, options: { at: 'options' } })
      expect(hooks).toHaveLength(1)

      const second = node()
      const ann = await second.join('looper', 'ann', { ref: 40, options: { at: 'options' } })
      expect(ann.errors).toEqual([{ code: 'room_logic_failed', message: FAILED, ref: 40 }])
      expect(hooks).toHaveLength(1)
      await second.join('looper', 'ann', { ref: 41 })
      expect(ann.inRoom).toBe(true)
    },
  )

  it.each(['create', 'admit', 'onJoin'])(
    '(%s) is refused by the next one, for that session alone',
    async (at) => {
      const { node, hooks } = cluster()
      const first = node()
      const other = at === 'create' ? undefined : await first.join('looper', 'bob')
      const ann = await first.join('looper', 'ann', { ref: 40, options: { at } })
      expect(hooks).toEqual([at])

      const second = node(ann)
      // The session came back elsewhere, where its seat has another id.
      ann.errors.length = 0
      await second.join('looper', 'ann', { ref: 40, options: { at } })
      expect(ann.errors).toEqual([{ code: 'room_logic_failed', message: FAILED, ref: 40 }])
      const bob = other ?? (await second.join('looper', 'bob'))
      if (other) {
        second.members.set('bob', bob)
        second.attach('looper', bob)
      }
      await second.settle()
      expect([bob.inRoom, bob.state, hooks.length]).toMatchObject([true, { count: 0 }, 1])
      // Asked again, on purpose, it is another join.
      await second.join('looper', 'ann', { ref: 41 })
      expect(ann.inRoom).toBe(true)
    },
  )
})

describe('a room that does not return three times within a minute', () => {
  it('is refused to everyone, and is a new one when it has had time', async () => {
    const { node, hooks } = cluster()
    let current = node()
    const ann = await current.join('looper', 'ann')
    await current.say('looper', 'ann', 'add', null, 1)
    for (let n = 1; n <= 3; n++) {
      expect(ann.inRoom).toBe(true)
      current.message('looper', 'ann', 'loop', null, 1 + n)
      await current.advance(10_000, 1000)
      current = node(ann)
      await current.resume('looper', ann)
    }
    expect([hooks.length, ann.inRoom, current.counts['quarantined looping']]).toEqual([3, false, 1])
    const bob = await current.join('looper', 'bob')
    expect(bob.errors).toMatchObject([{ code: 'room_unavailable' }])
    await current.advance(60_000, 1000)
    await current.join('looper', 'bob')
    expect(bob.state).toMatchObject({ count: 0 })
  })

  it('goes on if it takes longer to do so', async () => {
    const { node } = cluster()
    let current = node()
    const ann = await current.join('looper', 'ann')
    for (let n = 1; n <= 4; n++) {
      current.message('looper', 'ann', 'loop', null, n)
      await current.advance(31_000, 1000)
      current = node(ann)
      await current.resume('looper', ann)
      expect(ann.inRoom).toBe(true)
    }
  })
})

describe('what happens by itself', () => {
  it('onLeave: the member is gone, without the hook', async () => {
    const { node, hooks } = cluster()
    const first = node()
    const bob = await first.join('looper', 'bob')
    await first.join('looper', 'loops')
    first.send('looper', 'loops', { kind: 'leave', reason: 'left', ref: 9 })
    expect(hooks).toEqual(['onLeave'])
    const second = node(bob)
    await second.resume('looper', bob)
    expect(bob.heard.at(-1)).toBe('-loops left')
    expect([second.describe('looper')?.members.length, bob.state]).toMatchObject([1, { left: 0 }])
  })

  it('onTick: one tick is left out', async () => {
    const { node, hooks } = cluster()
    const first = node()
    const ann = await first.join('looper', 'ann')
    await first.say('looper', 'ann', 'loop_at_tick', null)
    first.clock.advance(1000)
    expect(hooks).toEqual(['onTick'])
    const second = node(ann)
    second.attach('looper', ann)
    second.message('looper', 'ann', 'add', null)
    await second.advance(1100, 100)
    expect(ann.state).toMatchObject({ ticks: 0 })
    await second.advance(1000, 100)
    expect([ann.state, hooks.length]).toMatchObject([{ ticks: 1 }, 1])
  })

  it('onDispose: the room has ended, and who joins gets a new one', async () => {
    const { node, hooks } = cluster()
    const first = node()
    const ann = await first.join('looper', 'ann')
    first.message('looper', 'ann', 'end', null)
    // As far as onDispose, and no further.
    for (let n = 0; hooks.length === 0 && n < 20; n++) await first.settle()
    expect(hooks).toEqual(['onDispose'])
    const second = node(ann)
    await second.join('looper', 'ann')
    expect([ann.inRoom, ann.state, hooks.length]).toMatchObject([true, { count: 0 }, 1])
  })
})
