import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { type RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'

const cards = (durability: Durability = 'journal') =>
  defineRoom({
    type: 'cards',
    messages: { deal: { data: v.null() }, misdeal: { data: v.null() } },
    sync: { rate: 0 },
    durability,
    create: () => ({
      rules: 'x'.repeat(20_000),
      deck: [1, 2, 3, 4, 5].map((n) => ({ n, by: '' })),
      hand: [] as { n: number; by: string }[],
    }),
    onMessage(state, { type, member }) {
      const card = state.deck.pop()!
      card.by = member.id
      state.hand.push(card)
      if (type === 'misdeal') throw new Error('misdeal')
    },
  })

const hand = (state: unknown) => (state as { hand: { n: number }[] }).hand.map(({ n }) => n)

/** A room whose first deal is being committed, while a deal that fails and one that succeeds have followed. */
async function committing() {
  const { bench, ann, bob } = await roomWith(cards(), ['ann', 'bob'])
  bench.store.mood = 'slow'
  await bench.say('cards', 'ann', 'deal', null, 1)
  await bench.say('cards', 'ann', 'misdeal', null, 2)
  await bench.say('cards', 'ann', 'deal', null, 3)
  expect([bench.store.held, hand(ann.state)]).toEqual([1, []])
  return { bench, ann, bob }
}

async function answered(bench: RoomBench): Promise<void> {
  bench.store.mood = 'fine'
  bench.store.let()
  await bench.advance(3000, 50)
}

describe('the whole state that a room is asked for while an update is being committed', () => {
  it('is that of the update, once it is committed', async () => {
    const { bench, ann, bob } = await committing()
    bench.resync('cards', bob, 'checksum')
    await bench.settle()
    expect(bob.resyncs).toBe(0)
    bench.store.let()
    await bench.settle()
    expect([bob.resyncs, hand(bob.state), bob.faults]).toEqual([1, [5], []])
    await answered(bench)
    expect([hand(ann.state), hand(bob.state), ann.acked]).toEqual([[5, 4], [5, 4], 3])
    expect([ann.faults, bob.faults]).toEqual([[], []])
  })

  it('goes to a member that comes back from an epoch that is not in the history, and to one that asks to join once more', async () => {
    const { bench, ann, bob } = await committing()
    bench.detach('cards', bob)
    bob.epoch = 1
    bench.attach('cards', bob)
    bench.send('cards', 'ann', {
      kind: 'join',
      request_id: 1,
      edge: 'node_a',
      turn: 0,
      codec: ann.codec,
      session_id: ann.sessionId,
      sub: null,
      principal: 'token',
      options: {},
    })
    await bench.settle()
    expect(bench.sentOf('attached')).toEqual([])
    await answered(bench)
    expect(bench.sentOf('attached')).toHaveLength(1)
    expect([hand(ann.state), hand(bob.state), bob.resyncs, ann.faults]).toEqual([[5, 4], [5, 4], 1, []])
    expect(bob.checksum).toBe(ann.checksum)
  })

  // What the store has lost is told it from memory: with the update that was under way, and without the turns behind it.
  it.each(['lost the room', 'gone back to before the last updates'])(
    'is what the store is told that has %s',
    async (loss) => {
      const { bench, ann } = await roomWith(cards(), ['ann'])
      await bench.say('cards', 'ann', 'deal', null, 1)
      const other = memoryStore({ clock: bench.clock })
      const name = 'prj_test/cards:a'
      if (loss !== 'lost the room') {
        const { epoch } = (await bench.store.store.rooms.inspect(name))!
        await other.rooms.claim(name, 'node_a', epoch - 1, 60_000)
      }
      bench.clock.advance(10)
      bench.store.mood = 'slow'
      await bench.say('cards', 'ann', 'deal', null, 2)
      await bench.say('cards', 'ann', 'misdeal', null, 3)
      await bench.say('cards', 'ann', 'deal', null, 4)
      bench.store.follow(() => other.rooms)
      bench.store.mood = 'fine'
      bench.store.let()
      await bench.advance(3000, 50)
      expect([hand(ann.state), ann.acked, ann.faults]).toEqual([[5, 4, 3], 4, []])
      const heir = bench.successor([ann], { store: other })
      expect(await heir.resume('cards', ann)).toMatchObject({ resumed: true })
      await heir.say('cards', 'ann', 'deal', null, 5)
      expect([hand(ann.state), ann.faults]).toEqual([[5, 4, 3, 2], []])
    },
  )
})

describe('the whole state of a large room', () => {
  it.each(['journal', 'snapshot', 'none'] as const)(
    'is the present one for the first who joins again with a subprotocol that no one spoke meanwhile: %s',
    async (durability) => {
      const { bench, ann } = await roomWith(cards(durability), ['ann'])
      const join = (name: string) => bench.join('cards', name, { codec: 'roomful.v1.json' })
      await join('bob')
      bench.send('cards', 'bob', { kind: 'leave', reason: 'left' })
      await bench.say('cards', 'ann', 'deal', null)
      const carl = await join('carl')
      expect([hand(carl.state), carl.checksum, carl.faults]).toEqual([[5], ann.checksum, []])
    },
  )
})
