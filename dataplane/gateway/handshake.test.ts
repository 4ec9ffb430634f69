import { pino } from 'pino'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { timestamp } from '../../shared/clock.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import { expectClose } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'
import type { GatewayEnvironment, GatewayOptions } from './context.ts'
import { GATEWAY_METRICS } from './metrics.ts'

let test: TestGateway
const start = async (
  options: Partial<GatewayOptions> = {},
  parts: Partial<GatewayEnvironment> = {},
): Promise<void> => {
  test = await TestGateway.start(options, parts)
}
afterEach(() => test.close())

describe('a player who comes too often', () => {
  it('is told to come again, and no one else is', async () => {
    await start({ playerPointsPerSecond: 100 })
    for (let times = 0; times < 3; times++) await test.hello()
    await expectClose(await test.present(), 'overloaded', /comes too often: try again/)
    await test.hello(await test.token({ sub: 'ben' }))
    test.clock.advance(1000)
    await test.hello()
  })

  it('is refused before the signature is checked', async () => {
    await start({ playerPointsPerSecond: 100 })
    for (let times = 0; times < 3; times++) await test.hello()
    await expectClose(await test.present(await test.forged()), 'overloaded', /comes too often/)
  })

  it('is no one else who has made up tokens with the same name', async () => {
    await start({ playerPointsPerSecond: 100 })
    for (let times = 0; times < 5; times++)
      await expectClose(await test.present(await test.forged()), 'unauthenticated', /signature/)
    await test.hello()
  })
})

describe('hello', () => {
  beforeEach(() => start())

  it('has to come within 5 seconds', async () => {
    const client = await test.open()
    test.clock.advance(4999)
    expect(client.ws.readyState).toBe(client.ws.OPEN)
    test.clock.advance(1)
    await expectClose(client, 'handshake_timeout', /no hello within 5000 ms/)
  })

  it('is read by a node that stood still meanwhile', async () => {
    const client = await test.open()
    test.clock.pause(60_000)
    client.send({ t: 'hello', project_id: 'prj_one', token: await test.token() })
    test.clock.advance(0)
    await client.next('welcome')
  })

  it('is not followed by a flood before welcome', async () => {
    const client = await test.open()
    client.send({ t: 'hello', project_id: 'prj_one', token: await test.token() })
    for (let at = 0; at < 17; at++) client.send({ t: 'ping', at })
    await expectClose(client, 'protocol_error', /more than 16 messages before welcome/)
  })
})

describe('a token is refused that', () => {
  beforeEach(() => start())

  it('was issued under a key that is revoked while the token is being checked', async () => {
    let answer = () => {}
    test.control.held = new Promise((resolve) => {
      answer = resolve
    })
    const client = await test.present()
    await test.control.firstQuestion
    test.gateway.revokeKey('prj_one', 'key_a')
    answer()
    await expectClose(client, 'revoked', /revoked/)
    expect(test.gateway.sessions).toBe(0)
  })
})

describe('a token that comes again', () => {
  it('is not verified again, for as long as its key stands', async () => {
    const registry = new Registry()
    test = await TestGateway.start({}, { metrics: registerMetrics(registry, GATEWAY_METRICS) })
    const checks = async () => {
      const metric = await registry.getSingleMetric('service_token_checks_total')?.get()
      return Object.fromEntries(metric?.values.map(({ labels, value }) => [labels.result, value]) ?? [])
    }
    const token = await test.token()
    for (let times = 0; times < 3; times++) await test.hello(token)
    await expectClose(await test.present(await test.forged()), 'unauthenticated', /signature/)
    expect(await checks()).toEqual({ verified: 1, remembered: 2, wrong: 1 })
    test.gateway.revokeKey('prj_one', 'key_a')
    await expectClose(await test.present(token), 'revoked', /revoked/)
  })
})

describe('when control cannot be reached', () => {
  beforeEach(() => start())

  it.each([
    ['does not answer', 'down'],
    ['refuses this node, whose INTERNAL_TOKEN is not its own', 'refuses'],
  ] as const)('as it %s, a token of a key that no one has asked about is put off', async (_, state) => {
    test.control[state] = true
    await expectClose(await test.present(), 'overloaded', /cannot be checked at the moment/)
  })

  it('a token of a key that was good five minutes ago is good, and later it is put off', async () => {
    await test.hello()
    test.control.down = true
    test.clock.advance(299_000)
    await test.hello()
    test.clock.advance(2000)
    await expectClose(await test.present(), 'overloaded', /cannot be checked at the moment/)
  })
})

describe('a token of another clock', () => {
  it('is good up to 30 s ahead; what is refused for its time is counted, and logged once in 10 s', async () => {
    const lines: { msg: string; fault?: string }[] = []
    const log = pino({ base: null }, { write: (line) => void lines.push(JSON.parse(line)) })
    const registry = new Registry()
    await start({}, { log, metrics: registerMetrics(registry, GATEWAY_METRICS) })
    const at = (ms: number) => timestamp(test.clock.now() + ms)
    await test.hello(await test.token({ issued_at: at(30_000) }))
    for (let attempt = 0; attempt < 2; attempt++)
      await expectClose(
        await test.present(await test.token({ issued_at: at(30_001) })),
        'unauthenticated',
        /valid from/,
      )
    await expectClose(
      await test.present(await test.token({ issued_at: at(-2000), expires_at: at(-1000) })),
      'token_expired',
      /expired/,
    )
    const text = await registry.metrics()
    expect(text).toContain('service_tokens_refused_for_time_total{fault="not_yet_valid"} 2')
    expect(text).toContain('service_tokens_refused_for_time_total{fault="expired"} 1')
    const logged = lines.filter(({ msg }) => msg === 'token refused for its time')
    expect(logged.map(({ fault }) => fault)).toEqual(['not_yet_valid', 'expired'])
  })
})

describe('control', () => {
  beforeEach(() => start({ tokenAudience: 'game-eu' }))

  it('is not asked about a key for a token that is good under none', async () => {
    const bad: Partial<TokenClaims>[] = [
      { key_id: '' },
      { key_id: 'prj_one' },
      { key_id: 'key_' },
      { key_id: 'key_a/b' },
      { project_id: '' },
      { project_id: 'prj_two' },
      { aud: 'game-us' },
      { sub: 'half a surrogate pair \ud83d' },
      { rooms: ['arena:\udfb2'] },
      { expires_at: '2026-01-01T00:00:00.000Z' },
      { issued_at: '2026-01-01T00:01:00.000Z' },
    ]
    for (const claims of bad) {
      const client = await test.present(await test.forged({ aud: 'game-eu', ...claims }))
      await expectClose(client, claims.expires_at ? 'token_expired' : 'unauthenticated', /./)
    }
    expect(test.control.asked).toBe(0)
    await test.hello(await test.token({ aud: 'game-eu' }))
    expect(test.control.asked).toBe(1)
  })

  it('is asked once about a key that many tokens come under', async () => {
    const token = await test.token({ aud: 'game-eu' })
    await Promise.all([test.hello(token), test.hello(token), test.hello(token)])
    await test.hello(token)
    expect(test.control.asked).toBe(1)
  })
})

describe('a node that is overloaded', () => {
  it('refuses newcomers before their token costs anything, and lets those back in who were here', async () => {
    let overloaded = false
    test = await TestGateway.start({}, { overloaded: () => overloaded })
    const { client, welcome, snapshot } = await test.join()
    overloaded = true
    await expectClose(await test.present('no token'), 'overloaded', /more to do than it can/)
    await test.owner.lose(client)
    await (await test.resume(welcome, [snapshot])).next('welcome')
    overloaded = false
    await test.hello()
  })
})
