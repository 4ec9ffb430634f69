import { expect, test } from 'vitest'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { Pacer } from './pacer.ts'

const LIMITS = { max_message_bytes: 1024, messages_per_second: 10, message_burst: 10, max_rooms: 1 }

function paced() {
  const clock = new FakeClock()
  const written: number[] = []
  const pacer = new Pacer(clock, (payload) => written.push(payload[0]!))
  pacer.start(LIMITS)
  return { clock, written, pacer, send: (n: number) => pacer.send(Uint8Array.of(n)) }
}

test('a burst passes, the rest follows in order at the rate, below the limits of the server', () => {
  const { clock, written, send } = paced()
  for (let n = 0; n < 12; n++) send(n)
  expect(written).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
  clock.advance(124)
  expect(written).toHaveLength(8)
  clock.advance(1)
  expect(written).toHaveLength(9)
  clock.advance(1000)
  expect(written).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
})

test('nothing overtakes what waits', () => {
  const { clock, written, pacer, send } = paced()
  for (let n = 0; n < 9; n++) send(n)
  expect(pacer.trySend(Uint8Array.of(9))).toBe(false)
  send(10)
  clock.advance(10_000)
  expect(written.slice(8)).toEqual([8, 10])
  expect(pacer.trySend(Uint8Array.of(11))).toBe(true)
})

test('nothing overtakes what waits, even when a timer is late', () => {
  let now = 0
  const written: number[] = []
  const stuck = { now: () => now, monotonic: () => now, schedule: () => () => {} }
  const pacer = new Pacer(stuck, (payload) => written.push(payload[0]!))
  pacer.start(LIMITS)
  for (let n = 0; n < 9; n++) pacer.send(Uint8Array.of(n))
  now = 10_000
  expect(pacer.trySend(Uint8Array.of(9))).toBe(false)
  expect(written).toHaveLength(8)
})

test('a new connection does not bring a new burst, time does', () => {
  const { clock, written, pacer, send } = paced()
  for (let n = 0; n < 9; n++) send(n)
  pacer.stop()
  clock.advance(125)
  pacer.start(LIMITS)
  send(20)
  send(21)
  expect(written.slice(8)).toEqual([20])
  expect(clock.pending).toBe(1)
})
