import { expect, it } from 'vitest'
import { roomAddress } from '../traffic.ts'
import { gatewayOptions } from './context.ts'
import { type Reliable, Unacked } from './unacked.ts'

const BYTES = 100
const { maxUnackedMessages, maxUnackedBytes } = gatewayOptions()

const seat = { room: roomAddress('prj_1', 'arena', 'a'), member_id: 'mem_1' }
const message = (ref: number): Reliable => ({ kind: 'message', ...seat, type: 'move', data: null, ref })
const refusal = (ref: number, text = 'no room'): Reliable => ({
  kind: 'refuse',
  ...seat,
  from: ref,
  through: ref,
  code: 'room_unavailable',
  message: text,
})

/**
 * An owner that hangs keeps its connections and its lease: no one takes its rooms before the lease has run out, has been read by the
 * others (a quarter of a lease later at most), and the room is restored. Members who play on meanwhile are not to be refused anything.
 */
it('has room for all that a client at its rate says while a hanging owner is found out', () => {
  const { sessionMessagesPerSecond, nodeLeaseMs } = gatewayOptions()
  const seconds = (1.25 * nodeLeaseMs) / 1000 + 1
  const unacked = new Unacked({ messages: maxUnackedMessages, bytes: maxUnackedBytes })
  for (let ref = 1; ref <= sessionMessagesPerSecond * seconds; ref++) {
    expect(unacked.isFull(BYTES)).toBe(false)
    unacked.add(message(ref), BYTES)
  }
})

it('has room for one message, however large', () => {
  const unacked = new Unacked({ messages: 10, bytes: 50 })
  expect(unacked.isFull(BYTES)).toBe(false)
  unacked.add(message(1), BYTES)
  expect(unacked.isFull(1)).toBe(true)
})

it('keeps equal refusals in a row as one range, and another text as another', () => {
  const unacked = new Unacked({ messages: 1, bytes: BYTES })
  unacked.add(message(1), BYTES)
  for (const ref of [2, 3, 4]) unacked.add(refusal(ref), 10)
  unacked.add(refusal(5, 'other'), 10)
  expect(unacked.messages).toMatchObject([{ ref: 1 }, { from: 2, through: 4 }, { from: 5, through: 5 }])
  unacked.settle(3)
  expect(unacked.messages).toMatchObject([{ from: 2, through: 4 }, { from: 5 }])
  unacked.settle(4)
  expect(unacked.messages).toMatchObject([{ from: 5 }])
  expect([unacked.settled, unacked.last]).toEqual([4, 5])
})

it('keeps nothing that is settled already', () => {
  const unacked = new Unacked({ messages: 10, bytes: 1000 })
  unacked.restart(3)
  unacked.settle(5)
  for (const ref of [4, 5, 6]) unacked.add(message(ref), BYTES)
  expect(unacked.messages).toMatchObject([{ ref: 6 }])
})

it('gives all of it, also to an owner that settles some while it is being given', () => {
  const unacked = new Unacked({ messages: 10, bytes: 1000 })
  for (const ref of [1, 2, 3]) unacked.add(message(ref), BYTES)
  const given = unacked.messages.map((kept) => {
    unacked.settle(2)
    return kept.kind === 'message' && kept.ref
  })
  expect(given).toEqual([1, 2, 3])
})
