import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { timestamp } from '../../shared/clock.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { expectClose, type TestClient, TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { roomAddress } from '../traffic.ts'
import { PlayerBudgets } from './budget.ts'
import { gatewayOptions } from './context.ts'
import { GATEWAY_METRICS } from './metrics.ts'
import { Session } from './session.ts'
import { decodeSession, encodeSession, type SessionRecord } from './session-store.ts'
import { TokenLife } from './token-life.ts'

describe('A session', () => {
  let test: TestGateway
  beforeEach(async () => {
    test = await TestGateway.start()
  })
  afterEach(() => test.close())

  const requests = ({ received }: TestClient) =>
    received.flatMap((message) => (message.t === 'token' ? message.within_seconds : []))

  /** Advances the clock second by second. */
  async function pass(seconds: number, client: TestClient): Promise<void> {
    for (let second = 0; second < seconds; second++) {
      test.clock.advance(1000)
      await client.roundTrip()
    }
  }

  describe('a fresh token', () => {
    it('is requested before the token expires, and keeps the connection until it has expired too', async () => {
      const { client } = await test.hello(await test.token({}, 20_000))
      await pass(13, client)
      expect(requests(client)).toEqual([])
      await pass(4, client)
      const [within] = requests(client)
      expect(within).toBeGreaterThanOrEqual(5)
      await test.renew(client, await test.token({}, 60_000))
      const before = requests(client).length
      await pass(40, client)
      expect(requests(client)).toHaveLength(before)
      await pass(18, client)
      expect(requests(client).length).toBeGreaterThan(before)
      test.clock.advance(4000)
      await expectClose(client, 'token_expired', /expired/)
    })

    it('may come from a page that slept through two requests', async () => {
      const { client } = await test.hello(await test.token({}, 60_000))
      while (requests(client).length < 2) await pass(1, client)
      await test.renew(client, await test.token())
      await pass(30, client)
      expect(requests(client)).toHaveLength(2)
    })

    it('that is not accepted is followed by another request, and the token in force ends as before', async () => {
      const { client } = await test.hello(await test.token({}, 30_000))
      while (requests(client).length < 1) await pass(1, client)
      client.send({ t: 'token', token: 'rubbish' })
      expect(await client.next('error')).toMatchObject({ code: 'invalid_token', retryable: false })
      while (requests(client).length < 3) await pass(1, client)
      test.clock.advance(8000)
      await expectClose(client, 'token_expired', /expired/)
    })

    it('that cannot be checked is checked each second, and the session stays past the end of its token', async () => {
      const { client } = await test.join('one', await test.token({}, 30_000))
      test.control.down = true
      client.send({ t: 'token', token: await test.token({ key_id: 'key_b' }) })
      await pass(240, client)
      expect([requests(client), client.received.filter(({ t }) => t === 'error')]).toEqual([[], []])
      test.control.down = false
      const keys = () => [...test.gateway.describeSessions().items].map(({ key_id: keyId }) => keyId)
      await expect
        .poll(() => {
          test.clock.advance(1000)
          return keys()
        })
        .toEqual(['key_b'])
    })

    it('that cannot be checked keeps no session for more than 5 minutes', async () => {
      const { client } = await test.hello(await test.token({}, 30_000))
      test.control.down = true
      client.send({ t: 'token', token: await test.token({ key_id: 'key_b' }, 600_000) })
      await pass(329, client)
      test.clock.advance(1000)
      await expectClose(client, 'token_expired', /expired/)
    })

    it('is requested directly after welcome if the token of a resumed session has expired, and has 5 s', async () => {
      const { client, welcome, snapshot } = await test.join('one', await test.token({}, 10_000))
      await test.owner.lose(client)
      test.clock.advance(12_000)
      const again = await test.resume(welcome, [snapshot])
      const next = await again.next('welcome')
      await again.roundTrip()
      expect(again.received[1]).toEqual({ t: 'token', within_seconds: 5 })
      test.clock.advance(4000)
      await again.roundTrip()
      test.clock.advance(1000)
      await expectClose(again, 'token_expired', /expired/)
      const last = await test.resume(next, [snapshot])
      await test.renew(last, await test.token())
      await pass(10, last)
    })

    it('behind a resume allows the join behind it, and the last of several tokens is in force', async () => {
      const allows = (...keys: string[]) => test.token({ rooms: keys.map((key) => `arena:${key}`) })
      const { client, welcome } = await test.join('one', await allows('one'))
      const [second, third] = [await allows('one', 'two'), await allows('one', 'three')]
      const join = (id: number, key: string) =>
        ({ t: 'join', request_id: id, room_type: 'arena', options: { key } }) as const
      client.ws.terminate()
      await client.closed
      const again = await test.resume(welcome)
      again.send({ t: 'token', token: second }, join(2, 'two'), { t: 'ping', at: 1 })
      again.send({ t: 'token', token: third }, join(3, 'three'), join(4, 'two'))
      await again.next('joined', ({ request_id: id }) => id === 3)
      await again.roundTrip()
      const answers = again.received.map((message) =>
        message.t === 'joined' || message.t === 'error' ? [message.t, message.request_id] : [message.t],
      )
      const order = answers.filter(([t]) => t === 'joined' || t === 'error')
      expect(order.map((answer) => answer.join(' '))).toEqual(
        expect.arrayContaining(['joined 2', 'joined 3', 'error 4']),
      )
      expect(order.filter(([t]) => t === 'error')).toHaveLength(1)
    })

    it('behind a resume does not prevent a goodbye from ending the session', async () => {
      const { client, welcome } = await test.join('one')
      client.ws.terminate()
      await client.closed
      const again = await test.resume(welcome)
      again.send(
        { t: 'token', token: await test.token() },
        { t: 'token', token: 'rubbish' },
        { t: 'goodbye' },
      )
      again.ws.close()
      await expect.poll(() => test.gateway.sessions).toBe(0)
    })

    it('may have another key, on which the session then depends', async () => {
      const { client } = await test.hello()
      await test.renew(client, await test.token({ key_id: 'key_b' }))
      expect([...test.gateway.describeSessions().items]).toMatchObject([{ key_id: 'key_b' }])
      test.gateway.revokeKey('prj_one', 'key_a')
      await client.roundTrip()
      test.gateway.revokeKey('prj_one', 'key_b')
      await expectClose(client, 'revoked', /revoked/)
    })
  })

  describe('a revoked key', () => {
    it('may be a built-in pair', async () => {
      const keyed = await test.hello()
      const builtin = await test.hello(await test.token({ key_id: undefined }))
      test.gateway.revokeKey('prj_one', null)
      await expectClose(builtin.client, 'revoked', /revoked/)
      await keyed.client.roundTrip()
    })

    it('is found immediately when the gateway is asked to check', async () => {
      const { client } = await test.hello()
      test.control.setStatus('revoked', 'prj_one', 'key_a')
      await test.gateway.recheckKeys()
      await expectClose(client, 'revoked', /revoked/)
    })
  })

  describe('a player whose tokens were revoked', () => {
    it('is rejected, whoever issued the tokens, until one is issued later, and other players are not', async () => {
      const own = await test.token()
      const players = [await test.hello(own), await test.hello(await test.jwt())]
      const other = await test.hello(await test.token({ sub: 'eve' }))
      test.clock.advance(1000)
      await test.decide({ revoked_at: test.clock.now() })
      for (const { client } of players) await expectClose(client, 'revoked', /player were revoked/)
      await expectClose(await test.present(own), 'revoked', /player were revoked/)
      await expectClose(await test.present(await test.token({}, 60_000)), 'revoked', /player were revoked/)
      await other.client.roundTrip()
      // The clock of another issuer may be ahead by this much.
      test.clock.advance(5001)
      await test.hello(await test.token())
      await test.hello(await test.jwt())
    })
  })

  describe('a disabled project', () => {
    it('has no session and accepts none, under any key, until it is enabled', async () => {
      const tokens = [await test.token(), await test.token({ key_id: undefined }), await test.jwt()]
      for (const token of tokens) {
        const { client } = await test.hello(token)
        test.gateway.setProjectDisabled('prj_one', true)
        await expectClose(client, 'revoked', /project is disabled/)
        await expectClose(await test.present(token), 'revoked', /project is disabled/)
        test.gateway.setProjectDisabled('prj_one', false)
        await (await test.hello(token)).client.roundTrip()
      }
    })

    it('stays disabled if control answers an older question, and other projects stay enabled', async () => {
      let answer = (): void => {}
      test.control.held = new Promise((resolve) => {
        answer = resolve
      })
      const client = await test.present()
      await test.control.firstQuestion
      test.clock.advance(1)
      test.gateway.setProjectDisabled('prj_one', true)
      answer()
      await expectClose(client, 'revoked', /project is disabled/)
      const token = await test.token({ project_id: 'prj_two' })
      const other = await test.open()
      other.send({ t: 'hello', project_id: 'prj_two', token })
      await other.next('welcome')
    })
  })

  const disable = (): void => {
    test.control.disabled = true
  }
  const deleteProject = (): void => {
    disable()
    test.control.removeKeys()
  }
  const revokeKey = (): void => test.control.setStatus('revoked', 'prj_one', 'key_a')

  it.each([
    ['key', revokeKey, /key .*revoked/],
    ['project', disable, /project is disabled/],
    ['deleted project', deleteProject, /project is disabled/],
  ])(
    'a %s that was revoked or disabled is found within 30 s if its message was lost',
    async (_, revoke, reason) => {
      const { client } = await test.hello()
      revoke()
      for (let second = 0; second < 15; second++) test.clock.advance(1000)
      await client.roundTrip()
      for (let second = 0; second < 15; second++) test.clock.advance(1000)
      await expectClose(client, 'revoked', reason)
    },
  )

  describe('sessions for operators', () => {
    it('are listed with their data', async () => {
      const { welcome, client } = await test.join()
      expect([...test.gateway.describeSessions().items]).toEqual([
        {
          session_id: welcome.session_id,
          project_id: 'prj_one',
          key_id: 'key_a',
          sub: 'ada',
          connected_at: '2026-01-01T00:00:00.000Z',
          rooms: ['arena:one'],
          queued_bytes: 0,
        },
      ])
      expect(test.gateway.connections).toBe(1)
      await test.owner.lose(client)
      expect(test.gateway.connections).toBe(0)
    })

    it('count as connected while they have a connection; a connection without a session does not count', async () => {
      const registry = new Registry()
      const metrics = registerMetrics(registry, GATEWAY_METRICS)
      const other = await TestGateway.start({}, { metrics })
      const count = async (name: string) =>
        (await registry.getSingleMetric(name)!.get()).values.map(({ value }) => value)
      const counts = async () => [
        await count('service_pending_connections'),
        await count('service_sessions'),
        await count('service_connections'),
      ]
      const silent = await other.open()
      expect(await counts()).toEqual([[1], [0], [0]])
      const { client, welcome } = await other.join()
      expect(await counts()).toEqual([[1], [1], [1]])
      await other.owner.lose(client)
      expect(await counts()).toEqual([[1], [1], [0]])
      await (await other.resume(welcome)).next('welcome')
      expect(await counts()).toEqual([[1], [1], [1]])
      silent.ws.terminate()
      await other.close()
    })

    it('are found by their rooms, and by any text in their names', async () => {
      const { welcome } = await test.join()
      await test.hello()
      const found = (query: object) => {
        const { items, found, total } = test.gateway.describeSessions(query)
        return [[...items].length, found, total]
      }
      expect(found({})).toEqual([2, 2, 2])
      expect(found({ limit: 1 })).toEqual([1, 2, 2])
      expect(found({ room_id: 'arena:one' })).toEqual([1, 1, 2])
      expect(found({ q: 'ADA' })).toEqual([2, 2, 2])
      expect(found({ q: 'arena:o' })).toEqual([1, 1, 2])
      expect(found({ q: welcome.session_id })).toEqual([1, 1, 2])
      expect(found({ q: 'nobody' })).toEqual([0, 0, 2])
    })
  })
})

describe('The record of a session', () => {
  const record: SessionRecord = {
    session_id: 'ses_one',
    claims: {
      project_id: 'prj_one',
      sub: 'Zoë 🎲',
      issued_at: '2026-01-01T00:00:00.000Z',
      expires_at: '2026-01-01T00:05:00.000Z',
      rooms: ['arena', 'lobby:1'],
    },
    node_id: 'node_a',
    right: { token: 'abc', used: null, turn: 0, confirmed: true },
    seats: [{ room_type: 'arena', key: 'one', member_id: 'mem_one' }],
    ended: [],
    connected_at: 1,
    detached: false,
  }

  it('decodes to the same record after it was encoded', () => {
    expect(decodeSession(encodeSession(record))).toEqual(record)
    const room = roomAddress('prj_one', 'arena', 'two')
    const match = { room_id: 'duel:1', options: { map: 'desert' } }
    const ended = [
      { room, farewell: { reason: 'kicked', message: 'no manners' } },
      { room: roomAddress('prj_one', 'ranked', 'default'), farewell: { reason: 'kicked', match } },
    ] as const
    expect(decodeSession(encodeSession({ ...record, ended }))).toEqual({ ...record, ended })
    const sent = { ...record, rerouting: { at: 5, failures: 1, to: 'node_b' } }
    expect(decodeSession(encodeSession(sent))).toEqual(sent)
  })

  it('decodes to undefined if it has another format', () => {
    const bytes = encodeSession(record)
    bytes[0] = 1
    expect(decodeSession(bytes)).toBeUndefined()
    expect(decodeSession(new Uint8Array())).toBeUndefined()
  })

  it('lacks the trace of the token, which only the first handshake continues', () => {
    const clock = new FakeClock()
    const { session_id: sessionId, claims, right } = record
    const budget = new PlayerBudgets(clock, gatewayOptions()).ofSession(claims, sessionId)
    const trace = {
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      tracestate: 'a=b',
    }
    const session = new Session(
      { clock, random: new SeededRandom() },
      {
        sessionId,
        claims: { ...claims, ...trace },
        right,
        budget,
        place: undefined,
        from: undefined,
      },
    )
    session.trace = trace
    expect(session.record('node_a')).toMatchObject({ claims, trace: trace.traceparent })
    expect(session.record('node_a').claims).toEqual(claims)
  })
})

describe('TokenLife', () => {
  const MINUTE = 60_000

  /** Seconds from the start of a token to each of its first requests, if none is answered. */
  function requestsOf(lifeMs: number, number: number, random = new SeededRandom()): number[] {
    const clock = new FakeClock()
    const at = clock.now()
    const claims = { issued_at: timestamp(at), expires_at: timestamp(at + lifeMs) }
    const token = new TokenLife(clock, random, { project_id: 'prj_one', ...claims })
    const seconds: number[] = []
    for (; seconds.length < number && !token.overdue; clock.advance(1000))
      if (token.request() !== undefined) seconds.push((clock.now() - at) / 1000)
    return seconds
  }

  it('requests a token at 80 % of its life, give or take 5 % at random, and at least 5 s before its end', () => {
    const random = new SeededRandom()
    const first = (lifeMs: number) => Array.from({ length: 200 }, () => requestsOf(lifeMs, 1, random)[0]!)
    const hour = first(60 * MINUTE)
    expect(Math.min(...hour)).toBeGreaterThanOrEqual(45 * 60)
    expect(Math.max(...hour)).toBeLessThanOrEqual(51 * 60 + 1)
    expect(Math.max(...hour) - Math.min(...hour)).toBeGreaterThan(5 * 60)
    for (const at of first(10_000)) expect(at).toBeLessThanOrEqual(5)
    expect(first(1000)).toEqual(Array(200).fill(0))
  })

  it('repeats a request after 1, 2, 4 … 30 s', () => {
    const seconds = requestsOf(60 * MINUTE, 9)
    const pauses = seconds.slice(1).map((at, i) => at - seconds[i]!)
    expect(pauses).toEqual([1, 2, 4, 8, 16, 30, 30, 30])
  })
})
