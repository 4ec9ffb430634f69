import fc from 'fast-check'
import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { apply } from '../../shared/sync/delta.ts'
import { diff } from '../../shared/sync/testing/diff.ts'
import { json } from '../../test/support/json-arbitrary.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import { JournalFormat } from './journal.ts'
import { restore } from './restore.ts'

const format = new JournalFormat()

const board = defineRoom({
  type: 'board',
  messages: {
    put: { data: v.object({ at: v.string(), value: v.any() }) },
    tell: { data: v.object({ to: v.optional(v.string()) }) },
  },
  sync: { rate: 0 },
  create: (): { cells: Record<string, Json> } => ({ cells: {} }),
  onMessage(state, input, ctx) {
    if (input.type === 'put') state.cells[`at ${input.data.at}`] = input.data.value
    else ctx.emit('told', state.cells, input.data.to)
  },
})

const teams = defineRoom({
  type: 'teams',
  messages: { add: { data: v.any() } },
  sync: { rate: 0 },
  create: (): { teams: Json[] } => ({ teams: [] }),
  onMessage(state, input) {
    state.teams.push(input.data)
  },
})

it('a recorded delta does what the delta did', () => {
  const at = { epoch: 1, seq: 1, visible: true, checksum: 0 }
  const nothing = {
    events: [],
    joined: [],
    replaced: [],
    left: [],
    presence: [],
    renewed: [],
    acks: [],
    outcomes: [],
    tables: undefined,
    layers: undefined,
  }
  fc.assert(
    fc.property(json(), json(), (previous, next) => {
      const delta = diff(previous, next)
      if (!delta) return
      const read = format.readEntry(format.entry({ ...at, delta, ...nothing }))
      const checksum = new Checksum()
      expect(checksum.of(apply(previous, read.delta!))).toBe(checksum.of(next))
    }),
  )
})

describe('the state that a room begins with', () => {
  /** How often `text` was read to its end for a hash meanwhile. */
  const hashed = async (text: string, meanwhile: () => Promise<unknown>): Promise<number> => {
    const read = vi.spyOn(String.prototype, 'charCodeAt')
    try {
      await meanwhile()
      const { calls, contexts } = read.mock
      return contexts.filter((context, i) => `${context}` === text && calls[i]![0] === text.length - 1).length
    } finally {
      read.mockRestore()
    }
  }

  // A large state takes milliseconds a megabyte to hash, in which every other room of the node waits.
  it('is hashed once, be it new or restored, and once by each member', async () => {
    const text = 'x'.repeat(1000)
    const novel = defineRoom({ type: 'novel', messages: {}, create: () => ({ text }), onMessage() {} })
    const owner = new RoomBench([novel])
    expect(await hashed(text, () => owner.join('novel', 'ann'))).toBe(1 + 1)
    const away = owner.members.get('ann')!
    owner.detach('novel', away)
    const heir = owner.successor([away])
    expect(await hashed(text, () => heir.resume('novel', away))).toBe(1)
    expect(heir.describe('novel')).toMatchObject({ checksum: away.checksum })
  })
})

describe('a restored room', () => {
  // Names that clients choose become keys. With these two in one object it looked like an instance of a class with a toJSON method;
  // writing the journal entry threw, the update was never committed, and the room stopped.
  it('may have keys of any name, such as those that JavaScript gives a meaning', async () => {
    const { bench, ann } = await roomWith(teams, ['ann'])
    const players = { constructor: 1, toJSON: 1, length: 1 }
    await bench.say('teams', 'ann', 'add', players)
    expect(ann.state).toEqual({ teams: [players] })
    expect(restore(await bench.claimed('teams'), format)?.tree.flushed).toEqual(ann.state)
  })

  it('is the room that was committed: state, checksum, seats, refs, and what it replays', async () => {
    const step = fc.oneof(
      fc.record({
        do: fc.constant('put' as const),
        who: fc.nat({ max: 2 }),
        at: fc.nat({ max: 5 }),
        value: json(),
      }),
      fc.record({
        do: fc.constant('tell' as const),
        who: fc.nat({ max: 2 }),
        to: fc.option(fc.nat({ max: 2 })),
      }),
      fc.record({ do: fc.constant('leave' as const), who: fc.constant(2) }),
    )
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 20 }),
        fc.nat({ max: 8 }),
        async (steps, journalEntries) => {
          const owner = new RoomBench([board], { limits: { journalEntries } })
          for (const id of ['m0', 'm1', 'm2']) await owner.join('board', id, { sub: `sub of ${id}` })
          const away = owner.members.get('m1')!
          owner.detach('board', away, true)
          const refs = [0, 0, 0]
          for (const taken of steps) {
            const id = `m${taken.who}`
            const ref = ++refs[taken.who]!
            if (taken.do === 'put')
              owner.message('board', id, 'put', { at: `${taken.at}`, value: taken.value }, ref)
            else if (taken.do === 'tell')
              owner.message('board', id, 'tell', taken.to === null ? {} : { to: `m${taken.to}` }, ref)
            else owner.send('board', id, { kind: 'leave', reason: 'left', request_id: ref })
            await owner.settle()
          }
          const before = owner.describe('board')!
          const heir = owner.successor([away])
          // The old owner would have sent this.
          owner.attach('board', away)
          const oldAnswer = owner.sentOf('attached').at(-1)!
          const newAnswer = await heir.resume('board', away)
          const after = heir.describe('board')!
          expect(after).toMatchObject({ seq: before.seq, checksum: before.checksum, state: before.state })
          expect(after.epoch).toBeGreaterThan(before.epoch)
          const seats = (room: typeof before) => room.members.map(({ connected: _, ...seat }) => seat)
          expect(seats(after)).toEqual(seats(before))
          expect([away.state, away.faults, away.resyncs, away.acked]).toEqual([before.state, [], 0, refs[1]])
          const { resumed, ack, frames } = oldAnswer
          expect([newAnswer.resumed, newAnswer.ack, newAnswer.frames.length]).toEqual([
            resumed,
            ack,
            frames.length,
          ])
          // What was applied is not applied again.
          if (refs[1]! > 0) heir.message('board', 'm1', 'put', { at: 'again', value: 1 }, refs[1]!)
          await heir.settle()
          expect(away.state).toEqual(before.state)
        },
      ),
      { numRuns: 150 },
    )
  })
})
