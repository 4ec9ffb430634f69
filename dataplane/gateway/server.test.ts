import { once } from 'node:events'
import { connect } from 'node:net'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { newId } from '../../shared/ids.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { systemRandom } from '../../shared/random.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Records } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { expectClose, type TestClient, TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { problemIn, rawHttp } from '../../test/support/raw-client.ts'
import type { GatewayOptions } from './context.ts'
import { GATEWAY_METRICS } from './metrics.ts'
import { newResumeToken } from './resume-token.ts'
import { TrustedProxies } from './server.ts'

let test: TestGateway
const start = async (options: Partial<GatewayOptions> = {}): Promise<void> => {
  test = await TestGateway.start(options)
}
let answer = (): void => {}
afterEach(() => {
  answer()
  return test.close()
})

const from = (address: string) => ({ headers: { 'x-forwarded-for': address } })
const openFrom = (...addresses: string[]): Promise<TestClient[]> =>
  addresses.reduce<Promise<TestClient[]>>(
    async (opened, address) => [...(await opened), await test.open([], from(address))],
    Promise.resolve([]),
  )
const isOpen = ({ ws }: TestClient): boolean => ws.readyState === WebSocket.OPEN

/** A client whose hello is never answered, because control does not answer about its token. */
async function unanswered(options = {}): Promise<TestClient> {
  test.control.held = new Promise((resolve) => {
    answer = resolve
  })
  const client = await test.open([], options)
  client.send({ t: 'hello', project_id: 'prj_one', token: await test.token() })
  await test.control.firstQuestion
  return client
}

describe('origins', () => {
  beforeEach(() => start({ allowedOrigins: ['https://game.example'] }))

  it('that are not allowed get status 403', async () => {
    const ws = new WebSocket(test.url, { origin: 'https://evil.example' })
    ws.on('error', () => {})
    const [, response] = await once(ws, 'unexpected-response')
    expect(response.statusCode).toBe(403)
    ws.terminate()
  })

  it('that are not allowed are counted, and one in ten seconds is logged', async () => {
    await test.close()
    const registry = new Registry()
    const logged: Record<string, unknown>[] = []
    const log = pino({ level: 'warn' }, { write: (line) => logged.push(JSON.parse(line)) })
    test = await TestGateway.start(
      { allowedOrigins: ['https://game.example'] },
      { log, metrics: registerMetrics(registry, GATEWAY_METRICS) },
    )
    const refused = async (origin: string): Promise<void> => {
      const ws = new WebSocket(test.url, { origin })
      ws.on('error', () => {})
      await once(ws, 'unexpected-response')
      ws.terminate()
    }
    for (const origin of ['https://evil.example', 'https://game.example.evil']) await refused(origin)
    expect(logged).toMatchObject([
      { msg: 'websocket of a foreign origin refused', origin: 'https://evil.example' },
    ])
    expect(await registry.metrics()).toContain('service_connections_dropped_total{reason="origin"} 2')
    test.clock.advance(10_000)
    await refused('https://evil.example')
    expect(logged).toHaveLength(2)
  })

  it('are compared in the form that browsers send, however the configuration writes them', async () => {
    await test.close()
    await start({ allowedOrigins: ['HTTPS://Game.Example:443', 'https://*.play.example'] })
    for (const origin of ['https://game.example', 'https://a.play.example']) await test.open([], { origin })
  })

  it('that are allowed, and clients without an origin, may connect', async () => {
    const browser = await test.open([], { origin: 'https://game.example' })
    const native = await test.open()
    expect([browser.ws.readyState, native.ws.readyState]).toEqual([WebSocket.OPEN, WebSocket.OPEN])
  })
})

describe('websockets from one address', () => {
  /** Returns the status of the upgrade of a client from this address. */
  const upgrade = async (forwardedFor?: string): Promise<number> => {
    const headers = forwardedFor === undefined ? {} : { 'x-forwarded-for': forwardedFor }
    const ws = new WebSocket(test.url, { headers })
    ws.on('error', () => {})
    const [response] = await Promise.race([
      once(ws, 'upgrade'),
      once(ws, 'unexpected-response').then(([, response]) => [response]),
    ])
    return response.statusCode
  }
  const upgrades = async (count: number, forwardedFor?: string): Promise<number[]> => {
    const statuses: number[] = []
    for (let n = 0; n < count; n++) statuses.push(await upgrade(forwardedFor))
    return statuses
  }
  const startCounting = (options: Partial<GatewayOptions> = {}): Promise<void> =>
    start({ connectionsPerSecondPerAddress: 1, ...options })

  it('are limited per second, behind a load balancer that names the address', async () => {
    await startCounting()
    expect(await upgrades(11, '203.0.113.7')).toEqual([...Array(10).fill(101), 429])
    expect(await upgrade('203.0.113.8')).toBe(101)
    test.clock.advance(1000)
    expect(await upgrades(2, '203.0.113.7')).toEqual([101, 429])
  })

  it('are not counted behind a load balancer that names no address, because it would stand for all players', async () => {
    await startCounting()
    expect(await upgrades(15)).toEqual(Array(15).fill(101))
  })

  it('are counted without a load balancer', async () => {
    await startCounting({ trustedProxies: [] })
    expect(await upgrades(11)).toEqual([...Array(10).fill(101), 429])
  })
})

describe('a burst of new clients', () => {
  const CROWD = 40

  /** Returns how much a count grew in each turn of the event loop, until it has grown by all of them. */
  async function growth(count: () => number): Promise<number[]> {
    const grown: number[] = []
    const all = count() + CROWD
    for (let turn = 0, before = count(); before < all && turn < 1e5; turn++) {
      await new Promise((resolve) => setImmediate(resolve))
      if (count() > before) grown.push(count() - before)
      before = count()
    }
    return grown
  }

  it('is upgraded, and has its hellos handled, a few in each turn: players are read in between', async () => {
    const { records } = memoryStore({ clock: new FakeClock() })
    let looks = 0
    const read: Records['read'] = (key) => {
      looks += 1
      return records.read(key)
    }
    test = await TestGateway.start({}, { records: { ...records, read } })
    const { port } = new URL(test.httpUrl)
    const sockets = Array.from({ length: CROWD }, () => connect(Number(port), '127.0.0.1'))
    await Promise.all(sockets.map((socket) => once(socket, 'connect')))
    for (const socket of sockets)
      socket.write(
        'GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n' +
          `Sec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}\r\nSec-WebSocket-Protocol: roomful.v1.json\r\n\r\n`,
      )
    const upgraded = await growth(() => test.gateway.connections)
    for (const socket of sockets) socket.destroy()

    const clients = await Promise.all(Array.from({ length: CROWD }, () => test.open()))
    const [session_id, resume_token] = [newId('ses', systemRandom), newResumeToken(systemRandom).resume_token]
    for (const client of clients)
      client.send({ t: 'hello', project_id: 'prj_one', resume: { session_id, resume_token, rooms: [] } })
    const greeted = await growth(() => looks)
    for (const perTurn of [upgraded, greeted]) {
      expect(perTurn.reduce((sum, count) => sum + count)).toBe(CROWD)
      expect(Math.max(...perTurn)).toBeLessThanOrEqual(4)
    }
  })
})

describe('an upgrade that is refused', () => {
  const upgrade = (version: number) =>
    'GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: Upgrade\r\nx-request-id: of-the-caller\r\n' +
    `origin: https://evil.example\r\nsec-websocket-version: ${version}\r\n` +
    `sec-websocket-key: ${Buffer.alloc(16).toString('base64')}\r\n\r\n`

  it('gets a problem with the id of the request', async () => {
    await start({ allowedOrigins: ['https://game.example'] })
    const answer = await rawHttp(test.httpUrl, upgrade(13))
    expect(answer).toMatch(/^HTTP\/1\.1 403 /)
    expect(problemIn(answer)).toMatchObject({
      code: 'origin_not_allowed',
      detail: 'The origin https://evil.example may not connect here.',
      request_id: 'of-the-caller',
    })
  })

  it('gets the supported version, if it asks for another', async () => {
    await start()
    const answer = await rawHttp(test.httpUrl, upgrade(99))
    expect(answer).toContain('sec-websocket-version: 13\r\n')
    expect(problemIn(answer)).toMatchObject({ code: 'invalid_request', request_id: 'of-the-caller' })
  })

  it('gets a problem also if its headers are too large, and is counted', async () => {
    const registry = new Registry()
    test = await TestGateway.start({}, { metrics: registerMetrics(registry, GATEWAY_METRICS) })
    const answer = await rawHttp(
      test.httpUrl,
      `GET / HTTP/1.1\r\nhost: a\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`,
    )
    expect(problemIn(answer)).toMatchObject({ status: 431, code: 'headers_too_large' })
    expect(await registry.metrics()).toContain('service_connections_dropped_total{reason="headers"} 1')
  })
})

it('closes a silent connection, or refuses and counts the new one, if the process cannot open more files', async () => {
  const registry = new Registry()
  test = await TestGateway.start(
    {},
    { metrics: registerMetrics(registry, GATEWAY_METRICS), maxConnections: 1 },
  )
  const silent = await test.open()
  const { client } = await test.hello()
  await silent.closed
  await expect(fetch(test.httpUrl)).rejects.toThrow()
  expect(await registry.metrics()).toContain('service_connections_dropped_total{reason="files"} 2')
  client.ws.terminate()
  await vi.waitFor(async () => expect((await fetch(test.httpUrl)).status).toBe(426), 60_000)
})

describe('a plain HTTP request', () => {
  it('gets status 426, with the name of the subprotocol', async () => {
    await start()
    const response = await fetch(test.httpUrl)
    expect(response.status).toBe(426)
    expect(response.headers.get('upgrade')).toBe('websocket')
    const problem = await response.json()
    expect(problem).toMatchObject({
      code: 'upgrade_required',
      detail: expect.stringContaining('roomful.v1.json'),
    })
    expect(response.headers.get('x-request-id')).toBe(problem.request_id)
  })
})

describe('closing', () => {
  it('says goodbye to every client, and does not wait for silent connections', async () => {
    await start()
    const client = await test.open()
    const silent = connect(Number(new URL(test.httpUrl).port), '127.0.0.1')
    await once(silent, 'connect')
    const ended = once(silent, 'close')
    await test.gateway.close()
    await expectClose(client, 'draining', /going away/)
    await ended
  })
})

describe('connections without a session', () => {
  it('that are silent block no other client: at the bound the oldest is destroyed', async () => {
    await start({ maxPendingConnections: 3 })
    const silent = await openFrom('203.0.113.1', '203.0.113.2', '203.0.113.3')
    await (await test.hello()).client.roundTrip()
    await silent[0]!.closed
    expect(silent.map(isOpen)).toEqual([false, true, true])
    expect(test.gateway.pending).toBe(2)
  })

  it('that have sent hello stay: a new one is refused, and accepted later', async () => {
    await start({ maxPendingConnections: 1 })
    const first = await unanswered()
    const refused = new WebSocket(test.url)
    await once(refused, 'error')
    first.ws.terminate()
    await first.closed
    await expect.poll(() => test.gateway.pending).toBe(0)
    await test.open()
  })

  it('count until they have a session, and not after', async () => {
    await start({ maxPendingConnections: 2 })
    const players = [await test.hello(), await test.hello(), await test.hello()]
    expect(test.gateway.pending).toBe(0)
    await Promise.all(players.map(({ client }) => client.roundTrip()))
  })

  it('of one address have a separate bound, which affects no other address', async () => {
    await start({ maxPendingConnectionsPerAddress: 2 })
    const other = await openFrom('203.0.113.7')
    const flood = await openFrom('203.0.113.8', '203.0.113.8', '203.0.113.8')
    await flood[0]!.closed
    expect([...other, ...flood].map(isOpen)).toEqual([true, false, true, true])
  })

  it('of one address are refused with 429 if all of them have sent hello', async () => {
    await start({ maxPendingConnectionsPerAddress: 1 })
    await unanswered(from('203.0.113.7'))
    const refused = new WebSocket(test.url, from('203.0.113.7'))
    refused.on('error', () => {})
    const [, response] = await once(refused, 'unexpected-response')
    expect(response.statusCode).toBe(429)
    refused.terminate()
    await openFrom('203.0.113.8')
  })

  it('count for the address that they come from, whatever a client that is not a trusted proxy says', async () => {
    await start({ maxPendingConnectionsPerAddress: 2, trustedProxies: ['10.0.0.0/8'] })
    const flood = await openFrom('203.0.113.1', '203.0.113.2', '203.0.113.3')
    await flood[0]!.closed
    expect(flood.map(isOpen)).toEqual([false, true, true])
  })

  it('of a trusted proxy that names no client are not counted as one address', async () => {
    await start({ maxPendingConnectionsPerAddress: 1 })
    const clients = [await test.open(), await test.open(), await test.open()]
    expect(clients.map(isOpen)).toEqual([true, true, true])
  })
})

const proxies = new TrustedProxies(['10.0.0.0/8', '192.0.2.1', '2001:db8:1::/48', '::1'])

describe('the address of a client', () => {
  it.each([
    ['a peer that is no proxy', '203.0.113.7', undefined, '203.0.113.7'],
    ['its header is not believed', '203.0.113.7', '198.51.100.1', '203.0.113.7'],
    ['behind a proxy', '10.0.0.1', '203.0.113.7', '203.0.113.7'],
    ['behind a proxy whose address is mapped into IPv6', '::ffff:10.0.0.1', '203.0.113.7', '203.0.113.7'],
    [
      'behind two: the last address that is no proxy',
      '10.0.0.1',
      '198.51.100.1, 203.0.113.7, 192.0.2.1',
      '203.0.113.7',
    ],
    ['with a port', '10.0.0.1', '203.0.113.7:4711', '203.0.113.7'],
    ['IPv6: the first 64 bits', '2001:db8:1::9', '2001:db8:2:3:4:5:6:7', '2001:db8:2:3'],
    ['IPv6, shortened', '::1', '2001:db8:2::7', '2001:db8:2:0'],
    ['IPv6, shortened at the start of its second half', '::1', '2001:db8:2:3::', '2001:db8:2:3'],
    ['IPv6 in brackets, with a port and a zone', '::1', '[fe80::1%eth0]:4711', 'fe80:0:0:0'],
  ])('%s', (_, peer, header, address) => {
    expect(proxies.clientOf(peer, header)).toBe(address)
  })

  it('is behind a peer in a private network, if those are trusted', () => {
    const local = new TrustedProxies(['private', '203.0.113.0/24'])
    for (const peer of [
      '127.0.0.1',
      '::1',
      '10.1.2.3',
      '172.31.0.1',
      '192.168.1.1',
      'fd00::1',
      '203.0.113.9',
    ])
      expect(local.clientOf(peer, '198.51.100.1'), peer).toBe('198.51.100.1')
    for (const peer of ['172.32.0.1', '192.0.2.1']) expect(local.clientOf(peer, '198.51.100.1')).toBe(peer)
  })

  it.each([
    ['a proxy says nothing', '10.0.0.1', undefined],
    ['a proxy names proxies alone', '10.0.0.1', '10.1.2.3'],
    ['a proxy names no address', '10.0.0.1', 'unknown'],
    ['the peer has gone', undefined, '203.0.113.7'],
  ])('is unknown if %s', (_, peer, header) => {
    expect(proxies.clientOf(peer, header)).toBeUndefined()
  })
})
