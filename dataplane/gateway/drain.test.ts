import { expect, it } from 'vitest'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import { drainConnections } from './drain.ts'

const WITHIN_MS = 10_000

/** A drain of so many connections: when each is told to move, and when it was closed. */
function drain(count: number) {
  const clock = new FakeClock()
  const toldMs: number[] = []
  const closedMs: number[] = []
  const connection = {
    send: (message: ServerMessage) => {
      if (message.t === 'draining') toldMs.push(message.reconnect_in_ms)
    },
    close: () => void closedMs.push(clock.monotonic() - began),
  }
  const began = clock.monotonic()
  const connections = Array.from({ length: count }, () => connection)
  drainConnections(connections, { clock, random: new SeededRandom(1), withinMs: WITHIN_MS })
  return { clock, told_ms: toldMs, closed_ms: closedMs }
}

/**
 * A load balancer needs some checks to find out that the node is not ready. Whoever left before that was sent back to it (it has the fewest
 * connections of all), refused, and backed off longer each time: the longest pause of a rolling restart.
 */
it('moves nobody before load balancers have noticed', () => {
  const { told_ms: toldMs } = drain(500)
  expect(toldMs).toHaveLength(500)
  expect(Math.min(...toldMs)).toBeGreaterThanOrEqual(WITHIN_MS / 10)
})

it('moves all others evenly over the rest of the time, and is over by then', () => {
  const { clock, told_ms: toldMs, closed_ms: closedMs } = drain(500)
  const early = toldMs.filter((moment) => moment < (WITHIN_MS * 5.5) / 10)
  expect(early.length).toBeGreaterThan(200)
  expect(early.length).toBeLessThan(300)
  expect(Math.max(...toldMs)).toBeLessThan(WITHIN_MS)
  clock.advance(WITHIN_MS + 500)
  expect(closedMs).toHaveLength(500)
  expect(Math.min(...closedMs)).toBeGreaterThan(WITHIN_MS / 10)
})
