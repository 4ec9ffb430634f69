import { once } from 'node:events'
import { afterEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import type { TestClient } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'
import type { GatewayOptions } from './options.ts'

let test: TestGateway
const start = async (options: Partial<GatewayOptions>): Promise<void> => {
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

/** A client whose hello is never answered, since control does not say what it thinks of the token. */
async function unanswered(options = {}): Promise<TestClient> {
  test.control.held = new Promise((resolve) => {
    answer = resolve
  })
  const client = await test.open([], options)
  client.send({ t: 'hello', project_id: 'prj_one', token: await test.token() })
  await test.control.firstQuestion
  return client
}

describe('connections without a session', () => {
  it('that say nothing keep no one out: at the bound the oldest makes room', async () => {
    await start({ maxPendingConnections: 3 })
    const silent = await openFrom('203.0.113.1', '203.0.113.2', '203.0.113.3')
    await (await test.hello()).client.roundTrip()
    await silent[0]!.closed
    expect(silent.map(isOpen)).toEqual([false, true, true])
    expect(test.gateway.pending).toBe(2)
  })

  it('that have said hello make no room: the newcomer is refused, and is let in later', async () => {
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

  it('of one address have a bound of their own, which is no one else’s', async () => {
    await start({ maxPendingConnectionsPerAddress: 2 })
    const other = await openFrom('203.0.113.7')
    const flood = await openFrom('203.0.113.8', '203.0.113.8', '203.0.113.8')
    await flood[0]!.closed
    expect([...other, ...flood].map(isOpen)).toEqual([true, false, true, true])
  })

  it('of one address are refused with 429 when all of them have said hello', async () => {
    await start({ maxPendingConnectionsPerAddress: 1 })
    await unanswered(from('203.0.113.7'))
    const refused = new WebSocket(test.url, from('203.0.113.7'))
    refused.on('error', () => {})
    const [, response] = await once(refused, 'unexpected-response')
    expect(response.statusCode).toBe(429)
    refused.terminate()
    await openFrom('203.0.113.8')
  })

  it('are of the address they come from, whatever a client that is no trusted proxy says', async () => {
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

describe('connections in all', () => {
  it('are as many as there may be sessions and connections without one', async () => {
    await start({ maxSessions: 2, maxPendingConnections: 1 })
    const players = [await test.hello(), await test.hello()]
    await openFrom('203.0.113.1')
    const refused = new WebSocket(test.url)
    await once(refused, 'error')
    await Promise.all(players.map(({ client }) => client.roundTrip()))
  })
})
