import { once } from 'node:events'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { expectClose } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { drainConnections } from './gateway.ts'

const WITHIN_MS = 10_000

/** A drain of so many connections: when each is told to move, and when it was closed. */
function drain(count: number) {
  const clock = new FakeClock()
  const toldMs: number[] = []
  const closedMs: number[] = []
  const connection = {
    send: (message: ServerMessage) => {
      if (message.t === 'move') toldMs.push(message.in_ms)
    },
    close: () => void closedMs.push(clock.monotonic() - began),
  }
  const began = clock.monotonic()
  const connections = Array.from({ length: count }, () => connection)
  void drainConnections(connections, { clock, random: new SeededRandom(1), withinMs: WITHIN_MS })
  return { clock, told_ms: toldMs, closed_ms: closedMs }
}

/**
 * A load balancer needs some checks to find out that the node is not ready. A client that left before that was sent back to it (it has the fewest
 * connections of all), refused, and tried again.
 */
it('moves no client before load balancers have noticed', () => {
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
  clock.advance(WITHIN_MS + 2000)
  expect(closedMs).toHaveLength(500)
  expect(Math.min(...closedMs)).toBeGreaterThan(WITHIN_MS / 10)
})

describe('a drain', () => {
  let test: TestGateway
  beforeEach(async () => {
    test = await TestGateway.start()
  })
  afterEach(() => test.close())

  it('is over as soon as the last client has gone by itself', async () => {
    const clients = [(await test.hello()).client, (await test.hello()).client]
    const drained = test.gateway.drain(5000)
    for (const client of clients) {
      const { in_ms: inMs } = await client.next('move')
      expect(inMs).toBeGreaterThanOrEqual(500)
      client.ws.close(1001)
    }
    await drained
  })

  it('answers a new websocket with 503, so that a load balancer goes on to the next node', async () => {
    await test.hello()
    void test.gateway.drain(5000)
    const late = new WebSocket(test.url)
    const [, { statusCode }] = await once(late, 'unexpected-response')
    expect(statusCode).toBe(503)
  })

  it('welcomes a client whose hello was under way, and tells it too', async () => {
    let answer = () => {}
    test.control.held = new Promise((resolve) => {
      answer = resolve
    })
    const client = await test.open()
    client.send({ t: 'hello', project_id: 'prj_one', token: await test.token() })
    await test.control.firstQuestion
    const silent = await test.open()
    // Over before the handshake of the silent one would be.
    const drained = test.gateway.drain(2000)
    answer()
    await client.next('move')
    expect(client.received.map(({ t }) => t)).toEqual(['welcome', 'move'])
    test.clock.advance(4000)
    await expectClose(silent, 'draining', /resume on another/)
    await drained
  })
})

/** One sweep a second sees to everything that has a deadline in seconds. */
it('an idle connection has no timer of its own, and the sockets below it have none', async () => {
  const gateway = await TestGateway.start()
  const timers = (): number => {
    const running = process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length
    return gateway.clock.pending + running
  }
  const clients = [await gateway.join('one')]
  const before = timers()
  for (let i = 0; i < 20; i++) clients.push(await gateway.join('one'))
  expect(timers()).toBeLessThanOrEqual(before + 2)
  for (const { client } of clients) client.ws.terminate()
  await gateway.close()
})
