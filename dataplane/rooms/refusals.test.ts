import { describe, expect, it } from 'vitest'
import { counter } from '../../test/support/rooms/counter-room.ts'
import type { TestMember } from '../../test/support/rooms/room-bench.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { JournalFormat } from './journal.ts'
import { restore } from './restore.ts'

const unknown = (ref: number) => expect.objectContaining({ ref, code: 'outcome_unknown' })
const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i)

/** A message that the room refuses. */
const bad = (bench: RoomBench, ref: number, more: { settled?: number; after?: number } = {}): void =>
  bench.send('counter', 'ann', { kind: 'message', type: 'nonsense', data: null, ref, ...more })

const good = (bench: RoomBench, ref: number, more: { settled?: number; after?: number } = {}): void =>
  bench.send('counter', 'ann', { kind: 'message', type: 'inc', data: { by: 1 }, ref, ...more })

const attach = (bench: RoomBench, member: TestMember, settled?: number) =>
  bench.resume('counter', member, 0, 'node_a', settled)

const refs = (list: readonly { ref?: number | undefined }[]) => list.map(({ ref }) => ref)

describe('a message that was refused', () => {
  it.each([
    ['a bounded place in memory, in an update and in the record, however many there are', 99_000, false],
    ['no place in the journal once its client knows', 5000, true],
  ] as const)('takes %s', async (_, last, known) => {
    const { bench } = await roomWith(counter(), ['ann'])
    bench.store.mood = 'slow'
    good(bench, 1)
    await bench.settle()
    for (const ref of range(2, last)) bad(bench, ref, known ? { settled: ref - 1 } : {})
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
    for (const ref of range(1, 20))
      bench.send('counter', 'ann', { kind: 'refuse', ref, code: 'rate_limited', message: text })
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
      for (const member of members) told.push((await attach(bench, member)).outcomes)
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
    ann.errors.length = 0
    ann.acked = 0
    return { bench, ann }
  }

  it('what comes again is answered by itself, and acked only then', async () => {
    const { bench, ann } = await forgotten()
    const answer = await attach(bench, ann)
    expect([answer.ack, refs(answer.outcomes)]).toEqual([undefined, [3, 4, 5]])
    for (const ref of [1, 2]) bad(bench, ref)
    await bench.settle()
    expect([ann.errors, ann.acked]).toEqual([[unknown(1), unknown(2)], 0])
    good(bench, 6)
    await bench.settle()
    expect([ann.errors.length, ann.acked, ann.state]).toEqual([2, 6, expect.objectContaining({ count: 1 })])
  })

  it('no ack of an update that is under way comes before that', async () => {
    const { bench, ann } = await forgotten()
    bench.store.mood = 'slow'
    good(bench, 7)
    await bench.settle()
    await attach(bench, ann)
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.settle()
    expect(ann.acked).toBe(0)
    bad(bench, 1)
    good(bench, 7)
    await bench.settle()
    expect([ann.errors, ann.acked]).toEqual([[unknown(1)], 7])
  })

  it('a client that knows those outcomes is acked at once, one that sends nothing again with its next message', async () => {
    const { bench, ann } = await forgotten()
    await attach(bench, ann)
    good(bench, 7)
    await bench.settle()
    expect([ann.errors, ann.acked]).toEqual([[], 7])
    expect(await attach(bench, ann, 2)).toMatchObject({ ack: 7 })
  })

  it('one that was lost on the way to the owner is asked for, before any behind it is answered', async () => {
    const { bench, ann } = await forgotten()
    await attach(bench, ann)
    for (const behind of [6, 7]) {
      good(bench, behind, { after: 1 })
      await bench.settle()
      expect([ann.errors, ann.acked, bench.sentOf('resend').length]).toEqual([[], 0, 1])
    }
    await attach(bench, ann)
    bad(bench, 1)
    good(bench, 6, { after: 1 })
    await bench.settle()
    expect([ann.errors, ann.acked]).toEqual([[unknown(1)], 6])
  })

  it('the next owner knows that too', async () => {
    const { bench, ann } = await forgotten()
    const heir = bench.successor([ann])
    const answer = await attach(heir, ann)
    expect([answer.ack, refs(answer.outcomes)]).toEqual([undefined, [3, 4, 5]])
    bad(heir, 2)
    good(heir, 6)
    await heir.settle()
    expect([ann.errors, ann.acked]).toEqual([[unknown(2)], 6])
  })

  it('since the edge turned it away, it counts as forgotten with the message behind it', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    good(bench, 1)
    bench.send('counter', 'ann', {
      kind: 'message',
      type: 'inc',
      data: { by: 1 },
      ref: 5,
      after: 1,
      skipped: 4,
    })
    await bench.settle()
    expect(ann.acked).toBe(5)
    const answer = await attach(bench, ann)
    expect([answer.ack, answer.outcomes]).toEqual([undefined, []])
    good(bench, 4)
    good(bench, 5)
    await bench.settle()
    expect([ann.errors, ann.acked, ann.state]).toEqual([
      [unknown(4)],
      5,
      expect.objectContaining({ count: 2 }),
    ])
  })
})
