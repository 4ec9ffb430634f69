import { describe, expect, it } from 'vitest'
import { counter } from '../../test/support/rooms/counter-room.ts'
import type { TestMember } from '../../test/support/rooms/room-bench.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import type { Settled } from '../traffic.ts'
import { JournalFormat } from './journal.ts'
import { restore } from './restore.ts'

const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i)

/** A message that the room refuses. */
const bad = (bench: RoomBench, ref: number, settled = 0): void =>
  bench.send('counter', 'ann', { kind: 'message', type: 'nonsense', data: null, ref, settled })

const good = (bench: RoomBench, ref: number, settled = 0): void =>
  bench.send('counter', 'ann', { kind: 'message', type: 'inc', data: { by: 1 }, ref, settled })

const attach = (bench: RoomBench, member: TestMember, settled?: number) =>
  bench.resume('counter', member, 0, 'node_a', settled)

const countOf = ({ state }: TestMember) => (state as { count: number }).count
const refs = (list: readonly { ref?: number | undefined }[] = []) => list.map(({ ref }) => ref)

describe('a message that was refused', () => {
  it.each([
    ['a bounded place in memory, in an update and in the record, however many there are', 99_000, false],
    ['no place in the journal once its client knows', 5000, true],
  ] as const)('takes %s', async (_, last, known) => {
    const { bench } = await roomWith(counter(), ['ann'])
    bench.store.mood = 'slow'
    good(bench, 1)
    await bench.settle()
    for (const ref of range(2, last)) bad(bench, ref, known ? ref - 1 : 0)
    bench.sent.length = 0
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.settle()
    const claim = await bench.claimed('counter')
    const membership = restore(claim, new JournalFormat())!.memberships[0]!
    const kept = known ? 1 : 1024
    expect([membership.lastRef, membership.forgotten]).toEqual([last, known ? 0 : last - kept])
    expect(refs(membership.outcomes)).toEqual(range(last - kept + 1, last))
    expect(claim.journal.at(-1)!.length).toBeLessThan(150_000)
  })

  it('takes no more bytes than are allowed, the oldest going first', async () => {
    const text = 'é'.repeat(100)
    const { bench, ann } = await roomWith(counter(), ['ann'], {
      limits: { outcomes: { messages: 1000, bytes: 1000 } },
    })
    bench.send('counter', 'ann', {
      kind: 'refuse',
      from: 1,
      through: 20,
      code: 'rate_limited',
      message: text,
    })
    await bench.settle()
    const { outcomes } = await attach(bench, ann)
    expect(refs(outcomes)).toEqual(range(17, 20))
  })

  // Those who came first kept as much as they might have while they were few.
  for (const when of ['when all are there', 'while they come'])
    it(`takes less where there are many members, so that all of a room together are bounded, sent ${when}`, async () => {
      const bench = new RoomBench([counter()], { limits: { outcomes: { messages: 1000, bytes: 10_000 } } })
      const members: TestMember[] = []
      const refuse = ({ memberId }: TestMember) => {
        for (const ref of range(1, 200)) bench.message('counter', memberId, 'nonsense', null, ref)
      }
      for (let i = 0; i < 200; i++) {
        members.push(await bench.join('counter', i === 0 ? 'ann' : `m${i}`))
        if (when === 'while they come') refuse(members[i]!)
      }
      if (when !== 'while they come') members.forEach(refuse)
      await bench.settle()
      const told: object[] = []
      for (const member of members) told.push((await attach(bench, member)).outcomes!)
      await bench.host.close()
      const claim = await bench.claimed('counter')
      const written = restore(claim, new JournalFormat())!.memberships.map(({ outcomes }) => outcomes)
      for (const kept of [told, written]) {
        const bytes = JSON.stringify(kept).length
        expect(bytes).toBeGreaterThan(200_000)
        // As JSON, which takes a quarter more.
        expect(bytes).toBeLessThan(1.4 * 32 * 10_000)
      }
    })
})

describe('where it is forgotten what was refused', () => {
  /** Refs 1 to 5 are refused, of which 3 to 5 are known, and 6 is applied. */
  async function forgotten() {
    const { bench, ann } = await roomWith(counter(), ['ann'], {
      limits: { outcomes: { messages: 3, bytes: 100_000 } },
    })
    for (const ref of range(1, 5)) bad(bench, ref)
    good(bench, 6)
    await bench.settle()
    return { bench, ann }
  }
  const state = { ack: 6, outcomes: range(3, 5), forgotten: 2 }
  const stateOf = ({ ack, outcomes, forgotten }: Settled) => ({ ack, outcomes: refs(outcomes), forgotten })

  it('the update that settles them says so, and so does the answer to an attach, of this owner and the next', async () => {
    const { bench, ann } = await forgotten()
    expect([refs(ann.errors), ann.acked, ann.forgotten]).toEqual([range(3, 5), 6, 2])
    expect(stateOf(await attach(bench, ann))).toEqual(state)
    expect(stateOf(await attach(bench.successor([ann]), ann))).toEqual(state)
  })

  it('nothing is unknown to a client that knows those outcomes', async () => {
    const { bench, ann } = await forgotten()
    expect(stateOf(await attach(bench, ann, 2))).toEqual({ ...state, forgotten: undefined })
    good(bench, 7, 6)
    await bench.settle()
    expect([ann.acked, ann.forgotten]).toEqual([7, 0])
  })

  it('an attach hears only of what is committed', async () => {
    const { bench, ann } = await forgotten()
    bench.store.mood = 'slow'
    for (const ref of range(7, 12)) bad(bench, ref)
    await bench.settle()
    expect(stateOf(await attach(bench, ann))).toEqual({ ack: 6, outcomes: [], forgotten: 6 })
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.settle()
    expect([ann.acked, ann.forgotten]).toEqual([12, 9])
  })
})

describe('messages that an earlier owner has settled and not stored', () => {
  it('count as settled and unknown: the edge has them no more, and what is behind them is applied', async () => {
    const { bench, ann } = await roomWith(counter({ durability: 'snapshot' }), ['ann'])
    good(bench, 1)
    await bench.advance(5000, 1000)
    const heir = bench.successor([ann])
    // The owner before has settled up to 3. The client knows of 2.
    heir.attach('counter', ann, 0, 'node_a', 2, undefined, 3)
    await heir.settle()
    good(heir, 4, 2)
    await heir.settle()
    expect([ann.acked, ann.forgotten, countOf(ann)]).toEqual([4, 3, 2])
    expect(heir.sentOf('resend')).toEqual([])
  })
})

describe('a range of messages that the edge has refused', () => {
  it('is settled message by message, as far as it was not before', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    const refuse = (from: number, through: number) =>
      bench.send('counter', 'ann', {
        kind: 'refuse',
        from,
        through,
        code: 'room_unavailable',
        message: 'full',
      })
    good(bench, 1)
    refuse(2, 3)
    refuse(2, 5)
    refuse(2, 4)
    good(bench, 6)
    await bench.settle()
    expect([refs(ann.errors), ann.acked, countOf(ann)]).toEqual([[2, 3, 4, 5], 6, 2])
    refuse(8, 9)
    await bench.settle()
    expect([ann.acked, bench.sentOf('resend').length]).toEqual([6, 1])
  })
})

it('an attach for a seat that has ended is answered with its end, and settles nothing in the next one', async () => {
  const { bench } = await roomWith(counter(), ['ann'])
  good(bench, 1)
  await bench.settle()
  bench.sent.length = 0
  const asked = { ask: 2, edge: 'node_a', turn: 1, codec: 'roomful.v1.json', session_id: 'ann' } as const
  const at = { epoch: 1, seq: 1, settled: 10, through: 10, seat: 'mem_before' }
  bench.send('counter', 'ann', { kind: 'attach', ...asked, ...at })
  await bench.settle()
  expect(bench.sent.map(({ kind }) => kind)).toEqual(['no_seat'])
})
