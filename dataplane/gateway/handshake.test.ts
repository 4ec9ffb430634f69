import { pino } from 'pino'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { timestamp } from '../../shared/clock.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { hashTag } from '../../shared/store/port.ts'
import { slotOf } from '../../shared/store/redis/cluster.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import {
  expectClose,
  type TestClient,
  TestGateway,
  TestPair,
} from '../../test/support/gateway/test-gateway.ts'
import type { GatewayOptions } from './context.ts'
import type { GatewayEnvironment } from './gateway.ts'
import { GATEWAY_METRICS } from './metrics.ts'
import { quotaSets, sessionKey } from './session-store.ts'

describe('A new session', () => {
  let test: TestGateway
  const start = async (
    options: Partial<GatewayOptions> = {},
    parts: Partial<GatewayEnvironment> = {},
  ): Promise<void> => {
    test = await TestGateway.start(options, parts)
  }
  afterEach(() => test.close())

  describe('a player who connects too often', () => {
    it('is asked to try again, and other players are not', async () => {
      await start({ playerPointsPerSecond: 100 })
      for (let times = 0; times < 3; times++) await test.hello()
      await expectClose(await test.present(), 'overloaded', /connects too often: try again/)
      await test.hello(await test.token({ sub: 'ben' }))
      test.clock.advance(1000)
      await test.hello()
    })

    it('is refused before the signature is checked', async () => {
      await start({ playerPointsPerSecond: 100 })
      for (let times = 0; times < 3; times++) await test.hello()
      await expectClose(await test.present(await test.forged()), 'overloaded', /connects too often/)
    })

    it('is not affected by a client with forged tokens of the same name', async () => {
      await start({ playerPointsPerSecond: 100 })
      for (let times = 0; times < 5; times++)
        await expectClose(await test.present(await test.forged()), 'unauthenticated', /signature/)
      await test.hello()
    })
  })

  describe('hello', () => {
    beforeEach(() => start())

    it('must arrive within 5 s', async () => {
      const client = await test.open()
      test.clock.advance(4999)
      expect(client.ws.readyState).toBe(client.ws.OPEN)
      test.clock.advance(1)
      await expectClose(client, 'handshake_timeout', /no hello within 5000 ms/)
    })

    it('is accepted by a node that was suspended in the meantime', async () => {
      const client = await test.open()
      test.clock.pause(60_000)
      client.send({ t: 'hello', project_id: 'prj_one', token: await test.token() })
      test.clock.advance(0)
      await client.next('welcome')
    })
  })

  describe('a token is refused that', () => {
    beforeEach(() => start())

    it('was issued under a key that is revoked during its check', async () => {
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

  describe('a token that is sent again', () => {
    it('is not verified again, as long as its key is valid', async () => {
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
    ] as const)('as it %s, a token of an unknown key is refused as retryable', async (_, state) => {
      test.control[state] = true
      await expectClose(await test.present(), 'overloaded', /cannot be checked at the moment/)
    })

    it('a token is accepted for five minutes after its key was valid, and then refused as retryable', async () => {
      await test.hello()
      test.control.down = true
      test.clock.advance(299_000)
      await test.hello()
      test.clock.advance(2000)
      await expectClose(await test.present(), 'overloaded', /cannot be checked at the moment/)
    })
  })

  describe('a token of another clock', () => {
    it('is valid up to 30 s ahead; rejections for its time are counted, and logged once in 10 s', async () => {
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

    it('is not asked about a key for a token that is invalid under every key', async () => {
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

    it('is asked once about a key with many tokens', async () => {
      const token = await test.token({ aud: 'game-eu' })
      await Promise.all([test.hello(token), test.hello(token), test.hello(token)])
      await test.hello(token)
      expect(test.control.asked).toBe(1)
    })
  })

  describe('a node that is overloaded', () => {
    it('refuses new clients before their token costs CPU, and accepts resumes', async () => {
      const load = { overloaded: false, inputIntervalMs: 0 }
      test = await TestGateway.start({}, { load })
      const { client, welcome, snapshot } = await test.join()
      load.overloaded = true
      await expectClose(await test.present('no token'), 'overloaded', /this node is overloaded/)
      await test.owner.lose(client)
      await (await test.resume(welcome, [snapshot])).next('welcome')
      load.overloaded = false
      await test.hello()
    })
  })
})

describe('The number of sessions', () => {
  let pair: TestPair
  const start = async (options: Partial<GatewayOptions>): Promise<void> => {
    pair = await TestPair.start(options)
  }
  afterEach(() => pair.close())

  const refusal = /2 sessions of this player \(sub\) already/

  /** It loses its connection, and its node knows. */
  async function lose({ ws }: TestClient): Promise<void> {
    const before = pair.a.gateway.connections + pair.b.gateway.connections
    ws.terminate()
    await expect.poll(() => pair.a.gateway.connections + pair.b.gateway.connections).toBe(before - 1)
    await pair.pass(1000)
  }

  describe('a player', () => {
    it('has at most the allowed number of sessions, at all nodes together, whatever other players have', async () => {
      await start({ maxSessionsPerSub: 2 })
      const first = await pair.a.hello()
      const second = await pair.b.hello()
      await expectClose(await pair.a.present(), 'rate_limited', refusal)
      await expectClose(await pair.b.present(), 'rate_limited', refusal)
      await pair.a.hello(await pair.a.token({ sub: 'eve' }))
      await Promise.all([first.client.roundTrip(), second.client.roundTrip()])
    })

    it('can open another session after a goodbye, or after the loss of a session without rooms', async () => {
      await start({ maxSessionsPerSub: 2 })
      const goodbye = await pair.a.join()
      const withoutRooms = await pair.b.hello()
      goodbye.client.send({ t: 'goodbye' })
      withoutRooms.client.ws.terminate()
      await expect.poll(() => pair.a.gateway.sessions + pair.b.gateway.sessions).toBe(0)
      await (await pair.a.present()).next('welcome')
      await (await pair.a.present()).next('welcome')
      await expectClose(await pair.b.present(), 'rate_limited', refusal)
    })

    it('loses its oldest session without a connection to a new one, wherever it is, and its room is notified', async () => {
      await start({ maxSessionsPerSub: 3 })
      const older = await pair.a.join('one')
      await pair.pass(1)
      const connected = await pair.a.join('two')
      await pair.pass(1)
      const newer = await pair.a.join('three')
      await lose(newer.client)
      await lose(older.client)
      const left = pair.owner.next('leave')
      pair.deaf = true
      pair.owner.deliver = (message) => pair.b.gateway.edge.receive(message)
      await (await pair.b.present()).next('welcome')
      expect(await left).toMatchObject({ member_id: older.joined.member_id, reason: 'session_ended' })
      // The record is already gone when its former node is notified.
      await pair.a.gateway.sessionTaken(older.welcome.session_id)
      expect(pair.a.gateway.sessions).toBe(2)
      pair.owner.deliver = (message) => pair.a.gateway.edge.receive(message)
      await expectClose(
        await pair.a.resume(older.welcome, [older.snapshot]),
        'resume_failed',
        /no such session/,
      )
      const back = await pair.a.resume(newer.welcome, [newer.snapshot])
      await back.next('welcome')
      await connected.client.roundTrip()
    })

    it('is not blocked by sessions that ended with their node', async () => {
      await start({ maxSessionsPerSub: 2 })
      await pair.a.join('one')
      await pair.a.join('two')
      await pair.pass(1000)
      await expectClose(await pair.b.present(), 'rate_limited', refusal)
      // The node is only silent, so its sessions may be connected.
      pair.gone.add('node_a')
      await expectClose(await pair.b.present(), 'rate_limited', refusal)
      pair.dead.add('node_a')
      await (await pair.b.present()).next('welcome')
    })

    it('is not blocked by places of sessions that no longer exist', async () => {
      await start({ maxSessionsPerSub: 1 })
      const records = memoryStore({ clock: pair.clock }).records
      const { client } = await pair.a.hello()
      const page = pair.records.page.bind(pair.records)
      await pair.pass(20_000)
      await client.roundTrip()
      // The store has lost the record, but not the place.
      pair.records.read = (keys) => records.read(keys)
      pair.records.page = page
      await (await pair.b.present()).next('welcome')
    })

    it('is not blocked by a session with a damaged record', async () => {
      await start({ maxSessionsPerSub: 1 })
      const { client, welcome } = await pair.a.join()
      await lose(client)
      await pair.pass(20_000)
      const { session_id: sessionId } = welcome
      await pair.records.write([{ put: sessionKey(sessionId), value: Uint8Array.of(1, 0x7b) }])
      await (await pair.b.present()).next('welcome')
      await expectClose(await pair.b.resume(welcome), 'resume_failed', /no such session/)
    })

    it('has no more than that if many sessions start at the same time', async () => {
      await start({ maxSessionsPerSub: 2 })
      const clients = await Promise.all(
        Array.from({ length: 8 }, (_, i) => pair[i % 2 ? 'a' : 'b'].present()),
      )
      const results = await Promise.allSettled(clients.map((client) => client.next('welcome')))
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
    })
  })

  describe('a token without a player', () => {
    const most = 100

    it('has a hundred times as many sessions as a player, in several slots of a Redis Cluster, and shares them with no other token', async () => {
      await start({ maxSessionsPerSub: 1, playerPointsPerSecond: 1_000_000 })
      const shared = await pair.a.token({ sub: undefined })
      const slots = new Map<string, number>()
      for (let i = 0; i < most; i++) {
        const { welcome } = await pair[i % 2 ? 'a' : 'b'].hello(shared)
        const slot = hashTag(sessionKey(welcome.session_id))
        slots.set(slot, (slots.get(slot) ?? 0) + 1)
      }
      expect([...slots.values()]).toEqual([50, 50])
      await expectClose(await pair.a.present(shared), 'rate_limited', /100 sessions of this token already/)
      await pair.a.hello(await pair.a.token({ sub: undefined }, 200_000))
      // From the same millisecond, with the same expiry.
      await pair.a.hello(await pair.a.token({ sub: undefined, rooms: ['arena'] }))
    })

    it('loses its oldest session, which has no connection, to a new one, in whichever slot it is', async () => {
      await start({ maxSessionsPerSub: 1, playerPointsPerSecond: 1_000_000 })
      const shared = await pair.a.token({ sub: undefined })
      const lost = await pair.a.join('one', shared)
      await pair.pass(1)
      for (let i = 1; i < most; i++) await pair.a.hello(shared)
      await lose(lost.client)
      await (await pair.b.present(shared)).next('welcome')
      await expectClose(await pair.b.resume(lost.welcome), 'resume_failed', /no such session/)
      await expectClose(await pair.b.present(shared), 'rate_limited', /100 sessions of this token already/)
    })

    it.each([1, 10, 64, 65, 1000, 1_000_000])('may have exactly %i, in 16 slots at most', (max) => {
      const sets = quotaSets('prj_a/token:b', max)
      expect(sets.reduce((sum, set) => sum + set.max, 0)).toBe(max)
      expect(new Set(sets.map(({ set }) => slotOf(set))).size).toBe(Math.min(16, Math.ceil(max / 64)))
    })
  })
})

it('a cordoned node keeps its sessions, also over a lost connection, and accepts no new one until it is uncordoned', async () => {
  const test = await TestGateway.start()
  onTestFinished(() => test.close())
  const { client, welcome, snapshot } = await test.join()
  await client.roundTrip()
  test.cluster.cordoned = true
  await expectClose(await test.present(), 'overloaded', /accepts no new sessions/)
  await test.owner.lose(client)
  const again = await test.resume(welcome, [snapshot])
  await again.next('welcome')
  test.cluster.cordoned = false
  expect((await test.hello()).welcome.session_id).not.toBe(welcome.session_id)
})

describe('Handshake.endSession', () => {
  let pair: TestPair
  beforeEach(async () => {
    pair = await TestPair.start()
  })
  afterEach(() => pair.close())

  const end = (node: 'a' | 'b', sessionId: string, projectId = 'prj_one') =>
    pair[node].gateway.endSession(projectId, sessionId)

  describe('A session that an operator ends', () => {
    it.each(['a', 'b'] as const)(
      'at node %s is closed at its node, leaves its rooms and cannot resume',
      async (node) => {
        const { client, welcome, joined } = await pair.a.join()
        const leaving = pair.owner.next('leave')
        expect(await end(node, welcome.session_id)).toBe(true)
        await expectClose(client, 'revoked', /operator ended the session/)
        expect(await leaving).toMatchObject({ member_id: joined.member_id, reason: 'kicked' })
        expect(pair.owner.of('leave')).toHaveLength(1)
        await expectClose(await pair.a.resume(welcome), 'resume_failed', /no such session/)
        expect([pair.a.gateway.sessions, pair.b.gateway.sessions]).toEqual([0, 0])
        // The token is still valid.
        await (await pair.a.hello()).client.roundTrip()
      },
    )

    it('may have lost its connection, and its node may not answer', async () => {
      const { client, welcome } = await pair.a.join()
      await pair.owner.lose(client)
      pair.deaf = true
      const leaving = pair.owner.next('leave')
      expect(await end('b', welcome.session_id)).toBe(true)
      expect(await leaving).toMatchObject({ reason: 'kicked' })
    })

    it('must be of the given project, and is ended once', async () => {
      const { client, welcome } = await pair.a.hello()
      expect(await end('b', welcome.session_id, 'prj_two')).toBe(false)
      await client.roundTrip()
      expect(await end('b', welcome.session_id)).toBe(true)
      await expectClose(client, 'revoked', /operator/)
      expect(await end('a', welcome.session_id)).toBe(false)
    })
  })
})
