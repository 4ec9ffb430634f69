import { pino } from 'pino'
import { Registry } from 'prom-client'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { type TestClient, TestGateway } from '../../test/support/gateway/test-gateway.ts'
import type { GatewayOptions } from './context.ts'
import { GATEWAY_METRICS } from './metrics.ts'

let test: TestGateway
const lines: Record<string, unknown>[] = []
const registry = new Registry()
const metrics = registerMetrics(registry, GATEWAY_METRICS)
const log = pino({ level: 'warn' }, { write: (line) => void lines.push(JSON.parse(line)) })
const start = async (options: Partial<GatewayOptions> = {}): Promise<void> => {
  test = await TestGateway.start(options, { log, metrics })
}
afterEach(async () => {
  await test.close()
  lines.length = 0
  registry.resetMetrics()
})

interface Guest {
  readonly token: string
  /** Default: an address that is the same for all guests. */
  readonly address?: string
}

/** Connects a guest through a load balancer that names its address. */
async function arrive({ token, address = '203.0.113.7' }: Guest): Promise<TestClient> {
  const client = await test.open([], { headers: { 'x-forwarded-for': address } })
  client.send({ t: 'hello', project_id: 'prj_one', token })
  await client.next('welcome')
  return client
}

let requests = 0
/** Joins a room. Returns `joined`, or the code and text of the refusal. */
async function join(client: TestClient, roomType: string, key: string): Promise<string> {
  const requestId = ++requests
  client.send({ t: 'join', request_id: requestId, room_type: roomType, options: { key } })
  return vi.waitFor(() => {
    const answer = client.received.find(
      (message) => (message.t === 'joined' || message.t === 'error') && message.request_id === requestId,
    )
    if (answer?.t === 'error') return `${answer.code}: ${answer.message}`
    expect(answer).toBeDefined()
    return 'joined'
  })
}

const guestToken = (claims = {}) => test.token({ sub: undefined, ...claims })

describe('Guests with one token and one address', () => {
  it('have at most 16 seats in the rooms of a type', async () => {
    await start()
    const token = await guestToken()
    const guests = await Promise.all(Array.from({ length: 17 }, () => arrive({ token })))
    const last = guests.pop()!
    for (const [index, guest] of guests.entries())
      expect(await join(guest, 'arena', `of-${index % 3}`)).toBe('joined')
    expect(await join(last, 'arena', 'of-0')).toBe(
      'too_many_rooms: clients with this token, which has no sub, have 16 seats in rooms of type arena from one address at this node: give each player a token with a sub',
    )
    expect(await registry.metrics()).toContain('service_joins_total{result="too_many_rooms"} 1')
    expect(await join(last, 'duel', 'one')).toMatch(/^unknown_room_type/)
    const elsewhere = await arrive({ token, address: '203.0.113.8' })
    expect(await join(elsewhere, 'arena', 'of-0')).toBe('joined')
    guests[0]!.send({ t: 'leave', request_id: 99, room_id: 'arena:of-0' })
    await vi.waitFor(async () => expect(await join(last, 'arena', 'of-0')).toBe('joined'), 60_000)
  })

  it('have at most 64 seats at a node', async () => {
    await start({ maxGuestSeats: 3 })
    const guest = await arrive({ token: await guestToken() })
    for (const key of ['one', 'two', 'three']) expect(await join(guest, 'arena', key)).toBe('joined')
    expect(await join(guest, 'duel', 'one')).toMatch(
      /^too_many_rooms: .* have 3 seats from one address at this node: give each player a token with a sub$/,
    )
  })

  it('keep the count of a seat over a resume, and release it at the end of the session', async () => {
    await start({ maxGuestSeats: 1 })
    const token = await guestToken()
    const client = await test.open([], { headers: { 'x-forwarded-for': '203.0.113.7' } })
    client.send({ t: 'hello', project_id: 'prj_one', token })
    const welcome = await client.next('welcome')
    expect(await join(client, 'arena', 'one')).toBe('joined')
    const next = await test.open([], { headers: { 'x-forwarded-for': '203.0.113.7' } })
    const { session_id, resume_token } = welcome
    const position = { room_id: 'arena:one', member_id: 'mem_own', epoch: 1, seq: 1, settled: 0 }
    const resume = { session_id, resume_token, rooms: [position] }
    next.send({ t: 'hello', project_id: 'prj_one', resume })
    await next.next('welcome')
    const other = await arrive({ token })
    expect(await join(other, 'arena', 'two')).toMatch(/^too_many_rooms/)
    next.send({ t: 'goodbye' })
    await next.closed
    expect(await join(other, 'arena', 'two')).toBe('joined')
  })

  it('are not counted if every player has a sub, if each has a token, or if the address is unknown', async () => {
    await start({ maxGuestSeats: 1 })
    for (const claims of [{ sub: 'ada' }, { sub: 'ben' }, { data: { n: 1 } }, { data: { n: 2 } }])
      expect(await join(await arrive({ token: await guestToken(claims) }), 'arena', 'one')).toBe('joined')
    const token = await guestToken({ data: { n: 3 } })
    for (const key of ['one', 'two']) {
      const { client } = await test.hello(token)
      expect(await join(client, 'arena', key)).toBe('joined')
    }
  })

  it('are refused with the name of TRUSTED_PROXIES if an untrusted peer sends x-forwarded-for', async () => {
    await start({ maxGuestSeats: 1, trustedProxies: ['192.0.2.1'] })
    const token = await guestToken()
    const [one, two, three] = [await arrive({ token }), await arrive({ token }), await arrive({ token })]
    expect(await join(one, 'arena', 'one')).toBe('joined')
    for (const client of [two, three])
      expect(await join(client, 'arena', 'one')).toMatch(
        /^too_many_rooms: .*: TRUSTED_PROXIES of the node lacks the address of the proxy that sends x-forwarded-for$/,
      )
    expect(lines).toMatchObject([
      { peer: '127.0.0.1', seats: 1, msg: expect.stringContaining('TRUSTED_PROXIES lacks it') },
    ])
  })
})

describe('A hello with a token without sub', () => {
  it('is paid by the clients with the same token and address', async () => {
    await start({ playerPointsPerSecond: 10 })
    const token = await guestToken()
    for (let times = 0; times < 3; times++) await arrive({ token })
    await expect(arrive({ token })).rejects.toThrow(/connects too often/)
    await arrive({ token, address: '203.0.113.8' })
  })
})
