import { expect, it } from 'vitest'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { MessagePace, PlayerPaces } from './message-pace.ts'
import { gatewayOptions } from './options.ts'

const { limits } = gatewayOptions()

/** How many messages of a session are rejected before its connection is closed. */
function rejectedBeforeClose(pace: MessagePace): number {
  let rejected = 0
  for (;;) {
    const verdict = pace.admit()
    if (verdict === 'too_many') return rejected
    if (verdict === 'reject') rejected += 1
  }
}

it('a player who floods in one new session after another is borne with no longer than four sessions are, until time has passed', () => {
  const clock = new FakeClock()
  const players = new PlayerPaces(clock, limits)
  const session = (player: string) => new MessagePace(clock, limits, { shared: players.of(player) })
  const flood = () => Array.from({ length: 10 }, () => rejectedBeforeClose(session('p/mallory')))
  const patience = 10 * limits.messages_per_second
  expect(flood()).toEqual([...Array(4).fill(patience), ...Array(6).fill(0)])
  expect(rejectedBeforeClose(session('p/ann'))).toBe(patience)
  expect(session('p/mallory').admit()).toBe('too_many')
  clock.advance(10_000)
  expect(session('p/mallory').admit()).toBe('pass')
  expect(flood().reduce((sum, rejected) => sum + rejected)).toBe(4 * limits.messages_per_second)
})
