import { once } from 'node:events'
import { connect } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { expectClose } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'
import type { GatewayOptions } from './options.ts'

let test: TestGateway
beforeEach(async () => {
  test = await TestGateway.start({ allowedOrigins: ['https://game.example'] })
})
afterEach(() => test.close())

describe('origins', () => {
  it('that are not allowed get a 403', async () => {
    const ws = new WebSocket(test.url, { origin: 'https://evil.example' })
    ws.on('error', () => {})
    const [, response] = await once(ws, 'unexpected-response')
    expect(response.statusCode).toBe(403)
    ws.terminate()
  })

  it('that are allowed, and clients without one, may connect', async () => {
    const browser = await test.open([], { origin: 'https://game.example' })
    const native = await test.open()
    expect([browser.ws.readyState, native.ws.readyState]).toEqual([WebSocket.OPEN, WebSocket.OPEN])
  })
})

describe('websockets that one address opens', () => {
  /** The status that the upgrade of a client from this address is answered with. */
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
  const restart = async (options: Partial<GatewayOptions>): Promise<void> => {
    await test.close()
    test = await TestGateway.start({ connectionsPerSecondPerAddress: 1, ...options })
  }

  it('are so many in a second, behind a load balancer that names the address', async () => {
    await restart({})
    expect(await upgrades(11, '203.0.113.7')).toEqual([...Array(10).fill(101), 429])
    expect(await upgrade('203.0.113.8')).toBe(101)
    test.clock.advance(1000)
    expect(await upgrades(2, '203.0.113.7')).toEqual([101, 429])
  })

  it('are not counted behind one that names none: it would be all players together', async () => {
    await restart({})
    expect(await upgrades(15)).toEqual(Array(15).fill(101))
  })

  it('are counted without a load balancer', async () => {
    await restart({ trustedProxies: [] })
    expect(await upgrades(11)).toEqual([...Array(10).fill(101), 429])
  })
})

describe('a plain HTTP request', () => {
  it('is told that this is a websocket port', async () => {
    const response = await fetch(test.httpUrl)
    expect(response.status).toBe(426)
    expect(await response.text()).toMatch(/websocket port.*roomful\.v1\.json/s)
  })
})

describe('closing', () => {
  it('says goodbye to every client, and waits for nobody who never spoke', async () => {
    const client = await test.open()
    const silent = connect(Number(new URL(test.httpUrl).port), '127.0.0.1')
    await once(silent, 'connect')
    const ended = once(silent, 'close')
    await test.gateway.close()
    await expectClose(client, 'draining', /going away/)
    await ended
  })
})
