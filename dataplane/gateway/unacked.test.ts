import { describe, expect, it } from 'vitest'
import { roomAddress } from '../traffic.ts'
import { gatewayOptions } from './context.ts'
import { type Reliable, Unacked } from './unacked.ts'

const BYTES = 100
const { maxUnackedMessages, maxUnackedBytes } = gatewayOptions()
const empty = (): Unacked => new Unacked({ messages: maxUnackedMessages, bytes: maxUnackedBytes })

const message = (ref: number): Reliable => ({
  kind: 'message',
  room: roomAddress('prj_1', 'arena', 'a'),
  member_id: 'mem_1',
  type: 'move',
  data: null,
  ref,
})

/**
 * An owner that hangs keeps its connections and its lease: no one takes its rooms before the lease has run out, has been read by the
 * others (a quarter of a lease later at most), and the room is restored. Members who play on meanwhile are not to be refused anything.
 */
it('has room for all that a client at its rate says while a hanging owner is found out', () => {
  const { sessionMessagesPerSecond, nodeLeaseMs } = gatewayOptions()
  const seconds = (1.25 * nodeLeaseMs) / 1000 + 1
  const unacked = empty()
  for (let ref = 1; ref <= sessionMessagesPerSecond * seconds; ref++)
    expect(unacked.add(message(ref), BYTES)).toBeDefined()
})

it('gives again what is not settled, each behind the one before it', () => {
  const unacked = empty()
  for (const ref of [1, 2, 5, 6]) unacked.add(message(ref), BYTES)
  expect(unacked.again(2).map(({ ref, after }) => [ref, after])).toEqual([
    [5, 2],
    [6, 5],
  ])
})

describe('where it is full', () => {
  it.each([
    ['messages', { messages: 3, bytes: 1_000_000 }],
    ['bytes', { messages: 1000, bytes: 3 * BYTES }],
  ])('it takes no more %s, and goes on once some are settled', (_what, limits) => {
    const unacked = new Unacked(limits)
    for (const ref of [1, 2, 3]) expect(unacked.add(message(ref), BYTES)).toBeDefined()
    expect(unacked.add(message(4), BYTES)).toBeUndefined()
    // It waits already: a client that sends it again is not to be told that it was refused.
    expect(unacked.add(message(2), BYTES)).toMatchObject({ ref: 2, after: 1 })
    unacked.settle(1)
    expect(unacked.add(message(5), BYTES)).toBeDefined()
    expect(unacked.add(message(6), BYTES)).toBeUndefined()
    unacked.settle(5)
    expect(unacked.add(message(7), BYTES)).toBeDefined()
  })

  it('one message may wait, however large', () => {
    const unacked = new Unacked({ messages: 10, bytes: 50 })
    expect(unacked.add(message(1), BYTES)).toBeDefined()
    expect(unacked.add(message(2), 1)).toBeUndefined()
  })

  it('the owner hears of what was turned away with the next that is not, until that is settled', () => {
    const unacked = new Unacked({ messages: 2, bytes: 1000 })
    for (const ref of [1, 2, 3, 4]) unacked.add(message(ref), BYTES)
    unacked.settle(1)
    // It was refused, and stays so.
    expect(unacked.add(message(4), BYTES)).toBeUndefined()
    expect(unacked.add(message(5), BYTES)).toMatchObject({ ref: 5, after: 2, skipped: 4 })
    expect(unacked.again(1)).toMatchObject([{ ref: 2 }, { ref: 5, skipped: 4 }])
    expect(unacked.again(1)[0]?.skipped).toBeUndefined()
    unacked.settle(5)
    expect(unacked.add(message(6), BYTES)?.skipped).toBeUndefined()
  })
})

it('gives all of it, also to an owner that refuses some while it is being given', () => {
  const unacked = empty()
  for (const ref of [1, 2, 3]) unacked.add(message(ref), BYTES)
  const given: number[] = []
  for (const { ref } of unacked.again(0)) {
    given.push(ref)
    unacked.refused(ref, 'rate_limited', 'too fast')
  }
  expect(given).toEqual([1, 2, 3])
})

describe('what an owner has refused', () => {
  const REFUSED = { kind: 'refuse', code: 'room_logic_refused', message: 'not your turn' }

  it('goes to the next owner as refused, unless an ack has covered it, and is never applied there', () => {
    const unacked = empty()
    for (const ref of [1, 2, 3]) unacked.add(message(ref), BYTES)
    for (const ref of [1, 2]) unacked.refused(ref, 'room_logic_refused', 'not your turn')
    unacked.settle(1)
    const [second, third] = unacked.again(1)
    expect(second).toEqual({ ...REFUSED, room: second!.room, member_id: 'mem_1', ref: 2, after: 1 })
    expect(third).toMatchObject({ kind: 'message', ref: 3, after: 2 })
    unacked.settle(3)
    expect(unacked.again(3)).toEqual([])
  })

  it('takes the bytes of its text, and no place where its outcome is not known', () => {
    const unacked = new Unacked({ messages: 2, bytes: 2 * BYTES })
    unacked.add(message(1), 2 * BYTES)
    expect(unacked.add(message(2), BYTES)).toBeUndefined()
    unacked.refused(1, 'room_logic_refused', 'no')
    expect(unacked.add(message(3), BYTES)).toBeDefined()
    unacked.refused(1, 'outcome_unknown', 'it came before')
    expect(unacked.again(0)).toMatchObject([{ kind: 'message', ref: 3 }])
  })
})
