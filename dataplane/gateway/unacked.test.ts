import { expect, it } from 'vitest'
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

it('has room for one message, however large', () => {
  const unacked = new Unacked({ messages: 10, bytes: 50 })
  expect(unacked.add(message(1), BYTES)).toBeDefined()
  expect(unacked.add(message(2), 1)).toBeUndefined()
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

it('counts for what was refused the bytes of the text, and nothing where the outcome is not known', () => {
  const unacked = new Unacked({ messages: 2, bytes: 2 * BYTES })
  unacked.add(message(1), 2 * BYTES)
  expect(unacked.add(message(2), BYTES)).toBeUndefined()
  unacked.refused(1, 'room_logic_refused', 'no')
  expect(unacked.add(message(3), BYTES)).toBeDefined()
  unacked.refused(1, 'outcome_unknown', 'it came before')
  expect(unacked.again(0)).toMatchObject([{ kind: 'message', ref: 3 }])
})
