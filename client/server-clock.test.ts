import { expect, test } from 'vitest'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { online } from '../test/support/client/play.ts'
import { ServerClock } from './server-clock.ts'

const stamp = (ms: number): string => new Date(ms).toISOString()

test('the error of the server time is at most half a round trip, whatever the own clock says', () => {
  const clock = new FakeClock(5_000_000)
  const server = new ServerClock(clock)
  expect(server.now()).toBe(5_000_000)
  clock.advance(40)
  server.welcome(0, stamp(1_000_020))
  expect(server.now()).toBe(1_000_040)
  clock.advance(1000)
  expect(server.now()).toBe(1_001_040)
})

test('the shortest of the latest round trips counts', () => {
  const clock = new FakeClock(0)
  const server = new ServerClock(clock)
  server.welcome(0, stamp(1000))
  // 300 ms, nearly all of it on the way back. Without the other round trips the estimate would be 140 ms late.
  clock.advance(300)
  server.pong(0, stamp(1010))
  expect(server.now()).toBe(1300)
})

test('the latency starts with the handshake, and then follows the pings smoothly', () => {
  const clock = new FakeClock()
  const server = new ServerClock(clock)
  expect(server.latency).toBe(0)
  clock.advance(200)
  server.welcome(0, stamp(0))
  expect(server.latency).toBe(200)
  const ping = (rtt: number) => {
    const sentAt = clock.monotonic()
    clock.advance(rtt)
    server.pong(sentAt, stamp(0))
  }
  ping(50)
  expect(server.latency).toBe(50)
  ping(100)
  expect(server.latency).toBe(60)
})

test('a client has the latency and the server time', async () => {
  const { client, server, clock } = await online()
  expect(client.latency).toBe(0)
  expect(client.serverTime()).toBe(clock.now())
  server.onPing = ({ at }) => {
    clock.advance(30)
    server.send({ t: 'pong', at, server_time: stamp(clock.now() - 15) })
  }
  clock.advance(10_000)
  expect(client.latency).toBe(6)
  expect(client.serverTime()).toBe(clock.now())
})
